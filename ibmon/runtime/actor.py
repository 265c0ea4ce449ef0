"""The thread that talks to the scheduler: requests in, what came of them out. One request at a time."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Literal

from ibmon.drain import reconcile
from ibmon.messages import Drain, EffectDone, Observe, Release, SchedulerSaw
from ibmon.model import BlockCode
from ibmon.ports import Clock, Scheduler, Store

log = logging.getLogger(__name__)


class Actor:
    """Carries out requests through `reconcile`; `post` takes what came of them."""

    def __init__(
        self,
        post: Callable[[EffectDone | SchedulerSaw], None],
        scheduler: Scheduler,
        store: Store,
        gates: Callable[[], reconcile.Gates],
        clock: Clock,
    ) -> None:
        self._post = post
        self._scheduler = scheduler
        self._store = store
        self._gates = gates
        self._clock = clock
        self._requests: queue.SimpleQueue[Drain | Release | Observe | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ibmon-scheduler", daemon=True)
        self._thread.start()

    def submit(self, request: Drain | Release | Observe) -> None:
        """Queue a request."""
        self._requests.put(request)

    def close(self, seconds: float) -> None:
        """Take no more requests, and wait so long at most for the one that is out."""
        self._requests.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            self._post(self._carry_out(request))

    def _carry_out(self, request: Drain | Release | Observe) -> EffectDone | SchedulerSaw:
        """The outcome, whatever happens: without one the engine would wait for ever."""
        try:
            return reconcile.carry_out(request, self._scheduler, self._store, self._gates(), self._clock.now())
        except Exception as error:
            log.exception("the request to the scheduler failed: %r", request)
            return not_done(request, "failed", f"{type(error).__name__}: {error}")


def not_done(
    request: Drain | Release | Observe, outcome: Literal["failed", "blocked"], detail: str
) -> EffectDone | SchedulerSaw:
    """What the engine hears of a request that nobody could carry out."""
    if isinstance(request, Observe):
        return SchedulerSaw(None, detail)
    if isinstance(request, Drain):
        return EffectDone("drain", request.intent.id, outcome, BlockCode.SCHEDULER_UNREACHABLE, detail)
    return EffectDone("release", request.id, outcome, BlockCode.SCHEDULER_UNREACHABLE, detail)
