"""Drains in ibmon's words of which this node has no record: found, told, and left alone until a person acts. Pure.

A node whose record was lost looks once, because nothing else would make it ask its scheduler. While such a drain stands
it looks again now and then, so that the alert ends when somebody has taken the drain away. It looks too, ever less
often, for a drain that it has asked for in vain: a scheduler that was stuck may make it long after.
"""

from __future__ import annotations

import math

import msgspec

from ibmon.drain import policy
from ibmon.drain.pace import RECHECK_SECONDS, retry, spread
from ibmon.messages import Observe, SchedulerSaw
from ibmon.model import NodeView, Now, Ownership

LOOKS = 8
"""How often a drain that was asked for in vain is looked for: after 5 min, and doubling, for about a day in all."""


class Orphan(msgspec.Struct, frozen=True, array_like=True):
    """A drain that nobody here remembers; `since` is wall time at which it was first seen."""

    reason: str
    since: float


class OrphanWatch:
    """What is known of orphans, and when to look.

    Attributes:
        orphan: the one that stands, as far as is known.
        unseen: whether the record may have been lost, and nobody has looked since.
        lapsed: a drain that was asked for and has not come; whoever sees it stand owns it.
    """

    def __init__(self, node: str, orphan: Orphan | None, *, unseen: bool) -> None:
        self.orphan = orphan
        self.unseen = unseen
        self.lapsed: Ownership | None = None
        self._looks = 0  # how often it was looked for
        self._node = node
        self._busy = False
        self._waiting = False  # a look is due but for its time
        self._tries = 0
        self._look_at: float | None = None

    @property
    def failing(self) -> bool:
        """Whether the last look failed."""
        return self._tries > 0

    def look(self, now: Now, *, allowed: bool) -> list[Observe]:
        """The look to take now, if any; `allowed` is whether anything may be asked of the scheduler for this."""
        self._waiting = False
        if self._busy or not allowed or not (self.unseen or self.orphan or self.lapsed):
            return []
        if self._look_at is None:
            self._look_at = self._later(now)
        self._waiting = now.monotonic < self._look_at
        self._busy = not self._waiting
        return [] if self._waiting else [Observe()]

    def lapse(self, owned: Ownership | None, now: Now) -> None:
        """A drain that was asked for has not come, and is not wanted any more."""
        self.lapsed, self._looks = owned, 0
        self._look_at = self._later(now)

    def looked(self, event: SchedulerSaw, now: Now) -> None:
        """Take in that a look has ended; what it saw goes to `seen`."""
        self._busy = False
        if event.view is None:
            self._tries += 1
            self._look_at = now.monotonic + retry(self._node, self._tries)
            return
        self._looks += 1
        if self._looks >= LOOKS:
            self.lapsed = None

    def seen(self, view: NodeView, now: Now, *, ours: bool) -> None:
        """The node as its scheduler shows it, read for whatever reason; `ours` by our own record."""
        self.unseen, self._tries = False, 0
        self._look_at = self._later(now)
        if ours or not view.drained or policy.parse_reason(view.reason) is None:
            self.orphan = None
        elif self.orphan is None or self.orphan.reason != view.reason:
            self.orphan = Orphan(view.reason or "", now.wall)

    def next_due(self) -> float:
        """Monotonic time of the look that waits for its time, or infinity."""
        return self._look_at if self._waiting and self._look_at is not None else math.inf

    def _later(self, now: Now) -> float:
        pause = RECHECK_SECONDS * (2.0**self._looks if self.lapsed and not (self.orphan or self.unseen) else 1.0)
        return now.monotonic + pause * spread(f"{self._node}look{now.monotonic:.0f}")
