"""What a controller's exposition holds, until its own metrics take this place: the names, and a bad day in three parts.

Owns the names of the controller's families for these tests. Must not: decide what is drawn of them.
"""

from __future__ import annotations

from typing import Final

LEADING, TROUBLED, LEADERLESS = range(3)
"""All is well; nodes are missing, calls fail and an event is on; nobody leads."""

_NODES: Final = {"fit": 19, "watch": 2, "unfit": 4, "unknown": 3}
_DRAINS: Final = {"held": 3, "pending": 1, "withheld": 3, "foreign": 2, "orphaned": 1}
_OUTCOMES: Final = (
    "accepted",
    "refused_signature",
    "refused_replay",
    "refused_skew",
    "refused_shape",
    "refused_name",
)


def exposition(part: int, seconds: float, now: float) -> bytes:
    """The text in this part of the day. `seconds` have passed since its begin, `now` is the wall clock."""
    bad = part != LEADING
    turns = int(seconds)
    lines = [
        f"ibmon_controller_leader {int(part != LEADERLESS)}",
        f"ibmon_controller_stop {int(bad)}",
        *(f'ibmon_controller_nodes{{fitness="{word}"}} {count}' for word, count in _NODES.items()),
        f"ibmon_controller_nodes_missing {6 * bad}",
        f"ibmon_controller_quorum_ratio {0.78 if bad else 1}",
        *(f'ibmon_controller_drains{{state="{state}"}} {count * bad}' for state, count in _DRAINS.items()),
        'ibmon_controller_limit_allowed{pool="batch"} 4',
        f'ibmon_controller_limit_used{{pool="batch"}} {3 * bad}',
        f'ibmon_controller_fabric_events_total{{rule="port-down"}} {turns // 5 * bad}',
        *(f'ibmon_controller_reports_total{{outcome="{name}"}} {turns * (1 + number) * (bad or not number)}'
          for number, name in enumerate(_OUTCOMES)),
        f'ibmon_controller_scheduler_errors_total{{code="unreachable"}} {turns * bad}',
        f'ibmon_controller_decisions_total{{decision="drained",code=""}} {turns // 4}',
        f'ibmon_controller_decisions_total{{decision="blocked",code="fabric_event"}} {turns * bad}',
        f"ibmon_controller_scheduler_age_seconds {900 if bad else 4}",
        f"ibmon_controller_oldest_drain_timestamp_seconds {now - 7200}",
        *(f'ibmon_controller_report_seconds_bucket{{le="{le}"}} {turns * share}'
          for le, share in (("0.005", 8), ("0.01", 9), ("0.1", 10), ("+Inf", 10))),
        f"ibmon_controller_report_seconds_sum {turns * 0.04}",
        f"ibmon_controller_report_seconds_count {turns * 10}",
    ]  # fmt: skip
    if bad:
        lines.append('ibmon_controller_fabric_event{group="leaf-3",rail="3",rule="port-down"} 3')
    return ("\n".join(lines) + "\n").encode()
