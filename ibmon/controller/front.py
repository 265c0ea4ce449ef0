"""The desk in force as the server sees it: another one when this instance begins to lead.

It decides nothing; it brings each call to whom it is for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ibmon.controller.values import AlertSeen, Ask, Counts, Fleet, NodeRow, Refused, Told
from ibmon.model import Now
from ibmon.report import Reply, Report

if TYPE_CHECKING:
    from ibmon.controller.daemon import Controller


class Front:
    """`brain.Brain` of a controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def report(self, report: Report, now: Now) -> Reply | Refused:
        """A report whose signature is right."""
        return self._controller.reported(report, now)

    def alert(self, seen: AlertSeen, now: Now) -> None:
        """One alert of an Alertmanager."""
        self._controller.desk.alert(seen, now)

    def ask(self, ask: Ask, now: Now) -> Told:
        """An operator's request; it may have ended a stop or changed a mode."""
        told = self._controller.desk.ask(ask, now)
        self._controller.gates_changed()
        file = self._controller.stop_by_file()
        if file is None or not told.done or ask.action not in {"start", "release"}:
            return told
        return msgspec.structs.replace(
            told, text=f"{told.text}; {file.reason}, so nothing is written before it is gone"
        )

    def fleet(self, now: Now) -> Fleet:
        """The whole at one instant."""
        fleet = self._controller.desk.fleet(now)
        return msgspec.structs.replace(fleet, stop=fleet.stop or self._controller.stop_by_file())

    def counts(self, now: Now) -> Counts:
        """What metrics show."""
        return self._controller.desk.counts(now)

    def nodes(self, now: Now) -> Sequence[NodeRow]:
        """Every node in a line."""
        return self._controller.desk.nodes(now)

    def node(self, name: str, now: Now) -> Mapping[str, Any] | None:
        """All that is known of a node."""
        return self._controller.desk.node(name, now)
