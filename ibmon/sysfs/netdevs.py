"""Which network interface belongs to which port.

Reads only what takes no rtnl: never `carrier`, `speed`, `duplex` (net/core/net-sysfs.c), nor `dev_id`, whose reading
the kernel logs as a mistake.
"""

from __future__ import annotations

from typing import Final

from ibmon.ports import Tree
from ibmon.sysfs import parse
from ibmon.sysfs.attributes import CLASS, attribute, names

CLASS_NET: Final = "class/net"

COUNTERS: Final = ("carrier_changes", "carrier_down_count", "carrier_up_count")
"""Files of an interface that count what happened to its carrier, also between two reads."""


def of_port(tree: Tree, device: str, port: int, ports: int) -> str | None:
    """Name of a port's interface, or None.

    The GID table names it for RoCE; IPoIB interfaces, and RoCE ones that were never up, stand below the PCI function
    and say their port as `dev_port`; Soft-RoCE has a file `parent`.
    """
    base = f"{CLASS}/{device}"
    return (
        attribute(tree, f"{base}/ports/{port}/gid_attrs/ndevs/0", parse.netdev)
        or _below_function(tree, f"{base}/device/net", port, ports)
        or (attribute(tree, f"{base}/parent", parse.netdev) if port == 1 else None)
    )


def _below_function(tree: Tree, directory: str, port: int, ports: int) -> str | None:
    """The interface with this port's `dev_port`; the oldest of several (children and representors come later)."""
    candidates = [name for name in names(tree, directory) if parse.netdev(name.encode()) == name]
    matching = []
    for name in candidates:
        dev_port = attribute(tree, f"{directory}/{name}/dev_port", parse.number)
        if dev_port == port - 1 or (dev_port is None and ports == 1 and len(candidates) == 1):
            index = attribute(tree, f"{directory}/{name}/ifindex", parse.number)
            matching.append((parse.MAX_VALUE if index is None else index, name))
    return min(matching)[1] if matching else None
