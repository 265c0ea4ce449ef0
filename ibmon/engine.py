"""One step of the daemon: an event and a time go in, effects come out. Pure; the only place where the rooms meet.

The engine owns every timer. A runtime feeds it events, sends `Tick` after each batch and at `next_due`, and carries
out the effects in their order: what must be saved comes before what leaves the node.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from ibmon import maintenance, notices, people
from ibmon.announce import Announcer, log
from ibmon.config import ActionConfig, Config
from ibmon.devices import Company, Devices
from ibmon.drain import pace
from ibmon.drain.intent import DrainDesk, DrainMemory
from ibmon.health import kernel_log
from ibmon.health.correlate import NodeFacts
from ibmon.health.desks import PortDesk, PortMemory
from ibmon.health.facts import PortFacts
from ibmon.health.inventory import arrivals, take
from ibmon.health.judge import Judge
from ibmon.intake import Intake
from ibmon.maintenance import Maintenance
from ibmon.memory import Memory, remember
from ibmon.messages import (
    Answer,
    DeviceFree,
    Discovered,
    Effect,
    EffectDone,
    Event,
    FleetWord,
    Hotplug,
    KernelLine,
    ListingDone,
    Notice,
    Person,
    Poll,
    ReadDone,
    Reloaded,
    Save,
    SchedulerSaw,
    StopFile,
    Tick,
    Troubles,
)
from ibmon.model import (
    Device,
    Finding,
    Mode,
    NodeFitness,
    Now,
    Ownership,
    PortId,
)
from ibmon.picture import drain_view, port_views, why
from ibmon.sampling import Sampler
from ibmon.snapshot import PortView, Snapshot

AVAILABLE_SECONDS = 30.0
"""How often it is looked up which rules have a source; it changes with drivers and files, not with links."""


IDLE_SECONDS = 60.0
"""How often everything is judged anew although nothing has changed."""

_BY_CHANGES = (Poll, Tick, ReadDone, ListingDone)
"""Events whose news `Devices.changes` tells."""


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
        default_route: network interfaces that lead to everywhere else; their ports are no rails.
        direct: whether many daemons ask one scheduler, each for itself, so that they must not ask in one second.
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
        default_route: frozenset[str] = frozenset(),
        direct: bool = False,
    ) -> None:
        self.config = config
        self.direct = direct
        self.identity = identity
        self.enabled = enabled
        self.stopped = False
        self.fleet = FleetWord()
        self.default_route = default_route
        self.devices = Devices()
        self.sampler = Sampler(config.sampling, now.monotonic if phase is None else phase)
        self.sampler.quarantined = quarantined
        self.judge = Judge(config)
        self.judge.node.episodes = dict(memory.node) if memory else {}
        windows = memory.maintenance if memory else ()
        self.maintenance = Maintenance(windows, now, identity.boot_id, 2 * config.sampling.slow_interval)
        self.intake = Intake(
            self.devices,
            self.sampler,
            self.judge,
            boot=identity.boot_id,
            booted=identity.booted,
            grace=lambda: self.config.action.boot_grace,
            inventory_changed=self._take_inventory,
            silenced=self.maintenance.silences,
        )
        self.intake.kernel = dict(memory.kernel) if memory else {}
        self._explained: frozenset[str] = frozenset()
        self._memory: dict[str, PortMemory] = dict(memory.ports) if memory else {}
        self._resumed = memory.saved if memory and memory.boot_id == identity.boot_id else None
        remembered = memory.drain if memory else DrainMemory(unseen=owned is None)
        self.desk = DrainDesk(identity.node, identity.boot_id, remembered, owned, now)
        self.troubles: tuple[Notice, ...] = ()
        self._acted_last: tuple[str | None, ...] = ()  # what was written down last of how a request ended
        self.fitness = NodeFitness.UNKNOWN
        self.why = ""
        self.findings: tuple[Finding, ...] = ()
        self._saved = b""
        self._sequence = 0
        self._available: dict[str, bool] = {}
        self._available_due = -math.inf
        self._started = now.monotonic
        self._handlers: dict[type, Callable[[Any, Now], None]] = {
            Tick: self._tick,
            Poll: self.intake.poll,
            Hotplug: self.intake.hotplug,
            ListingDone: self.intake.listed,
            Discovered: self.intake.discovered,
            ReadDone: self.intake.read,
            DeviceFree: self.intake.freed,
            KernelLine: self.intake.kernel_line,
            EffectDone: self._acted,
            SchedulerSaw: self._saw,
            Person: self._asked,
            StopFile: self._stop,
            FleetWord: self._fleet,
            Reloaded: self._reload,
            Troubles: self._troubled,
        }
        self._pending: list[Effect] = []
        self._heard = 0  # events after which everything is judged anew
        self._judged: tuple[int, int, frozenset[str], bool] | None = None  # of what the last verdict was made
        self._next_due = math.inf
        self._rows: tuple[PortView, ...] | None = None  # of the last verdict
        self._own_due = -math.inf  # when a verdict changes by itself
        self._take_inventory()
        told, heard = (memory.fitness, memory.heard) if memory else (NodeFitness.UNKNOWN, None)
        then = now if memory is None else Now(memory.saved, now.wall)
        marked = self.maintenance.mark(self.judge.findings())
        self.announcer = Announcer(identity.node, told, marked, self._notices(then), heard)

    # --------------------------------------------------------------------------------------- step

    def step(self, event: Event, now: Now) -> list[Effect]:
        """Take in one event. Reads are asked for by `Poll`; verdicts and requests are made by `Tick` alone."""
        self._pending = self.intake.out = []
        if type(event) not in _BY_CHANGES:
            self._heard += 1
        self._handlers[type(event)](event, now)
        return self._pending

    def next_due(self) -> float:
        """The earliest monotonic time at which anything changes without new input."""
        may_start_at = self.identity.booted + self.config.action.boot_grace
        may_start = self._judged is not None and self._judged[-1]
        times = [self.sampler.next_due(), self.desk.next_due(self.config.action)]
        times += (self._next_due, self.maintenance.next_due())
        if not may_start and any(d.episodes for d in self.judge.ports.values()):
            times.append(may_start_at)
        return min(times, default=math.inf)

    # --------------------------------------------------------------------------------------- judging

    def _may_start(self, now: Now) -> bool:
        return now.monotonic >= self.identity.booted + self.config.action.boot_grace

    def _evaluate(self, port: PortId, now: Now, facts: PortFacts) -> None:
        desk = self.judge.ports[port]
        if desk.running.checked is None and desk.episodes:
            desk.running.checked = self._goes_on(now)
        if self._explained:
            facts = facts._replace(explained=self._explained)
        may_start = self._may_start(now) and not desk.link.in_bring_up(now)
        self.judge.evaluate(port, facts, now, may_start=may_start)

    def _goes_on(self, now: Now) -> float | None:
        """When stored episodes were last looked at, if a restart was so short that nothing went unobserved."""
        saved = self._resumed
        return saved if saved is not None and now.monotonic - saved <= self.judge.longest_gap else None

    def _company(self, now: Now) -> Company:
        return self.devices.company(now, self.judge.longest_gap)

    def _facts(self, desk: PortDesk, now: Now, company: Company) -> PortFacts:
        boot = self.identity.boot_id
        device = desk.expected.device
        address = device.pci.address if device and device.pci else None
        lines = self.intake.kernel.get(address, ()) if address else ()
        kinds = kernel_log.kinds(lines, now, boot)
        return self.devices.facts(desk, now, boot, self.judge.longest_gap, company, kinds)

    def _evaluate_all(self, now: Now) -> None:
        """The node as a whole, then every port, with what the node's findings speak for."""
        self.devices.quarantined = self.sampler.quarantined
        company = self._company(now)
        every = {p: self._facts(d, now, company) for p, d in self.judge.ports.items()}
        expected = {p: f for p, f in every.items() if self.judge.ports[p].expected.expected}
        if self.judge.node.checked is None and self.judge.node.episodes:
            self.judge.node.checked = self._goes_on(now)
        facts = NodeFacts(
            names=self.devices.names,
            failed_listings=self.devices.failed_listings,
            ports=expected,
            expected_devices=frozenset(p.device for p in expected),
            ever_listed=self.devices.ever_listed,
            drains=self.desk.drains,
            now=now,
            boot=self.identity.boot_id,
        )
        self._explained = self.judge.evaluate_node(facts, now, may_start=self._may_start(now))
        for port, seen in every.items():
            self._evaluate(port, now, seen)

    def _take_inventory(self) -> None:
        devices: dict[str, Device] = {n: p.device for n, p in self.devices.present.items()}
        learned = {slot: m.learned for slot, m in self._memory.items()}
        inventory = take(self.config, devices, learned, self.default_route)
        arrived = arrivals(self.config, inventory, learned)
        for slot, name in arrived.items():
            self._memory[slot] = self._memory.pop(name)
        self.judge.assign(self.config, inventory, self._memory, arrived)
        for row in inventory.values():
            known = self._memory.get(row.slot)
            card = row.device.node_guid if row.device else None
            if known and card and known.learned.card and known.learned.card != card:
                # What is expected belongs to the slot and stays; history belongs to the card.
                self.judge.new_card(row.id)
                kept = msgspec.structs.replace(known.learned, card=card)
                self._memory[row.slot] = PortMemory(kept, dict(self.judge.ports[row.id].episodes))
                self._log("info", "card-replaced", port=str(row.id), was=known.learned.card, card=card)

    def _learn(self, now: Now) -> None:
        """Remember what was seen; a port that became expected, or better, changes the inventory."""
        if remember(self.judge, self._memory):
            self._take_inventory()
            company = self._company(now)
            for port, desk in self.judge.ports.items():
                self._evaluate(port, now, self._facts(desk, now, company))

    # --------------------------------------------------------------------------------------- the tick

    def _idle(self, now: Now) -> bool:
        """Whether a verdict now would be the last one again: nothing came, nothing runs, everything was just read."""
        return (
            self._judged == self._inputs(now)
            and now.monotonic < self._own_due
            and self.desk.intent is None
            and self.desk.owned is None
            and now.monotonic < self.desk.next_due(self.config.action)
            and self.devices.all_fresh(now, self.judge.longest_gap)
        )

    def _inputs(self, now: Now) -> tuple[int, int, frozenset[str], bool]:
        return self.devices.changes, self._heard, self.sampler.quarantined, self._may_start(now)

    def _remember_inputs(self, now: Now) -> None:
        """What this verdict was made of, and until when it holds by itself."""
        self._judged = self._inputs(now)
        self._next_due = self.judge.next_due(may_start=self._may_start(now))
        runs = self.judge.node.episodes or any(d.episodes for d in self.judge.ports.values())
        holds = not runs and self._settled(now)
        self._own_due = min(self._next_due, now.monotonic + IDLE_SECONDS) if holds else -math.inf

    def _tick(self, _: Tick, now: Now) -> None:
        self._sequence += 1
        self._turn_maintenance(now)
        if self._idle(now):
            return
        self._rows = None
        self._evaluate_all(now)
        self._learn(now)
        self.findings = self.maintenance.mark(self.judge.findings())
        self.fitness = self.judge.fitness(self.findings, seen=self._settled(now))
        self.why = why(self.judge, self.findings, self.fitness, listed=self.devices.ever_listed)
        offender = self.judge.node.episodes.get("repeat-offender")
        self.desk.sticky = offender is not None and offender.severity == "critical"
        requests = self.desk.decide(
            self.findings,
            self.fitness,
            self._action(),
            now,
            stopped=self.stopped or self.fleet.stop,
            enabled=self.enabled,
            maintenance=self.maintenance.on,
            grace=not self._may_start(now),
            holding=self.judge.holding(),
            jitter=self._jitter(),
        )
        verdict = (self.findings, self.fitness, self.why, self.config.action.mode)
        settled, told = self._settled(now), self._notices(now)
        self._pending.extend(self.announcer.tell(*verdict, now, settled=settled, notices=told, acts=self.enabled))
        if now.monotonic >= self._available_due:
            self._available_due = now.monotonic + AVAILABLE_SECONDS
            self._available = self.judge.available()
        self._pending[:0] = self._save(now)
        self._pending.extend(requests)
        self._remember_inputs(now)

    def _jitter(self) -> float:
        """Seconds over which nodes like this one spread their first calls, by the shortest hold that is over."""
        holds = [self.judge.hold(f) for f in self.findings if f.drains] if self.direct else []
        return pace.jitter(min(holds)) if holds else 0.0

    def _turn_maintenance(self, now: Now) -> None:
        """Whose holds do not run now, and what begins anew because its window is over."""
        ended = self.maintenance.turn(now)
        self.judge.silent = self.maintenance.ports(self.judge.ports)
        self.judge.node_silent = self.maintenance.covers("")
        if not ended:
            return
        self._heard += 1
        owned = self.desk.owned is not None
        maintenance.begin_anew(ended, self.judge, now, self.identity.boot_id, drained=owned)
        for end in ended:
            window = end.window
            self._log(
                "warning", "maintenance-ended", ports=",".join(window.subjects) or None, by=end.by or "time",
                began_by=window.user, reason=window.reason,
            )  # fmt: skip

    def _settled(self, now: Now) -> bool:
        """Whether everything has been read once, or has had the time for it."""
        if now.monotonic - self._started > self.judge.longest_gap:
            return True
        seen = all(p.seen_state() is not None for p in self.devices.present.values())
        return self.devices.ever_listed and not self.sampler.discovering and seen

    # --------------------------------------------------------------------------------------- acting

    def _mode(self) -> Mode:
        return self.config.action.mode if self.enabled else Mode.OBSERVE

    def _action(self) -> ActionConfig:
        """[action] as the fleet controller lets it be: where it withholds draining, this node alerts at most."""
        action = self.config.action
        if self.fleet.mode is Mode.DRAIN or action.mode is not Mode.DRAIN:
            return action
        return msgspec.structs.replace(action, mode=Mode.ALERT)

    def _acted(self, event: EffectDone, now: Now) -> None:
        self.desk.done(event, now)
        code = event.code.value if event.code else None
        given_back = event.effect == "release" and event.outcome == "gone" and not event.detail
        level: Literal["info", "warning"] = "info" if event.outcome == "done" or given_back else "warning"
        told = (event.effect, event.id, event.outcome, code, event.detail or None)
        if told != self._acted_last:  # a drain that stands is looked at again and again, a blocked one asked for
            self._acted_last = told
            self._log(level, event.effect, id=event.id, outcome=event.outcome, code=code, detail=told[-1])

    def _saw(self, event: SchedulerSaw, now: Now) -> None:
        if self.desk.saw(event, now):
            self._log("warning", "observe", outcome="failed", detail=event.detail or None)

    def _troubled(self, event: Troubles, now: Now) -> None:
        self.troubles = notices.of_troubles(event.found, self.troubles, now)

    def _notices(self, now: Now) -> tuple[Notice, ...]:
        action = self.config.action
        return (*notices.of_desk(self.desk, self._mode(), action.override_ttl, now), *self.troubles)

    def _asked(self, event: Person, now: Now) -> None:
        """A person's word: about findings, or about what belongs here."""
        answer = self._answer(event, now)
        self._log("warning", f"person-{event.action}", user=event.user, done=answer.done, text=answer.text)
        if answer.done:
            self._take_inventory()
            self._evaluate_all(now)
            if event.action == "clear":
                self.desk.forgive()
        self._pending.append(answer)

    def _answer(self, event: Person, now: Now) -> Answer:
        if event.action in maintenance.ACTIONS:
            return self.maintenance.asked(event, self.judge.ports, now)
        if event.action == "release" and (self.fleet.stop or self._action() != self.config.action):
            text = "the fleet controller lets nothing be written to the scheduler for this node now; ask there"
            return Answer(event.ticket, done=False, text=text)
        if event.action == "release":
            return self.desk.give_back(event, self.config.action, now, stopped=self.stopped, enabled=self.enabled)
        return people.answer(event, self.judge, self._memory, self.intake.kernel)

    def _stop(self, event: StopFile, _: Now) -> None:
        if event.present is not self.stopped:
            self.stopped = event.present
            self._log("warning" if event.present else "info", "stop-file", present=event.present)

    def _fleet(self, event: FleetWord, _: Now) -> None:
        if event != self.fleet:
            self.fleet = event
            self._log("warning" if event.stop else "info", "fleet", stop=event.stop, mode=event.mode.value)

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
            heard=self.announcer.heard,
            node=self.judge.node.episodes,
            kernel=self.intake.kernel,
            maintenance=self.maintenance.windows,
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
        rows = self._rows
        if rows is None:
            rows = self._rows = port_views(self.judge, self.devices, now, self.identity.boot_id)
        expected = {p.id.device for p in rows if p.expected}
        return Snapshot(
            sequence=self._sequence,
            at=now,
            node=self.identity.node,
            boot_id=self.identity.boot_id,
            mode=self._action().mode,
            fitness=self.fitness,
            up=self.devices.names is not None,
            listing_errno=self.devices.listing_errno,
            devices=devices,
            ports=rows,
            devices_expected=len(expected),
            findings=self.findings,
            drain=drain_view(self.desk),
            actions_enabled=self.enabled and self.desk.unnamed is None,
            why=self.why,
            maintenance=self.maintenance.windows,
            quarantined=tuple(sorted(self.sampler.quarantined - set(self.devices.present))),
            rules_available=self._available,
        )
