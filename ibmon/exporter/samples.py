"""The lines of every family that is no plain column: node, identity, health, findings, drain.

Pure: a snapshot in, text out. It must not decide what a value means; the engine has done so.
"""

from __future__ import annotations

import errno
import platform
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from ibmon import __version__
from ibmon.exporter import compat
from ibmon.exporter import families as f
from ibmon.exporter.plan import counter_label
from ibmon.exporter.text import Family, kept_series, number
from ibmon.model import BlockCode, Device, Layout, NodeFitness, PortHealth, PortId, Role
from ibmon.snapshot import DeviceView, PortView, Snapshot

Lines = tuple[Family, list[str]]
"""A family and its finished sample lines; without lines it is left out."""

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class _Memo(Generic[_K, _V]):
    """Texts by what they are made of. What the last round did not need is forgotten."""

    def __init__(self, make: Callable[[_K], _V]) -> None:
        self._make = make
        self._known: dict[_K, _V] = {}

    def round(self, keys: Iterable[_K]) -> list[_V]:
        """The texts of all these keys."""
        fresh: dict[_K, _V] = {}
        result = []
        for key in keys:
            text = fresh.get(key) or self._known.get(key) or self._make(key)
            fresh[key] = text
            result.append(text)
        self._known = fresh
        return result


class _DeviceText(NamedTuple):
    """What is written of a device at each render: whole lines, and series that lack only their value."""

    info: str
    compat_info: str
    stalled: str
    speed_max: str
    width_max: str


class _PortKey(NamedTuple):
    id: PortId
    link_layer: str | None
    netdev: str | None
    role: Role
    rail: int | None


class _PortText(NamedTuple):
    info: str
    missing: str
    expected_rate: str
    flaps: str
    health: dict[PortHealth, str]  # all lines of the family, by the health that holds


def build_info() -> Lines:
    """What runs here: known before anything was read."""
    return f.BUILD_INFO, [f.BUILD_INFO.series(__version__, platform.python_version()) + "1\n"]


class Samples:
    """Renders the families of fixed name, with the texts that do not change kept from one render to the next."""

    def __init__(self, *, node_exporter: bool) -> None:
        self._node_exporter = node_exporter
        self._devices: _Memo[Device, _DeviceText] = _Memo(_device_text)
        self._ports: _Memo[_PortKey, _PortText] = _Memo(_port_text)
        self._flags: WeakKeyDictionary[Layout, tuple[_Flags, _Flags]] = WeakKeyDictionary()

    def lines(self, snapshot: Snapshot, clashes: Sequence[int]) -> Iterator[Lines]:
        """All families of a snapshot except columns and ages. `clashes`: by device, as the plan counts them."""
        yield from _node(snapshot)
        yield from self._device_lines(snapshot.devices, clashes, snapshot.quarantined)
        yield from self._port_lines(snapshot.ports)
        yield from self._column_lines(snapshot.devices)
        yield from _findings(snapshot)
        yield from _drain(snapshot)

    def _device_lines(
        self, views: Sequence[DeviceView], clashes: Sequence[int], quarantined: Sequence[str]
    ) -> Iterator[Lines]:
        texts = self._devices.round(v.device for v in views)
        yield f.DEVICE_INFO, [t.info for t in texts]
        stalled = [f"{t.stalled}{v.stalled:d}\n" for t, v in zip(texts, views, strict=True)]
        yield f.DEVICE_STALLED, [*stalled, *(f"{f.DEVICE_STALLED.series(name)}1\n" for name in quarantined)]
        yield f.PCIE_SPEED_MAX, [t.speed_max for t in texts if t.speed_max]
        yield f.PCIE_WIDTH_MAX, [t.width_max for t in texts if t.width_max]
        yield f.READ_ERRORS, [line for v, n in zip(views, clashes, strict=True) for line in _read_errors(v, n)]
        if self._node_exporter:
            yield compat.INFO, [t.compat_info for t in texts]

    def _port_lines(self, views: Sequence[PortView]) -> Iterator[Lines]:
        texts = self._ports.round(_PortKey(v.id, v.link_layer, v.netdev, v.role, v.rail) for v in views)
        both = list(zip(texts, views, strict=True))
        yield f.PORT_INFO, [t.info for t in texts]
        yield f.PORT_MISSING, [f"{t.missing}{not v.present:d}\n" for t, v in both if v.expected]
        yield (
            f.PORT_EXPECTED_RATE,
            [f"{t.expected_rate}{v.expected_rate}\n" for t, v in both if v.expected_rate is not None],
        )
        yield f.PORT_HEALTH, [t.health[v.health] for t, v in both]
        yield f.FLAPS, [f"{t.flaps}{v.flaps}\n" for t, v in both]
        yield f.HOLD, [_line(f.HOLD, s, rule, *_port(v.id)) for v in views for rule, s in sorted(v.hold.items())]

    def _column_lines(self, views: Sequence[DeviceView]) -> Iterator[Lines]:
        """Flags of single columns. A stalled device says nothing of its counters' values; resets stay counted."""
        saturated: dict[str, int] = {}
        resets: dict[str, int] = {}
        for view in views:
            device = view.device
            known = self._flags.get(device.layout)
            if known is None:
                known = _Flags(f.COUNTER_SATURATED, device), _Flags(f.COUNTER_RESETS, device)
                self._flags[device.layout] = known
            of_full, of_resets = known
            if not view.stalled:
                for i, full in view.saturated.items():
                    saturated[of_full[i]] = int(full)
            for i, count in view.resets.items():
                text = of_resets[i]
                resets[text] = resets.get(text, 0) + count
        yield f.COUNTER_SATURATED, [f"{text}{value}\n" for text, value in sorted(saturated.items())]
        yield f.COUNTER_RESETS, [f"{text}{value}\n" for text, value in sorted(resets.items())]


class _Flags:
    """The series of one flag of a device's columns, without their values: made when first asked for."""

    def __init__(self, family: Family, device: Device) -> None:
        self._family = family
        self._device = device.name
        self._columns = device.layout.columns
        self._known: dict[int, str] = {}

    def __getitem__(self, index: int) -> str:
        text = self._known.get(index)
        if text is None:
            column = self._columns[index]
            text = self._family.series(self._device, str(column.port), counter_label(column))
            self._known[index] = text
        return text


def ages(snapshot: Snapshot, monotonic: float) -> Lines:
    """How old the newest complete read of each device is at `monotonic`; no series before the first."""
    views = [(v.device.name, v.sampled.monotonic) for v in snapshot.devices if v.sampled is not None]
    return f.SAMPLE_AGE, [f"{kept_series(f.SAMPLE_AGE, d)}{max(0.0, monotonic - at):.3f}\n" for d, at in views]


def _line(family: Family, value: float, *labels: str) -> str:
    return f"{kept_series(family, *labels)}{number(value)}\n"


def _flag(family: Family, value: object) -> Lines:
    return family, [_line(family, int(bool(value)))]


def _one_of(family: Family, values: Iterable[str], holds: str | None, *labels: str) -> list[str]:
    return [_line(family, int(value == holds), *labels, value) for value in values]


def _port(port: PortId) -> tuple[str, str]:
    return port.device, str(port.port)


def _device_text(device: Device) -> _DeviceText:
    pci = device.pci
    speed, width = (pci.expected_speed, pci.expected_width) if pci else (None, None)
    identity = (device.node_guid, device.sys_image_guid, device.board_id, device.hca_type, device.firmware_version)
    labels = (*identity, device.driver, pci.address if pci else None, device.function.value)
    return _DeviceText(
        info=_line(f.DEVICE_INFO, 1, device.name, *(label or "" for label in labels)),
        compat_info=compat.info_series(device),
        stalled=f.DEVICE_STALLED.series(device.name),
        speed_max="" if speed is None else _line(f.PCIE_SPEED_MAX, speed, device.name),
        width_max="" if width is None else _line(f.PCIE_WIDTH_MAX, width, device.name),
    )


def _port_text(key: _PortKey) -> _PortText:
    port = _port(key.id)
    rail = "" if key.rail is None else str(key.rail)
    words = [health.value for health in PortHealth]
    return _PortText(
        info=_line(f.PORT_INFO, 1, *port, key.link_layer or "", key.netdev or "", key.role.value, rail),
        missing=f.PORT_MISSING.series(*port),
        expected_rate=f.PORT_EXPECTED_RATE.series(*port),
        flaps=f.FLAPS.series(*port),
        health={h: "".join(_one_of(f.PORT_HEALTH, words, h.value, *port)) for h in PortHealth},
    )


def _read_errors(view: DeviceView, clashes: int) -> Iterator[str]:
    counts = dict(view.read_errors)
    if clashes:
        counts[errno.EEXIST] = counts.get(errno.EEXIST, 0) + clashes
    for code, count in sorted(counts.items()):
        yield _line(f.READ_ERRORS, count, view.device.name, errno.errorcode.get(code, str(code)))


def _node(snapshot: Snapshot) -> Iterator[Lines]:
    yield _flag(f.UP, snapshot.up)
    yield build_info()
    yield f.NODE_INFO, [_line(f.NODE_INFO, 1, snapshot.node, snapshot.boot_id)]
    yield f.CONFIG_INFO, [_line(f.CONFIG_INFO, 1, snapshot.config_hash)]
    yield _flag(f.CONFIG_VALID, snapshot.config_valid)
    yield f.NODE_FITNESS, _one_of(f.NODE_FITNESS, [x.value for x in NodeFitness], snapshot.fitness.value)
    if snapshot.up:  # while the directory cannot be read, how many there are is not known
        yield f.DEVICES_PRESENT, [_line(f.DEVICES_PRESENT, len(snapshot.devices))]
    yield f.DEVICES_EXPECTED, [_line(f.DEVICES_EXPECTED, snapshot.devices_expected)]


def _findings(snapshot: Snapshot) -> Iterator[Lines]:
    """One line for each rule, severity and port; a rule that holds for two counters of a port is one series."""
    found = {
        (x.rule, x.severity.value, x.device, str(x.port) if x.port else ""): None  # a dict keeps the order
        for x in snapshot.findings
    }
    yield f.FINDING, [_line(f.FINDING, 1, *labels) for labels in found]
    rules = sorted(snapshot.rules_available.items())
    yield f.RULE_AVAILABLE, [_line(f.RULE_AVAILABLE, int(available), rule) for rule, available in rules]


def _drain(snapshot: Snapshot) -> Iterator[Lines]:
    drain = snapshot.drain
    yield _flag(f.DRAIN_WANTED, drain.intent.drain)
    yield _flag(f.DRAIN_ACTIVE, drain.owned is not None and drain.owned.held)
    if drain.owned is not None:
        yield f.DRAIN_SINCE, [_line(f.DRAIN_SINCE, drain.owned.asked)]
    elif drain.intent.drain:
        yield f.DRAIN_SINCE, [_line(f.DRAIN_SINCE, drain.intent.since)]
    yield f.DRAIN_WOULD, [_line(f.DRAIN_WOULD, drain.would)]
    yield _flag(f.DRAIN_OVERRIDDEN, drain.overridden)
    yield _flag(f.MAINTENANCE, bool(snapshot.maintenance))
    yield _flag(f.DRAIN_ORPHANED, drain.orphaned)
    blocked = drain.blocked.value if drain.blocked else None
    yield f.DRAIN_BLOCKED, _one_of(f.DRAIN_BLOCKED, [code.value for code in BlockCode], blocked)
    yield _flag(f.ACTIONS_ENABLED, snapshot.actions_enabled)
    errors = {**{code.value: 0 for code in BlockCode}, **drain.action_errors}
    yield f.ACTION_ERRORS, [_line(f.ACTION_ERRORS, count, code) for code, count in sorted(errors.items())]
