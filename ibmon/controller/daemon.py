"""The running fleet controller: puts the logic, the server, the scheduler's thread and the ledger together.

The logic is touched on the server's thread alone. It decides nothing itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from typing import Final

import msgspec

from ibmon import __version__
from ibmon.configfile import ConfigError, Loaded
from ibmon.controller import assembly, page, schedulers
from ibmon.controller.api import Site, views_are_open
from ibmon.controller.brain import World
from ibmon.controller.conditions import Conditions
from ibmon.controller.fleet import FleetDesk
from ibmon.controller.front import Front
from ibmon.controller.keeping import Keeper
from ibmon.controller.ledger import Ledger, LedgerError
from ibmon.controller.metrics import FleetMetrics
from ibmon.controller.roster import MISSING
from ibmon.controller.saving import Saving
from ibmon.controller.schedulers import FleetScheduler
from ibmon.controller.server import FleetServer, calm_collector
from ibmon.controller.values import (
    DrainJob,
    FleetView,
    Job,
    Outcome,
    Refused,
    Stop,
)
from ibmon.controller.worker import LOOK_SECONDS, News, Permits, Rights, Unread, Worker
from ibmon.drain import reconcile
from ibmon.exporter.errors import ExporterError
from ibmon.messages import EffectDone
from ibmon.model import BlockCode, Mode, NodeFitness, Now
from ibmon.ports import Clock, StoreError
from ibmon.report import Reply, Report
from ibmon.runtime import host, logs
from ibmon.runtime.foreground import begin
from ibmon.runtime.housekeeping import Chore, Housekeeping
from ibmon.runtime.notify import Notifier
from ibmon.statedir import StateLock
from ibmon.store import Store

log = logging.getLogger(__name__)

GATHER: Final = 0.05
"""Seconds for which reports are gathered until what they change is acted on."""
BEAT: Final = 5.0
"""Seconds between two looks at whether everything still turns."""
EXIT_USAGE: Final = 2


class Controller:
    """One controller. `start` may raise ExporterError or ConfigError; `loop` returns after `stop`.

    Args:
        loaded: the configuration and where it came from.
        scheduler: what is asked and written to instead of the configured one.
        look_seconds: between two reads of the whole scheduler.
        clock: both clocks.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        scheduler: FleetScheduler | None = None,
        look_seconds: float = LOOK_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self._config = config = loaded.config
        self._settings = assembly.settings(config)
        self._clock = clock or host.HostClock()
        self._given_scheduler = scheduler
        self._look_seconds = look_seconds
        self._stopping = threading.Event()
        self._reload = threading.Event()
        self._woken = threading.Event()
        self._notifier = Notifier()
        self._planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._stop_file = reconcile.stop_file_present(config.action.stop_file)
        self._stop_file_seen = self._clock.now().wall
        self._reporters: tuple[str, ...] = ()  # one of them
        self._conditions: Conditions | None = None
        self._worker: Worker | None = None
        self._term = 0
        self._leading = False
        self._unled = ""  # why it could not begin to lead the last time
        self._missing: tuple[str, ...] = ()  # rights, as the scheduler said last
        self._front = Front(self)
        self._beginning: asyncio.Task[None] | None = None
        self._ready: DrainJob | None = None  # goes out once what the ledger says of it is saved
        self.metrics = FleetMetrics()

    # ------------------------------------------------------------------------------------- start and stop

    def start(self) -> None:
        """Open everything; the address last, so that nobody reports to what cannot answer."""
        config = self._config
        keys, tokens = assembly.secrets(config)
        directory = assembly.state_directory(config)
        self._lock = StateLock(directory)
        try:
            if not self._lock.acquire():
                raise ConfigError(
                    [f"another controller runs on {directory} (process {self._lock.holder()}); stop it first"]
                )
        except StoreError as error:
            raise ConfigError([str(error)]) from None
        store = Store(directory, node="controller")
        self._keeper = Keeper(store, assembly.ledger_place(config, store))
        self._leader = assembly.election(config)
        self.desk = FleetDesk(self._settings, Ledger(), self._clock.now(), leader=False)
        world = World(
            desk=self._front,
            now=self._clock.now,
            keys=keys,
            tokens=tokens,
            metrics=self.metrics,
            leader=self.leads,
            save=self._save,
            audit=self._keeper.audit,
            pages=page.load().get,
            open_views=views_are_open(config.controller),
            touched=self._touched,
        )
        self.server = FleetServer(config.controller, Site(world))
        self._saving = Saving(self._keeper, self.server.call, self._clock, self._saved)
        scheduler = self._given_scheduler or schedulers.configured(config, lambda: self._reporters)
        self.server.start()
        if scheduler is not None:
            self._start_scheduler(scheduler)
        if self._leader is None:
            self.server.call(self._begin).result().result()
        else:
            self._leader.start()
        self._housekeeping = Housekeeping(self._chore)
        log.info(
            logs.line(
                "start",
                {"version": __version__, "mode": config.action.mode.value, "scheduler": config.action.scheduler,
                 "reports": self.server.url + "/v1/report"},
            )
        )  # fmt: skip

    def _start_scheduler(self, scheduler: FleetScheduler) -> None:
        permits = Permits(mode=self._mode_now, stop=self._stopped_now, limits=self._settings.limits)
        self._worker = Worker(self._news, scheduler, permits, self._clock, look_seconds=self._look_seconds)
        self._worker.start()
        if self._config.action.scheduler == "kubernetes" and self._config.kubernetes.condition:
            from ibmon.drain.kube_fleet import KubernetesFleet

            self._conditions = Conditions(
                KubernetesFleet(self._config.kubernetes).for_node,  # a client of its own: writes do not wait for these
                lambda node: reconcile.Gates(
                    mode=lambda: self._mode_now(node), stop=self._stopped_now, limits=self._settings.limits
                ),
                self._clock,
            )
            self._conditions.start()

    def stop(self) -> None:
        """Ask the loop to end; safe from any thread and from a signal handler."""
        self._stopping.set()
        self._woken.set()

    def ask_reload(self) -> None:
        """Ask for certificates to be read anew."""
        self._reload.set()
        self._woken.set()

    def loop(self) -> None:
        """Until `stop`: see that the server's thread turns, tell systemd so, look for the stop file."""
        self._notifier.send("READY=1", f"STATUS=serving {self.server.url}")
        while not self._stopping.is_set():
            self._woken.wait(BEAT)
            self._woken.clear()
            if self._reload.is_set():
                self._reload.clear()
                self._reread()
            present = reconcile.stop_file_present(self._config.action.stop_file)
            try:
                self.server.call(partial(self._beat, present)).result(BEAT)
            except futures.TimeoutError:  # until Python 3.11 another one than the builtin
                continue  # no watchdog: systemd starts another one if this goes on
            self._notifier.send("WATCHDOG=1")

    def close(self) -> None:
        """Give everything back; what is out at the scheduler is waited for, at most some seconds."""
        self._notifier.send("STOPPING=1")
        if self._worker is not None:
            self._worker.close(5.0)
        if self._conditions is not None:
            self._conditions.close(1.0)
        if self._leader is not None:  # at last: who leads next finds no write of this one under way
            self._leader.close(5.0)
        self.server.close()
        self._housekeeping.close()
        self._keeper.close()
        self._lock.release()
        self._notifier.close()
        log.info(logs.line("stop", {}))

    # ------------------------------------------------------------------------------- asked from any thread

    def leads(self) -> bool:
        """Whether this instance decides: by what it has known since it began to lead, and not by what was before."""
        leader = self._leader
        return self._leading and (leader is None or (leader.is_leader() and leader.term == self._term))

    def _mode_now(self, node: str) -> Mode:
        return self.desk.mode_of(node) if self.leads() else Mode.OBSERVE

    def _stopped_now(self) -> bool:
        return self.desk.stopped or reconcile.stop_file_present(self._config.action.stop_file)

    def _news(self, news: News) -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended
            self.server.call(lambda: self._take(news))

    def _chore(self, chore: Chore) -> None:
        if chore == "reread":
            self.ask_reload()
        elif chore == "summary":
            log.info(logs.line("summary", host.own_usage()))
        else:
            self._keeper.tidy(whole=chore == "compact")

    def _reread(self) -> None:
        try:
            self.server.reload()
        except ExporterError as error:
            log.error("%s; what was in force stays so", error)

    # ------------------------------------------------------------------------------- on the server's thread

    def _beat(self, present: bool) -> None:  # noqa: FBT001
        now = self._clock.now()
        if present is not self._stop_file:
            self._stop_file, self._stop_file_seen = present, now.wall
            log.warning(logs.line("stop-file", {"present": present}))
            self.gates_changed()
        if self._leader is None:
            if not self._leading:
                self._begin()
        elif self._leader.is_leader() and self._leader.term != self._term:
            self._begin()
        elif self._leading and not self._leader.is_leader():
            self._leading = False
            self.desk.lead(leader=False, now=now)
            if self._conditions is not None:
                self._conditions.forget()
        self._touched()

    def gates_changed(self) -> None:
        """What could not be written before may be written now."""
        if self._conditions is not None:
            self._conditions.again()

    def _begin(self) -> Future[None]:
        """Begin to lead, unless that is under way; the future ends when it has worked or not."""
        ended: Future[None] = Future()
        if self._beginning is None:
            self._leading, self._term = False, self._leader.term if self._leader is not None else 0
            self._beginning = asyncio.get_running_loop().create_task(self._lead())
        self._beginning.add_done_callback(lambda _: ended.set_result(None))
        return ended

    async def _lead(self) -> None:
        """Begin to decide: with the ledger as it lies there now, and knowing nothing else from before.

        It is saved at once: an instance that believes to lead still cannot write it after that. Where the ledger lies
        may be slow to answer, and this thread does not wait for it.
        """
        try:
            data = await asyncio.wrap_future(self._keeper.load())
            now = self._clock.now()
            desk = FleetDesk(self._settings, self._ledger_of(data, now), now, leader=True)
            await asyncio.wrap_future(self._keeper.save(desk.ledger_bytes()))
        except StoreError as error:
            if str(error) != self._unled:
                log.error("%s: nothing is decided before that works", error)
            self._unled = str(error)
            self._term = 0  # tried again at the next beat
            return
        finally:
            self._beginning = None
        self._unled = ""
        self._saving.works()
        if self._worker is not None:
            self._worker.void()
            self._worker.look()
        if self._conditions is not None:
            self._conditions.forget()
        self.desk, self._leading, self._ready = desk, True, None

    def _ledger_of(self, data: bytes | None, now: Now) -> Ledger:
        if data is None:
            return Ledger()
        try:
            return Ledger.read(data)
        except LedgerError as error:
            kept = self._keeper.set_aside(data, now.wall)
            log.error("%s; it is kept as %s, and drains that rest on it wait for a person", error, kept)
            log.error("a stop may have been in force, so one is now: ibmon controller start")
            return Ledger(stop=Stop("ibmon", now.wall, "the ledger was damaged"))

    def reported(self, report: Report, now: Now) -> Reply | Refused:
        """A report whose signature is right."""
        reply = self.desk.report(report, now)
        if isinstance(reply, Refused):
            return reply
        self._reporters = (report.node,)
        if self._conditions is not None:
            owned = report.owned
            self._conditions.show(report.node, report.fitness, owned.reason if owned else report.why)
        return msgspec.structs.replace(reply, stop=True) if self._stop_file else reply

    def stop_by_file(self) -> Stop | None:
        """The stop that the stop file means while it is there."""
        file = self._config.action.stop_file
        return Stop("its stop file", self._stop_file_seen, f"{file} is there") if self._stop_file else None

    def _take(self, news: News) -> None:
        try:
            self._learn(news)
        except Exception:
            log.exception("news of the scheduler could not be taken in")

    def _learn(self, news: News) -> None:
        now = self._clock.now()
        if isinstance(news, FleetView):
            self.desk.scheduler(news, now)
        elif isinstance(news, Unread):
            self.metrics.scheduler_error(news.code.value)
            self.desk.scheduler_failed(news.code, news.detail, now)
        elif isinstance(news, Rights):
            self._rights(news.problems)
        else:
            if news.done.code is not None and news.done.outcome == "failed":
                self.metrics.scheduler_error(news.done.code.value)
            self.desk.done(news, now)
        self._touched()

    def _rights(self, problems: tuple[str, ...]) -> None:
        if problems:
            self.metrics.scheduler_error(BlockCode.FORBIDDEN.value)
        if problems == self._missing:
            return
        for problem in problems:
            log.error("%s", logs.line("cannot-act", {"detail": problem}))
        if not problems:
            log.info("%s", logs.line("can-act", {}))
        self._missing = problems

    def _touched(self) -> None:
        """Something may be to do: soon, together with what else comes meanwhile."""
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_later(GATHER, self._turn)

    def _turn(self) -> None:
        """Write down what happened, save what must be, then let the next job go out."""
        self._planned = False
        now = self._clock.now()
        self._write_down(now)
        if self._saving.out:
            return  # its end brings another turn
        if self.leads() and self._saving.due(self.desk, now.monotonic):
            self._save()
        else:
            self._let_out(now)

    def _write_down(self, now: Now) -> None:
        notes = self.desk.notes()
        for note in notes:
            if note.event == "fabric-event-begins":
                self.metrics.fabric_event(str(note.fields.get("rule", "")))
        self._keeper.note(notes, now.wall)
        silenced = self.desk.silenced()
        if self._conditions is not None and self.leads():
            for node in silenced:
                self._conditions.show(node, NodeFitness.UNKNOWN, f"it has not reported for {MISSING:g} s")

    def _let_out(self, now: Now) -> None:
        able = self._worker is not None and self.leads() and not self._stop_file
        job = self.desk.next_job(now) if able else None
        if isinstance(job, DrainJob) and self.desk.changed and not self._saving.trouble:
            self._ready = job
            self._save()
        elif job is not None:
            self._send(job, now)
        self._write_down(now)
        self._plan(now)

    def _send(self, job: Job, now: Now) -> None:
        """Have a job carried out; a drain whose record cannot be saved is not made."""
        if isinstance(job, DrainJob) and (why := self._saving.trouble):
            refused = EffectDone("drain", job.intent.id, "blocked", BlockCode.SCHEDULER_UNREACHABLE, why)
            self.desk.done(Outcome(job.node, refused), now)
        elif self._worker is not None:
            self._worker.submit(job)

    def _plan(self, now: Now) -> None:
        """Turn again when something changes by itself."""
        if self._timer is not None:
            self._timer.cancel()
        due = self.desk.next_due()
        self._timer = None
        if due < math.inf:
            delay = max(GATHER, due - now.monotonic)
            self._timer = asyncio.get_running_loop().call_later(delay, self._touched)

    def _save(self) -> Future[None]:
        """Begin to save what the desk holds now."""
        return self._saving.begin(self.desk)

    def _saved(self, conflict: bool) -> None:  # noqa: FBT001 (the one thing that it is about)
        """A saving has ended: what waited for it goes on."""
        if conflict:
            self._begin()  # another instance has written the ledger: what this one knows is void
        if self._ready is not None and not self._saving.out:
            job, self._ready = self._ready, None
            self._send(job, self._clock.now())
        self._turn()


def run(loaded: Loaded) -> int:
    """Run the controller until SIGTERM or SIGINT; the exit code."""
    logs.setup()
    controller = Controller(loaded)
    if (code := begin(controller, loaded)) is not None:
        return code
    calm_collector()
    try:
        controller.loop()
    finally:
        controller.close()
    return 0
