"""What a monitor that polls sysfs sees of a recording, and the clockwork that shows it poll after poll."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from ibmon.recording import Frame, Header
from ibmon.virtualtree import ReadHangs, VirtualTree

CLASS = "class/infiniband"


class PortView(NamedTuple):
    """One port: numbers of `state` and `phys_state`, rate in Gb/s; counters of counters/ and hw_counters/ by name."""

    device: str
    number: str
    link_layer: str
    state: int
    phys_state: int
    rate: float
    counters: Mapping[str, int]

    @property
    def name(self) -> str:
        """Device and port."""
        return f"{self.device}/{self.number}"


class View(NamedTuple):
    """One look: devices that are listed (None: the listing failed), ports that could be read, ports that could not.

    `virtual` are the devices that are virtual functions.
    """

    devices: tuple[str, ...] | None
    ports: tuple[PortView, ...] = ()
    unreadable: tuple[str, ...] = ()
    virtual: frozenset[str] = frozenset()


class Poll(NamedTuple):
    """One poll: monotonic and wall seconds, the boot it falls into, what was seen, and whether that is anything new."""

    monotonic: float
    wall: float
    boot_id: str
    view: View
    new: bool


class Verdict(NamedTuple):
    """What a monitor says after a poll: whether it noted a fault of any kind, and whether the node is bad."""

    noted: bool
    bad: bool


Program = Callable[[Poll], Verdict]


def look(tree: VirtualTree) -> View:
    """Read everything once. Raises ReadHangs where a read would not return."""
    try:
        devices = tuple(sorted(tree.listdir(CLASS)))
    except OSError:
        return View(None)
    names = [(device, number) for device in devices for number in _names(tree, f"{CLASS}/{device}/ports")]
    found = {f"{device}/{number}": _readable(tree, device, number) for device, number in names}
    ports = tuple(port for port in found.values() if port is not None)
    virtual = frozenset(d for d in devices if tree.exists(f"{CLASS}/{d}/device/physfn"))
    return View(devices, ports, tuple(name for name, port in found.items() if port is None), virtual)


def _readable(tree: VirtualTree, device: str, number: str) -> PortView | None:
    try:
        return _port(tree, device, number)
    except (OSError, ValueError):
        return None


def _port(tree: VirtualTree, device: str, number: str) -> PortView:
    path = f"{CLASS}/{device}/ports/{number}"

    def text(file: str) -> str:
        return tree.read(f"{path}/{file}").decode().strip()

    counters: dict[str, int] = {}
    for directory in ("counters", "hw_counters"):
        for name in _names(tree, f"{path}/{directory}"):
            value = text(f"{directory}/{name}")
            if value.isdigit():
                counters[name] = int(value)
    return PortView(
        device,
        number,
        text("link_layer"),
        int(text("state").partition(":")[0]),
        int(text("phys_state").partition(":")[0]),
        float(text("rate").partition(" ")[0]),
        counters,
    )


def _names(tree: VirtualTree, path: str) -> list[str]:
    try:
        return tree.listdir(path)
    except OSError:
        return []


def polls(frames: Iterable[Frame], header: Header, interval: float, end: float) -> Iterator[Poll]:
    """Every poll of a monitor with this interval, from 0 on; those in which a read would hang do not come back."""
    tree, left = VirtualTree(), iter(frames)
    frame = next(left, None)
    offset, boot_id = header.wall, header.boot_id
    seen, view, shown = -1, View(None), View(None)
    for number in range(int(end / interval) + 1):
        t = number * interval
        while frame is not None and frame.t <= t:
            tree.apply(frame)
            offset += (frame.wall_step or 0.0) + (frame.suspend or 0.0)
            boot_id = frame.boot_id or boot_id
            frame = next(left, None)
        if tree.version != seen:
            try:
                view = look(tree)
            except ReadHangs:
                continue
            seen = tree.version
        yield Poll(t, offset + t, boot_id, view, new=view is not shown)
        shown = view
