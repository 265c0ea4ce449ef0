"""One step of the daemon: an event and a time go in, effects come out. Pure; the only place where the rooms meet.

The engine owns every timer. A runtime feeds it events, sends `Tick` after each batch and at `next_due`, and carries
out the effects in their order: what must be saved comes before what leaves the node.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ibmon.announce import Announcer, log
from ibmon.config import Config
from ibmon.devices import Change, Devices, at_once, counter_key
from ibmon.drain.intent import DrainDesk, DrainMemory
from ibmon.health import kernel_log
from ibmon.health.correlate import NodeFacts
from ibmon.health.facts import PortFacts
from ibmon.health.inventory import take
from ibmon.health.judge import Judge, PortDesk, PortMemory, rule_of
from ibmon.health.rules import JUDGED_COUNTERS
from ibmon.memory import Memory, remember
from ibmon.messages import (
    Abandon,
    DeviceFree,
    Discovered,
    Effect,
    EffectDone,
    Event,
    Forget,
    Hotplug,
    KernelLine,
    ListingDone,
    Poll,
    ReadDone,
    ReadListing,
    Reloaded,
    Save,
    StopFile,
    Tick,
)
from ibmon.model import (
    PORT_STATE_TEXT,
    Device,
    Finding,
    Mode,
    NodeFitness,
    Now,
    Ownership,
    PortHealth,
    PortId,
    Severity,
    Tier,
)
from ibmon.picture import drain_view, port_views
from ibmon.sampling import Sampler
from ibmon.snapshot import Snapshot

BRING_UP_GRACE = 600.0
"""Seconds after an ACTIVE that begins inside boot grace in which nothing of that port is counted."""

COUNT_GRACE_FACTOR = 3
"""Count-like rules wait three times the boot grace: counters jump while links are brought up (OCI waits 30 min)."""


class Identity(msgspec.Struct, frozen=True):
    """Which node this is, which boot, and when (monotonic seconds) that boot began."""

    node: str
    boot_id: str
    booted: float


class Engine:
    """The node daemon's logic.

    Args:
        config: the configuration in force.
        identity: which node and boot this is.
        now: the start.
        memory: what an earlier process saved, if it is of this node.
        owned: the store's record of a drain.
        phase: monotonic seconds from which reading times are counted; None: from now, so that all is due at once.
        enabled: False where another daemon acts for this node.
        quarantined: devices in which a read of an earlier process still hangs.
    """

    def __init__(
        self,
        config: Config,
        identity: Identity,
        now: Now,
        *,
        memory: Memory | None = None,
        owned: Ownership | None = None,
        phase: float | None = None,
        enabled: bool = True,
        quarantined: frozenset[str] = frozenset(),
    ) -> None:
        self.config = config
        self.identity = identity
        self.enabled = enabled
        self.stopped = False
        self.devices = Devices()
        self.sampler = Sampler(config.sampling, now.monotonic if phase is None else phase)
        self.sampler.quarantined = quarantined
        self.judge = Judge(config)
        self.judge.node.episodes = dict(memory.node) if memory else {}
        self._kernel = dict(memory.kernel) if memory else {}
        self._explained: frozenset[str] = frozenset()
        self._memory: dict[str, PortMemory] = dict(memory.ports) if memory else {}
        self._resumed = memory.saved if memory and memory.boot_id == identity.boot_id else None
        self.desk = DrainDesk(identity.node, identity.boot_id, memory.drain if memory else DrainMemory(), owned)
        self.fitness = NodeFitness.UNKNOWN
        self.why = ""
        self.findings: tuple[Finding, ...] = ()
        self._saved = b""
        self._sequence = 0
        self._started = now.monotonic
        self._handlers: dict[type, Callable[[Any, Now], None]] = {
            Tick: self._tick,
            Poll: self._poll,
            Hotplug: self._hotplug,
            ListingDone: self._listed,
            Discovered: self._discovered,
            ReadDone: self._read,
            DeviceFree: self._freed,
            KernelLine: self._kernel_line,
            EffectDone: self._acted,
            StopFile: self._stop,
            Reloaded: self._reload,
        }
        self._pending: list[Effect] = []
        self._take_inventory()
        told = memory.fitness if memory else NodeFitness.UNKNOWN
        self.announcer = Announcer(identity.node, told, self.judge.findings())

    # --------------------------------------------------------------------------------------- step

    def step(self, event: Event, now: Now) -> list[Effect]:
        """Take in one event. Reads are asked for by `Poll`; verdicts and requests are made by `Tick` alone."""
        self._pending = []
        self._handlers[type(event)](event, now)
        return self._pending

    def next_due(self) -> float:
        """The earliest monotonic time at which anything changes without new input."""
        may_start_at = self.identity.booted + self.config.action.boot_grace
        checked = max((d.running.checked or 0.0 for d in self.judge.ports.values()), default=0.0)
        may_start = checked >= may_start_at
        times = [self.sampler.next_due(), self.desk.next_due(self.config.action)]
        times.append(self.judge.next_due(may_start=may_start))
        if not may_start and any(d.episodes for d in self.judge.ports.values()):
            times.append(may_start_at)
        return min(times, default=math.inf)

    # --------------------------------------------------------------------------------------- reading

    def _poll(self, _: Poll, now: Now) -> None:
        for effect in self.sampler.due(now.monotonic):
            if isinstance(effect, Abandon):
                self.devices.stall(effect.device)
                self._log("warning", "device-stalled", device=effect.device)
            if isinstance(effect, ReadListing):
                effect = ReadListing(self._lost_functions())  # noqa: PLW2901 - the same effect, completed
            self._pending.append(effect)

    def _lost_functions(self) -> tuple[str, ...]:
        """PCI addresses of expected devices that the newest listing did not hold."""
        names = self.devices.names or frozenset()
        lost = {
            d.expected.slot.rpartition("/")[0]
            for p, d in self.judge.ports.items()
            if d.expected.expected and p.device not in names
        }
        return tuple(sorted(slot for slot in lost if ":" in slot))

    def _hotplug(self, _: Hotplug, now: Now) -> None:
        """The kernel's word that something changed: list, and look at every device's facts again."""
        self.sampler.hotplug(now.monotonic)
        for name in [n for n, p in self.devices.present.items() if not p.stalled]:
            self._pending.append(self.sampler.discover(name, now.monotonic))

    def _freed(self, event: DeviceFree, now: Now) -> None:
        self.sampler.quarantined -= {event.device}
        self.sampler.hotplug(now.monotonic)

    def _kernel_line(self, event: KernelLine, now: Now) -> None:
        found = kernel_log.match(event.text)
        if found is None:
            return
        address, pattern = found
        boot = self.identity.boot_id
        self._kernel[address] = kernel_log.add(self._kernel.get(address, ()), pattern.kind, now, boot)
        self._log("warning", "kernel-log", pci=address, kind=pattern.kind, meaning=pattern.meaning)

    def _listed(self, event: ListingDone, now: Now) -> None:
        self.sampler.listed()
        before = self.devices.names
        was = self.devices.listing_errno, self.devices.ever_listed
        new, gone = self.devices.list(event.listing)
        if self.devices.names is None:
            if was[0] is None or not was[1]:
                self._log("error", "class-unreadable", errno=event.listing.errno)
            return
        if not self.devices.names and (before is None or before):
            self._log("info", "no-rdma-devices")
        for name in sorted(gone):
            self.devices.present.pop(name)
            self.sampler.drop(name)
            self._pending.append(Forget(name))
            self._log("warning", "device-gone", device=name)
        for name in sorted(new - set(self.sampler.discovering) - self.sampler.quarantined):
            self._pending.append(self.sampler.discover(name, now.monotonic))
        if gone:
            self._take_inventory()

    def _discovered(self, event: Discovered, now: Now) -> None:
        device = event.device
        self.sampler.discovering.pop(event.name, None)
        self.sampler.quarantined -= {event.name}
        if device is None or (self.devices.names is not None and event.name not in self.devices.names):
            return  # the next listing tells what became of it
        known = event.name in self.devices.present
        if not self.devices.add(device):
            return
        self.sampler.add(device.layout, now.monotonic)
        self.sampler.read_now(event.name, now.monotonic)
        self._log(
            "info", "device-changed" if known else "device-found", device=device.name, driver=device.driver,
            function=device.function.value, ports=len(device.ports), guid=device.node_guid,
        )  # fmt: skip
        self._take_inventory()

    def _read(self, event: ReadDone, now: Now) -> None:
        reading = event.reading
        stalled = (schedule := self.sampler.devices.get(reading.device)) is not None and schedule.stalled
        self.sampler.done(reading, now.monotonic)
        change = self.devices.read(reading, event.tiers)
        if change is None:
            return
        if stalled:
            self._log("info", "device-answers", device=reading.device)
        if change.gone:
            self._pending.append(self.sampler.discover(reading.device, now.monotonic))
            self.sampler.hotplug(now.monotonic)
        present = self.devices.present[reading.device]
        self._count(reading.device, change, now)
        uptime = now.monotonic - self.identity.booted
        grace = BRING_UP_GRACE if uptime < self.config.action.boot_grace else None
        for port in present.device.ports:
            desk = self.judge.ports[port.id]
            flapped = desk.link.take(
                present.sample,
                port.id.port,
                change.rises,
                now,
                self.identity.boot_id,
                may_count=self._may_count(now) and not self.judge.down_is_known(port.id),
                grace=grace,
            )
            if flapped:
                self._log("info", "flap", port=str(port.id), counted=desk.link.memory.flaps[-1].counted)
        extra: tuple[int, ...] = ()
        for number, (before, after) in change.states.items():
            if before is not None:
                self._log(
                    "info", "port-state", port=f"{reading.device}/{number}",
                    was=PORT_STATE_TEXT.get(before, str(before)),
                    state="unreadable" if after is None else PORT_STATE_TEXT.get(after, str(after)),
                )  # fmt: skip
                if Tier.SLOW not in event.tiers:
                    extra += at_once(present.device.layout, number)
        self._pending.extend(self.sampler.out_of_turn(reading.device, extra, now.monotonic))

    def _count(self, name: str, change: Change, now: Now) -> None:
        """Remember rises of judged counters, also those between the last value before a restart and the first now."""
        present, boot = self.devices.present[name], self.identity.boot_id
        columns = present.device.layout.columns
        for i in (*change.firsts, *change.rises):
            port = PortId(name, columns[i].port)
            key = counter_key(columns[i])
            desk = self.judge.ports.get(port)
            if desk is None or key not in JUDGED_COUNTERS:
                continue
            value = present.sample.values[i]
            rise = change.rises.get(i, 0)
            if i in change.firsts and present.first and value is not None:
                last = desk.last.get(key)
                if last is not None and last[1] == boot and value > last[0]:
                    rise = change.rises[i] = value - last[0]
            if value is not None:
                desk.last[key] = (value, boot)
            if rise and self._may_count(now) and not desk.link.in_bring_up(now):
                self.judge.count(port, key, rise, now, boot)

    # --------------------------------------------------------------------------------------- judging

    def _may_count(self, now: Now) -> bool:
        """Whether counts mean anything yet: links train, drop and settle for a while after a boot."""
        return now.monotonic - self.identity.booted >= COUNT_GRACE_FACTOR * self.config.action.boot_grace

    def _may_start(self, now: Now) -> bool:
        return now.monotonic - self.identity.booted >= self.config.action.boot_grace

    def _evaluate(self, port: PortId, now: Now) -> None:
        desk = self.judge.ports[port]
        if desk.running.checked is None and desk.episodes:
            desk.running.checked = self._goes_on(now)
        facts = self._facts(desk, now)._replace(explained=self._explained)
        self.judge.evaluate(port, facts, now, may_start=self._may_start(now))

    def _goes_on(self, now: Now) -> float | None:
        """When stored episodes were last looked at, if a restart was so short that nothing went unobserved."""
        saved = self._resumed
        return saved if saved is not None and now.monotonic - saved <= self.judge.longest_gap else None

    def _facts(self, desk: PortDesk, now: Now) -> PortFacts:
        boot = self.identity.boot_id
        device = desk.expected.device
        address = device.pci.address if device and device.pci else None
        lines = self._kernel.get(address, ()) if address else ()
        return self.devices.facts(desk, now, boot, self.judge.longest_gap, kernel_log.kinds(lines, now, boot))

    def _evaluate_all(self, now: Now) -> None:
        """The node as a whole, then every port, with what the node's findings speak for."""
        desks = {p: d for p, d in self.judge.ports.items() if d.expected.expected}
        if self.judge.node.checked is None and self.judge.node.episodes:
            self.judge.node.checked = self._goes_on(now)
        facts = NodeFacts(
            names=self.devices.names,
            failed_listings=self.devices.failed_listings,
            ports={str(p): self._facts(d, now) for p, d in desks.items()},
            expected_devices=frozenset(p.device for p in desks),
            ever_listed=self.devices.ever_listed,
        )
        self._explained = self.judge.evaluate_node(facts, now, may_start=self._may_start(now))
        for port in self.judge.ports:
            self._evaluate(port, now)

    def _take_inventory(self) -> None:
        devices: dict[str, Device] = {n: p.device for n, p in self.devices.present.items()}
        learned = {slot: m.learned for slot, m in self._memory.items()}
        inventory = take(self.config, devices, learned)
        self.judge.assign(self.config, inventory, self._memory)

    def _learn(self, now: Now) -> None:
        """Remember what was seen; a port that became expected, or better, changes the inventory."""
        if remember(self.judge, self._memory):
            self._take_inventory()
            for port in self.judge.ports:
                self._evaluate(port, now)

    # --------------------------------------------------------------------------------------- the tick

    def _tick(self, _: Tick, now: Now) -> None:
        self._evaluate_all(now)
        self._learn(now)
        self.findings = self.judge.findings()
        self.fitness = self.judge.fitness(self.findings, listed=self.devices.ever_listed)
        self.why = self._reason()
        self._pending.extend(
            self.announcer.tell(self.findings, self.fitness, self.why, self._mode(), now, settled=self._settled(now))
        )
        requests = self.desk.decide(
            self.findings, self.fitness, self.config.action, now, stopped=self.stopped, enabled=self.enabled
        )
        self._sequence += 1
        self._pending = [*self._save(now), *self._pending, *requests]

    def _settled(self, now: Now) -> bool:
        """Whether everything has been read once, or has had the time for it."""
        if now.monotonic - self._started > self.judge.longest_gap:
            return True
        seen = all(p.seen_state() is not None for p in self.devices.present.values())
        return self.devices.ever_listed and not self.sampler.discovering and seen

    def _reason(self) -> str:
        """One line that says why the node is not plainly fit."""
        worst = sorted(self.findings, key=lambda f: (not f.drains, -f.severity.rank, f.recovering))
        if worst and worst[0].severity is not Severity.INFO:
            first = worst[0]
            state = " (recovering)" if first.recovering else ""
            return " ".join(part for part in (first.rule, first.subject, first.text) if part) + state
        for port, desk in self.judge.ports.items():
            if self.judge.health(port) is PortHealth.UNKNOWN:
                return f"{port} cannot be read" if self.devices.ever_listed else "nothing was read yet"
            for key, episode in desk.episodes.items():
                if episode.severity != "info":
                    return f"{rule_of(key)} {port} {episode.words} {int(episode.held)}s"
        for rule, episode in self.judge.node.episodes.items():
            return f"{rule} {episode.words} {int(episode.held)}s"
        return "" if self.devices.ever_listed else "class/infiniband was not read yet"

    # --------------------------------------------------------------------------------------- acting

    def _mode(self) -> Mode:
        return self.config.action.mode if self.enabled else Mode.OBSERVE

    def _acted(self, event: EffectDone, now: Now) -> None:
        self.desk.done(event, now)
        code = event.code.value if event.code else None
        level: Literal["info", "warning"] = "info" if event.outcome == "done" else "warning"
        detail = event.detail or None
        self._log(level, event.effect, id=event.id, outcome=event.outcome, code=code, detail=detail)

    def _stop(self, event: StopFile, _: Now) -> None:
        if event.present is not self.stopped:
            self.stopped = event.present
            self._log("warning" if event.present else "info", "stop-file", present=event.present)

    def _reload(self, event: Reloaded, now: Now) -> None:
        config = self.config = event.config
        self.sampler.configure(config.sampling, now.monotonic)
        self.sampler.hotplug(now.monotonic)
        self._take_inventory()
        self._log("info", "reloaded")

    def _log(self, level: Literal["info", "warning", "error"], event: str, **fields: Any) -> None:
        self._pending.append(log(level, event, **fields))

    # --------------------------------------------------------------------------------------- memory

    def _save(self, now: Now) -> list[Effect]:
        memory = Memory(
            boot_id=self.identity.boot_id,
            saved=0.0,
            ports=self._memory,
            drain=self.desk.memory(),
            fitness=self.announcer.fitness,
            node=self.judge.node.episodes,
            kernel=self._kernel,
        )
        data = memory.encode()
        if data == self._saved:
            return []
        self._saved = data
        return [Save(msgspec.structs.replace(memory, saved=now.monotonic).encode())]

    # --------------------------------------------------------------------------------------- the picture

    def snapshot(self, now: Now) -> Snapshot:
        """The node as it is after the last tick."""
        devices = self.devices.views()
        rows = port_views(self.judge, self.devices, now, self.identity.boot_id)
        expected = {p.id.device for p in rows if p.expected}
        return Snapshot(
            sequence=self._sequence,
            at=now,
            node=self.identity.node,
            boot_id=self.identity.boot_id,
            mode=self.config.action.mode,
            fitness=self.fitness,
            up=self.devices.names is not None,
            listing_errno=self.devices.listing_errno,
            devices=devices,
            ports=rows,
            devices_expected=len(expected),
            findings=self.findings,
            drain=drain_view(self.desk),
            actions_enabled=self.enabled,
            why=self.why,
            rules_available={},
        )
