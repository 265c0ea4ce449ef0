"""Counts over time: how often a counter rose, in minutes, for as long as the longest window asks.

Pure and bounded: at most `MAX_BUCKETS` minutes with a rise per counter, about 90 bytes each in the store. Beyond that
the oldest are kept as one, and what of it lies within a window is taken to be even. Within one boot the age of a bucket
is monotonic time; across boots it is wall time between 0 and 30 days.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ibmon.model import Now

BUCKET_SECONDS = 60.0
MAX_BUCKETS = 160
MAX_WALL_AGE = 30 * 86400.0


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """One instant on both clocks, with the boot that the first belongs to."""

    monotonic: float
    wall: float
    boot: str

    def age(self, now: Now, boot: str) -> float:
        """Seconds since then, never negative."""
        if self.boot == boot:
            return max(0.0, now.monotonic - self.monotonic)
        return min(max(0.0, now.wall - self.wall), MAX_WALL_AGE)


class Bucket(msgspec.Struct, frozen=True, array_like=True):
    """A minute in which a counter rose: its first and last rise (monotonic), the last (wall), the boot, the sum."""

    first: float
    last: float
    wall: float
    boot: str
    count: int

    def age(self, now: Now, boot: str) -> float:
        """Seconds since the last rise."""
        return Moment(self.last, self.wall, self.boot).age(now, boot)

    def span(self) -> float:
        """Seconds from the first rise to the last."""
        return self.last - self.first


class Total(NamedTuple):
    """A counter over a window: the rise, the minutes with a rise, the age of the newest and until the oldest leaves."""

    events: int
    intervals: int
    quiet: float | None
    expires: float = math.inf


NOTHING = Total(0, 0, None)


class Window(msgspec.Struct, frozen=True, array_like=True):
    """The rises of one counter."""

    buckets: tuple[Bucket, ...] = ()

    def add(self, rise: int, now: Now, boot: str) -> Window:
        """This window with one more rise; one of nothing is a moment until which something may have risen."""
        at, wall = now
        buckets = self.buckets
        if buckets:
            newest = buckets[-1]
            if newest.boot == boot and at // BUCKET_SECONDS == newest.first // BUCKET_SECONDS:
                return Window((*buckets[:-1], Bucket(newest.first, at, wall, boot, newest.count + rise)))
        buckets = (*buckets, Bucket(at, at, wall, boot, rise))
        if len(buckets) > MAX_BUCKETS:
            oldest, second = buckets[0], buckets[1]
            first = oldest.first if oldest.boot == second.boot else second.first
            both = Bucket(first, second.last, second.wall, second.boot, oldest.count + second.count)
            buckets = (both, *buckets[2:])
        return Window(buckets)

    def total(self, seconds: float, now: Now, boot: str, without: Iterable[tuple[float, float]] = ()) -> Total:
        """The rise within the last `seconds`, leaving out buckets that touch an age range of `without`."""
        spans = tuple(without)
        events = intervals = 0
        quiet: float | None = None
        expires = math.inf
        for bucket in reversed(self.buckets):
            age = bucket.age(now, boot)
            if age > seconds:
                break
            oldest = age + bucket.span()
            if any(age <= end and oldest >= start for start, end in spans):
                continue
            quiet = age if quiet is None else quiet
            intervals += bucket.count > 0
            expires = seconds - age
            if oldest > seconds and bucket.span() > BUCKET_SECONDS:
                # Many minutes kept as one, of which only a part lies within: so much of them, and less each minute.
                events += round(bucket.count * expires / bucket.span())
                expires = min(expires, BUCKET_SECONDS)
            else:
                events += bucket.count
        return Total(events, intervals, quiet, expires)

    def trim(self, seconds: float, now: Now, boot: str) -> Window:
        """This window without what is older than `seconds`."""
        if not self.buckets or self.buckets[0].age(now, boot) <= seconds:
            return self
        return Window(tuple(b for b in self.buckets if b.age(now, boot) <= seconds))
