"""Lines for the audit log until the runtime takes them, and what of a node was said once already."""

from __future__ import annotations

from typing import Any, Final, Literal

from ibmon.controller.fabric import Event
from ibmon.controller.ledger import Window
from ibmon.controller.roster import Turned
from ibmon.controller.values import Note, Quorum, Refused

NAMES: Final = 50
"""Node names in one line at most; the count beside them is whole."""

REPLAY, SKEW, UNKNOWN, BAD_WISH = "replay", "skew", "unknown", "bad wish"
_OF_REPORTS: Final = (REPLAY, SKEW)


class Notebook:
    """Takes notes; `once` keeps a node that goes on doing the same from filling the log."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._said: set[tuple[str, str]] = set()

    def take(self) -> list[Note]:
        """The lines since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def add(self, note: Note) -> None:
        """One more line."""
        self._notes.append(note)

    def tell(self, level: Literal["info", "warning", "error"], event: str, **fields: Any) -> None:
        """One more line, of fields that are set."""
        self.add(Note(level, event, {name: value for name, value in fields.items() if value not in ("", None)}))

    def once(self, node: str, what: str, level: Literal["info", "warning", "error"], event: str, **fields: Any) -> None:
        """Tell something of a node, unless that was told and is not over."""
        if (node, what) not in self._said:
            self._said.add((node, what))
            self.tell(level, event, node=node, **fields)

    def over(self, node: str, *what: str) -> None:
        """It may be told again: it has ended. Without `what` all of this node has."""
        if self._said:
            self._said = {said for said in self._said if said[0] != node or (what and said[1] not in what)}

    def accepted(self, node: str) -> None:
        """A report of this node was taken in."""
        if self._said and not self._said.isdisjoint((node, what) for what in _OF_REPORTS):
            self.over(node, *_OF_REPORTS)

    # ------------------------------------------------------------------------------------- lines of one kind

    def refused(self, node: str, refused: Refused) -> None:
        """A report was not taken in."""
        self.once(node, refused.code, "warning", "report-refused", code=refused.code, detail=refused.text)

    def turned(self, turned: Turned, quorum: Quorum) -> None:
        """What time has changed about who reports."""
        if turned.missing:
            self.tell("warning", "nodes-missing", count=len(turned.missing), nodes=turned.missing[:NAMES])
        for node in turned.forgotten:
            self.tell("info", "node-forgotten", node=node)
        if turned.opened:
            self.tell("info", "quorum-open", reported=quorum.reported, seen=quorum.seen)

    def fabric(self, event: Event, *, begins: bool) -> None:
        """An event begins or ends: the one alert about it."""
        row = event.row()
        name = "fabric-event-begins" if begins else "fabric-event-ends"
        fields = {"rule": row.rule, "rail": row.rail, "group": row.group, "count": event.joined, "until": row.until}
        self.tell("warning" if begins else "info", name, nodes=list(row.nodes[:NAMES]), **fields)

    def window_over(self, window: Window) -> None:
        """A window's time is up."""
        nodes = list(window.nodes[:NAMES])
        self.tell("info", "maintenance-over", id=window.id, nodes=nodes, reason=window.reason, user=window.user)
