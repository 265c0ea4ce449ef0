"""What a port has carried and how often it erred since its counters began: three sums a reader can take rates from.

Pure. Which columns a sum is made of is worked out once for a layout; a request adds a few numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from ibmon.exporter.families import ALIAS_SOURCE, CATALOG_LEVEL
from ibmon.model import Layout, Level, Tier
from ibmon.picking import picker
from ibmon.snapshot import DeviceView
from ibmon.sysfs import catalog

Values = tuple[int | None, ...]


class _Source(NamedTuple):
    """Where one port's numbers stand: the column and factor of sent and received bytes; what takes the errors."""

    sent: tuple[int, int] | None
    received: tuple[int, int] | None
    errors: Callable[[Values], Values]


_KNOWN: Final[WeakKeyDictionary[Layout, dict[int, _Source]]] = WeakKeyDictionary()


def totals(view: DeviceView, port: int) -> dict[str, Any] | None:
    """The sums of a port as its counters were read last; None where they were not, and while the device is stalled.

    `at` is the monotonic time of that read. A sum that no counter feeds, or of which a part could not be read, is None.
    """
    layout = view.device.layout
    read = view.sample.read_at[Tier.COUNTER]
    if read is None or view.stalled:
        return None
    sources = _KNOWN.get(layout)
    if sources is None:
        sources = _KNOWN[layout] = {}
    source = sources.get(port)
    if source is None:
        source = sources[port] = _source(layout, port)
    values = view.sample.values
    return {
        "at": read.monotonic,
        "xmit_bytes": _bytes(values, source.sent),
        "rcv_bytes": _bytes(values, source.received),
        "errors": _sum(source.errors(values)),
    }


def _bytes(values: Values, place: tuple[int, int] | None) -> int | None:
    value = None if place is None else values[place[0]]
    return None if place is None or value is None else value * place[1]


def _sum(found: Values) -> int | None:
    """The errors of all kinds. A counter that cannot be read is left out: it would hide the others for good."""
    known = found if None not in found else [value for value in found if value is not None]
    return sum(known) if known else None  # type: ignore[arg-type]  # no None is left


def _source(layout: Layout, port: int) -> _Source:
    columns = [i for i, column in enumerate(layout.columns) if column.port == port and column.error]
    return _Source(_data(layout, port, catalog.XMIT_BYTES), _data(layout, port, catalog.RCV_BYTES), picker(columns))


def _data(layout: Layout, port: int, metric: str) -> tuple[int, int] | None:
    """The column that feeds a data metric, and its factor to bytes: the file of counters/ before its stand-in."""
    name = ALIAS_SOURCE[metric]
    i = layout.column(port, Level.COUNTERS, name)
    if i is not None:
        return i, catalog.scale(CATALOG_LEVEL[Level.COUNTERS], name)
    for i, column in enumerate(layout.columns):
        level = CATALOG_LEVEL.get(column.level)
        if column.port == port and level is not None and catalog.alias(level, column.name) == metric:
            return i, 1
    return None
