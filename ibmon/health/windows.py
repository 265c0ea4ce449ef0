"""Counts over time: how often a counter rose, in minutes, for as long as the longest window asks.

Pure and bounded: at most `MAX_BUCKETS` minutes with a rise per counter (about 60 bytes each in the store). Within one
boot the age of a bucket is monotonic time; across boots it is wall time between 0 and 30 days.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ibmon.model import Now

BUCKET_SECONDS = 60.0
MAX_BUCKETS = 512
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
    """A minute in which a counter rose: its first rise, its last, and by how much in all."""

    first: Moment
    last: Moment
    count: int


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
        """This window with one more rise."""
        moment = Moment(now.monotonic, now.wall, boot)
        buckets = self.buckets
        if buckets:
            newest = buckets[-1]
            same = newest.first.boot == boot
            if same and now.monotonic // BUCKET_SECONDS == newest.first.monotonic // BUCKET_SECONDS:
                return Window((*buckets[:-1], Bucket(newest.first, moment, newest.count + rise)))
        buckets = (*buckets, Bucket(moment, moment, rise))
        if len(buckets) > MAX_BUCKETS:
            oldest, second = buckets[0], buckets[1]
            buckets = (Bucket(oldest.first, second.last, oldest.count + second.count), *buckets[2:])
        return Window(buckets)

    def total(self, seconds: float, now: Now, boot: str, without: Iterable[tuple[float, float]] = ()) -> Total:
        """The rise within the last `seconds`, leaving out buckets that touch an age range of `without`."""
        spans = tuple(without)
        events = intervals = 0
        quiet: float | None = None
        expires = math.inf
        for bucket in reversed(self.buckets):
            age = bucket.last.age(now, boot)
            if age > seconds:
                break
            oldest = bucket.first.age(now, boot)
            if any(age <= end and oldest >= start for start, end in spans):
                continue
            quiet = age if quiet is None else quiet
            events += bucket.count
            intervals += 1
            expires = seconds - age
        return Total(events, intervals, quiet, expires)

    def trim(self, seconds: float, now: Now, boot: str) -> Window:
        """This window without what is older than `seconds`."""
        if not self.buckets or self.buckets[0].last.age(now, boot) <= seconds:
            return self
        return Window(tuple(b for b in self.buckets if b.last.age(now, boot) <= seconds))
