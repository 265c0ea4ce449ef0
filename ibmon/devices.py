"""The devices as the engine knows them: facts, newest samples, what changed. Pure.

Turns listings, discoveries and readings into `PortFacts` for the judge and `DeviceView` for the snapshot.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from operator import ne
from typing import NamedTuple

import msgspec

from ibmon.health.facts import DeviceFacts, PortFacts
from ibmon.health.history import CounterHistory
from ibmon.health.judge import PortDesk
from ibmon.health.links import SIGNS
from ibmon.health.rules import JUDGED_COUNTERS
from ibmon.model import Column, Device, Layout, Level, Listing, Now, PortId, Reading, Sample, Tier
from ibmon.picking import picker
from ibmon.sampling import GONE_ERRNOS
from ibmon.snapshot import DeviceView


@dataclass(slots=True)
class JudgedPort:
    """The judged counters of one port: column by key, and which of them say nothing now."""

    columns: dict[str, int]
    present: frozenset[str]
    saturated: frozenset[str] = frozenset()
    unreadable: frozenset[str] = frozenset()
    failed_polls: int = 0


@dataclass(slots=True)
class Present:
    """One device that is there. `first` is whether this process never saw it before: a baseline may then be stored.

    `based` are the judged counters that were read since it came: what is stored of them is a baseline in any case.
    """

    device: Device
    sample: Sample
    history: CounterHistory
    ports: dict[int, JudgedPort]
    first: bool
    watched: frozenset[int]  # columns that a verdict may rest on
    judged: dict[int, tuple[PortId, str]]  # those of them that are judged counters: the port, and the counter's key
    signs: frozenset[int]  # columns that tell of a link that bounced
    modules: tuple[tuple[int, str], ...]  # columns of temperatures, with the module's label
    based: set[int] = field(default_factory=set)
    read_errors: dict[int, int] = field(default_factory=dict)
    stalled: bool = False
    view: DeviceView | None = None  # made anew when anything above changed but the time of the sample

    def seen_state(self) -> Now | None:
        """When the state of its ports was last read."""
        return self.sample.read_at[Tier.STATE]

    def answers(self, now: Now, longest_gap: float) -> bool:
        """Whether it was read lately."""
        seen = self.sample.read_at[Tier.STATE]
        return not self.stalled and seen is not None and now.monotonic - seen.monotonic <= longest_gap


class Company(NamedTuple):
    """What a device is judged beside: how many devices answer at all, and whether any shows its verbs device."""

    answering: int
    verbs: bool


@dataclass(slots=True)
class Change:
    """What one reading brought.

    `rises` and `firsts` (first values of a generation) go by column; `states` holds per port the state before and
    after where it changed; `gone` is whether the device answered ENODEV to everything, or a file that was there is
    not; `links` whether a state changed, or a counter of bounces did.
    """

    rises: dict[int, int]
    firsts: dict[int, int]
    states: dict[int, tuple[int | None, int | None]]
    gone: bool
    links: bool = False


NOTHING = Change({}, {}, {}, gone=False)
"""What a reading brought that holds what was known, from a device that answered before."""


class Devices:
    """All devices that the newest complete listing held and whose facts are known."""

    def __init__(self) -> None:
        self.present: dict[str, Present] = {}
        self.names: frozenset[str] | None = None  # of the newest listing; None while it is unreadable
        self.listing_errno: int | None = None
        self.ever_listed = False
        self.failed_listings = 0
        self.functions: Mapping[str, str | None] | None = None
        self.quarantined: frozenset[str] = frozenset()
        self._known: set[str] = set()
        self.changes = 0  # rises whenever a verdict may come out otherwise than before, time apart

    def list(self, listing: Listing) -> tuple[set[str], set[str]]:
        """Take in a listing; the names that are new and those that have gone. An unreadable one changes nothing."""
        was = self.names, self.functions, self.ever_listed
        self.listing_errno = listing.errno
        if listing.names is None:
            self.changes += 1
            self.names = None
            self.failed_listings += 1
            return set(), set()
        self.failed_listings = 0
        self.functions = listing.functions
        self.ever_listed = True
        self.names = frozenset(listing.names)
        if was != (self.names, self.functions, True):
            self.changes += 1
        return set(self.names) - set(self.present), set(self.present) - self.names

    def add(self, device: Device) -> bool:
        """Take in a device's facts; False where nothing changed and its samples go on."""
        known = self.present.get(device.name)
        if known is not None and _same(known.device, device):
            # Whoever reads knows the device by its newest generation only.
            known.device, known.view = device, None
            known.history.layout = device.layout
            known.sample = msgspec.structs.replace(known.sample, layout=device.layout)
            return False
        layout = device.layout
        first = device.name not in self._known
        self._known.add(device.name)
        history = CounterHistory(layout)
        ports = _judged(device)
        self.present[device.name] = Present(
            device=device,
            sample=Sample.empty(layout),
            history=history,
            ports=ports,
            first=first,
            watched=_watched(device),
            judged={i: (PortId(device.name, n), k) for n, port in ports.items() for k, i in port.columns.items()},
            signs=_signs(layout),
            modules=_modules(device),
        )
        self.changes += 1
        return True

    def read(self, reading: Reading, tiers: tuple[Tier, ...]) -> Change | None:
        """Lay a reading over the device's sample; None where the device is another one by now."""
        known = self.present.get(reading.device)
        if known is None or known.device.layout.generation != reading.generation:
            return None
        old = known.sample
        changed = _changed(old, reading)
        new = old.merge(reading, tiers, changed)
        errnos, was_stalled = reading.errnos, known.stalled
        of_state = new.layout.tiers[Tier.STATE]
        if Tier.STATE in tiers and all(new.values[i] is None for i in of_state):
            # No port's state could be read: the device was not seen, however young the attempt.
            new = msgspec.structs.replace(new, read_at=(old.read_at[Tier.STATE], *new.read_at[1:]))
        known.sample, known.stalled = new, False
        _count_polls(known, tiers, reading)
        if not errnos and not changed and not was_stalled:
            return NOTHING
        known.view = None
        for code in errnos.values():
            known.read_errors[code] = known.read_errors.get(code, 0) + 1
        if was_stalled or errnos or not known.watched.isdisjoint(changed):
            self.changes += 1
        if not (known.judged.keys().isdisjoint(changed) and known.judged.keys().isdisjoint(errnos)):
            _look_at_counters(known)
        gone = bool(errnos) and all(errnos.get(i) == errno.ENODEV for i in reading.columns)
        gone = gone or any(code in GONE_ERRNOS and i in changed for i, code in errnos.items())
        if not changed and not gone and not was_stalled:
            return NOTHING
        columns = new.layout.columns
        rises = known.history.take(old, new, changed, reading.ended)
        firsts = {
            i: value
            for i in changed
            if old.values[i] is None and (value := new.values[i]) is not None and columns[i].counts
        }
        states = {columns[i].port: (old.values[i], new.values[i]) for i in of_state if i in changed}
        return Change(rises, firsts, states, gone, links=not known.signs.isdisjoint(changed))

    def stall(self, name: str) -> None:
        """A read of the device is overdue."""
        known = self.present.get(name)
        if known is not None:
            known.stalled, known.view = True, None
            self.changes += 1

    def all_fresh(self, now: Now, longest_gap: float) -> bool:
        """Whether every device was read lately."""
        earliest = now.monotonic - longest_gap
        for known in self.present.values():
            seen = known.sample.read_at[Tier.STATE]
            if known.stalled or seen is None or seen.monotonic < earliest:
                return False
        return True

    def company(self, now: Now, longest_gap: float) -> Company:
        """What all devices have to do with the verdict on one; the same for each of them at one instant."""
        present = self.present.values()
        answering = sum(p.answers(now, longest_gap) for p in present)
        return Company(answering, any(p.device.uverbs is not None for p in present))

    def facts(
        self,
        desk: PortDesk,
        now: Now,
        boot: str,
        longest_gap: float,
        company: Company,
        kernel_log: tuple[str, ...] = (),
    ) -> PortFacts:
        """What the rules may know of a port now."""
        row = desk.expected
        port, known = row.id, self.present.get(row.id.device)
        listed = None if self.names is None else port.device in self.names
        judged = known.ports.get(port.port) if known else None
        base = PortFacts(
            id=port,
            role=row.role,
            link_layer=row.port.link_layer if row.port else None,
            listed=listed,
            stalled=False,
            state=None,
            physical_state=None,
            rate=None,
            width=None,
            speed_word=None,
            expected_rate=row.rate,
            best_rate=desk.best_rate,
            fresh=False,
            now=now,
            boot=boot,
            windows=desk.windows,
            flaps=tuple(f.at for f in desk.link.memory.flaps if f.counted),
            transitions=desk.link.memory.transitions,
            outages=desk.link.memory.outages,
        )
        if known is None or judged is None:
            # Where the device is there but this port of it is not, the port is what is missing.
            hangs = known is None and port.device in self.quarantined
            if known is not None and listed:
                return base._replace(listed=False, lost=True, device=_bound(known.device))
            device = DeviceFacts(siblings_answer=company.answering > 0)
            return base._replace(stalled=hangs, device=device if hangs else self._absent(row.slot))
        sample, seen, number = known.sample, known.seen_state(), port.port
        state = sample.get(number, Level.ATTR, "state")
        others = company.answering - known.answers(now, longest_gap)
        believed = seen is not None and now.monotonic - seen.monotonic <= longest_gap + 1e-6
        return base._replace(
            stalled=known.stalled,
            state=state,
            physical_state=sample.get(number, Level.ATTR, "phys_state"),
            rate=sample.get(number, Level.ATTR, "rate"),
            width=sample.get(number, Level.ATTR, "width"),
            speed_word=sample.word(number),
            gid0=sample.get(number, Level.ATTR, "gid0"),
            pkey0=sample.get(number, Level.ATTR, "pkey0"),
            fresh=believed and state is not None and not known.stalled,
            state_errno=sample.errno(number, Level.ATTR, "state"),
            failed_polls=judged.failed_polls,
            active_for=desk.link.active_for(now, boot),
            saturated=judged.saturated,
            unreadable=judged.unreadable,
            present=judged.present,
            device=_device_facts(known, company._replace(answering=others), kernel_log)
            if desk.carries
            else DeviceFacts(),
        )

    def _absent(self, slot: str) -> DeviceFacts:
        """What the PCI bus says of a device that is not listed."""
        address = slot.rpartition("/")[0]
        if self.functions is None or address not in self.functions:
            return DeviceFacts()
        driver = self.functions[address]
        return DeviceFacts(bound_to=driver, function_present=driver is not None)

    def views(self) -> tuple[DeviceView, ...]:
        """Every present device for the snapshot, by name."""
        out = []
        for _, known in sorted(self.present.items()):
            view, sample = known.view, known.sample
            if view is None:
                view = DeviceView(
                    device=known.device,
                    sample=sample,
                    stalled=known.stalled,
                    sampled=known.seen_state(),
                    read_errors=dict(known.read_errors),
                    resets=dict(known.history.resets),
                    saturated=dict(known.history.saturated),
                )
            elif view.sample is not sample:
                view = msgspec.structs.replace(view, sample=sample, sampled=known.seen_state())
            known.view = view
            out.append(view)
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


_picker = lru_cache(maxsize=4096)(picker)  # the same columns are read again and again


def _changed(sample: Sample, reading: Reading) -> dict[int, int | None]:
    """The columns for which a reading has another value than the sample, with that value."""
    columns, values = reading.columns, reading.values
    before = _picker(columns)(sample.values)
    if values == before:
        return {}
    return dict(compress(zip(columns, values, strict=True), map(ne, values, before)))


def counter_key(column: Column) -> str:
    """The key of a judged counter: ``counters/symbol_error``."""
    return f"{column.level.value}/{column.name}"


def _judged(device: Device) -> dict[int, JudgedPort]:
    """The judged counters of every port of a device."""
    by_port: dict[int, dict[str, int]] = {p.id.port: {} for p in device.ports}
    for i, column in enumerate(device.layout.columns):
        if column.port in by_port and (key := counter_key(column)) in JUDGED_COUNTERS:
            by_port[column.port][key] = i
    return {port: JudgedPort(columns, frozenset(columns)) for port, columns in by_port.items()}


def _device_facts(known: Present, others: Company, kernel_log: tuple[str, ...]) -> DeviceFacts:
    """What is known of a device beside the `others`."""
    device, sample = known.device, known.sample
    return DeviceFacts(
        uverbs=device.uverbs,
        verbs_known=others.verbs,
        pci=device.pci,
        pci_speed=sample.get(0, Level.PCI, "current_link_speed"),
        pci_width=sample.get(0, Level.PCI, "current_link_width"),
        siblings_answer=others.answering > 0,
        temperatures=_temperatures(known),
        kernel_log=kernel_log,
    )


def _bound(device: Device) -> DeviceFacts:
    """What the PCI bus says of a device that is there."""
    return DeviceFacts(bound_to=device.driver, function_present=True) if device.pci else DeviceFacts()


def _modules(device: Device) -> tuple[tuple[int, str], ...]:
    columns = enumerate(device.layout.columns)
    return tuple((i, column.name) for i, column in columns if column.level is Level.HWMON)


def _temperatures(known: Present) -> dict[str, float]:
    """By label, the temperatures of the device's modules that could be read."""
    found = ((name, known.sample.values[i]) for i, name in known.modules)
    return {name: value / 1000 for name, value in found if value is not None}


def _count_polls(known: Present, tiers: tuple[Tier, ...], reading: Reading) -> None:
    """How often the state of a port could not be read in a row.

    After a firmware timeout one port's state is asked for alone: where it fails, no port's could be read.
    """
    states = known.device.layout.tiers[Tier.STATE]
    if Tier.STATE in tiers and None not in reading.values and len(states) == len(known.ports):
        for port in known.ports.values():
            port.failed_polls = 0
        return
    probe = Tier.STATE not in tiers and not set(reading.columns).isdisjoint(states)
    failed = probe and not set(reading.columns).isdisjoint(reading.errnos)
    if Tier.STATE in tiers or failed:
        for number, port in known.ports.items():
            read = not failed and known.sample.get(number, Level.ATTR, "state") is not None
            port.failed_polls = 0 if read else port.failed_polls + 1


def _look_at_counters(known: Present) -> None:
    """Which judged counters say nothing now."""
    columns = known.device.layout.columns
    for port in known.ports.values():
        values = {key: known.sample.values[i] for key, i in port.columns.items()}
        port.unreadable = frozenset(key for key, value in values.items() if value is None)
        full = (key for key, i in port.columns.items() if values[key] is not None and values[key] == columns[i].maximum)
        port.saturated = frozenset(full)


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
        (Level.ATTR, "pkey0"),
        (Level.COUNTERS, "link_downed"),
        (Level.NET, "carrier_down_count"),
    )
    found = (layout.column(port, level, name) for level, name in names)
    return tuple(i for i in found if i is not None)


def _signs(layout: Layout) -> frozenset[int]:
    return frozenset(i for i, c in enumerate(layout.columns) if (c.level, c.name) in {(Level.ATTR, "state"), *SIGNS})


def _watched(device: Device) -> frozenset[int]:
    """The columns that a verdict may rest on: states, rates, PCI link, carrier and error counters."""
    levels = {Level.ATTR, Level.PCI, Level.NET}
    return frozenset(
        i
        for i, c in enumerate(device.layout.columns)
        if c.level in levels or c.error or counter_key(c) in JUDGED_COUNTERS
    )
