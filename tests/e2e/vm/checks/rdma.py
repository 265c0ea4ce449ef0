"""The devices of the guest: Soft-RoCE over a veth pair, and InfiniBand ports of the driver ibmock.

Owns the commands that make, change and remove them. Standard library only.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INFINIBAND = Path("/sys/class/infiniband")
_MOCK_CONTROL = Path("/proc/ibmock")


def sh(command: str, timeout: float = 60) -> str:
    """The output of a command line; raises when its exit code is not 0."""
    argv = ["bash", "-c", command]
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command}: exit code {done.returncode}: {done.stdout}")
    return done.stdout


def rxe_pair(*arguments: str) -> None:
    """Soft-RoCE devices rxe0 and rxe1 with real traffic: up, down, fix, loss PERCENT, noloss."""
    sh("/usr/lib/ibvm/rxe-pair.sh " + " ".join(arguments))


def ping_pong(messages: int, *, within: int = 60) -> None:
    """RDMA traffic from rxe0 to rxe1, over the veth pair."""
    server = subprocess.Popen(
        ["ibv_rc_pingpong", "-d", "rxe1", "-g", "1", "-n", str(messages)], stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 10
        while "18515" not in sh("ss -ltnH") and time.monotonic() < deadline:
            time.sleep(0.05)
        sh(f"timeout {within} ibv_rc_pingpong -d rxe0 -g 1 -n {messages} 192.0.2.2", timeout=within + 10)
        try:
            code = server.wait(timeout=within)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            raise RuntimeError(f"ibv_rc_pingpong: the server's side ended with {code}")
    finally:
        server.kill()
        server.wait()


def lose_packets(percent: int, until: Callable[[], bool]) -> None:
    """RDMA traffic of which packets are lost, until what they should change has changed, 5 times at most.

    That soft-RoCE now and then does not get over a loss, and the traffic never ends, is not what is checked.
    """
    rxe_pair("loss", str(percent))
    try:
        for _ in range(5):
            with contextlib.suppress(RuntimeError):
                ping_pong(100, within=15)
            if until():
                return
    finally:
        rxe_pair("noloss")


def mock(*lines: str) -> None:
    """Writes to /proc/ibmock; kmods/ibmock/ibmock.c says what it understands."""
    if not _MOCK_CONTROL.exists():
        sh("modprobe ibmock")
    for line in lines:
        _MOCK_CONTROL.write_text(line + "\n")


@contextlib.contextmanager
def mock_device(name: str, ports: int = 1) -> Iterator[Path]:
    """An InfiniBand device for the time of the block; its directory."""
    mock(f"add {name} {ports}")
    try:
        yield INFINIBAND / name
    finally:
        mock(f"del {name}")


def read(path: Path) -> str:
    """A file's text without the newline at its end."""
    return path.read_text().rstrip("\n")


def process_state(pid: int) -> str:
    """The kernel's letter for a process: R, S, D (uninterruptible), T (stopped), Z."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def hung_readers() -> set[int]:
    """Threads that wait in a driver's msleep, in uninterruptible sleep; those of a process that has exited too.

    The letter D alone would not do: a page that is read over a share waits in D state for a moment as well.
    """
    found = set()
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        with contextlib.suppress(OSError):  # threads come and go
            if process_state(int(task.name)) == "D" and read(task / "wchan") == "msleep":
                found.add(int(task.name))
    return found
