"""The PCI function behind an RDMA device: its address, driver and what its slot can do.

Reads only files that cost a config read at most; it judges no link (reference for the traps: Documentation/ABI/
testing/sysfs-bus-pci and drivers/pci/pci-sysfs.c).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ibmon.model import Pci
from ibmon.ports import Tree
from ibmon.sysfs import parse
from ibmon.sysfs.attributes import CLASS, attribute, names, resolved, target_name

_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_BUS: Final = "bus/pci/devices"
_SLOT_NAME: Final = re.compile(rb"^PCI_SLOT_NAME=(\S+)$", re.MULTILINE)


class Location(NamedTuple):
    """Where the PCI function of a device is: its address, and its directory in the tree (None where that is gone)."""

    address: str
    directory: str | None


def locate(tree: Tree, device: str) -> Location | None:
    """The first PCI function at or above a device; None for one that has none (rxe, siw).

    A sub-function's own directory is an auxiliary device below its PCI function, so the path is walked upwards. Where
    `device` is absent the class entry's own link tells it, where it dangles its text does, and where a copied tree
    holds a plain directory the function's uevent does.
    """
    link = f"{CLASS}/{device}/device"
    for path in (resolved(tree, link), resolved(tree, f"{CLASS}/{device}")):
        found = None if path is None else _above(path)
        if found is not None:
            return found
    address = attribute(tree, f"{link}/uevent", _slot_name)
    if address is not None:
        return Location(address, link)
    try:
        dangling = _above(tree.readlink(link))
    except OSError:
        return None
    return dangling and Location(dangling.address, None)


def physical(tree: Tree, directory: str) -> str:
    """The directory whose link files are true: a virtual function's are reserved, so its physical function's."""
    return resolved(tree, f"{directory}/physfn") or directory


def is_virtual(tree: Tree, location: Location) -> bool:
    """Whether the kernel marks a virtual function; inside a guest nothing does."""
    return location.directory is not None and "physfn" in names(tree, location.directory)


def describe(tree: Tree, location: Location) -> Pci:
    """Static facts of a PCI function; whatever cannot be read is None."""
    directory = location.directory
    if directory is None:
        return Pci(location.address)
    card = physical(tree, directory)
    slot = posixpath.dirname(card)
    has_slot = _ADDRESS.fullmatch(posixpath.basename(slot)) is not None
    return Pci(
        address=location.address,
        driver=target_name(tree, f"{directory}/driver"),
        vendor=attribute(tree, f"{directory}/vendor", parse.text),
        numa_node=attribute(tree, f"{directory}/numa_node", parse.numa_node),
        max_speed=attribute(tree, f"{card}/max_link_speed", parse.pci_speed),
        max_width=attribute(tree, f"{card}/max_link_width", parse.pci_width),
        slot_max_speed=attribute(tree, f"{slot}/max_link_speed", parse.pci_speed) if has_slot else None,
        slot_max_width=attribute(tree, f"{slot}/max_link_width", parse.pci_width) if has_slot else None,
    )


def functions(tree: Tree, addresses: Iterable[str]) -> Mapping[str, str | None] | None:
    """The driver of each PCI function ("" for none), None where there is no such function.

    None as a whole where the tree tells nothing of the bus, as in a container that sees only part of /sys.
    """
    wanted = tuple(addresses)
    if not wanted or not tree.exists(_BUS):
        return None
    return {
        address: (target_name(tree, f"{_BUS}/{address}/driver") or "") if tree.exists(f"{_BUS}/{address}") else None
        for address in wanted
    }


def _above(path: str) -> Location | None:
    parts = path.split("/")
    for end in range(len(parts), 0, -1):
        if _ADDRESS.fullmatch(parts[end - 1]):
            return Location(parts[end - 1], "/".join(parts[:end]))
    return None


def _slot_name(raw: bytes) -> str | None:
    match = _SLOT_NAME.search(raw)
    address = match[1].decode("ascii", "replace") if match else ""
    return address if _ADDRESS.fullmatch(address) else None
