"""The sysfs trees that are measured on: the simulated node, and one of its kind with any number of devices."""

from __future__ import annotations

from pathlib import Path

from ibmon.simulate.counters import used_counters, used_hw_counters
from ibmon.simulate.dgx import dgx
from ibmon.simulate.directory import DirectoryTree
from ibmon.simulate.tree import Pci, Port, Tree, device

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
