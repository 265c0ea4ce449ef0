"""The sysfs trees that are measured on: the simulated node, and one of its kind with any number of devices."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ibmon.model import Device
from ibmon.runtime.host import HostClock
from ibmon.simulate.counters import used_counters, used_hw_counters
from ibmon.simulate.dgx import dgx
from ibmon.simulate.directory import DirectoryTree
from ibmon.simulate.tree import Pci, Port, Tree, device
from ibmon.sysfs.discover import discover, list_devices
from ibmon.sysfs.files import FileTree

NODE = 12
"""Devices of the simulated node: 8 compute, 2 storage, 2 management."""
LARGE = 256
"""Devices of the large tree: a limit, not a machine that is sold."""


def build(devices: int) -> Tree:
    """A node with this many mlx5 devices, all ports ACTIVE, its counters those of a machine in use."""
    if devices == NODE:
        return dgx()
    tree = Tree(dirs=("class/infiniband", "class/net"))
    for number in range(devices):
        domain, bus = divmod(number, 0xF0)
        above = f"pci{domain:04x}:{bus + 1:02x}/{domain:04x}:{bus + 1:02x}:01.0"
        port = Port(
            lid=f"0x{number + 1:x}",
            netdev=f"ib{number}",
            counters=used_counters(number),
            hw_counters=used_hw_counters(number),
        )
        pci = Pci(address=f"{domain:04x}:{bus + 2:02x}:00.0", above=above)
        tree |= device(f"mlx5_{number}", ports=(port,), pci=pci, index=number)
    return tree


def write(devices: int, root: Path) -> Path:
    """Write such a tree below `root`; returns its directory."""
    directory = root / f"sys-{devices}"
    if not directory.exists():
        DirectoryTree(directory).apply(build(devices).frame())
    return directory


def discovered(files: FileTree) -> list[Device]:
    """Its devices as the daemon knows them."""
    names = list_devices(files, ("*",), (), HostClock().now()).names or ()
    return [device for number, name in enumerate(names) if (device := discover(files, name, number)) is not None]


MOVING = (
    "counters/port_xmit_data", "counters/port_rcv_data", "counters/port_xmit_packets", "counters/port_rcv_packets",
    "counters/unicast_xmit_packets", "counters/unicast_rcv_packets", "hw_counters/rx_write_requests",
)  # fmt: skip
"""What moves all the time on a port that carries training traffic."""


class Traffic:
    """Moves the traffic counters of every port of a tree, in place as the kernel would."""

    def __init__(self, root: Path) -> None:
        ports = sorted(root.glob("class/infiniband/*/ports/*"))
        self._files = [os.open(port / name, os.O_RDWR | os.O_CLOEXEC) for port in ports for name in MOVING]

    def move(self) -> None:
        """Let each counter rise; its file keeps its length."""
        for file in self._files:
            text = os.pread(file, 64, 0)
            length = len(text.rstrip())
            os.pwrite(file, str((int(text) + 12_345) % 10**length).zfill(length).encode(), 0)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            os.close(file)


@contextmanager
def traffic(root: Path, every: float) -> Iterator[None]:
    """Traffic on all ports of a tree, each so many seconds, from a thread of this process."""
    moving, ended = Traffic(root), threading.Event()

    def run() -> None:
        while not ended.wait(every):
            moving.move()

    thread = threading.Thread(target=run, name="traffic", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        moving.close()
