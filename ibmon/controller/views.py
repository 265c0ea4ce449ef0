"""What people and metrics see of the fleet. It only looks; every number comes from those who own it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from ibmon.controller.bars import Bars
from ibmon.controller.cases import Case
from ibmon.controller.fabric import FabricDesk
from ibmon.controller.ledger import Book
from ibmon.controller.room import Room
from ibmon.controller.roster import Roster
from ibmon.controller.values import Counts, DrainRow, Fleet, MaintenanceRow, NodeRow
from ibmon.drain import policy
from ibmon.model import NodeFitness, NodeView, Now

VERSION = 1


class Viewer:
    """Makes rows of what the desks hold."""

    def __init__(
        self,
        book: Book,
        roster: Roster,
        fabric: FabricDesk,
        room: Room,
        bars: Bars,
        orphans: Mapping[str, NodeView],
    ) -> None:
        self._book, self._roster, self._fabric = book, roster, fabric
        self._room, self._bars, self._orphans = room, bars, orphans

    def fleet(self, cases: Iterable[Case], now: Now) -> Fleet:
        """The fleet at one instant."""
        return Fleet(
            v=VERSION,
            at=now.wall,
            leader=self._bars.leader,
            stop=self._book.stop,
            quorum=self._roster.quorum(),
            nodes=self._fitness(),
            pools=self._room.rows(),
            drains=tuple(self._drains(cases)),
            fabric_events=tuple(event.row() for event in self._fabric.events.values()),
            maintenance=tuple(
                MaintenanceRow(one.id, one.nodes, one.reason, one.user, one.until) for one in self._book.windows
            ),
        )

    def counts(self, cases: Iterable[Case], decisions: dict[tuple[str, str], int], now: Now) -> Counts:
        """The numbers behind the controller's metrics."""
        nodes = self._fitness()
        missing = nodes.pop("missing")
        known = self._room.nodes
        return Counts(
            leader=self._bars.leader,
            stop=self._book.stop is not None,
            quorum=self._roster.quorum(),
            nodes=nodes,
            missing=missing,
            unknown_names=sum(name not in known for name in self._roster.known) if self._room.seq else 0,
            drains=dict(Counter((row.owner, row.state) for row in self._drains(cases))),
            pools=self._room.rows(),
            fabric_events=len(self._fabric.events),
            fabric_events_total=self._fabric.total,
            decisions=decisions,
            view_age=now.monotonic - self._room.at if self._room.seq else None,
        )

    def _fitness(self) -> dict[str, int]:
        """Nodes by fitness; those that are silent are `unknown`, and counted once more as `missing`."""
        roster = self._roster
        found = Counter(
            known.report.fitness.value for name, known in roster.known.items() if name not in roster.missing
        )
        heard = found.total()
        numbers = {fitness.value: found[fitness.value] for fitness in NodeFitness}
        numbers["unknown"] += len(roster.seen) - heard
        numbers["missing"] = len(roster.missing)
        return numbers

    # ------------------------------------------------------------------------------------- drains

    def _drains(self, cases: Iterable[Case]) -> Iterator[DrainRow]:
        """Every drain that stands or is wanted.

        One in ibmon's form on a node that has not reported since the start is shown as the node's own: whether it is
        an orphan is not known before the node has spoken.
        """
        shown: set[str] = set()
        for case in cases:
            row = _row(case)
            if row is not None:
                yield row
                if row.state == "held":
                    shown.add(row.node)
        for name, view in self._room.nodes.items():
            if not view.drained or name in shown:
                continue
            owner: Literal["node", "orphan", "foreign"] = "foreign"
            if name in self._orphans:
                owner = "orphan"
            elif name in self._room.claimed and name not in self._roster.known:
                owner = "node"
            drain_id = policy.parse_reason(view.reason) or ""
            yield DrainRow(name, owner, "held", drain_id, view.reason or "", view.since)

    # ------------------------------------------------------------------------------------- nodes

    def nodes(self, cases: Mapping[str, Case], now: Now) -> list[NodeRow]:
        """Every node by name."""
        names = self._room.nodes.keys() | self._roster.seen.keys()
        return [self._node_row(name, cases.get(name), now) for name in sorted(names)]

    def _node_row(self, name: str, case: Case | None, now: Now) -> NodeRow:
        group = self._room.groups.get(name, "")
        known = self._roster.known.get(name)
        missing = name in self._roster.missing
        row = _row(case) if case is not None else None
        code = row.code if row is not None else ""
        if known is None:
            return NodeRow(name, NodeFitness.UNKNOWN.value, group, "", None, code, missing)
        fitness = NodeFitness.UNKNOWN if missing else known.report.fitness
        return NodeRow(name, fitness.value, group, known.report.rails, now.monotonic - known.at, code, missing)

    def node(self, name: str, cases: list[Case], now: Now) -> dict[str, Any] | None:
        """All about one node, in plain values for JSON."""
        known, view = self._roster.known.get(name), self._room.nodes.get(name)
        if known is None and view is None and name not in self._roster.seen:
            return None
        window = self._book.window_of(name, now)
        own = next((case for case in cases if case.owner == "node"), None)
        rows = [row for case in cases if (row := _row(case)) is not None]
        seen = None
        if view is not None:
            seen = {"flags": sorted(view.flags), "reason": view.reason, "user": view.user, "since": view.since}
        return {
            **msgspec.to_builtins(self._node_row(name, own, now)),
            "mode": self._bars.mode_of(name).value,
            "report": msgspec.to_builtins(known.report) if known is not None else None,
            "scheduler": seen,
            "drains": msgspec.to_builtins(rows),
            "orphan": name in self._orphans,
            "maintenance": msgspec.to_builtins(window),
        }


def _row(case: Case) -> DrainRow | None:
    """A case as people see it, as it was weighed last; None where nothing stands or is wanted."""
    owner: Literal["node", "alertmanager"] = "alertmanager" if case.owner == "alertmanager" else "node"
    if case.stands or (case.held and case.stands is None):
        return DrainRow(case.node, owner, "held", case.id, case.reason, case.since, case.bar)
    if not case.due():
        return None
    state: Literal["pending", "withheld"] = "withheld" if case.bar else "pending"
    return DrainRow(case.node, owner, state, case.id, case.reason, case.since, case.bar)
