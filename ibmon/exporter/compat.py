"""`--compat node_exporter`: the node_infiniband_* families of node_exporter 1.12, so that dashboards go on working.

Owns their names, labels and help; the values are ours. Where they differ, ours is the right one: `lifespan_seconds`
is the file's milliseconds (there an integer division makes it 0), and data bytes do not wrap at 2^64.
"""

from __future__ import annotations

from typing import Final

from ibmon.exporter import families
from ibmon.exporter.text import Family, Kind
from ibmon.model import Device, Level
from ibmon.sysfs import catalog

NODE_EXPORTER: Final = "node_exporter"
"""The word of the configuration and of the command line."""

INFO: Final = Family(
    "node_infiniband_info",
    Kind.INFO,
    "Identity of a device as node_exporter names it; ibmon_device_info says more.",
    ("board_id", "device", "firmware_version", "hca_type"),
)

_ATTRIBUTES: Final = {
    (Level.ATTR, "state"): "node_infiniband_state_id",
    (Level.ATTR, "phys_state"): "node_infiniband_physical_state_id",
    (Level.ATTR, "rate"): "node_infiniband_rate_bytes_per_second",
}


def column_family(level: Level, name: str) -> Family | None:
    """The node_exporter family of a column, or None where node_exporter publishes nothing of that file."""
    ours = families.column_family(level, name)
    theirs = _ATTRIBUTES.get((level, name))
    where = families.CATALOG_LEVEL.get(level)
    if theirs is None and where is not None:
        theirs = catalog.node_exporter_name(where, name)
    if theirs is None or ours is None:
        return None
    kind = Kind.COUNTER if theirs.endswith("_total") else Kind.GAUGE
    return Family(theirs, kind, f"node_exporter's name of {ours.name}. {ours.help}", ours.labels)


def info_series(device: Device) -> str:
    """The line of a device in `node_infiniband_info`; what is not known is an empty label, as there."""
    return INFO.series(device.board_id or "", device.name, device.firmware_version or "", device.hca_type or "") + "1\n"


def names() -> list[tuple[str, str]]:
    """Each name that the option adds for a column, with ours beside it, sorted: for the documentation."""
    columns = [*_ATTRIBUTES, *((Level(level), name) for level, name, _ in catalog.node_exporter_names())]
    pairs = ((column_family(level, name), families.column_family(level, name)) for level, name in columns)
    return sorted((theirs.name, ours.name) for theirs, ours in pairs if theirs and ours)
