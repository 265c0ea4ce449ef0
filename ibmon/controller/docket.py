"""What the nodes themselves want and own: a case for each wish or record that a report presents."""

from __future__ import annotations

from ibmon.controller.cases import Case
from ibmon.controller.ledger import Book
from ibmon.controller.notebook import BAD_WISH, Notebook
from ibmon.controller.room import Room
from ibmon.drain import policy
from ibmon.model import Now
from ibmon.report import Report


class Docket:
    """The cases of nodes, by name. A case lives as long as its id is presented."""

    def __init__(self, book: Book, room: Room, notebook: Notebook) -> None:
        self._book, self._room, self._notebook = book, room, notebook
        self.cases: dict[str, Case] = {}

    def take(self, report: Report, now: Now, *, known: bool) -> Case | None:
        """Open, carry on or close the case of this node, as its newest report says.

        `known` is whether the node has reported to this process before: what it did not want then, nobody else can
        have asked for.

        A wish is none whose text does not carry its id, or is not the recorded one: such a drain could never be proved
        to be the node's. Neither is one without a finding that drains: no node is drained without a cause.
        """
        node, wish, owned = report.node, report.intent, report.owned
        drain_id = wish.id or (owned.id if owned is not None else "")
        if wish.drain and (why := _wrong(report)):
            self._notebook.once(node, BAD_WISH, "error", "wish-refused", detail=why)
            drain_id = ""
        if not drain_id:
            self.cases.pop(node, None)
            return None
        case = self.cases.get(node)
        if case is not None and case.id == drain_id:
            case.take(report, now)
        else:
            reason = owned.reason if owned is not None and owned.id == drain_id else wish.reason
            since = wish.since or (owned.asked if owned is not None else 0.0) or now.wall
            case = self.cases[node] = Case("node", node, drain_id, reason, since, now, late=not known)
            case.take(report, now)
            case.first_look(self._room)
        giving = self._book.releases.get(node)
        if giving is not None and giving.id == drain_id:
            case.by = giving.user
        return case


def _wrong(report: Report) -> str:
    """Why this node's wish to be drained is none; empty where it is one."""
    wish, owned = report.intent, report.owned
    if policy.parse_reason(wish.reason) != wish.id:
        return "the reason does not carry the wish's id"
    if owned is not None and owned.id == wish.id and owned.reason != wish.reason:
        return "the record of this drain has another reason"
    return "" if any(finding.drains for finding in report.findings) else "no finding of the report drains"
