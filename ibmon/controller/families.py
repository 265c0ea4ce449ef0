"""The controller's metric families: name, type, help and labels. docs/metrics.md is made from them too."""

from __future__ import annotations

from typing import Final

from ibmon.exporter.text import Family, Kind

_GAUGE, _COUNTER = Kind.GAUGE, Kind.COUNTER

LEADER = Family("ibmon_controller_leader", _GAUGE, "1 if this instance is the one that decides, else 0.")
STOP = Family("ibmon_controller_stop", _GAUGE, "1 while an operator's stop is in force: no scheduler is written to.")
NODES = Family("ibmon_controller_nodes", _GAUGE, "Nodes by the fitness that they report.", ("fitness",))
NODES_MISSING = Family("ibmon_controller_nodes_missing", _GAUGE, "Nodes whose report is late; they count as unknown.")
QUORUM_RATIO = Family(
    "ibmon_controller_quorum_ratio", _GAUGE, "Share of the known nodes that have reported since this start, 0 to 1."
)
DRAINS = Family("ibmon_controller_drains", _GAUGE, "Drains that stand or are wanted.", ("state",))
LIMIT_ALLOWED = Family("ibmon_controller_limit_allowed", _GAUGE, "Nodes that ibmon may hold drained.", ("pool",))
LIMIT_USED = Family("ibmon_controller_limit_used", _GAUGE, "Nodes that ibmon holds drained.", ("pool",))
FABRIC_EVENTS = Family(
    "ibmon_controller_fabric_events_total", _COUNTER, "Faults that many nodes showed at once.", ("rule",)
)
FABRIC_EVENT = Family(
    "ibmon_controller_fabric_event",
    _GAUGE,
    "Nodes in a fabric event that is in force.",
    ("group", "rail", "rule"),
)
REPORTS = Family("ibmon_controller_reports_total", _COUNTER, "Reports that came, by what became of them.", ("outcome",))
SCHEDULER_ERRORS = Family(
    "ibmon_controller_scheduler_errors_total", _COUNTER, "Calls to the scheduler that failed.", ("code",)
)
DECISIONS = Family(
    "ibmon_controller_decisions_total",
    _COUNTER,
    "Changes of what the controller has decided about a node.",
    ("decision", "code"),
)
SCHEDULER_AGE = Family("ibmon_controller_scheduler_age_seconds", _GAUGE, "Age of the last whole look at the scheduler.")
OLDEST_DRAIN = Family(
    "ibmon_controller_oldest_drain_timestamp_seconds", _GAUGE, "Unix time of the oldest drain that ibmon holds."
)
REPORT_SECONDS = Family(
    "ibmon_controller_report_seconds", Kind.HISTOGRAM, "Time that a report takes, from its last byte to its answer."
)

CONTROLLER_FAMILIES: Final[tuple[Family, ...]] = (
    LEADER,
    STOP,
    NODES,
    NODES_MISSING,
    QUORUM_RATIO,
    DRAINS,
    LIMIT_ALLOWED,
    LIMIT_USED,
    FABRIC_EVENTS,
    FABRIC_EVENT,
    REPORTS,
    SCHEDULER_ERRORS,
    DECISIONS,
    SCHEDULER_AGE,
    OLDEST_DRAIN,
    REPORT_SECONDS,
)
"""What `/metrics` of the controller says, beside its process; see metrics.py."""
