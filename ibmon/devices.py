"""The devices as the engine knows them: facts, newest samples, what changed. Pure.

Turns listings, discoveries and readings into `PortFacts` for the judge and `DeviceView` for the snapshot.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

import msgspec

from ibmon.health.history import CounterHistory
from ibmon.health.inventory import Expected
from ibmon.health.rules import PortFacts
from ibmon.model import Column, Device, Layout, Level, Listing, Now, Reading, Sample, Tier
from ibmon.snapshot import DeviceView


@dataclass(slots=True)
class Present:
    """One device that is there."""

    device: Device
    sample: Sample
    history: CounterHistory
    read_errors: dict[int, int] = field(default_factory=dict)
    stalled: bool = False
    view: DeviceView | None = None  # rebuilt when anything above changed

    def seen_state(self) -> Now | None:
        """When the state of its ports was last read."""
        return self.sample.read_at[Tier.STATE]


@dataclass(slots=True)
class Change:
    """What one reading brought: rises by column, and per port the state before and after where it changed."""

    rises: dict[int, int]
    states: dict[int, tuple[int | None, int | None]]
    gone: bool


class Devices:
    """All devices that the newest complete listing held and whose facts are known."""

    def __init__(self) -> None:
        self.present: dict[str, Present] = {}
        self.names: frozenset[str] | None = None  # of the newest listing; None while it is unreadable
        self.listing_errno: int | None = None
        self.ever_listed = False

    def list(self, listing: Listing) -> tuple[set[str], set[str]]:
        """Take in a listing; the names that are new and those that have gone. An unreadable one changes nothing."""
        self.listing_errno = listing.errno
        if listing.names is None:
            self.names = None
            return set(), set()
        self.ever_listed = True
        self.names = frozenset(listing.names)
        return set(self.names) - set(self.present), set(self.present) - self.names

    def add(self, device: Device) -> bool:
        """Take in a device's facts; False where nothing changed and its samples go on."""
        known = self.present.get(device.name)
        if known is not None and _same(known.device, device):
            return False
        layout = device.layout
        self.present[device.name] = Present(device, Sample.empty(layout), CounterHistory(layout))
        return True

    def read(self, reading: Reading, tiers: tuple[Tier, ...]) -> Change | None:
        """Lay a reading over the device's sample; None where the device is another one by now."""
        known = self.present.get(reading.device)
        if known is None or known.device.layout.generation != reading.generation:
            return None
        old, new = known.sample, known.sample.merge(reading, tiers)
        if Tier.STATE in tiers and all(new.values[i] is None for i in new.layout.tiers[Tier.STATE]):
            # No port's state could be read: the device was not seen, however young the attempt.
            new = msgspec.structs.replace(new, read_at=(old.read_at[Tier.STATE], *new.read_at[1:]))
        for code in reading.errnos.values():
            known.read_errors[code] = known.read_errors.get(code, 0) + 1
        rises = known.history.take(old, new, reading.columns, reading.ended)
        known.sample, known.view, known.stalled = new, None, False
        states = {}
        for i in new.layout.tiers[Tier.STATE]:
            if new.values[i] != old.values[i]:
                states[new.layout.columns[i].port] = (old.values[i], new.values[i])
        return Change(rises, states, any(e == errno.ENODEV for e in reading.errnos.values()))

    def stall(self, name: str) -> None:
        """A read of the device is overdue."""
        known = self.present.get(name)
        if known is not None:
            known.stalled, known.view = True, None

    def facts(self, row: Expected, best_rate: int | None, now: Now, longest_gap: float) -> PortFacts:
        """What the rules may know of a port now."""
        port, known = row.id, self.present.get(row.id.device)
        listed = None if self.names is None else port.device in self.names
        link_layer = row.port.link_layer if row.port else None
        if known is None or not any(p.id == port for p in known.device.ports):
            if listed and known is not None:
                listed = False  # the device is there, but this port of it is not
            return PortFacts(
                id=port,
                role=row.role,
                link_layer=link_layer,
                listed=listed,
                stalled=False,
                state=None,
                physical_state=None,
                rate=None,
                width=None,
                speed_word=None,
                expected_rate=row.rate,
                best_rate=best_rate,
                fresh=False,
            )
        sample, seen = known.sample, known.seen_state()
        state = sample.get(port.port, Level.ATTR, "state")
        fresh = (
            seen is not None
            and state is not None
            and not known.stalled
            and now.monotonic - seen.monotonic <= longest_gap + 1e-6
        )
        return PortFacts(
            id=port,
            role=row.role,
            link_layer=link_layer,
            listed=listed,
            stalled=known.stalled,
            state=state,
            physical_state=sample.get(port.port, Level.ATTR, "phys_state"),
            rate=sample.get(port.port, Level.ATTR, "rate"),
            width=sample.get(port.port, Level.ATTR, "width"),
            speed_word=sample.word(port.port),
            expected_rate=row.rate,
            best_rate=best_rate,
            fresh=fresh,
        )

    def views(self) -> tuple[DeviceView, ...]:
        """Every present device for the snapshot, by name."""
        out = []
        for _, known in sorted(self.present.items()):
            if known.view is None:
                known.view = DeviceView(
                    device=known.device,
                    sample=known.sample,
                    stalled=known.stalled,
                    sampled=known.seen_state(),
                    read_errors=dict(known.read_errors),
                    resets=dict(known.history.resets),
                    saturated=dict(known.history.saturated),
                )
            out.append(known.view)
        return tuple(out)

    def moved(self, name: str, now: float) -> dict[int, tuple[tuple[Column, int], ...]]:
        """By port, the error counters of a device that rose lately, with their rise."""
        known = self.present.get(name)
        out: dict[int, tuple[tuple[Column, int], ...]] = {}
        if known is not None:
            for i, rise in known.history.moved(now).items():
                column = known.device.layout.columns[i]
                out[column.port] = (*out.get(column.port, ()), (column, rise))
        return out


def _same(old: Device, new: Device) -> bool:
    """Whether a rediscovered device is the one that was known, apart from its generation."""
    if old.layout.columns != new.layout.columns:
        return False
    return msgspec.structs.replace(old, layout=new.layout) == new


def at_once(layout: Layout, port: int) -> tuple[int, ...]:
    """Columns that are read as soon as a port's state has changed, in reading order."""
    names = (
        (Level.ATTR, "phys_state"),
        (Level.ATTR, "rate"),
        (Level.ATTR, "width"),
        (Level.COUNTERS, "link_downed"),
        (Level.NET, "carrier_down_count"),
    )
    found = (layout.column(port, level, name) for level, name in names)
    return tuple(i for i in found if i is not None)
