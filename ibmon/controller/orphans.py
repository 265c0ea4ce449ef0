"""Drains in ibmon's form that nobody has a record of, and what people want given back. Nothing here decides alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ibmon.controller.cases import Case
from ibmon.controller.ledger import Book
from ibmon.controller.notebook import Notebook
from ibmon.controller.room import Room
from ibmon.controller.roster import REMEMBERED, Roster
from ibmon.drain import policy
from ibmon.model import NodeView, Now


class OrphanDesk:
    """Finds orphans, and brings people's releases to the cases that they are about.

    Attributes:
        found: the orphans, as the scheduler shows them.
        wanted: drains without a record that a person wants back, as cases.
    """

    def __init__(self, book: Book, roster: Roster, room: Room, notebook: Notebook) -> None:
        self._book, self._roster, self._room, self._notebook = book, roster, room, notebook
        self.found: dict[str, NodeView] = {}
        self.wanted: dict[str, Case] = {}

    def judge(self, node: str) -> None:
        """Find out whether a drain in ibmon's form is an orphan.

        It is one when the node has reported and does not present it, and no alert's record has it. Of a node that has
        not reported since the start nothing is said: its record may be well.
        """
        view = self._room.claimed.get(node)
        drain_id = policy.parse_reason(view.reason) if view is not None else None
        if view is None or drain_id is None:
            self.found.pop(node, None)
            if node in self._room.nodes:
                self.wanted.pop(node, None)
            return
        entry = self._book.alerts.get(node)
        recorded = entry is not None and entry.id == drain_id
        if recorded or node not in self._roster.known or self._presents(node, drain_id):
            self.found.pop(node, None)
            if recorded or node in self._roster.known:
                self.wanted.pop(node, None)
            return
        before = self.found.get(node)
        self.found[node] = view
        if before is None or before.reason != view.reason:
            self.wanted.pop(node, None)
            self._notebook.tell("error", "orphan", node=node, id=drain_id, reason=view.reason)

    def _presents(self, node: str, drain_id: str) -> bool:
        report = self._roster.known[node].report
        return (report.owned is not None and report.owned.id == drain_id) or report.intent.id == drain_id

    def judge_all(self, busy: str | None) -> None:
        """The same for every node but that with which a job is out."""
        for node in {*self.found, *self.wanted, *self._room.claimed} - {busy}:
            self.judge(node)

    def unheard(self) -> dict[str, NodeView]:
        """Drains in ibmon's form on nodes that have not reported: a person may name such a node and take it back."""
        return {name: view for name, view in self._room.claimed.items() if name not in self._roster.known}

    # ------------------------------------------------------------------------------------- what people want back

    def assign(self, cases_of: Callable[[str], Iterable[Case]], busy: str | None, now: Now) -> None:
        """Bring each person's release to its case, and end those whose drain is not there any more.

        A node that a view lacks proves nothing: its release waits, a day at most.
        """
        for node, giving in list(self._book.releases.items()):
            cases = [case for case in cases_of(node) if case.id == giving.id]
            for case in cases:
                case.by = giving.user
            if cases or node == busy or not self._room.seq:
                continue
            view = self._room.claimed.get(node)
            absent = node not in self._room.nodes and now.wall - giving.at < REMEMBERED
            if view is not None and policy.parse_reason(view.reason) == giving.id:
                if node not in self.wanted:
                    self._open(view, giving.id, giving.user, giving.at, now)
            elif not absent:
                self.finished(node, giving.id)

    def _open(self, view: NodeView, drain_id: str, user: str, asked: float, now: Now) -> None:
        case = Case("orphan", view.name, drain_id, view.reason or "", view.since or asked, now)
        case.by, case.stands, case.held = user, True, True
        self.wanted[view.name] = case

    def finished(self, node: str, drain_id: str) -> None:
        """A person's release of this drain has come to its end."""
        giving = self._book.releases.get(node)
        if giving is not None and giving.id == drain_id:
            del self._book.releases[node]
            self._book.touch()
        wanted = self.wanted.get(node)
        if wanted is not None and wanted.id == drain_id:
            del self.wanted[node]
