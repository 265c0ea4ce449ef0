"""A controller's exposition on a bad day in three parts: its own metrics over a fleet as somebody might see it.

Owns what the fleet looks like. Must not: write a metric; `ibmon.controller.metrics` does.
"""

from __future__ import annotations

from typing import Final, final

from ibmon.controller.metrics import REFUSALS, FleetMetrics
from ibmon.controller.values import Counts, DrainRow, FabricEvent, Fleet, PoolRow, Quorum
from ibmon.exporter.text import Format

LEADING, TROUBLED, LEADERLESS = range(3)
"""All is well; nodes are missing, calls fail and an event is on; nobody leads."""

_NODES: Final = {"fit": 19, "watch": 2, "unfit": 4, "unknown": 3}
_DRAINS: Final = {
    ("node", "held"): 3,
    ("node", "pending"): 1,
    ("node", "withheld"): 3,
    ("foreign", "held"): 2,
    ("orphan", "held"): 1,
}
_HIT: Final = ("gpu-12", "gpu-13", "gpu-14")


@final
class Controller:
    """One controller; every text is a second of its life further."""

    def __init__(self) -> None:
        self._metrics = FleetMetrics()
        self._turns = 0

    def text(self, part: int, now: float) -> bytes:
        """The exposition in this part of the day; `now` is the wall clock."""
        bad = part != LEADING
        self._turns += 1
        for _ in range(10):
            self._metrics.report(0.004)
        if bad:
            for kind in REFUSALS:
                self._metrics.refused(kind)
            self._metrics.scheduler_error("scheduler_unreachable")
            if self._turns % 5 == 0:
                self._metrics.fabric_event("port-down")
        quorum = Quorum(seen=32, reported=25 if bad else 32, ratio=0.78 if bad else 1.0, open=not bad)
        pools = (PoolRow("batch", nodes=32, allowed=4, used=3 * bad, unavailable=5 * bad),)
        event = FabricEvent("leaf-3", 3, "port-down", _HIT, began=now - 30, until=now + 870)
        decisions = {("drained", ""): self._turns // 4, ("blocked", "fabric_event"): self._turns * bad}
        counts = Counts(
            leader=part != LEADERLESS, stop=bad, quorum=quorum, nodes=_NODES, missing=6 * bad, unknown_names=0,
            drains=_DRAINS if bad else {}, pools=pools, fabric_events=int(bad), fabric_events_total=int(bad),
            decisions=decisions, view_age=900.0 if bad else 4.0,
        )  # fmt: skip
        fleet = Fleet(
            v=1, at=now, leader=counts.leader, stop=None, quorum=quorum, nodes=_NODES, pools=pools,
            drains=(DrainRow("gpu-22", "node", "held", since=now - 7200),), fabric_events=(event,) if bad else (),
            maintenance=(),
        )  # fmt: skip
        return self._metrics.render(counts, fleet, Format.TEXT)
