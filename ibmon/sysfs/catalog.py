"""The counter catalog: what each kernel counter means, how wide it is and which metric it becomes.

Owns the reading of ``catalog.json`` and the naming rule. It must not read counters or judge their values.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Level = Literal["counters", "hw", "device_hw", "net", "phy"]
"""Where a counter comes from.

``counters``: ports/N/counters and counters_ext; ``hw``: ports/N/hw_counters; ``device_hw``: hw_counters of the
device; ``net``: files of the port's network interface; ``phy``: ethtool statistics of that interface.
"""

HealthClass = Literal["throughput", "link", "physical", "loss", "retransmit", "congestion", "config", "other"]

LEVELS: Final[tuple[Level, ...]] = get_args(Level)

XMIT_BYTES: Final = "ibmon_port_xmit_data_bytes_total"
RCV_BYTES: Final = "ibmon_port_rcv_data_bytes_total"


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One counter of one level.

    Attributes:
        level: where it is found.
        name: file name as the kernel writes it, or with ``{vl}``, ``{ctx}``, ``{engine}``, ``{lane}`` or ``{prio}``
            for a number.
        kind: whether it counts up or goes up and down.
        unit: unit of the number in the file, before any scaling.
        bits: width of the field at its source; None where it depends on driver or kernel.
        saturates: ``yes`` sticks at its maximum, ``no`` does not in practice, ``depends`` on the driver or not known.
        health_class: what a rise speaks of.
        drivers: who has it, separated by ``;``, with versions or conditions in parentheses.
        help: what it means to the person who runs the node; one line of ASCII.
    """

    level: Level
    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    bits: int | None
    saturates: Literal["yes", "no", "depends"]
    health_class: HealthClass
    drivers: str
    help: str


class _Catalog(msgspec.Struct, frozen=True):
    """The data file: one row a counter, and node_exporter's names (without their prefix) by level and file name."""

    entries: list[Entry]
    node_exporter: dict[Level, dict[str, str]]


# ports/N/counters in 4-byte words; IBTA PortCounters and PortCountersExtended, and the old counters_ext directory.
_DATA_WORDS: Final = frozenset({"port_xmit_data", "port_rcv_data", "port_xmit_data_64", "port_rcv_data_64"})
_WORD_BYTES: Final = 4
_LIFESPAN: Final = "lifespan"

_PREFIX: Final[dict[Level, str]] = {
    "counters": "ibmon_port_",
    "hw": "ibmon_port_hw_",
    "device_hw": "ibmon_device_hw_",
    "net": "ibmon_port_net_",
    "phy": "ibmon_port_phy_",
}
_PATH: Final[dict[Level, str]] = {
    "counters": "ports/N/counters/",
    "hw": "ports/N/hw_counters/",
    "device_hw": "hw_counters/",
    "net": "class/net/DEV/",
    "phy": "ethtool -S DEV ",
}
# The RDMA driver behind a PCI driver, where the catalog treats that driver in a way of its own.
_RDMA_DRIVER: Final = {"bnxt_en": "bnxt_re"}
# A PMA field that the driver cuts to width instead of holding it at the maximum, so that it wraps:
# bnxt_re all of them (drivers/infiniband/hw/bnxt_re, since 6.15), hfi1 only this one (hw/hfi1/mad.c).
_TRUNCATED_BY_HFI1: Final = "port_rcv_switch_relay_errors"

_ODD: Final = re.compile(r"[^A-Za-z0-9_]")
_NUMBER: Final = re.compile(r"\d+")
_PLACEHOLDER: Final = re.compile(r"\{[a-z]+\}")
_ANY_NAME: Final = "*"


def _load() -> _Catalog:
    """The data file. The few words that stand in each row are one string for all of them: it lives in every process."""
    data = msgspec.json.decode(Path(__file__).with_name("catalog.json").read_bytes(), type=_Catalog)
    replace, intern = msgspec.structs.replace, sys.intern
    rows = [replace(row, unit=intern(row.unit), drivers=intern(row.drivers)) for row in data.entries]
    return _Catalog(rows, data.node_exporter)


_DATA: Final = _load()
_BY_NAME: Final = {level: {row.name: row for row in _DATA.entries if row.level == level} for level in LEVELS}
_NUMBERED: Final = {(e.level, _PLACEHOLDER.sub("{}", e.name)): e for e in _DATA.entries if "{" in e.name}


def entries() -> Sequence[Entry]:
    """Every entry, by level and then by name."""
    return _DATA.entries


def lookup(level: Level, name: str, driver: str | None = None) -> Entry | None:
    """What is known of the counter, or None.

    A number in the name stands for a placeholder (``TxFlitVL3`` finds ``TxFlitVL{vl}``). With driver ``ionic``,
    whose names come from firmware, an unknown port hw counter finds the entry ``*``.
    """
    if (entry := _BY_NAME[level].get(name)) is not None:
        return entry
    for number in _NUMBER.finditer(name):
        key = f"{name[: number.start()]}{{}}{name[number.end() :]}"
        if (entry := _NUMBERED.get((level, key))) is not None:
            return entry
    return _BY_NAME[level].get(_ANY_NAME) if driver == "ionic" else None


def maximum(level: Level, name: str, driver: str | None, *, extended: bool | None = None) -> int | None:
    """The value at which the counter sticks and says nothing more; None where it does not, or nobody knows.

    Args:
        level: where the counter is found.
        name: file name.
        driver: name of the RDMA or PCI driver, None if not known. bnxt_re wraps and does not stick.
        extended: whether the directory holds ``unicast_xmit_packets``. Only without it can data and packets be
            the 32-bit fields, which stick (core/sysfs.c, get_counter_table).
    """
    entry = lookup(level, name)
    if entry is None or _is_truncated(entry, driver):
        return None
    if level != "counters":
        # 32-bit Q counters of mlx5 and the like: neither the kernel nor the vendor says whether they wrap or stick.
        return _all_ones(entry.bits) if entry.saturates == "yes" and entry.bits else None
    if entry.bits is None:
        return _all_ones(32) if extended is False else None
    return _all_ones(entry.bits) if entry.bits <= 32 else None


def wraps(level: Level, name: str, driver: str | None) -> int | None:
    """The modulus of a counter that its driver cuts to a narrow field (bnxt_re, one of hfi1), else None."""
    entry = lookup(level, name)
    if entry is None or entry.bits is None or not _is_truncated(entry, driver):
        return None
    return 1 << entry.bits


def unreadable(level: Level, driver: str | None) -> int | None:
    """The value by which a driver says that it could not read a counter (ionic: all ones), else None."""
    return _all_ones(64) if driver == "ionic" and level in {"hw", "device_hw"} else None


def scale(level: Level, name: str) -> int:
    """The factor from the file's number to the metric's unit: 4 for data words (to bytes), else 1."""
    return _WORD_BYTES if level == "counters" and name in _DATA_WORDS else 1


def divisor(level: Level, name: str) -> int:
    """The divisor from the file's number to the metric's unit: 1000 for ``lifespan`` (to seconds), else 1."""
    return 1000 if _is_lifespan(level, name) else 1


def metric_name(level: Level, name: str) -> str:
    """The metric that publishes the counter. Names that the catalog does not know are counters.

    Two files may fold into one name (``Unaligned``, ``unaligned``); which of them is published is the caller's choice.
    """
    base = _ODD.sub("_", name.removeprefix("port_")).lower()
    if _is_lifespan(level, name):
        return f"{_PREFIX[level]}{base}_seconds"
    if scale(level, name) != 1:
        return f"{_PREFIX[level]}{base}_bytes_total"
    entry = lookup(level, name)
    suffix = "" if entry is not None and entry.kind == "gauge" else "_total"
    return f"{_PREFIX[level]}{base}{suffix}"


def alias(level: Level, name: str) -> str | None:
    """The data metric that a byte counter also feeds where the port has no ``counters/port_xmit_data``, else None.

    EFA, mana and older bnxt_re have no PMA counters and count bytes in hw_counters. Traffic has one name on every
    adapter only if those bytes, unscaled, appear under it too.
    """
    if level != "hw":
        return None
    return {"tx_bytes": XMIT_BYTES, "rx_bytes": RCV_BYTES}.get(name)


def help_for(level: Level, name: str, driver: str | None = None) -> str:
    """HELP text: the kernel file and what it means, one line that needs no escaping."""
    entry = lookup(level, name, driver)
    shown = "".join(c if c.isprintable() and c != "\\" else "?" for c in name)
    if entry is None:
        return f"{_PATH[level]}{shown}: not in the catalog of known counters, published as the driver gives it."
    return f"{_path(entry)}{shown}: {entry.help}"


def node_exporter_name(level: Level, name: str) -> str | None:
    """The name under which node_exporter 1.12 publishes the counter, or None where it does not.

    Its data metrics are bytes like ours. Its ``lifespan_seconds`` is always 0, by an integer division.
    """
    short = _DATA.node_exporter.get(level, {}).get(name)
    return None if short is None else f"node_infiniband_{short}"


def node_exporter_names() -> Iterator[tuple[Level, str, str]]:
    """Level, file name and metric of every counter that node_exporter 1.12 publishes."""
    for level in LEVELS:
        for name, short in _DATA.node_exporter.get(level, {}).items():
            yield level, name, f"node_infiniband_{short}"


def _all_ones(bits: int) -> int:
    return (1 << bits) - 1


def _is_lifespan(level: Level, name: str) -> bool:
    return name == _LIFESPAN and level in {"hw", "device_hw"}


def _is_truncated(entry: Entry, driver: str | None) -> bool:
    """Whether the driver cuts this PMA field to its width; wide fields are not affected."""
    if entry.level != "counters" or driver is None or (entry.bits or 64) > 32:
        return False
    rdma = _RDMA_DRIVER.get(driver, driver)
    return rdma == "bnxt_re" or (rdma == "hfi1" and entry.name == _TRUNCATED_BY_HFI1)


def _path(entry: Entry) -> str:
    """Directory of the file, as documentation writes it; a few drivers keep theirs elsewhere."""
    if entry.drivers.endswith("(counters_ext)"):
        return "ports/N/counters_ext/"
    if entry.drivers == "qib":
        return "ports/N/diag_counters/"
    if "netlink only" in entry.drivers:
        return "rdma statistic "
    return _PATH[entry.level]
