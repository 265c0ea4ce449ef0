"""Which column of which device goes into which metric, worked out once for a set of layouts.

Owns series names and clashes of columns. It must not read values: rendering is a walk over a finished plan.
A family must be one block of text, so the plan goes by family and then by device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from ibmon.exporter import compat
from ibmon.exporter.families import (
    ALIAS_SOURCE,
    ATTRIBUTE_FAMILIES,
    CATALOG_LEVEL,
    SELF_FAMILIES,
    SNAPSHOT_FAMILIES,
    alias_family,
    column_family,
)
from ibmon.exporter.text import Family, Format
from ibmon.model import Column, Device, Layout, Level
from ibmon.picking import Picker, picker
from ibmon.sysfs import catalog

_DIRECTORY: Final = {Level.COUNTERS: "counters", Level.COUNTERS_EXT: "counters_ext", Level.HW: "hw_counters"}
_BUSY: Final = frozenset({"throughput", "congestion"})
_RESERVED: Final = frozenset(f.base for f in (*SNAPSHOT_FAMILIES, *SELF_FAMILIES))


Values: TypeAlias = tuple[int | None, ...]
"""The values of all columns of one device."""


class Entry(NamedTuple):
    """One series: the value is column `column` of the device at `device`, times `factor`."""

    device: int
    column: int
    series: str
    factor: int


class Block(NamedTuple):
    """All series of one family. Values are divided by `divisor` (a file in milliseconds, a metric in seconds)."""

    headers: dict[Format, str]
    divisor: int
    entries: list[Entry]


class Plan(NamedTuple):
    """The blocks in the order of the families' names: those that stand still on a healthy node, and the busy ones.

    By device, `still` picks what the former show out of its values, and `clashes` counts columns that have no series.
    """

    layouts: tuple[Layout, ...]
    quiet: tuple[Block, ...]
    busy: tuple[Block, ...]
    still: tuple[Picker, ...]
    clashes: tuple[int, ...]


NO_PLAN: Final = Plan((), (), (), (), ())
"""That of no device."""


class _Series(NamedTuple):
    """One series of one layout, before it is known beside which other devices it stands."""

    family: Family
    column: int
    text: str
    factor: int
    divisor: int


class Planner:
    """Makes plans, and remembers the series of each layout for as long as the layout lives."""

    def __init__(self, *, node_exporter: bool) -> None:
        self._node_exporter = node_exporter
        self._known: WeakKeyDictionary[Layout, tuple[tuple[_Series, ...], int]] = WeakKeyDictionary()

    def plan(self, devices: Sequence[Device]) -> Plan:
        """The plan for these devices, in this order."""
        taken: dict[str, Family] = {}
        blocks: dict[str, Block] = {}
        clashes = []
        for position, device in enumerate(devices):
            series, clashed = self._series(device)
            for family, column, text, factor, divisor in series:
                if taken.setdefault(family.base, family).kind is not family.kind:
                    clashed += 1
                    continue
                block = blocks.get(family.name)
                if block is None:
                    headers = {fmt: family.header(fmt) for fmt in Format}
                    block = blocks[family.name] = Block(headers, divisor, [])
                block.entries.append(Entry(position, column, text, factor))
            clashes.append(clashed)
        layouts = tuple(d.layout for d in devices)
        quiet: list[Block] = []
        busy: list[Block] = []
        for name in sorted(blocks):
            moves = all(_moves(layouts[e.device].columns[e.column]) for e in blocks[name].entries)
            (busy if moves else quiet).append(blocks[name])
        return Plan(layouts, tuple(quiet), tuple(busy), _still(quiet, layouts), tuple(clashes))

    def _series(self, device: Device) -> tuple[tuple[_Series, ...], int]:
        known = self._known.get(device.layout)
        if known is None:
            known = self._known[device.layout] = self._work_out(device)
        return known

    def _work_out(self, device: Device) -> tuple[tuple[_Series, ...], int]:
        """The series of a device and the number of columns that clash: the first in byte order of its path stays."""
        columns = device.layout.columns
        taken: set[str] = set()
        kinds: dict[str, Family] = {}
        found: list[_Series] = []
        clashes = 0
        for i in sorted(range(len(columns)), key=lambda i: _path(columns[i])):
            clashed = False
            for family, factor in self._families(device, columns[i]):
                ours = columns[i].level in CATALOG_LEVEL
                text = _text(family, device.name, columns[i])
                same = kinds.setdefault(family.base, family).kind is family.kind
                if text in taken or not same or (ours and family.base in _RESERVED):
                    clashed = True
                    continue
                taken.add(text)
                found.append(_Series(family, i, text, factor, _divisor(columns[i])))
            clashes += clashed
        return tuple(found), clashes

    def _families(self, device: Device, column: Column) -> Iterator[tuple[Family, int]]:
        """The families that a column feeds, each with the factor to its unit."""
        factor = catalog.scale(CATALOG_LEVEL[column.level], column.name) if column.level in CATALOG_LEVEL else 1
        if family := column_family(column.level, column.name, device.driver):
            yield family, factor
        if alias := alias_family(column.level, column.name):
            source = (column.port, Level.COUNTERS, ALIAS_SOURCE[alias.name])
            if source not in device.layout.index:
                yield alias, factor
        if self._node_exporter and (theirs := compat.column_family(column.level, column.name)):
            yield theirs, factor


def _still(blocks: Sequence[Block], layouts: Sequence[Layout]) -> tuple[Picker, ...]:
    """By device, what picks the columns of these blocks out of its values."""
    columns: list[set[int]] = [set() for _ in layouts]
    for block in blocks:
        for entry in block.entries:
            columns[entry.device].add(entry.column)
    return tuple(picker(sorted(found)) for found in columns)


def _moves(column: Column) -> bool:
    """Whether a column is another number at each read of a port that is in use."""
    if column.level not in CATALOG_LEVEL:
        return column.level is Level.HWMON
    entry = catalog.lookup(CATALOG_LEVEL[column.level], column.name)
    return entry is not None and entry.health_class in _BUSY


def counter_label(column: Column) -> str:
    """How a label `counter` names a column: the file name, with its level in front where that is not counters/."""
    if column.level in {Level.COUNTERS, Level.COUNTERS_EXT, Level.ATTR}:
        return column.name
    return f"{column.level.value}_{column.name}"


def _text(family: Family, device: str, column: Column) -> str:
    values = {"device": device, "port": str(column.port), "sensor": column.name}
    return family.series(*(values[label] for label in family.labels))


def _path(column: Column) -> bytes:
    directory = _DIRECTORY.get(column.level, column.level.value)
    return f"{column.port:09}/{directory}/{column.name}".encode("utf-8", "surrogateescape")


def _divisor(column: Column) -> int:
    if column.level is Level.HWMON:
        return 1000
    if (column.level, column.name) in ATTRIBUTE_FAMILIES or column.level not in CATALOG_LEVEL:
        return 1
    return catalog.divisor(CATALOG_LEVEL[column.level], column.name)
