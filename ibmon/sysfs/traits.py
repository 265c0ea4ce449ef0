"""What the counter catalog says of a device's columns: where each sticks or wraps, whether it counts, and errors.

Pure: columns in, columns out. It knows no file and reads none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ibmon.model import Column, Level
from ibmon.sysfs import catalog

_CATALOG_LEVEL: Final[dict[Level, catalog.Level]] = {
    Level.COUNTERS: "counters",
    Level.COUNTERS_EXT: "counters",
    Level.HW: "hw",
    Level.DEVICE_HW: "device_hw",
    Level.NET: "net",
    Level.PHY: "phy",
}
_ERROR_CLASSES: Final = frozenset({"link", "physical", "loss", "retransmit"})
_NEVER_STILL: Final = frozenset({"rx_corrected_bits_phy"})  # of class physical, and rising on every healthy PAM4 link
_EXTENDED: Final = "unicast_xmit_packets"  # only the set with 64-bit data and packets has it (core/sysfs.c)
_DEFAULT_NAME: Final = re.compile(r"([a-z]\w*?)_?\d+")


def with_traits(columns: Iterable[Column], device: str, driver: str | None) -> tuple[Column, ...]:
    """The columns with `maximum`, `modulus`, `counts` and `error` filled in."""
    columns = tuple(columns)
    known = rdma_driver(device, driver)
    extended = {c.port for c in columns if c.level is Level.COUNTERS and c.name == _EXTENDED}
    return tuple(_with_traits(column, known, column.port in extended) for column in columns)


def rdma_driver(device: str, driver: str | None) -> str | None:
    """A driver's name; where no link tells it, what the kernel's default device name starts with."""
    if driver is not None:
        return driver
    match = _DEFAULT_NAME.fullmatch(device)
    return match[1] if match else None


def not_read(level: Level, driver: str | None) -> int | None:
    """The value by which a driver says that it could not read a counter, or None where it has no such value."""
    where = _CATALOG_LEVEL.get(level)
    return None if where is None else catalog.unreadable(where, driver)


def _with_traits(column: Column, driver: str | None, extended: bool) -> Column:  # noqa: FBT001 - one private caller
    level = _CATALOG_LEVEL.get(column.level)
    if level is None:
        return column._replace(counts=False)
    entry = catalog.lookup(level, column.name, driver)
    if entry is None:
        return column
    return column._replace(
        maximum=catalog.maximum(level, column.name, driver, extended=extended),
        modulus=catalog.wraps(level, column.name, driver),
        counts=entry.kind == "counter",
        error=entry.kind == "counter" and entry.health_class in _ERROR_CLASSES and column.name not in _NEVER_STILL,
    )
