"""The thread that talks to the scheduler: requests in, what came of them out. One request at a time."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from ibmon.drain import reconcile
from ibmon.messages import Drain, EffectDone, Release
from ibmon.model import BlockCode
from ibmon.ports import Clock, Scheduler, Store

log = logging.getLogger(__name__)


class Actor:
    """Carries out Drain and Release through `reconcile`; `post` takes the EffectDone."""

    def __init__(
        self,
        post: Callable[[EffectDone], None],
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
        self._requests: queue.SimpleQueue[Drain | Release | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ibmon-scheduler", daemon=True)
        self._thread.start()

    def submit(self, request: Drain | Release) -> None:
        """Queue a request."""
        self._requests.put(request)

    def close(self, seconds: float) -> None:
        """Take no more requests, and wait so long at most for the one that is out."""
        self._requests.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            self._post(self._carry_out(request))

    def _carry_out(self, request: Drain | Release) -> EffectDone:
        """The outcome, whatever happens: without one the engine would wait for ever."""
        try:
            if isinstance(request, Drain):
                return reconcile.drain(request.intent, self._scheduler, self._store, self._gates(), self._clock.now())
            if request.owned is None:
                return reconcile.reclaim(self._scheduler, self._store, self._gates(), self._clock.now())
            return reconcile.release(request.owned, self._scheduler, self._store, self._gates(), self._clock.now())
        except Exception as error:
            log.exception("the request to the scheduler failed: %r", request)
            if isinstance(request, Drain):
                effect, mark = "drain", request.intent.id
            else:
                effect, mark = "release", request.id
            return EffectDone(
                "drain" if effect == "drain" else "release",
                mark,
                "failed",
                code=BlockCode.SCHEDULER_UNREACHABLE,
                detail=f"{type(error).__name__}: {error}",
            )
