"""The table of metric families: name, type, help and labels of everything that ibmon serves.

docs/metrics.md is made from it. Names of counters come from the counter catalog; nothing here renders.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ibmon.exporter.text import Family, Kind
from ibmon.model import Level
from ibmon.sysfs import catalog

_GAUGE, _COUNTER, _INFO = Kind.GAUGE, Kind.COUNTER, Kind.INFO
_PORT = ("device", "port")

# ---------------------------------------------------------------------------------------------- the node
UP = Family("ibmon_up", _GAUGE, "1 if the last listing of class/infiniband could be read, else 0.")
BUILD_INFO = Family("ibmon_build_info", _INFO, "Version of ibmon and of its Python.", ("version", "python"))
NODE_INFO = Family(
    "ibmon_node_info", _INFO, "Name of the node and its boot, proc/sys/kernel/random/boot_id.", ("node", "boot_id")
)
CONFIG_INFO = Family("ibmon_config_info", _INFO, "Hash of the configuration in force.", ("hash",))
CONFIG_VALID = Family(
    "ibmon_config_valid", _GAUGE, "0 while the configuration file is invalid and an older one stays in force, else 1."
)
NODE_FITNESS = Family(
    "ibmon_node_fitness", _GAUGE, "Verdict on the node for multi-node jobs: 1 for the one that holds.", ("fitness",)
)
DEVICES_PRESENT = Family(
    "ibmon_devices_present", _GAUGE, "Devices in class/infiniband that the configuration includes."
)
DEVICES_EXPECTED = Family("ibmon_devices_expected", _GAUGE, "Devices that the inventory expects on this node.")

# ---------------------------------------------------------------------------------------------- devices
DEVICE_INFO = Family(
    "ibmon_device_info",
    _INFO,
    "Identity of a device: node_guid, sys_image_guid, board_id, hca_type and fw_ver below class/infiniband/DEVICE, "
    "and the driver, address and kind of the PCI function behind it.",
    (
        "device",
        "node_guid",
        "sys_image_guid",
        "board_id",
        "hca_type",
        "firmware_version",
        "driver",
        "pci_address",
        "function",
    ),
)
DEVICE_STALLED = Family(
    "ibmon_device_stalled", _GAUGE, "1 while a read of the device does not come back in time, else 0.", ("device",)
)
READ_ERRORS = Family(
    "ibmon_read_errors_total",
    _COUNTER,
    "Reads below class/infiniband/DEVICE that failed, by error; EEXIST counts files whose metric name another file "
    "of the device has already.",
    ("device", "errno"),
)
SAMPLE_AGE = Family(
    "ibmon_sample_age_seconds", _GAUGE, "Seconds since the last complete read of ports/N/state.", ("device",)
)
PCIE_SPEED = Family(
    "ibmon_pcie_link_speed_transfers_per_second",
    _GAUGE,
    "Speed of the PCIe link now, current_link_speed of the PCI function.",
    ("device",),
)
PCIE_WIDTH = Family(
    "ibmon_pcie_link_width_lanes",
    _GAUGE,
    "Width of the PCIe link now, current_link_width of the PCI function.",
    ("device",),
)
PCIE_SPEED_MAX = Family(
    "ibmon_pcie_link_speed_transfers_per_second_max",
    _GAUGE,
    "Speed that both ends of the PCIe link can do: the lower max_link_speed of the function and its slot.",
    ("device",),
)
PCIE_WIDTH_MAX = Family(
    "ibmon_pcie_link_width_lanes_max",
    _GAUGE,
    "Width that both ends of the PCIe link can do: the lower max_link_width of the function and its slot.",
    ("device",),
)
MODULE_TEMPERATURE = Family(
    "ibmon_module_temperature_celsius",
    _GAUGE,
    "Temperature of the cable or transceiver module in a cage, by the label of the driver's sensor (module0).",
    ("device", "sensor"),
)

# ---------------------------------------------------------------------------------------------- ports
PORT_INFO = Family(
    "ibmon_port_info",
    _INFO,
    "Identity of a port: ports/N/link_layer, its network interface, and its role and rail in the inventory.",
    ("device", "port", "link_layer", "netdev", "role", "rail"),
)
PORT_MISSING = Family("ibmon_port_missing", _GAUGE, "1 if the inventory expects the port and it is not there.", _PORT)
PORT_STATE = Family(
    "ibmon_port_state",
    _GAUGE,
    "Logical state, ports/N/state: 0 NOP, 1 DOWN, 2 INIT, 3 ARMED, 4 ACTIVE, 5 ACTIVE_DEFER.",
    _PORT,
)
PORT_PHYSICAL_STATE = Family(
    "ibmon_port_physical_state",
    _GAUGE,
    "Physical state, ports/N/phys_state: 1 Sleep, 2 Polling, 3 Disabled, 4 PortConfigurationTraining, 5 LinkUp, "
    "6 LinkErrorRecovery, 7 Phy Test.",
    _PORT,
)
PORT_RATE = Family(
    "ibmon_port_rate_bytes_per_second",
    _GAUGE,
    "Signalling rate, ports/N/rate, as read in every state; it means something only while the port is ACTIVE.",
    _PORT,
)
PORT_EXPECTED_RATE = Family(
    "ibmon_port_expected_rate_bytes_per_second", _GAUGE, "Rate that the inventory expects of the port.", _PORT
)
PORT_WIDTH = Family("ibmon_port_width_lanes", _GAUGE, "Lanes of the link, the second number of ports/N/rate.", _PORT)
PORT_HEALTH = Family(
    "ibmon_port_health", _GAUGE, "Verdict on the port: 1 for the one that holds.", ("device", "port", "health")
)
COUNTER_SATURATED = Family(
    "ibmon_port_counter_saturated",
    _GAUGE,
    "1 for a counter that stands at the maximum of its field, so that errors are no longer counted; no series else.",
    ("device", "port", "counter"),
)
COUNTER_RESETS = Family(
    "ibmon_port_counter_resets_total",
    _COUNTER,
    "Decreases of a counter that ibmon has seen: somebody or something cleared it.",
    ("device", "port", "counter"),
)

# ---------------------------------------------------------------------------------------------- findings
FINDING = Family(
    "ibmon_finding",
    _GAUGE,
    "1 for each rule that holds; device and port are empty where it is about more than one.",
    ("rule", "severity", "device", "port"),
)
HOLD = Family(
    "ibmon_port_hold_seconds",
    _GAUGE,
    "Seconds until the hold of a rule that runs now would end.",
    ("rule", "device", "port"),
)
FLAPS = Family("ibmon_flap_episodes_total", _COUNTER, "Times that the port went down and came back.", _PORT)
RULE_AVAILABLE = Family(
    "ibmon_rule_available", _GAUGE, "0 while what the rule looks at cannot be read, else 1.", ("rule",)
)

# ---------------------------------------------------------------------------------------------- drain
DRAIN_WANTED = Family("ibmon_drain_wanted", _GAUGE, "1 while ibmon wants the node to get no new jobs, else 0.")
DRAIN_ACTIVE = Family("ibmon_drain_active", _GAUGE, "1 while a drain of ours is in force and was read back, else 0.")
DRAIN_SINCE = Family(
    "ibmon_drain_since_timestamp_seconds", _GAUGE, "Unix time since which the drain is wanted or in force."
)
DRAIN_WOULD = Family(
    "ibmon_drain_would_total", _COUNTER, "Drains that were due and that the mode (observe or alert) did not allow."
)
DRAIN_OVERRIDDEN = Family(
    "ibmon_drain_overridden", _GAUGE, "1 while somebody's resume of a node that is still bad is respected, else 0."
)
DRAIN_ORPHANED = Family(
    "ibmon_drain_orphaned", _GAUGE, "1 if the scheduler shows a drain in our words that we have no record of, else 0."
)
DRAIN_BLOCKED = Family(
    "ibmon_drain_blocked", _GAUGE, "Why a drain that is due is not made: 1 for what holds.", ("code",)
)
MAINTENANCE = Family(
    "ibmon_maintenance", _GAUGE, "1 while somebody works on this node or on some of its ports by 'ibmon maintenance'."
)
ACTIONS_ENABLED = Family(
    "ibmon_actions_enabled",
    _GAUGE,
    "0 if this daemon only exports: another one acts, or the scheduler does not let it; else 1.",
)
ACTION_ERRORS = Family("ibmon_action_errors_total", _COUNTER, "Calls to the scheduler that failed.", ("code",))

SNAPSHOT_FAMILIES: Final[tuple[Family, ...]] = tuple(v for v in dict(globals()).values() if isinstance(v, Family))
"""Everything of fixed name that is rendered from a snapshot."""

# ---------------------------------------------------------------------------------------------- ibmon itself
TICKS = Family("ibmon_ticks_total", _COUNTER, "Turns of the engine's loop.")
TICK_DURATION = Family("ibmon_tick_duration_seconds", Kind.SUMMARY, "Time that the turns of the engine's loop took.")
HTTP_REQUESTS = Family("ibmon_http_requests_total", _COUNTER, "Answers of the HTTP server, by status code.", ("code",))
SAVE_ERRORS = Family(
    "ibmon_state_save_errors_total", _COUNTER, "Saves of the state that failed; while they do, nothing is released."
)
OUTBOX_PENDING = Family("ibmon_outbox_pending", _GAUGE, "Messages that wait for delivery.", ("target",))
DELIVERY_ATTEMPTS = Family("ibmon_delivery_attempts_total", _COUNTER, "Attempts to deliver a message.", ("target",))
DELIVERY_FAILURES = Family("ibmon_delivery_failures_total", _COUNTER, "Attempts that failed.", ("target",))

SELF_FAMILIES: Final[tuple[Family, ...]] = (
    TICKS,
    TICK_DURATION,
    HTTP_REQUESTS,
    SAVE_ERRORS,
    OUTBOX_PENDING,
    DELIVERY_ATTEMPTS,
    DELIVERY_FAILURES,
)
"""What ibmon says of itself; see selfmetrics.py."""

# ---------------------------------------------------------------------------------------------- columns
ATTRIBUTE_FAMILIES: Final[dict[tuple[Level, str], Family]] = {
    (Level.ATTR, "state"): PORT_STATE,
    (Level.ATTR, "phys_state"): PORT_PHYSICAL_STATE,
    (Level.ATTR, "rate"): PORT_RATE,
    (Level.ATTR, "width"): PORT_WIDTH,
    (Level.PCI, "current_link_speed"): PCIE_SPEED,
    (Level.PCI, "current_link_width"): PCIE_WIDTH,
}
"""Columns that are no counters, by level and file name."""

CATALOG_LEVEL: Final[dict[Level, catalog.Level]] = {
    Level.COUNTERS: "counters",
    Level.COUNTERS_EXT: "counters",
    Level.HW: "hw",
    Level.DEVICE_HW: "device_hw",
    Level.NET: "net",
    Level.PHY: "phy",
}
"""Where the counter catalog files a column's level."""


@lru_cache(maxsize=4096)
def column_family(level: Level, name: str, driver: str | None = None) -> Family | None:
    """The family that publishes a column, or None where none does (a column that only rules look at)."""
    if level is Level.HWMON:
        return MODULE_TEMPERATURE
    if level not in CATALOG_LEVEL:
        return ATTRIBUTE_FAMILIES.get((level, name))
    where = CATALOG_LEVEL[level]
    metric = catalog.metric_name(where, name)
    kind = _COUNTER if metric.endswith("_total") else _GAUGE
    labels = ("device",) if level is Level.DEVICE_HW else _PORT
    return Family(metric, kind, catalog.help_for(where, name, driver), labels)


def alias_family(level: Level, name: str) -> Family | None:
    """The data family that a byte counter in hw_counters also feeds on adapters without PMA counters, else None."""
    where = CATALOG_LEVEL.get(level)
    if where is None or (metric := catalog.alias(where, name)) is None:
        return None
    return column_family(Level.COUNTERS, ALIAS_SOURCE[metric])


ALIAS_SOURCE: Final[dict[str, str]] = {
    catalog.XMIT_BYTES: "port_xmit_data",
    catalog.RCV_BYTES: "port_rcv_data",
}
"""File in counters/ that a data metric comes from where it exists."""
