"""Who leads: the decision of an election by a Lease, without a clock, a thread or a network.

The rules are those of client-go's leaderelection, in which no wall clock counts and none of another machine: a
candidate waits for a whole lease duration, by its own clock, in which nobody has written the Lease. Two points are
stricter than there. A leader counts from the moment *before* it asked for a renewal, so it ends before another can
begin, however long the answer took. And where there is no Lease, somebody may have deleted it under a leader: who makes
it holds it for a lease duration before it leads.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds; the defaults are those of client-go and of Kubernetes' own components.

    `duration`: how long others wait for a leader that says nothing. `renew`: how long one leads after its last
    renewal. `retry`: between two tries. The difference of the first two is what clocks may run apart, and what a write
    takes that was begun by a leader.
    """

    duration: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.renew < self.duration:
            raise ValueError(
                f"a lease needs 0 < retry < renew < duration, not {self.retry}, {self.renew}, {self.duration}"
            )


DEFAULT: Final = Timing()


class Seen(msgspec.Struct, frozen=True):
    """A Lease as it stood at the server; an empty holder means that it was given back.

    `duration` is what the holder promised (seconds); `version` is another one after every write.
    """

    holder: str
    duration: float
    version: str


class Candidate:
    """One who wants to lead. `now` is seconds of a clock that never goes back and that counts sleep too.

    Args:
        identity: different for every process, also for the next one on the same machine.
        timing: see there.
    """

    def __init__(self, identity: str, timing: Timing = DEFAULT) -> None:
        self.identity = identity
        self.timing = timing
        self.term = 0
        """How often this one has begun to lead. What was begun in another term is void."""
        self._seen: Seen | None = None
        self._since = 0.0  # when the Lease was first seen as it is now
        self._until = -math.inf
        self._ripe = -math.inf  # a Lease that this one has made is no leadership before
        self._fresh = False
        self._resigned = False

    @property
    def holder(self) -> str | None:
        """Who leads by what was seen last; None where that is not known, empty where nobody does."""
        return self._seen.holder if self._seen else None

    @property
    def _holds(self) -> bool:
        return self._seen is not None and self._seen.holder == self.identity

    def leads(self, now: float) -> bool:
        """Whether this one may act now."""
        return now < self._until

    def must_look(self, now: float) -> bool:
        """Whether the Lease has to be read before it is claimed. A leader knows it from its own last write."""
        return not (self._fresh and self.leads(now))

    def may_claim(self, now: float) -> bool:
        """Whether to write oneself into the Lease as it was seen last."""
        if self._resigned or not self._fresh:
            return False
        if self._seen is None or self._seen.holder in {"", self.identity}:
            return True
        promised = self._seen.duration
        return now >= self._since + (promised if promised > 0 else self.timing.duration)

    def observe(self, seen: Seen | None, now: float) -> None:
        """The Lease was read (None: there is none); `now` is after the answer.

        Another holder ends a leadership at once: that is somebody's hand, for no candidate could be so quick.
        """
        if seen != self._seen:
            self._since = now
        if seen is None or seen.holder != self.identity:
            self._ripe = -math.inf
        elif not self._holds:
            self._ripe = now + self.timing.duration  # a write without an answer: made or taken, nobody knows
        if seen is not None and seen.holder != self.identity:
            self._until = -math.inf
        self._seen, self._fresh = seen, True

    def won(self, seen: Seen, began: float, now: float) -> None:
        """The claim was written: `began` is before it was sent, `now` after the answer."""
        led = self.leads(now)
        if self._seen is None and not led:
            self._ripe = now + self.timing.duration
        self._seen, self._since, self._fresh = seen, now, True
        if self._resigned or not (led or began >= self._ripe):
            return
        self._until = began + self.timing.renew
        if not led and self.leads(now):
            self.term += 1

    def lose_sight(self) -> None:
        """What stands at the server is not known any more, as after a write without an answer."""
        self._fresh = False

    def resign(self) -> None:
        """Lead no more, now and later."""
        self._resigned = True
        self._until = -math.inf
