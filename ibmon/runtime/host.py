"""Who this host is: names, boot, clocks. Reads /proc and the network name; nothing of RDMA."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from ibmon.model import Now

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_UPTIME = Path("/proc/uptime")


class HostClock:
    """`ibmon.ports.Clock` of this host."""

    def now(self) -> Now:
        """This instant."""
        return Now(time.monotonic(), time.time())


def node_name(configured: str, environ: Mapping[str, str] = os.environ) -> str:
    """The configured name, else what a pod is told of its node (NODE_NAME), else the short host name."""
    return configured or environ.get("NODE_NAME", "") or socket.gethostname().partition(".")[0] or "localhost"


def boot_id() -> str:
    """The kernel's id of this boot; empty where it cannot be read."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def booted() -> float:
    """Monotonic time (seconds) at which this host booted; minus infinity where nobody says, so long ago.

    In a container /proc/uptime is the host's, as it should be: boot grace is about the host.
    """
    try:
        uptime = float(_UPTIME.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return float("-inf")
    return time.monotonic() - uptime


def product_uuid(sysfs: Path) -> str:
    """The machine's DMI product UUID, which tells a cloned image from its original; empty where it cannot be read."""
    try:
        return (sysfs / "class/dmi/id/product_uuid").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def default_route(proc: Path = Path("/proc")) -> frozenset[str]:
    """Network interfaces with a default route, IPv4 or IPv6; empty where nobody tells."""
    found = set()
    for fields in _fields(proc / "net/route"):
        if len(fields) > 7 and fields[1] == fields[7] == "00000000":
            found.add(fields[0])
    for fields in _fields(proc / "net/ipv6_route"):
        # The kernel keeps an unreachable default at lo.
        if len(fields) > 9 and fields[0] == "0" * 32 and fields[1] == "00" and fields[9] != "lo":
            found.add(fields[9])
    return frozenset(found)


def _fields(path: Path) -> list[list[str]]:
    """The fields of each line; none where the file cannot be read."""
    try:
        return [line.split() for line in path.read_text(encoding="ascii").splitlines()]
    except (OSError, UnicodeDecodeError):
        return []


def trim_memory() -> None:
    """Hand back what the start has used and freed; glibc keeps it for later, which a daemon that has begun has not."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):  # another C library has no such call
        ctypes.CDLL(None).malloc_trim(0)


def own_usage() -> dict[str, float]:
    """What this process uses: resident megabytes, CPU seconds, threads, open files."""
    import psutil

    process = psutil.Process()
    with process.oneshot():
        times = process.cpu_times()
        return {
            "rss_mib": round(process.memory_info().rss / 2**20, 1),
            "cpu_seconds": round(times.user + times.system, 1),
            "threads": process.num_threads(),
            "open_files": process.num_fds(),
        }
