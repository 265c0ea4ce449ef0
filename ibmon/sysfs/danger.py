"""Kernels and drivers on which a read can crash or corrupt the host, and what is left alone there.

A table of known kernel faults. It judges no port and reads no device; discovery asks it before it adds a column.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

# include/linux/proc_ns.h: the init PID namespace has a fixed inode; the init network namespace has one since 6.18,
# and before that took the first dynamic number (fs/proc/generic.c, PROC_DYNAMIC_FIRST).
_INIT_PID_INODE: Final = 0xEFFFFFFC
_INIT_NET_INODES: Final = frozenset({0xEFFFFFF9, 0xF0000000})

_RELEASE: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")

BNXT_DRIVERS: Final = frozenset({"bnxt_en", "bnxt_re"})


class Platform(msgspec.Struct, frozen=True):
    """What decides whether a read is dangerous.

    Attributes:
        kernel_release: as `uname -r` prints it; empty where reads meet no kernel (replay, a copied tree).
        init_netns: whether this process is in the host's network namespace; None where that cannot be told.
    """

    kernel_release: str = ""
    init_netns: bool | None = True

    @classmethod
    def host(cls) -> Platform:
        """The platform that this process runs on."""
        return cls(os.uname().release, in_init_netns())

    @property
    def version(self) -> tuple[int, int, int] | None:
        """Kernel version as numbers, or None where the release does not start with one."""
        match = _RELEASE.match(self.kernel_release)
        return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


class Skip(NamedTuple):
    """What is not read on a device, and one line for the log that says why and what ends it."""

    port_hw: bool
    device_hw: bool
    reasons: tuple[str, ...]


NOTHING: Final = Skip(port_hw=False, device_hw=False, reasons=())


def skips(platform: Platform, name: str, driver: str | None) -> Skip:
    """What must not be read of a device.

    Args:
        platform: the host.
        name: the device's name in class/infiniband.
        driver: its PCI driver, as far as the tree tells.
    """
    version = platform.version
    if version is None:
        return NOTHING
    reasons = []
    port_hw = device_hw = False
    # CVE-2025-71092: on chips other than P5/P7 the read writes past its buffer. Which chip it is, sysfs does not say.
    if (6, 18, 0) <= version <= (6, 18, 3) and (driver in BNXT_DRIVERS or name.startswith("bnxt_re")):
        port_hw = device_hw = True
        reasons.append(
            f"hw_counters are not read: kernel {platform.kernel_release} with bnxt_re writes out of bounds "
            "(CVE-2025-71092, ended by 6.18.4)"
        )
    # CVE-2025-22089: device-level files are shown in other network namespaces, and reading them there crashes. Fixed in
    # 6.15 and in later stable releases, which a release name does not tell from the unfixed ones.
    if (5, 14, 0) <= version < (6, 15, 0) and platform.init_netns is not True:
        device_hw = True
        reasons.append(
            f"device-level hw_counters are not read: outside the host's network namespace kernel "
            f"{platform.kernel_release} may crash on them (CVE-2025-22089, ended by 6.15 or the host's namespace)"
        )
    return Skip(port_hw, device_hw, tuple(reasons))


def in_init_netns(proc: Path = Path("/proc")) -> bool | None:
    """Whether this process is in the host's network namespace; None where that cannot be told.

    In the init PID namespace process 1 is the host's, and its namespace is the one to compare with; that needs
    privileges. Else only the inode number is left, which is known for the host and arbitrary for any other.
    """
    own = _inode(proc / "self/ns/net")
    if own is None:
        return None
    first = _inode(proc / "1/ns/net") if _inode(proc / "self/ns/pid") == _INIT_PID_INODE else None
    if first is not None:
        return own == first
    return True if own in _INIT_NET_INODES else None


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
