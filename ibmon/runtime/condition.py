"""The thread that keeps the scheduler's word about this node's fitness true: on change, and as a heartbeat.

Its writes pass `reconcile.publish`, as all do. It decides nothing, and trouble with the scheduler ends here in a log
line.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec

from ibmon.backoff import Backoff
from ibmon.drain import reconcile
from ibmon.drain.pace import spread
from ibmon.model import NodeFitness
from ibmon.ports import SchedulerError, Teller
from ibmon.runtime import logs
from ibmon.snapshot import Snapshot

log = logging.getLogger(__name__)

HEARTBEAT = 300.0
"""Seconds between two writes of an unchanged verdict, give or take a fifth."""
FIRST = 20.0
"""Seconds from the start to the first write, give or take half: a verdict before the first reads would only flap."""
_RETRY_FIRST, _RETRY_CAP = 5.0, 300.0


class ConditionKeeper:
    """Keeps a `Teller` up to date with what `show` was given last, and asks it at the start what it may not do."""

    def __init__(
        self, teller: Teller, gates: Callable[[], reconcile.Gates], node: str, *, first: float = FIRST
    ) -> None:
        self._teller = teller
        self._gates = gates
        self._node = node
        self._first = first
        self._latest: tuple[NodeFitness, str] | None = None
        self.barred = ""  # what the scheduler forbids
        self._checked = False
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._turn = 0
        self._backoff = Backoff(_RETRY_FIRST, _RETRY_CAP, seed=node)
        self._thread = threading.Thread(target=self._run, name="ibmon-condition", daemon=True)
        self._thread.start()

    def show(self, snapshot: Snapshot) -> Snapshot:
        """Take in the verdict in force; the snapshot, which says that actions are off where they are forbidden.

        Only a change of the fitness is told before the next heartbeat: texts hold figures that move.
        """
        owned = snapshot.drain.owned
        before, self._latest = self._latest, (snapshot.fitness, owned.reason if owned else snapshot.why)
        if before is None or before[0] is not snapshot.fitness:
            self._changed.set()
        return msgspec.structs.replace(snapshot, actions_enabled=False) if self.barred else snapshot

    def close(self, seconds: float) -> None:
        """End, and wait so long at most for a call that is out."""
        self._closed.set()
        self._changed.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        self._closed.wait(self._first * spread(self._node))
        while True:
            self._changed.clear()
            if self._closed.is_set():  # looked at last: a close in between would be cleared away unheard
                return
            wait, wakes = self._turn_once()
            (self._changed if wakes else self._closed).wait(wait)

    def _turn_once(self) -> tuple[float, bool]:
        """Do what is due; seconds until the next turn, and whether a change may come first."""
        self._turn += 1
        heartbeat = HEARTBEAT * spread(f"{self._node}{self._turn}", 0.2)
        try:
            self._check()
            if self._latest is not None:
                reconcile.publish(self._teller, *self._latest, self._gates())
        except SchedulerError as error:
            log.warning("%s", logs.line("condition", {"written": False, "detail": str(error)}))
            return (heartbeat if error.forbidden else self._backoff.next()), False
        self._backoff.reset()
        return heartbeat, True

    def _check(self) -> None:
        """At the start in mode drain, and while something is forbidden: what a drain would meet."""
        if self._gates().closed() or (self._checked and not self.barred):
            return
        problems = self._teller.check()
        for problem in problems:
            log.error("%s", logs.line("cannot-act", {"detail": problem}))
        self._checked = True
        if self.barred and not problems:
            log.info("%s", logs.line("can-act", {}))
        self.barred = "; ".join(problems)
