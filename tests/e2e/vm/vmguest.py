"""Runs a command in a fresh guest and brings back what it said.

Owns the virtual machine's life: start, shares, time limit, end. A guest has no network card and writes nowhere but
into its output directory. By hand: `python tests/e2e/vm/vmguest.py [--systemd] [--host-root] -- COMMAND ARGUMENT...`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import vmimage

if TYPE_CHECKING:
    from collections.abc import Sequence

_INIT = {False: "/usr/lib/ibvm/init", True: "/lib/systemd/systemd"}
_KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet loglevel=4 panic=-1 nokaslr mitigations=off cryptomgr.notests random.trust_cpu=on "
    "raid=noautodetect systemd.show_status=0 systemd.log_level=notice"
)


class GuestError(Exception):
    """The guest ended without a result, or did not end in time; the text holds the end of its console."""


@dataclass(frozen=True)
class Share:
    """A directory of this machine in the guest's file system, by 9p."""

    host: Path
    guest: str
    writable: bool = False


@dataclass(frozen=True)
class Result:
    """What a command in a guest left: exit code, stdout and stderr together, its /out, and the seconds it all took."""

    exit_code: int
    output: str
    out: Path
    seconds: float


@dataclass(frozen=True)
class Guest:
    """How to start a guest.

    Attributes:
        image: The built guest.
        systemd: systemd as the first process, with udevd; else a shell script, twice as quick.
        host_root: The whole file system of this machine, read-only, on /host: `in-host COMMAND` runs in it.
        shares: Further directories.
        memory_mb: Memory of the guest.
        cpus: Its processors.
    """

    image: vmimage.Image
    systemd: bool = False
    host_root: bool = False
    shares: Sequence[Share] = field(default=())
    memory_mb: int = 1024
    cpus: int = 2

    def run(self, command: Sequence[str], out: Path, *, timeout: float = 300) -> Result:
        """Starts a guest, runs the command as root in it, waits for its end.

        Args:
            command: Program and arguments, in the guest.
            out: Directory that is /out in the guest, the only place where it can write.
            timeout: Seconds for everything, the start of the guest included.

        Raises:
            GuestError: no result within the time.
        """
        control = out / ".ibvm"
        control.mkdir(parents=True)
        (control / "cmd").write_text(shlex.join(command) + "\n")
        output, console, exit_code = control / "output", control / "console", control / "rc"
        # setpriv: a test run that is killed takes its guest along.
        argv = ["setpriv", "--pdeathsig", "KILL", *self._qemu(out, output, console)]
        start = time.monotonic()
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise GuestError(f"the guest did not end within {timeout:.0f} s\n{_ends(output, console)}") from None
        if not exit_code.exists():
            raise GuestError(f"the guest ended without a result\n{done.stderr[-1000:]}{_ends(output, console)}")
        text = output.read_text(errors="replace")
        return Result(int(exit_code.read_text()), text, out, time.monotonic() - start)

    def _qemu(self, out: Path, output: Path, console: Path) -> list[str]:
        shares = [Share(out, "/out", writable=True), *self.shares]
        if self.host_root:
            shares.append(Share(Path("/"), "/host"))
        append = [_KERNEL_ARGUMENTS, f"vminit={_INIT[self.systemd]}"]
        devices: list[str] = []
        for number, share in enumerate(shares):
            mode = "rw" if share.writable else "ro"
            append.append(f"ibvm.share=s{number}:{share.guest}:{mode}")
            readonly = "" if share.writable else ",readonly=on"
            path = str(share.host).replace(",", ",,")
            backend = f"local,id=f{number},path={path},security_model=none,multidevs=remap{readonly}"
            devices += ["-fsdev", backend, "-device", f"virtio-9p-pci,fsdev=f{number},mount_tag=s{number}"]
        return [
            *("qemu-system-x86_64", "-M", "pc", *_accelerator(), "-m", str(self.memory_mb), "-smp", str(self.cpus)),
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none"),
            *("-kernel", str(self.image.kernel), "-initrd", str(self.image.initramfs), "-append", " ".join(append)),
            *("-drive", f"if=none,id=d0,file={self.image.root},format=raw,readonly=on,file.locking=off"),
            *("-device", "virtio-blk-pci,drive=d0", "-device", "virtio-rng-pci", "-device", "virtio-serial-pci"),
            *("-chardev", f"file,id=o,path={output}", "-device", "virtserialport,chardev=o,name=ibvm.out"),
            *("-serial", f"file:{console}"),
            *devices,
        ]


def emulated() -> bool:
    """True where the guest's processor is emulated: everything takes about ten times as long.

    A /dev/kvm that opens is not enough: inside a virtual machine without nested virtualisation it opens and then
    does not run anything.
    """
    flags = Path("/proc/cpuinfo").read_text().split()
    return not (os.access("/dev/kvm", os.W_OK) and ("vmx" in flags or "svm" in flags))


def _accelerator() -> list[str]:
    if emulated():
        cpu = "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt"  # wheels of numeric code ask for x86-64-v2
        return ["-accel", "tcg,thread=multi,tb-size=512", "-cpu", cpu]
    return ["-accel", "kvm", "-cpu", "host"]


def _ends(output: Path, console: Path) -> str:
    parts = []
    for title, path in (("output", output), ("console", console)):
        text = path.read_text(errors="replace") if path.exists() else ""
        parts.append(f"--- end of its {title}:\n{text[-3000:]}")
    return "\n".join(parts)


def main() -> int:
    """Runs one command in a guest, for a person."""
    parser = argparse.ArgumentParser(description="Run a command in a guest with a real RDMA stack.")
    parser.add_argument("--systemd", action="store_true", help="with systemd and udevd")
    parser.add_argument("--host-root", action="store_true", help="this machine's / on /host, for in-host COMMAND")
    parser.add_argument("--out", type=Path, help="a new directory that is /out in the guest")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    guest = Guest(vmimage.ensure_image(), systemd=arguments.systemd, host_root=arguments.host_root)
    with tempfile.TemporaryDirectory() as temporary:
        out = arguments.out or Path(temporary) / "out"
        result = guest.run(arguments.command, out.resolve(), timeout=arguments.timeout)
    sys.stdout.write(result.output)
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main())
