"""The thread that talks to the scheduler for the whole fleet: one call at a time, so that limits are exact.

Every write passes `reconcile`, which asks the gates again right before it. It decides nothing.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from ibmon.config import LimitsConfig
from ibmon.controller.schedulers import FleetScheduler
from ibmon.controller.values import DrainJob, FleetView, Job, Outcome
from ibmon.drain import reconcile
from ibmon.messages import EffectDone
from ibmon.model import BlockCode, Mode, Ownership
from ibmon.ports import Clock, SchedulerError

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 30.0
"""How often the whole scheduler is read (load: one bulk read a half minute, however many nodes there are)."""

CHECK_SECONDS: Final = 300.0
"""How often rights that are missing are asked for again (field: a 403 is not asked for in a tight loop)."""


class Unread(msgspec.Struct, frozen=True):
    """The whole scheduler could not be read."""

    code: BlockCode
    detail: str


class Rights(msgspec.Struct, frozen=True):
    """What would keep drains from happening, one line each; it was tried, and nothing was changed."""

    problems: tuple[str, ...]


News: TypeAlias = FleetView | Unread | Outcome | Rights


class Permits(msgspec.Struct, frozen=True):
    """What is asked again right before each write, from the worker's thread: nothing here may block.

    `mode` is how far this controller may go with a node now: observe where it does not lead.
    """

    mode: Callable[[str], Mode]
    stop: Callable[[], bool]
    limits: LimitsConfig


class Worker:
    """Reads the scheduler each half minute and carries out jobs in between; `post` takes what came of both.

    Args:
        post: called from the worker's thread.
        scheduler: all nodes.
        permits: what may forbid a write.
        clock: for times of records.
        look_seconds: between two reads of the whole.
    """

    def __init__(
        self,
        post: Callable[[News], None],
        scheduler: FleetScheduler,
        permits: Permits,
        clock: Clock,
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._post = post
        self._scheduler = scheduler
        self._permits = permits
        self._clock = clock
        self._look_seconds = look_seconds
        self._look_due = float("-inf")
        self._look_wanted = False  # whether a look was asked for that has not begun
        self._check_due = float("-inf")  # when to ask what would keep a drain from happening
        self._age = 0  # how often what was submitted before was declared void
        self._jobs: queue.SimpleQueue[tuple[int, Job] | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ibmon-fleet", daemon=True)

    def start(self) -> None:
        """Read the whole scheduler now, and go on."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Have a job carried out."""
        self._jobs.put((self._age, job))

    def void(self) -> None:
        """What was submitted until now rests on nothing any more: nothing is begun of it, and nothing posted."""
        self._age += 1

    def look(self) -> None:
        """Read the whole scheduler at once, also if it was read lately."""
        self._look_wanted = True
        self._jobs.put(None)

    def close(self, seconds: float) -> None:
        """Carry out nothing more, and wait so long at most for the call that is out."""
        self._closed.set()
        self._jobs.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._closed.is_set():
            left = self._look_due - self._clock.now().monotonic
            if left <= 0 or self._look_wanted:
                self._look_now()
                continue
            try:
                given = self._jobs.get(timeout=left)
            except queue.Empty:
                continue
            if given is not None and not self._closed.is_set():
                self._do(*given)

    def _look_now(self) -> None:
        """The next look is due so long after the end of this one: one that takes long must leave time for jobs."""
        self._look_wanted = False
        seen = self._look()
        self._post(seen)
        if isinstance(seen, FleetView):
            self._check(seen)
        self._look_due = self._clock.now().monotonic + self._look_seconds

    def _check(self, view: FleetView) -> None:
        """Ask for the rights of a drain before one is due, once: what is missing would be found by a bad node."""
        if self._clock.now().monotonic < self._check_due or self._permits.stop():
            return
        node = next((name for name in view.nodes if self._permits.mode(name) is Mode.DRAIN), None)
        if node is None:
            return
        try:
            problems = self._scheduler.check(node)
        except SchedulerError:
            return  # no answer says nothing about rights
        except Exception:
            log.exception("asking for the rights of a drain failed")
            problems = ()
        self._check_due = self._clock.now().monotonic + CHECK_SECONDS if problems else float("inf")
        self._post(Rights(problems))

    def _do(self, age: int, job: Job) -> None:
        if age != self._age:
            return
        done = self._carry_out(age, job)
        if age == self._age:
            self._post(Outcome(job.node, done))

    def _look(self) -> FleetView | Unread:
        try:
            return self._scheduler.read()
        except SchedulerError as error:
            code = BlockCode.FORBIDDEN if error.forbidden else BlockCode.SCHEDULER_UNREACHABLE
            return Unread(code, str(error))
        except Exception as error:
            log.exception("reading the scheduler failed")
            return Unread(BlockCode.SCHEDULER_UNREACHABLE, f"{type(error).__name__}: {error}")

    def _carry_out(self, age: int, job: Job) -> EffectDone:
        """The outcome, whatever happens: without one the fleet's logic would wait for ever."""
        gates = reconcile.Gates(
            mode=lambda: self._permits.mode(job.node) if age == self._age else Mode.OBSERVE,
            stop=self._permits.stop,
            limits=self._permits.limits,
        )
        now = self._clock.now()
        try:
            scheduler = self._scheduler.node(job.node)
            if isinstance(job, DrainJob):
                return reconcile.drain(job.intent, scheduler, Reported(job.record), gates, now)
            if job.owned is None:
                return reconcile.reclaim(scheduler, Reported(None), gates, now)
            return reconcile.release(job.owned, scheduler, Reported(job.owned), gates, now)
        except Exception as error:
            log.exception("the request to the scheduler failed: %r", job)
            detail = f"{type(error).__name__}: {error}"
            effect, mark = ("drain", job.intent.id) if isinstance(job, DrainJob) else ("release", _mark(job.owned))
            return EffectDone(
                "drain" if effect == "drain" else "release",
                mark,
                "failed",
                code=BlockCode.SCHEDULER_UNREACHABLE,
                detail=detail,
            )


def _mark(owned: Ownership | None) -> str:
    return owned.id if owned else ""


class Reported:
    """The record of a drain as its owner told it: the node in its report, or the ledger.

    What `reconcile` would save is for the owner to save, who learns it from the outcome: it stands here no longer
    than the call.
    """

    def __init__(self, record: Ownership | None) -> None:
        self._record = record

    def ownership(self) -> Ownership | None:
        """What the owner has stored."""
        return self._record

    def record(self, owned: Ownership | None) -> None:
        """Kept for the rest of the call."""
        self._record = owned
