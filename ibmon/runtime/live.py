"""The daemon on a real host: one thread owns the engine, all others only queue events for it.

Threads: readers (sysfs), hotplug, the kernel log, HTTP, the scheduler's calls, alerts and webhooks, housekeeping. No
policy is here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ibmon import __version__
from ibmon.alert.delivery import alertmanager_names, target_names
from ibmon.config import Config
from ibmon.configfile import ConfigError, Loaded, load
from ibmon.controlclient import SOCKET
from ibmon.drain import reconcile
from ibmon.engine import Engine, Identity
from ibmon.exporter.errors import ExporterError
from ibmon.exporter.events import LENGTH, EventRing
from ibmon.exporter.selfmetrics import SelfMetrics
from ibmon.exporter.server import Server
from ibmon.messages import (
    OF_READERS,
    Alerts,
    Answer,
    Drain,
    Effect,
    Event,
    Log,
    Observe,
    Poll,
    Release,
    Reloaded,
    StopFile,
    Tick,
    Troubles,
)
from ibmon.model import Mode, Now
from ibmon.ports import Scheduler, StoreError, Tree
from ibmon.runtime import host, logs, schedulers
from ibmon.runtime.actor import Actor, not_done
from ibmon.runtime.condition import ConditionKeeper
from ibmon.runtime.control import ControlServer
from ibmon.runtime.foreground import begin, tell_doubts
from ibmon.runtime.housekeeping import Chore, Housekeeping
from ibmon.runtime.kmsg import KernelLog
from ibmon.runtime.notify import Notifier
from ibmon.runtime.persist import Persistence
from ibmon.runtime.readers import Readers
from ibmon.runtime.verdict import VerdictFile
from ibmon.snapshot import Snapshot

if TYPE_CHECKING:
    from ibmon.runtime.reporter import Reporter

log = logging.getLogger(__name__)

EXIT_USAGE = 2
LONGEST_WAIT = 5.0
"""Seconds after which the loop turns although nothing is due: the watchdog, the stop file and the verdict file live."""

PATIENCE = 1.0
"""Seconds for which a verdict waits for reads that are out, so that one turn judges one whole pass."""

GATHER = 0.02
"""Seconds that the loop sleeps on once something came: a pass ends in one event a device, and a wake costs more than
what it brings."""

SWITCH_INTERVAL = 0.0005
"""Seconds after which a thread that computes lets another go on: a scrape that meets a verdict need not wait for it."""


class Signal(msgspec.Struct, frozen=True):
    """What a signal handler queued: ``stop`` or ``reload``."""

    what: str


class ChoreDue(msgspec.Struct, frozen=True):
    """What housekeeping queued."""

    chore: Chore


Item: TypeAlias = Event | Signal | ChoreDue


class Daemon:
    """One node daemon. `start` may raise ExporterError or ConfigError; `loop` returns after `stop`.

    Args:
        loaded: the configuration and where it came from.
        sysfs: the sysfs root.
        scheduler: what is drained through instead of the configured one (a simulated node brings its own).
        reload: reads the configuration anew; None where that means nothing.
        tree: what is read instead of the directory `sysfs`.
        boot: a simulated host's boot id, and the monotonic time (seconds) at which it booted.
        isolate: read `sysfs` in a process of its own, which a read that hangs in the kernel cannot make the daemon's.
    """

    def __init__(
        self,
        loaded: Loaded,
        sysfs: Path,
        *,
        scheduler: Scheduler | None = None,
        reload: Callable[[], Loaded] | None = None,
        tree: Tree | None = None,
        boot: tuple[str, float] | None = None,
        isolate: bool = False,
    ) -> None:
        self.config: Config = loaded.config
        self.snapshot: Snapshot | None = None
        self._hash = loaded.hash
        self._valid = True
        self._reload = reload
        self._sysfs = sysfs
        self._clock = host.HostClock()
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._stopping = False
        self._turned: float | None = None
        self._reading = False  # reads are out
        self._begun = False  # what only a start needs has been done
        self._owed: float | None = None  # since when a verdict waits for reads that are out
        self._stop_file = False
        self._troubles: dict[str, str] = {}
        self._runtime_directory = Path(self.config.state.runtime_directory)
        self._notifier = Notifier()
        self._given_scheduler = scheduler
        self._condition: ConditionKeeper | Reporter | None = None
        # Before there is a thread, a socket or a lock: what reads begins as a copy of this process.
        self._readers = Readers(
            self._queue.put,
            sysfs,
            self.config.devices,
            self._runtime_directory,
            self._clock,
            tree,
            isolate=isolate,
        )
        self._boot = boot
        self._events = EventRing()
        self._control = ControlServer(self._runtime_directory / SOCKET, self._queue.put)
        self._verdict: VerdictFile | None = VerdictFile(self._runtime_directory)

    # ------------------------------------------------------------------------------------- start and stop

    def start(self) -> None:
        """Open everything; the address first, so that a port in use changes nothing else."""
        config = self.config
        names = alertmanager_names([target.url for target in config.alertmanager])
        fleet = [schedulers.CONTROLLER] if config.action.scheduler == schedulers.CONTROLLER else []
        self._self_metrics = SelfMetrics([*names, *target_names([w.url for w in config.webhook]), *fleet])
        self.server = Server(
            config.exporter,
            lambda: self.snapshot,
            self_metrics=self._self_metrics,
            heartbeat=lambda: self._turned,
            events=self._events,
        )
        self.server.start()
        now = self._clock.now()
        node = host.node_name(config.node.name)
        boot, booted = self._boot or (host.boot_id(), host.booted())
        # A server that listens everywhere calls itself localhost, which is another machine for everybody else.
        page = self.server.url.replace("://localhost:", f"://{node}:", 1)
        self._persistence = Persistence(config, node, host.product_uuid(self._sysfs), page, self._self_metrics)
        self._readers.start()
        self.engine = Engine(
            config,
            Identity(node, boot, booted),
            now,
            memory=self._persistence.load(),
            owned=self._persistence.ownership(),
            enabled=self._persistence.acts,
            quarantined=self._readers.quarantined,
            default_route=host.default_route(),
            direct=self._given_scheduler is None and config.action.scheduler != schedulers.CONTROLLER,
        )
        state = Path(config.state.directory) if self._persistence.acts else None
        self._kernel_log = KernelLog(self._queue.put, self._clock, boot, state)
        if self._readers.live:
            self._kernel_log.start()
        self._recall()
        if self._persistence.second:
            self._verdict = None  # the other's word stands there, and people talk to the one that acts
        else:
            self._control.start()
        self._actor = self._start_actor()
        self._housekeeping = Housekeeping(lambda chore: self._queue.put(ChoreDue(chore)))
        log.info(
            logs.line(
                "start",
                {"version": __version__, "node": node, "mode": config.action.mode.value,
                 "scheduler": config.action.scheduler, "metrics": self.server.url + "metrics"},
            )
        )  # fmt: skip

    def _recall(self) -> None:
        """Let the events that are served begin with the stored ones."""
        if self._persistence.acts:
            with contextlib.suppress(StoreError):  # it was told when the state was loaded
                self._events.fill(self._persistence.store.events(LENGTH))

    def _start_actor(self) -> Actor | Reporter | None:
        node = self.engine.identity.node
        if self._given_scheduler is None and not self._persistence.second:
            reporter = schedulers.reporter(
                self.config, self.engine.identity, self._queue.put, self._persistence.store, self._gates, self._clock,
                self._self_metrics,
            )  # fmt: skip
            if reporter is not None:
                self._condition = reporter
                return reporter
        scheduler = self._given_scheduler or schedulers.configured(self.config, node)
        if scheduler is None:
            return None
        self._condition = schedulers.keeper(self.config, scheduler, self._gates, node)
        return Actor(self._queue.put, scheduler, self._persistence.store, self._gates, self._clock)

    def stop(self) -> None:
        """Ask the loop to end; safe from any thread and from a signal handler."""
        self._queue.put(Signal("stop"))

    def ask_reload(self) -> None:
        """Ask for the configuration to be read anew."""
        self._queue.put(Signal("reload"))

    def close(self) -> bool:
        """Give everything back; whether no thread is left in a read that hangs.

        The port, the store and the lock go first: a successor can serve although a thread of this process still
        waits in the kernel.
        """
        self._notifier.send("STOPPING=1")
        self.server.close()
        self._control.close()
        if self._actor is not None:
            self._actor.close(1.0)
        if self._condition is not None:
            self._condition.close(0.5)
        self._kernel_log.close()
        self._persistence.close()
        self._housekeeping.close()
        clean = self._readers.close()
        self._notifier.close()
        log.info(logs.line("stop", {"clean": clean}))
        return clean

    # ------------------------------------------------------------------------------------- the loop

    def loop(self) -> None:
        """Turn until `stop`. One turn: take what came, ask for what is due, judge and act, publish."""
        self._notifier.send("READY=1", f"STATUS=serving {self.server.url}metrics")
        while not self._stopping:
            self._turn(self._take())

    def _take(self) -> list[Item]:
        """Wait until something comes or is due; then all that came."""
        items: list[Item] = []
        if self._reading or self._readers.asked:
            time.sleep(GATHER)  # they end within that: one wake for all, and none for the first
            items += self._readers.collect()
            if self._drain(items):
                return items
        wait = self.engine.next_due() - time.monotonic()
        if self._owed is not None:
            wait = min(wait, self._owed + PATIENCE - time.monotonic())
        try:
            # Python 3.10 can wait for ever in the first get of a queue whose timeout is zero.
            items.append(self._queue.get(timeout=min(wait, LONGEST_WAIT)) if wait > 0 else self._queue.get_nowait())
        except queue.Empty:
            return items
        time.sleep(GATHER)
        self._drain(items)
        return items

    def _drain(self, items: list[Item]) -> bool:
        """Take all that waits; whether there was anything."""
        with contextlib.suppress(queue.Empty):
            while True:
                items.append(self._queue.get_nowait())
        return bool(items)

    def _turn(self, items: Sequence[Item]) -> None:
        began = time.monotonic()
        now = self._clock.now()  # what came together came at one instant
        for item in items:
            if not isinstance(item, (Signal, ChoreDue)):
                self._step(item, now)
                continue
            if isinstance(item, Signal):
                self._signal(item.what)
            else:
                self._chore(item.chore)
            now = self._clock.now()
        if self._stopping:
            return
        if began >= self.engine.sampler.next_due():
            self._step(Poll(), self._clock.now())
        waiting = self._reading = self.engine.sampler.reading()
        if self._owed is None:
            self._owed = began
        if not waiting or began - self._owed >= PATIENCE:
            self._owed = None
            self._look_for_stop_file()
            self._look_for_troubles()
            self._step(Tick(), self._clock.now())
            self._persistence.retry(self._clock.now())
            self._kernel_log.committed()
            self._publish()
            self._control.release(self._persistence.unsaved)
        self._readers.turn()
        self._turned = time.monotonic()
        self._self_metrics.tick(self._turned - began)
        self._notifier.send("WATCHDOG=1")

    def _step(self, event: Event, now: Now) -> None:
        effects = self.engine.step(event, now)
        if effects:
            self._carry_out(effects)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        """What must be saved first, then what leaves the node, then the reads."""
        reads = [effect for effect in effects if isinstance(effect, OF_READERS)]
        if len(reads) < len(effects):
            self._act([effect for effect in effects if not isinstance(effect, OF_READERS)])
        if reads:
            self._readers.carry_out(reads)

    def _act(self, effects: Sequence[Effect]) -> None:
        now = self._clock.now()
        self._persistence.commit(effects, now)
        for effect in effects:
            if isinstance(effect, Drain | Release | Observe):
                self._request(effect)
            elif isinstance(effect, Alerts):
                self._persistence.fire(effect, {port: d.expected.rail for port, d in self.engine.judge.ports.items()})
            elif isinstance(effect, Log):
                self._events.add(now.wall, effect.level, effect.event, effect.fields)
            elif isinstance(effect, Answer):
                self._control.hold(effect)

    def _request(self, request: Drain | Release | Observe) -> None:
        if isinstance(self._actor, Actor):  # noqa: SIM114 - a reporter takes no Observe, and none is made for it
            self._actor.submit(request)
        elif self._actor is not None and not isinstance(request, Observe):
            self._actor.submit(request)
        else:
            nothing = "action.scheduler is none: there is nothing to drain through"
            self._queue.put(not_done(request, "blocked", nothing))

    def _publish(self) -> None:
        now = self._clock.now()
        snapshot = msgspec.structs.replace(self.engine.snapshot(now), config_valid=self._valid, config_hash=self._hash)
        if self._condition is not None:
            snapshot = self._condition.show(snapshot)
        self.snapshot = snapshot
        if not self._begun and self.engine.devices.ever_listed and not self.engine.sampler.discovering:
            self._begun = True
            host.trim_memory()
        self._self_metrics.refresh(now.monotonic)
        if self._verdict is not None:
            try:
                self._verdict.write(snapshot)
            except OSError as error:
                log.warning("%s cannot be written: %s", self._verdict.path, error.strerror)

    # ------------------------------------------------------------------------------------- people and time

    def _gates(self) -> reconcile.Gates:
        return reconcile.Gates(
            mode=lambda: self.config.action.mode if self._persistence.acts else Mode.OBSERVE,
            stop=lambda: reconcile.stop_file_present(self.config.action.stop_file),
            limits=self.config.action.limits,
        )

    def _look_for_stop_file(self) -> None:
        present = reconcile.stop_file_present(self.config.action.stop_file)
        if present is not self._stop_file:
            self._stop_file = present
            self._step(StopFile(present), self._clock.now())

    def _look_for_troubles(self) -> None:
        found = self._persistence.troubles()
        if self._condition is not None and self._condition.barred:
            found = {"actions-disabled": self._condition.barred} | found
        if found != self._troubles:
            self._troubles = found
            self._step(Troubles(found), self._clock.now())

    def _signal(self, what: str) -> None:
        if what == "stop":
            self._stopping = True
        elif self._reload is not None:
            self._notifier.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
            self._reload_now(self._reload)
            self._notifier.send("READY=1")

    def _reload_now(self, reload: Callable[[], Loaded]) -> None:
        """Take a valid configuration into force; an invalid one changes nothing but what is said of it."""
        try:
            loaded = reload()
            self.server.reload()
        except (ConfigError, ExporterError) as error:
            self._valid = False
            why = "; ".join(str(error).splitlines())
            log.error("reload failed, the running configuration stays in force: %s", why)
            return
        before, self.config = self.config, loaded.config
        self._valid, self._hash = True, loaded.hash
        tell_doubts(loaded)
        for section in ("exporter", "state", "node", "alertmanager", "webhook", "slurm", "kubernetes", "command",
                        "controller"):  # fmt: skip
            if getattr(before, section) != getattr(self.config, section):
                log.warning("[%s] has changed: that takes a restart", section)
        if before.action.scheduler != self.config.action.scheduler:
            log.warning("action.scheduler has changed: that takes a restart")
        self._readers.pool.configure(self.config.devices.include, self.config.devices.exclude)
        self._step(Reloaded(self.config), self._clock.now())

    def _chore(self, chore: Chore) -> None:
        if chore == "reread":
            try:
                self.server.reload()
            except ExporterError as error:
                log.error("%s; what was in force stays so", error)
        elif chore == "summary":
            log.info(logs.line("summary", host.own_usage()))
        else:
            self._persistence.chore(chore)


def run(loaded: Loaded, sysfs: Path, config_file: Path | None = None) -> int:
    """Run the daemon until SIGTERM or SIGINT; the exit code."""
    logs.setup()
    sys.setswitchinterval(SWITCH_INTERVAL)
    daemon = Daemon(loaded, sysfs, reload=lambda: load(config_file), isolate=True)
    if (code := begin(daemon, loaded)) is not None:
        return code
    try:
        daemon.loop()
    finally:
        clean = daemon.close()
    if not clean:
        # A thread waits in the kernel; the interpreter would wait for nothing, but leave no room for surprises.
        sys.stderr.flush()
        os._exit(0)
    return 0
