"""Which devices there are, and what does not change while they are there.

Filters names before anything is opened, and lets no error of a file, a port or a device reach beyond it. It reads no
counter.
"""

from __future__ import annotations

import errno
from collections.abc import Container, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from ibmon.model import Device, Layout, Listing, Now, Port, PortId
from ibmon.ports import Tree
from ibmon.sysfs import danger, kinds, netdevs, parse, pci
from ibmon.sysfs.attributes import CLASS, attribute, names, target_name
from ibmon.sysfs.columns import Parts, Statistics, columns, phy_names
from ibmon.sysfs.traits import with_traits

MAX_PORTS: Final = 64
"""Ports of one device beyond which the rest is left out; a switchdev PF can have hundreds of representor ports."""

_ANYTHING: Final = danger.Platform()


def list_devices(
    tree: Tree,
    include: Iterable[str],
    exclude: Iterable[str],
    now: Now,
    functions: Iterable[str] = (),
    *,
    known: Container[str] = (),
) -> Listing:
    """The names below class/infiniband that are included, in byte order, and what became of some PCI functions.

    A stray file or a link that leads nowhere is no device. No class directory at all is an empty listing, as on a
    host without RDMA, provided that `class` itself can be read.

    The `known` were devices when they were read last, and are taken for such by their name: reading tells when that
    is over, and looking at 256 of them every few seconds costs more than reading their states.
    """
    include, exclude = tuple(include), tuple(exclude)
    found = pci.functions(tree, functions)
    try:
        present = tree.listdir(CLASS)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return _no_class(tree, now, found)
        return Listing(None, error.errno, now)
    wanted = sorted(name for name in present if _matches(name, include) and not _matches(name, exclude))
    # The dot is a path through the entry, so it exists only where the entry leads to a directory.
    there = tuple(name for name in wanted if name in known or tree.exists(f"{CLASS}/{name}/."))
    return Listing(there, None, now, found)


def discover(
    tree: Tree,
    name: str,
    generation: int,
    *,
    platform: danger.Platform = _ANYTHING,
    ethtool: Statistics | None = None,
) -> Device | None:
    """The static facts of a device, and its layout; None where there is no such device (any more).

    Args:
        tree: the sysfs root.
        name: the device's name in class/infiniband.
        generation: number that the layout gets.
        platform: the kernel that answers, for what is dangerous to read on it.
        ethtool: where statistics of network interfaces come from; None for none.
    """
    base = f"{CLASS}/{name}"
    if not tree.exists(f"{base}/."):
        return None
    location = pci.locate(tree, name)
    driver = target_name(tree, f"{base}/device/driver")
    skip = danger.skips(platform, name, driver)
    ports = _ports(tree, name)
    statistics = ethtool if _has_phy_statistics(tree, driver, location) else None
    phys = {p.id.port: phy_names(statistics, p.netdev) for p in ports if p.link_layer == "Ethernet"}
    found = with_traits(columns(tree, Parts(name, ports, location, skip, phys)), name, driver)
    chardev = kinds.uverbs(tree, name)
    device = Device(
        name=name,
        layout=Layout.build(name, generation, found),
        ports=ports,
        function=kinds.function(tree, name, location, columns=found, ports=len(ports), chardev=chardev),
        driver=driver,
        node_guid=attribute(tree, f"{base}/node_guid", parse.guid),
        sys_image_guid=attribute(tree, f"{base}/sys_image_guid", parse.guid),
        board_id=attribute(tree, f"{base}/board_id", parse.text),
        hca_type=attribute(tree, f"{base}/hca_type", parse.text),
        firmware_version=attribute(tree, f"{base}/fw_ver", parse.text),
        pci=None if location is None else pci.describe(tree, location),
        uverbs=chardev,
    )
    return device if tree.exists(f"{base}/.") else None


def _no_class(tree: Tree, now: Now, functions: Mapping[str, str | None] | None) -> Listing:
    """No RDMA, or no sysfs? The parent directory tells."""
    try:
        tree.listdir("class")
    except OSError as error:
        return Listing(None, error.errno, now)
    return Listing((), None, now, functions)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _ports(tree: Tree, device: str) -> tuple[Port, ...]:
    """The device's ports by number. Port 0 exists on switches only and is none that a host has."""
    directory = f"{CLASS}/{device}/ports"
    numbers = sorted(int(n) for n in names(tree, directory) if n.isascii() and n.isdigit() and n[0] != "0")[:MAX_PORTS]
    return tuple(
        Port(
            PortId(device, number),
            attribute(tree, f"{directory}/{number}/link_layer", parse.text),
            netdevs.of_port(tree, device, number, len(numbers)),
        )
        for number in numbers
    )


def _has_phy_statistics(tree: Tree, driver: str | None, location: pci.Location | None) -> bool:
    """Whether the interface's ethtool statistics tell of the physical port at a bearable cost.

    Only mlx5 names them as the catalog does, and only its physical functions have them.
    """
    return driver == "mlx5_core" and location is not None and not pci.is_virtual(tree, location)
