"""Who reads what when: tiers, deadlines, quarantine and backoff of every device.

Pure bookkeeping on monotonic seconds: it says which reads are due and never reads. Why the tiers are as they are:
one `state` is five firmware commands on mlx5 and one counter is one, so cheap things are read often and dear ones
rarely (docs/architecture.md, Reading).
"""

from __future__ import annotations

import errno
import math
from dataclasses import dataclass, field
from typing import NamedTuple

from ibmon.config import SamplingConfig
from ibmon.messages import Abandon, Discover, Effect, Read, ReadListing
from ibmon.model import Layout, Level, Reading, Tier

BACKOFF_SECONDS = 60.0
"""After a firmware timeout: one more read leaks one more command slot (mlx5/core/cmd.c), so wait and probe."""

BACKOFF_ERRNOS = frozenset({errno.ETIMEDOUT, errno.EBUSY, errno.ECANCELED})
"""What mlx5 answers when its firmware did not: timed out, no free command slot, not picked up in time."""

MUTE_AFTER = 3
"""Failed reads in a row after which a counter file is left alone for a while ..."""

MUTE_SECONDS = 600.0
"""... for this long. A restricted function logs a kernel line for every refused read, so retries are rare."""

GONE_ERRNOS = frozenset({errno.ENODEV, errno.ENOENT})
REDISCOVER_SECONDS = 600.0
"""How often static facts are read again where no event asked for it (a netdev renamed, a character device added)."""


_TIERS = tuple(Tier)


class _Plan(NamedTuple):
    """What is due of a device, and by Tier when each is due after that."""

    tiers: tuple[Tier, ...]
    due: tuple[float, ...]


@dataclass(slots=True)
class DeviceSchedule:
    """What is due for one device."""

    layout: Layout
    due: tuple[float, ...]  # by Tier
    rediscover: float
    outstanding: float | None = None  # when the read that is out was asked for
    stalled: bool = False
    backoff_until: float | None = None
    failures: dict[int, int] = field(default_factory=dict)
    muted: dict[int, float] = field(default_factory=dict)
    wanted: dict[tuple[Tier, ...], tuple[int, ...]] = field(default_factory=dict)  # columns by tiers read together

    def columns(self, tiers: tuple[Tier, ...], now: float) -> tuple[int, ...]:
        """Columns of those tiers in reading order, without the muted ones whose time has not come."""
        wanted = self.wanted.get(tiers)
        if wanted is None:
            wanted = self.wanted[tiers] = tuple(i for tier in tiers for i in self.layout.tiers[tier])
        if not self.muted:
            return wanted
        return tuple(i for i in wanted if self.muted.get(i, now) <= now)

    def probe(self) -> tuple[int, ...]:
        """The first port's state: the one file that says whether the device answers again."""
        return next(((i,) for i in self.layout.tiers[Tier.STATE]), ())


class Sampler:
    """The reading plan of the node. All times are monotonic seconds; due times are multiples counted from `phase`."""

    def __init__(self, config: SamplingConfig, phase: float) -> None:
        self.config = config
        self.phase = phase
        self.devices: dict[str, DeviceSchedule] = {}
        self.discovering: dict[str, float] = {}  # name -> when it was asked for
        self.generation = 0
        self.quarantined: frozenset[str] = frozenset()  # a thread of an earlier process is still out in these
        self._listing_due = phase
        self._listing_out: float | None = None

    def configure(self, config: SamplingConfig, now: float) -> None:
        """Take new intervals into force; everything is due at the next multiple."""
        self.config = config
        self._listing_due = min(self._listing_due, self._next(config.state_interval, now))
        for schedule in self.devices.values():
            due = zip(schedule.due, self._intervals(), strict=True)
            schedule.due = tuple(min(at, self._next(interval, now)) for at, interval in due)

    # ------------------------------------------------------------------------------------------ what is due

    def due(self, now: float) -> list[Effect]:
        """The reads to ask for now, and the devices whose read is overdue."""
        effects: list[Effect] = []
        hanging = self._hanging(now)
        if hanging is not None:
            effects.append(Abandon(hanging))
        if self._listing_out is None and now >= self._listing_due:
            self._listing_out = now
            self._listing_due = self._next(self.config.state_interval, now, strictly=True)
            effects.append(ReadListing())
        plans: dict[tuple[float, ...], _Plan] = {}  # devices that were found together are read together
        for name, schedule in self.devices.items():
            if schedule.outstanding is not None or name in self.quarantined:
                continue
            if now >= schedule.rediscover:
                schedule.rediscover = now + REDISCOVER_SECONDS
                effects.append(self.discover(name, now))
                continue
            plan = plans.get(schedule.due)
            if plan is None:
                plan = plans[schedule.due] = self._plan(schedule.due, now)
            if plan.tiers:
                schedule.due = plan.due
                if (read := self._read(name, schedule, plan.tiers, now)) is not None:
                    effects.append(read)
        return effects

    def _hanging(self, now: float) -> str | None:
        """The device that does not answer within the deadline, which is marked so.

        One device is read after another: that which was asked first is the one that hangs, and the time of those that
        wait behind it begins now.
        """
        reads = {n: s.outstanding for n, s in self.devices.items() if s.outstanding is not None and not s.stalled}
        looks = {n: asked for n, asked in self.discovering.items() if n not in self.quarantined}
        # A device waits since the older of its two, as `next_due` tells; a read goes before a look of the same moment.
        waiting = reads | {n: min(asked, reads.get(n, asked)) for n, asked in looks.items()}
        first = min(waiting, key=waiting.__getitem__, default=None)
        # Compared with the very sum that `next_due` tells: a difference may be rounded to less.
        if first is None or now < waiting[first] + self.config.read_deadline:
            return None
        for name in reads:
            self.devices[name].outstanding = now
        for name in looks:
            self.discovering[name] = now
        if first in reads:
            self.devices[first].stalled = True
        else:
            self.quarantined |= {first}
        return first

    def _plan(self, due: tuple[float, ...], now: float) -> _Plan:
        """The tiers that are due now, and when each is due after that."""
        tiers = tuple(tier for tier in _TIERS if now >= due[tier])
        intervals = self._intervals()
        after = (self._next(intervals[t], now, strictly=True) if t in tiers else due[t] for t in _TIERS)
        return _Plan(tiers, tuple(after))

    @staticmethod
    def _read(name: str, schedule: DeviceSchedule, tiers: tuple[Tier, ...], now: float) -> Read | None:
        """The read of a device whose `tiers` are due: after a firmware timeout later, and then a probe first."""
        if schedule.backoff_until is not None:
            if now < schedule.backoff_until:
                return None
            tiers, columns = (), schedule.probe()
        else:
            columns = schedule.columns(tiers, now)
        if not columns:
            return None
        schedule.outstanding = now
        return Read(name, schedule.layout.generation, tiers, columns)

    def discover(self, name: str, now: float) -> Discover:
        """Ask for a device's static facts."""
        self.generation += 1
        self.discovering[name] = now
        return Discover(name, self.generation)

    def out_of_turn(self, name: str, columns: tuple[int, ...], now: float) -> list[Effect]:
        """A read out of turn (`rate` at once when `state` changed), unless one is out already."""
        schedule = self.devices.get(name)
        if schedule is None or schedule.outstanding is not None or not columns:
            return []
        schedule.outstanding = now
        return [Read(name, schedule.layout.generation, (), columns)]

    def next_due(self) -> float:
        """The earliest monotonic time at which `due` gives something without new input."""
        earliest = self._listing_due if self._listing_out is None else math.inf
        out = math.inf  # when the oldest of the reads and looks was asked for that are out
        for name, schedule in self.devices.items():
            if schedule.outstanding is not None:
                if schedule.outstanding < out and not schedule.stalled:
                    out = schedule.outstanding
            elif name not in self.quarantined:
                earliest = min(earliest, schedule.rediscover, *schedule.due)
        for name, asked in self.discovering.items():
            if asked < out and name not in self.quarantined:
                out = asked
        return min(earliest, out + self.config.read_deadline)

    def reading(self) -> bool:
        """Whether reads are out that are not overdue."""
        for schedule in self.devices.values():  # noqa: SIM110 - a generator costs a call for each device
            if schedule.outstanding is not None and not schedule.stalled:
                return True
        return False

    # ------------------------------------------------------------------------------------------ what came back

    def listed(self) -> None:
        """The listing that was asked for is here."""
        self._listing_out = None

    def hotplug(self, now: float) -> None:
        """The kernel says that something changed: list now."""
        self._listing_due = now

    def add(self, layout: Layout, now: float) -> None:
        """A device was discovered; it is read at the next multiple of each interval, at once when that is now."""
        name = layout.device
        self.discovering.pop(name, None)
        self.quarantined -= {name}
        due = tuple(self._next(interval, now) for interval in self._intervals())
        schedule = DeviceSchedule(layout, due, now + REDISCOVER_SECONDS)
        before = self.devices.get(name)
        if before is not None:
            # A read of the generation before may hang: it stays the only one that is out.
            schedule.outstanding, schedule.stalled = before.outstanding, before.stalled
        self.devices[name] = schedule

    def renew(self, layout: Layout) -> None:
        """A device was looked at again and is what it was: what is due stays so, under the new generation."""
        self.devices[layout.device].layout = layout

    def read_now(self, name: str, now: float) -> None:
        """Everything of a new device is due at once."""
        self.devices[name].due = (now,) * len(_TIERS)

    def drop(self, name: str) -> None:
        """A device has gone, or could not be discovered."""
        self.devices.pop(name, None)
        self.discovering.pop(name, None)

    def done(self, reading: Reading, now: float) -> None:
        """A read came back: end the stall, start or end the backoff, mute what keeps failing."""
        schedule = self.devices.get(reading.device)
        if schedule is None or reading.generation > schedule.layout.generation:
            return
        schedule.outstanding = None
        schedule.stalled = False
        if reading.generation != schedule.layout.generation:
            return  # of the generation before: it says nothing of this one's files
        if not reading.errnos and schedule.backoff_until is None and not schedule.failures:
            return
        if any(e in BACKOFF_ERRNOS for e in reading.errnos.values()):
            schedule.backoff_until = now + BACKOFF_SECONDS
        elif schedule.backoff_until is not None:
            schedule.backoff_until = None
            schedule.due = (now,) * len(_TIERS)
        self._mute(schedule, reading, now)

    def _mute(self, schedule: DeviceSchedule, reading: Reading, now: float) -> None:
        """Leave counter files alone that fail again and again; never the state of a port.

        A timeout is the file's own only where the device answered beside it.
        """
        failures = schedule.failures
        columns = schedule.layout.columns
        answers = any(columns[i].level is Level.ATTR and i not in reading.errnos for i in reading.columns)
        others = GONE_ERRNOS if answers else GONE_ERRNOS | BACKOFF_ERRNOS
        for i in reading.columns:
            code = reading.errnos.get(i)
            if code is None:
                if failures.pop(i, None) is not None:
                    schedule.muted.pop(i, None)
            elif code not in others and columns[i].level is not Level.ATTR:
                failures[i] = failures.get(i, 0) + 1
                if failures[i] >= MUTE_AFTER:
                    schedule.muted[i] = now + MUTE_SECONDS

    # ------------------------------------------------------------------------------------------ times

    def _intervals(self) -> tuple[float, float, float]:
        return (self.config.state_interval, self.config.counter_interval, self.config.slow_interval)

    def _next(self, interval: float, now: float, *, strictly: bool = False) -> float:
        """The first multiple of `interval` from `phase` that is not before (or, strictly, after) `now`."""
        n = (now - self.phase) / interval
        k = math.floor(n + 1e-9) + 1 if strictly else math.ceil(n - 1e-9)
        return self.phase + k * interval
