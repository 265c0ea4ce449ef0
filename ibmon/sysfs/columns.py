"""The columns of a device: which files are read, in which tier and in which order, and where each of them lies.

Lists directories and opens no counter. Why the order and the tiers are what they are: docs/architecture.md, Reading.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

from ibmon.model import Column, Device, Level, Port, Tier
from ibmon.ports import Tree
from ibmon.sysfs import catalog, hwmon, netdevs, pci
from ibmon.sysfs.attributes import CLASS, names
from ibmon.sysfs.danger import Skip

MAX_COLUMNS: Final = 4096
"""Columns of one device beyond which the rest is left out: hfi1 has about 1500, a switchdev PF with 64 ports 3500."""

FAST_COUNTERS: Final = frozenset(
    {
        "link_downed",
        "link_error_recovery",
        "port_rcv_data",
        "port_rcv_packets",
        "port_xmit_data",
        "port_xmit_packets",
    }
)
"""Files of counters/ that are read with the hw_counters; each costs mlx5 a firmware command, so the rest is slow."""

HW_FIRST: Final = ("rx_write_requests", "vport_rx_write_requests")
"""Index 0 of mlx5's set: only its reading arms the kernel's cache for the others (core/sysfs.c:update_hw_stats)."""

_LIFESPAN: Final = "lifespan"
_PCI_LINK: Final = ("current_link_speed", "current_link_width")
_STATE_FILES: Final = ("state", "phys_state", "rate")
_PLACES: Final = {"width": "rate", "gid0": "gids/0", "pkey0": "pkeys/0"}
_PORT_DIRECTORY: Final = {
    Level.ATTR: "",
    Level.COUNTERS: "/counters",
    Level.COUNTERS_EXT: "/counters_ext",
    Level.HW: "/hw_counters",
}


class Statistics(Protocol):
    """The ethtool statistics of an interface; it raises OSError."""

    def names(self, netdev: str) -> tuple[str, ...]:
        """Names in the driver's order."""
        ...

    def values(self, netdev: str) -> tuple[int, ...]:
        """Values in the order of the names."""
        ...


class Parts(NamedTuple):
    """What discovery knows of a device when its columns are listed.

    Attributes:
        device: its name.
        ports: its ports, with their interfaces.
        location: its PCI function.
        skip: what is dangerous to read.
        phy_names: by port, the ethtool statistics to read.
    """

    device: str
    ports: Sequence[Port]
    location: pci.Location | None
    skip: Skip
    phy_names: Mapping[int, tuple[str, ...]]


def columns(tree: Tree, parts: Parts) -> tuple[Column, ...]:
    """All columns of a device in reading order."""
    return tuple(islice(_columns(tree, parts), MAX_COLUMNS))


def _columns(tree: Tree, parts: Parts) -> Iterator[Column]:
    for port in parts.ports:
        number = port.id.port
        base = f"{CLASS}/{parts.device}/ports/{number}"
        yield from _attributes(tree, base, number)
        yield from _tables(tree, base, port)
        if not parts.skip.port_hw:
            yield from _hw(tree, f"{base}/hw_counters", number, Level.HW)
        for name in names(tree, f"{base}/counters"):
            yield Column(number, Level.COUNTERS, name, Tier.COUNTER if name in FAST_COUNTERS else Tier.SLOW)
        for name in names(tree, f"{base}/counters_ext"):
            yield Column(number, Level.COUNTERS_EXT, name, Tier.SLOW)
        if port.netdev is not None:
            present = names(tree, f"{netdevs.CLASS_NET}/{port.netdev}")
            yield from (Column(number, Level.NET, name, Tier.COUNTER) for name in netdevs.COUNTERS if name in present)
        yield from (Column(number, Level.PHY, name, Tier.SLOW) for name in parts.phy_names.get(number, ()))
    if not parts.skip.device_hw:
        yield from _hw(tree, f"{CLASS}/{parts.device}/hw_counters", 0, Level.DEVICE_HW)
    if parts.location is not None and parts.location.directory is not None:
        present = names(tree, pci.physical(tree, parts.location.directory))
        yield from (Column(0, Level.PCI, name, Tier.SLOW) for name in _PCI_LINK if name in present)
    yield from (Column(0, Level.HWMON, label, Tier.SLOW) for label in hwmon.modules(tree, parts.device))


def _attributes(tree: Tree, base: str, port: int) -> Iterator[Column]:
    """State, physical state and rate. A directory that cannot be listed may still let its files be read."""
    present: Sequence[str] = _STATE_FILES
    try:
        present = tree.listdir(base)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return
    if "state" in present:
        yield Column(port, Level.ATTR, "state", Tier.STATE)
    if "phys_state" in present:
        yield Column(port, Level.ATTR, "phys_state", Tier.SLOW)
    if "rate" in present:
        yield Column(port, Level.ATTR, "rate", Tier.SLOW)
        yield Column(port, Level.ATTR, "width", Tier.SLOW)


def _tables(tree: Tree, base: str, port: Port) -> Iterator[Column]:
    """The first entries of the port's tables: that of the GIDs, out of a cache, and that of the P_Keys, a command."""
    if port.link_layer == "Ethernet" and tree.exists(f"{base}/gids/0"):
        yield Column(port.id.port, Level.ATTR, "gid0", Tier.COUNTER)
    if port.link_layer == "InfiniBand" and tree.exists(f"{base}/pkeys/0"):
        yield Column(port.id.port, Level.ATTR, "pkey0", Tier.SLOW)


def _hw(tree: Tree, directory: str, port: int, level: Level) -> Iterator[Column]:
    """hw_counters, the one that arms the cache first. `lifespan` is a setting: slow."""
    present = names(tree, directory)
    for name in HW_FIRST:
        if name in present:
            yield Column(port, level, name, Tier.COUNTER)
    for name in present:
        if name not in HW_FIRST:
            yield Column(port, level, name, Tier.SLOW if name == _LIFESPAN else Tier.COUNTER)


def phy_names(statistics: Statistics | None, netdev: str | None) -> tuple[str, ...]:
    """The ethtool statistics of an interface that the catalog knows; empty where there are none."""
    if statistics is None or netdev is None:
        return ()
    try:
        present = statistics.names(netdev)
    except OSError:
        return ()
    return tuple(dict.fromkeys(name for name in present if catalog.lookup("phy", name) is not None))


def paths(tree: Tree, device: Device) -> tuple[str | None, ...]:
    """Where in the tree each column's file lies; None for ethtool statistics and for what has no place any more."""
    location = pci.locate(tree, device.name) if device.pci is not None else None
    link = None if location is None or location.directory is None else pci.physical(tree, location.directory)
    warm = any(column.level is Level.HWMON for column in device.layout.columns)
    modules = hwmon.modules(tree, device.name) if warm else {}
    return tuple(
        modules.get(column.name) if column.level is Level.HWMON else _path(device, column, link)
        for column in device.layout.columns
    )


def _path(device: Device, column: Column, pci_directory: str | None) -> str | None:
    base = f"{CLASS}/{device.name}"
    directory: str | None
    if column.level is Level.DEVICE_HW:
        directory = f"{base}/hw_counters"
    elif column.level is Level.NET:
        netdev = interface(device, column.port)
        directory = f"{netdevs.CLASS_NET}/{netdev}" if netdev else None
    elif column.level is Level.PCI:
        directory = pci_directory
    elif column.level is Level.PHY:
        directory = None
    else:
        directory = f"{base}/ports/{column.port}{_PORT_DIRECTORY[column.level]}"
    name = _PLACES.get(column.name, column.name) if column.level is Level.ATTR else column.name
    return None if directory is None else f"{directory}/{name}"


def interface(device: Device, port: int) -> str | None:
    """The network interface of a port, or None."""
    return next((p.netdev for p in device.ports if p.id.port == port), None)
