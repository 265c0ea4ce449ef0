"""One drain and what is known of it: wanted or to be given back, standing or not, tried when, refused why. Pure.

A case is a node's own wish, an alert's, or an orphan that a person wants back. Evidence is the outcome of a job, or a
view of the scheduler that was read after it; older views prove nothing.
"""

from __future__ import annotations

import math
import zlib
from typing import Final, Literal

import msgspec

from ibmon.controller.room import Room
from ibmon.drain import policy
from ibmon.messages import EffectDone
from ibmon.model import BlockCode, Intent, Now, Ownership
from ibmon.report import Report

RETRY_FIRST: Final = 10.0
RETRY_CAP: Final = 300.0
RETRY_BLOCKED: Final = 60.0
"""Seconds until what the scheduler refused is tried again, and what it did not answer, doubling up to the cap."""

LATE: Final = 300.0
"""Seconds for which a drain that was asked for and never seen may still be made (`ibmon.drain.reconcile.LATE`)."""

LIMIT_CODES: Final = frozenset(
    {BlockCode.LIMIT_NODES, BlockCode.LIMIT_RATE, BlockCode.LIMIT_UNREADABLE, BlockCode.MAX_UNAVAILABLE}
)

Owner = Literal["node", "alertmanager", "orphan"]
"""On whose record a drain rests; an orphan is a case only when a person wants it back."""


class Case:
    """One drain.

    Attributes:
        wants: it is to stand. giving: it is to be given back. by: the person who wants it back.
        stands: whether it stands, None while that is not known.
        held: it was seen to stand, so that its absence means that somebody has taken it away.
        gone: somebody took it away while it was wanted; it is not made again.
        failing: the last call for it failed.
        proof: monotonic time before which a view proves nothing.
        bar: what holds it back, as it was weighed last.
        arrives: monotonic time until which a drain that was never seen may still be made: an earlier process (`late`:
            nobody knows that none has asked), or a call that failed, may have asked for it. It moves on while the
            scheduler does not answer.
    """

    def __init__(
        self, owner: Owner, node: str, drain_id: str, reason: str, since: float, now: Now, *, late: bool = True
    ) -> None:
        self.owner, self.node, self.id, self.reason, self.since = owner, node, drain_id, reason, since
        self.first = now.monotonic
        self.wants = self.giving = self.held = self.gone = False
        self.by = ""
        self.stands: bool | None = None
        self.proof = now.monotonic
        self.arrives = now.monotonic + LATE if late else -math.inf
        self.record: Ownership | None = None  # what the node has stored
        self.bar = ""
        self.told: tuple[str, str] = ("none", "")
        self._given = False  # we gave it back ourselves, so the record's `held` is of an earlier time
        self._tries = 0
        self.failing = False
        self.next_try = -math.inf
        self.code: BlockCode | None = None  # what the scheduler said last
        self._until_view = 0  # the number of the view that is not believed any more

    # ------------------------------------------------------------------------------------- what is wanted

    def take(self, report: Report, now: Now) -> None:
        """Take in the node's wish and record; the id is this case's."""
        wish, owned = report.intent, report.owned
        if self.wants and not wish.drain:
            self.gone = False
        self.wants = wish.drain
        self.giving = not wish.drain and owned is not None and owned.id == wish.id
        self.by = wish.by if self.giving else ""  # who asked the controller for it is in the ledger
        self.record = Ownership(owned.id, owned.reason, owned.asked, owned.held) if owned else None
        if owned is not None and owned.held and not self.held and not self._given:
            self.held, self.proof = True, max(self.proof, now.monotonic)

    def intent(self) -> Intent:
        """The drain as the scheduler is asked for it."""
        return Intent(drain=True, id=self.id, reason=self.reason, since=self.since)

    def ownership(self) -> Ownership:
        """The record on which a job rests: the node's, else what it said it has stored."""
        record = self.record or policy.intended(self.intent())
        return Ownership(record.id, record.reason, record.asked, held=self.held)

    def to_give_back(self, now: Now) -> Ownership:
        """The record on which a release rests: asked just now while the drain may still arrive, else long ago."""
        asked = now.wall if now.monotonic < self.arrives else 0.0
        return msgspec.structs.replace(self.ownership(), asked=asked)

    # ------------------------------------------------------------------------------------- what is true

    def witness(self, room: Room, now: Now) -> None:
        """Learn from the newest view of the scheduler, if it is new enough to prove something."""
        view = room.nodes.get(self.node)
        if view is None or room.began < self.proof:
            return
        if policy.owns(self.record, view) or policy.owns(policy.intended(self.intent()), view):
            self.stands = self.held = True
            self._given = False
            self._calm()
        elif self.held:
            if not self.wants:
                self.stands = False
            elif view.drained:
                self.stands = None  # somebody has drained it over ours; when that ends, it is seen what they want
            else:
                self.stands, self.gone = False, True
        elif not self.wants and now.monotonic >= self.arrives and (self.giving or self.owner == "alertmanager"):
            self.stands = False  # it was never made; a node that only holds its tongue may want it again

    def first_look(self, room: Room) -> None:
        """Learn from a view that was read before this case began: only that the drain stands."""
        view = room.nodes.get(self.node)
        if view is not None and (policy.owns(self.record, view) or policy.owns(policy.intended(self.intent()), view)):
            self.stands = self.held = True

    def drained(self, done: EffectDone, room: Room, now: Now) -> None:
        """Take in how a drain of this case ended."""
        self.proof = now.monotonic
        if done.outcome == "done":
            self.stands = self.held = True
            self._given = False
            self._calm()
        elif done.outcome == "gone":
            self.stands, self.gone = False, True
            self._calm()
        else:
            self.stands = None
            if done.outcome == "failed" or done.open:
                self.arrives = now.monotonic + LATE
            if done.code is BlockCode.LIMIT_NODES:
                self.held = False  # if it was made, it was taken back for the limit's sake
            self._refused(done, room, now)

    def released(self, done: EffectDone, room: Room, now: Now, by: str) -> None:
        """Take in how a release of this case ended, for which a person asked or nobody did."""
        self.proof = now.monotonic
        if done.outcome != "gone":
            self._refused(done, room, now)
            if done.outcome == "blocked" and done.code is BlockCode.FOREIGN_DRAIN:
                self.by = ""
            return
        self._calm()
        respected = self.wants and bool(by)
        self.by = ""
        self.held, self._given = False, not respected
        # The fault may have come back meanwhile: then it is drained anew.
        self.stands, self.gone = (None if self.wants and not respected else False), respected

    def _refused(self, done: EffectDone, room: Room, now: Now) -> None:
        self._tries += 1
        self.code, self.failing = done.code or BlockCode.SCHEDULER_UNREACHABLE, done.outcome == "failed"
        if self.failing:
            self.unanswered(now)
            wait = min(RETRY_CAP, RETRY_FIRST * 2.0 ** min(self._tries - 1, 10)) * self._spread()
        elif self.code in LIMIT_CODES:
            wait, self._until_view = 0.0, room.seq
        else:
            wait = RETRY_BLOCKED * self._spread()
        self.next_try = now.monotonic + wait

    def unanswered(self, now: Now) -> None:
        """The scheduler does not answer: what it was asked for before may come so long after it does again."""
        if now.monotonic < self.arrives:
            self.arrives = now.monotonic + LATE

    def _spread(self) -> float:
        """A factor of 1 ± 0.2 that differs from case to case and try to try, and is the same in a replay."""
        return 0.8 + 0.4 * zlib.crc32(f"{self.node}{self.id}{self._tries}".encode()) / 0xFFFFFFFF

    def _calm(self) -> None:
        self._tries, self.next_try, self.code, self._until_view = 0, -math.inf, None, 0
        self.failing = False

    def again(self) -> None:
        """The scheduler answers again, or may be written to again: what it refused before says nothing."""
        self._calm()

    def waits(self, room: Room, now: Now) -> tuple[BlockCode, float] | None:
        """What the last try said, while it is too early for the next, and when that is; None: go on."""
        if self.code is None:
            return None
        if now.monotonic < self.next_try:
            return self.code, self.next_try
        return (self.code, math.inf) if self._until_view >= room.seq and self._until_view else None

    def back(self) -> bool:
        """Whether it is to be given back, as far as it is known to stand or may stand."""
        return (self.giving or bool(self.by)) and self.stands is not False

    def due(self) -> bool:
        """Whether it is to be made."""
        return self.wants and not self.stands and not self.by

    def over(self) -> bool:
        """Whether it is known not to stand any more, and nobody wants it to."""
        return self.stands is False and not self.wants
