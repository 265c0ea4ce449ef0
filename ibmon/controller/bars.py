"""Why a drain is not made now, and why a node is not given back: every rule of the fleet side, in one fixed order.

The order is that of what must change first: who decides, the stop, the mode, what is known of the node, what is known
of the scheduler, what many nodes show at once, and at last the limits.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ibmon.controller.cases import Case
from ibmon.controller.fabric import ALERT, REPORT, SIBLINGS, FabricDesk, Key, alert_sign, at_once, causes_of
from ibmon.controller.ledger import Book
from ibmon.controller.room import Room
from ibmon.controller.roster import Roster
from ibmon.controller.values import FleetSettings
from ibmon.drain import policy
from ibmon.model import BlockCode, Mode, NodeFitness, Now

FOLLOWER, QUORUM, MISSING, SIBLINGS_WAIT = "follower", "quorum", "missing", "siblings"
"""What holds a drain back for a while and is no refusal: people see it, a node is answered `none`."""

CODES: Final = frozenset(code.value for code in BlockCode)


class Bar(NamedTuple):
    """What holds a case back, and the monotonic time at which that may end by itself (infinity: it does not)."""

    code: str
    until: float = math.inf


class Bars:
    """All that may hold a case back, asked of those who know."""

    def __init__(self, settings: FleetSettings, book: Book, roster: Roster, fabric: FabricDesk, room: Room) -> None:
        self._settings, self._book, self._roster, self._fabric, self._room = settings, book, roster, fabric, room
        self.leader = False

    def mode_of(self, node: str) -> Mode:
        """How far the controller goes with a node: its wave's mode, else the configuration's."""
        return self._book.mode_of(node, self._settings.mode)

    def drain(self, case: Case, now: Now) -> Bar | None:
        """Why this case is not drained now, or None."""
        return (
            self._people(case)
            or self._node(case, now)
            or self._scheduler(case, now)
            or self._siblings(case, now)
            or self._limits(case, now)
        )

    def release(self, case: Case, now: Now) -> Bar | None:
        """Why this case is not given back now, or None. No limit, no quorum and no event holds that back."""
        if bar := self._people(case, giving=True):
            return bar
        if not case.by:
            known = self._roster.known.get(case.node)
            if known is None or case.node in self._roster.missing:
                return Bar(MISSING)
            if case.owner == "node" and known.report.fitness not in (NodeFitness.FIT, NodeFitness.WATCH):
                return Bar("")
            if window := self._book.window_of(case.node, now):
                return Bar(BlockCode.MAINTENANCE.value, self._book.end_of(window, now))
        if self._room.fresh(now) and case.node not in self._room.nodes:
            return Bar(BlockCode.SCHEDULER_UNREACHABLE.value)  # to ask for it would fail, and keep the others waiting
        if not case.held and not case.stands and now.monotonic < case.arrives:
            return Bar("", case.arrives)  # nothing of it is to be seen; it costs no call to find out whether it comes
        if now.monotonic < self._room.pause:
            return Bar(BlockCode.SCHEDULER_UNREACHABLE.value, self._room.pause)
        waits = case.waits(self._room, now)
        return Bar(waits[0].value, waits[1]) if waits else None

    def _people(self, case: Case, *, giving: bool = False) -> Bar | None:
        """Who decides, and what people said."""
        if not self.leader:
            return Bar(FOLLOWER)
        if self._book.stop is not None:
            return Bar(BlockCode.STOP.value)
        known = self._roster.known.get(case.node)
        its_own = known.report.mode if known is not None and not giving else Mode.DRAIN
        if its_own is not Mode.DRAIN or self.mode_of(case.node) is not Mode.DRAIN:
            return Bar(BlockCode.MODE.value)
        return Bar(BlockCode.OVERRIDE.value) if case.gone and not giving else None

    def _node(self, case: Case, now: Now) -> Bar | None:
        """What is known of the fleet and of the node."""
        if not self._roster.open:
            return Bar(QUORUM)
        if self._roster.silent(case.node) or (case.owner == "node" and case.node not in self._roster.known):
            return Bar(MISSING)
        if window := self._book.window_of(case.node, now):
            return Bar(BlockCode.MAINTENANCE.value, self._book.end_of(window, now))
        known = self._roster.known.get(case.node)
        if case.owner == "alertmanager" and known is not None:  # a node's own wish knows these by itself
            working = known.report.maintenance
            if working is not None and not working.subjects and working.until > now.wall:
                return Bar(BlockCode.MAINTENANCE.value, now.monotonic + working.until - now.wall)
            if now.monotonic < known.booted + self._settings.boot_grace:
                return Bar(BlockCode.BOOT_GRACE.value, known.booted + self._settings.boot_grace)
        return None

    def _scheduler(self, case: Case, now: Now) -> Bar | None:
        """What is known of the scheduler, and what it says of the node."""
        room = self._room
        if room.trouble is not None:
            return Bar(room.trouble.value)
        view = room.nodes.get(case.node)
        if view is None or not room.fresh(now):
            return Bar(BlockCode.SCHEDULER_UNREACHABLE.value)
        if now.monotonic < room.pause:
            return Bar(BlockCode.SCHEDULER_UNREACHABLE.value, room.pause)
        if code := policy.node_gate(view, case.record, case.intent()):
            return Bar(code.value)
        waits = case.waits(room, now)
        return Bar(waits[0].value, waits[1]) if waits else None

    def _siblings(self, case: Case, now: Now) -> Bar | None:
        """Whether many nodes show the same, or may show it in a moment."""
        causes = self.causes(case)
        who = (case.node, ALERT if case.owner == "alertmanager" else REPORT)
        until = self._fabric.holds_back(who, causes, self._roster.missing)
        if until is not None:
            return Bar(BlockCode.FABRIC_EVENT.value, until)
        if at_once(causes) and now.monotonic < case.first + SIBLINGS:
            return Bar(SIBLINGS_WAIT, case.first + SIBLINGS)
        return None

    def causes(self, case: Case) -> tuple[Key, ...]:
        """What the drain rests on."""
        if case.owner == "alertmanager":
            entry = self._book.alerts.get(case.node)
            return (alert_sign(entry.alert),) if entry else ()
        known = self._roster.known.get(case.node)
        return causes_of(known.report) if known else ()

    def _limits(self, case: Case, now: Now) -> Bar | None:
        code = self._room.gate(case.node, now.wall)
        if code is None:
            return None
        ends = self._room.rate_ends(case.node, now.wall) if code is BlockCode.LIMIT_RATE else math.inf
        return Bar(code.value, now.monotonic + ends + 0.01)
