"""Plays a recording through the engine in virtual time and prints what changes.

Reads nothing of the host: the tree, the clocks, the scheduler (1,000 obedient nodes) and the store are in memory.
At one time the order is: frames, hotplug, samples, evaluation, actions, output (docs/recording.md).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from ibmon.config import Config
from ibmon.drain import policy, reconcile
from ibmon.drain.cluster import Cluster
from ibmon.engine import Engine, Identity
from ibmon.exporter.compat import NODE_EXPORTER
from ibmon.exporter.render import Renderer
from ibmon.exporter.text import Format
from ibmon.memory import load_memory
from ibmon.messages import (
    Alerts,
    DeviceFree,
    Discover,
    Discovered,
    Drain,
    Effect,
    Event,
    Hotplug,
    KernelLine,
    ListingDone,
    Observe,
    Poll,
    Read,
    ReadDone,
    ReadListing,
    Release,
    Save,
    Tick,
)
from ibmon.model import Finding, Now
from ibmon.recording import Frame, Header, read
from ibmon.runtime.memory_store import MemoryStore
from ibmon.sysfs.contents import gone
from ibmon.sysfs.discover import discover, list_devices
from ibmon.sysfs.reader import TreeReader
from ibmon.virtualtree import ReadHangs, VirtualTree

NODE = "node0001"
FLEET = 1000
SETTLE_ROUNDS = 1000
"""More exchanges than this at one virtual time mean that the engine asks for the same thing for ever."""


class World:
    """The recorded host in virtual time: clocks, tree, scheduler, store, and the engine that lives on it."""

    def __init__(self, header: Header, config: Config) -> None:
        self.config = config
        self.time = 0.0
        self._wall = header.wall
        self._boot_id = header.boot_id
        self._booted = -header.uptime
        self.tree = VirtualTree()
        self.cluster = Cluster(FLEET, wall=lambda: self.now().wall)
        self.scheduler = self.cluster.client(NODE)
        self.store = MemoryStore()
        self.firing: tuple[Finding, ...] = ()
        self._hanging: dict[str, Discover | Read | ReadListing] = {}
        self._parked: dict[str, list[Effect]] = {}  # by hanging device: what was asked of it meanwhile
        self._left: set[str] = set()  # devices in which a read of an engine before the restart hangs
        self._reader = TreeReader(self.tree, self)
        self._gates = reconcile.Gates(mode=lambda: config.action.mode, stop=lambda: False, limits=config.action.limits)
        self.engine = self._start()

    def now(self) -> Now:
        """This instant: `t` is monotonic time, the wall clock may have been set meanwhile."""
        return Now(self.time, self._wall + self.time)

    def _start(self) -> Engine:
        return Engine(
            self.config,
            Identity(NODE, self._boot_id, self._booted),
            self.now(),
            memory=load_memory(self.store.load()),
            owned=self.store.ownership(),
            phase=0.0,
            quarantined=frozenset(self._hanging),
        )

    # ---------------------------------------------------------------------------------- the recorded host

    def apply(self, frame: Frame) -> None:
        """Let one frame happen."""
        events = self.tree.class_version
        self.tree.apply(frame)
        if frame.scheduler is not None:
            self.cluster.act(NODE, frame.scheduler)
        for line in frame.kmsg:
            self._carry_out(self.engine.step(KernelLine(line), self.now()))
        self._wall += (frame.wall_step or 0.0) + (frame.suspend or 0.0)
        if frame.boot_id is not None:
            self._boot_id, self._booted = frame.boot_id, self.time - (frame.uptime or 0.0)
            self._hanging.clear()
        if frame.restart or frame.boot_id is not None:
            self._reader.close()
            self._parked.clear()
            self._left = set(self._hanging)
            self.engine = self._start()
        elif self.tree.class_version != events:
            self._carry_out(self.engine.step(Hotplug(), self.now()))

    def settle(self) -> None:
        """Read what is due, judge, act, until nothing more happens at this time."""
        for _ in range(SETTLE_ROUNDS):
            asked = self._retry_hanging()
            asked = self._carry_out(self.engine.step(Poll(), self.now())) or asked
            if not asked and not self._carry_out(self.engine.step(Tick(), self.now())):
                return
        raise RuntimeError(f"the engine does not come to rest at t={self.time}")

    def _retry_hanging(self) -> bool:
        done = False
        for name, effect in list(self._hanging.items()):
            event = self._perform(effect)
            if event is not None:
                del self._hanging[name]
                done = True
                stale = name in self._left
                self._left.discard(name)
                self._carry_out(self.engine.step(DeviceFree(name) if stale else event, self.now()))
                self._carry_out(self._parked.pop(name, ()))
        return done

    # ---------------------------------------------------------------------------------- effects

    def _carry_out(self, effects: Sequence[Effect]) -> bool:
        """Do what the engine asked for, and all that follows from it; False when there was nothing to do."""
        queue = deque(effects)
        acted = False
        while queue:
            effect = queue.popleft()
            match effect:
                case Save():
                    self.store.save(effect.state)
                case Alerts():
                    self.firing = effect.firing
                case Drain() | Release() | Observe():
                    acted = True
                    done = reconcile.carry_out(effect, self.scheduler, self.store, self._gates, self.now())
                    queue.extend(self.engine.step(done, self.now()))
                case ReadListing() | Discover() | Read():
                    acted = True
                    queue.extend(self._read(effect))
                case _:
                    pass  # what is logged, sent or closed has no place in a replay
        return acted

    def _read(self, effect: ReadListing | Discover | Read) -> list[Effect]:
        name = "" if isinstance(effect, ReadListing) else effect.device
        if name in self._hanging:
            self._parked.setdefault(name, []).append(effect)
            return []
        event = self._perform(effect)
        if event is None:
            self._hanging[name] = effect
            return []
        return self.engine.step(event, self.now())

    def _perform(self, effect: ReadListing | Discover | Read) -> Event | None:
        """The read's result, or None where it does not return now."""
        devices = self.config.devices
        try:
            match effect:
                case ReadListing():
                    wanted = (devices.include, devices.exclude)
                    return ListingDone(list_devices(self.tree, *wanted, self.now(), effect.functions))
                case Discover():
                    return Discovered(effect.device, discover(self.tree, effect.device, effect.generation))
                case Read():
                    present = self.engine.devices.present.get(effect.device)
                    if present is None or present.device.layout.generation != effect.generation:
                        now = self.now()
                        return ReadDone(gone(effect.device, effect.generation, effect.columns, now, now), effect.tiers)
                    return ReadDone(self._reader.read(present.device, effect.columns), effect.tiers)
        except ReadHangs:
            return None

    # ---------------------------------------------------------------------------------- what is to be seen

    def row(self) -> dict[str, Any]:
        """The node as one line of output, without the time."""
        snapshot = self.engine.snapshot(self.now())
        view = self.cluster.view(NODE)
        owned = self.store.ownership()
        drained = owned is not None and policy.owns(owned, view)
        return {
            "node": snapshot.fitness.value,
            "ports": {str(p.id): p.health.value for p in snapshot.ports},
            "findings": [_finding(f) for f in snapshot.findings],
            "alerts": [{"rule": f.rule, "port": f.subject, "severity": f.severity.value} for f in self.firing],
            "drained": drained,
            "reason": view.reason if drained else None,
            "flaps": {str(p.id): p.flaps for p in snapshot.ports if p.flaps},
            "calls": {"drain": self.scheduler.calls["drain"], "release": self.scheduler.calls["undrain"]},
        }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "port": finding.subject,
        "severity": finding.severity.value,
        "observed": finding.observed,
        "limit": finding.limit,
    }


def _changes(row: dict[str, Any]) -> Any:
    """The part of a row whose change makes a new line: not the numbers that move by themselves."""
    findings = [(f["rule"], f["port"], f["severity"]) for f in row["findings"]]
    return {**{k: v for k, v in row.items() if k != "calls"}, "findings": findings}


def play(
    world: World,
    frames: Iterator[Frame],
    at: Sequence[float],
    until: float | None,
    progress: Callable[[float], None] | None = None,
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Every (time, row) that is to be printed: at each change, and at each time of `at`.

    `progress` is told each time at which something was due. Without `until` it ends with the last frame, or the last
    time of `at` if that is later.
    """
    stops = deque(sorted({t for t in at if until is None or t <= until}))
    frame = next(frames, None)
    shown: Any = None
    while True:
        end = until if until is not None else (max(stops, default=-1.0) if frame is None else math.inf)
        time = min(
            frame.t if frame is not None else math.inf,
            stops[0] if stops else math.inf,
            max(world.engine.next_due(), world.time),
        )
        if time > end:
            break
        world.time = time
        if progress is not None:
            progress(time)
        while frame is not None and frame.t <= time:
            world.apply(frame)
            frame = next(frames, None)
        world.settle()
        row = world.row()
        changed = _changes(row)
        asked = bool(stops) and stops[0] <= time
        if asked:
            stops.popleft()
        if asked or changed != shown:
            shown = changed
            yield time, row


def main(
    file: Path,
    config: Config,
    at: Sequence[float],
    until: float | None,
    metrics_at: float | None,
    out: IO[str],
    progress: Callable[[float], None] | None = None,
) -> None:
    """Play a recording; JSON Lines go to `out`, or with `metrics_at` the exposition text of that time and nothing else.

    Raises:
        RecordingError: the recording cannot be read or used.
    """
    header, frames = read(file)
    world = World(header, config)
    if metrics_at is not None:
        until = metrics_at if until is None else until
        at = (*at, metrics_at)
    for time, row in play(world, frames, at, until, progress):
        if metrics_at is None:
            t = int(time) if time == int(time) else round(time, 6)
            out.write(msgspec.json.encode({"t": t, **row}).decode() + "\n")
        elif time == metrics_at:
            renderer = Renderer(node_exporter=NODE_EXPORTER in config.exporter.compat)
            snapshot = world.engine.snapshot(world.now())
            out.write(renderer.render(snapshot, Format.TEXT, monotonic=world.time).decode())
            return
