"""The thread that keeps the scheduler's word about every node's fitness true: on change, and as a heartbeat.

For schedulers that have a place for it (Kubernetes' node conditions), where the nodes themselves may not write. Its
writes pass `reconcile.publish`, as all do. Trouble with the scheduler ends here in a log line.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from ibmon.backoff import Backoff
from ibmon.drain import reconcile
from ibmon.drain.pace import spread
from ibmon.model import NodeFitness
from ibmon.ports import Clock, SchedulerError, Teller
from ibmon.runtime import logs

log = logging.getLogger(__name__)

HEARTBEAT: Final = 300.0
"""Seconds between two writes of an unchanged verdict, give or take a fifth."""

_RETRY_FIRST, _RETRY_CAP = 5.0, 300.0


class _Word(NamedTuple):
    fitness: NodeFitness
    why: str


class Conditions:
    """Writes one condition a node, one call at a time; a change comes before all heartbeats.

    Args:
        teller: gives the way to one node.
        gates: what may forbid a write to a node, asked again before each.
        clock: for when the next heartbeat is due.
    """

    def __init__(self, teller: Callable[[str], Teller], gates: Callable[[str], reconcile.Gates], clock: Clock) -> None:
        self._teller = teller
        self._gates = gates
        self._clock = clock
        self._words: dict[str, _Word] = {}
        self._tellers: dict[str, Teller] = {}
        self._due: list[tuple[float, int, str]] = []  # monotonic time, turn, node
        self._absent: set[str] = set()  # of nodes that the scheduler has not got, which was said
        self._turns: dict[str, int] = {}  # the newest turn of each node; an older entry of it is void
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._backoff = Backoff(_RETRY_FIRST, _RETRY_CAP, seed="conditions")
        self._thread = threading.Thread(target=self._run, name="ibmon-conditions", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def show(self, node: str, fitness: NodeFitness, why: str) -> None:
        """What holds of a node now. Only a change of its fitness is told before the next heartbeat."""
        with self._lock:
            before = self._words.get(node)
            self._words[node] = _Word(fitness, why)
            if before is None or before.fitness is not fitness:
                self._plan(node, self._clock.now().monotonic)
                self._changed.set()

    def forget(self) -> None:
        """Write nothing any more until a node is shown again: another instance leads."""
        with self._lock:
            self._words.clear()
            self._due.clear()

    def close(self, seconds: float) -> None:
        """End, and wait so long at most for the call that is out."""
        self._closed.set()
        self._changed.set()
        self._thread.join(seconds)

    def _plan(self, node: str, at: float) -> None:
        turn = self._turns[node] = self._turns.get(node, 0) + 1
        heapq.heappush(self._due, (at, turn, node))

    def _run(self) -> None:
        while not self._closed.is_set():
            self._changed.clear()
            node, wait = self._next()
            if node is None:
                self._changed.wait(wait)
            elif (pause := self._tell(node)) > 0:
                self._closed.wait(pause)

    def _next(self) -> tuple[str | None, float | None]:
        """The node that is due, else the seconds until one is (None: none is planned)."""
        with self._lock:
            while self._due:
                at, turn, node = self._due[0]
                if turn != self._turns.get(node) or node not in self._words:
                    heapq.heappop(self._due)
                    continue
                left = at - self._clock.now().monotonic
                if left > 0:
                    return None, left
                heapq.heappop(self._due)
                return node, 0.0
        return None, None

    def _tell(self, node: str) -> float:
        """Write one node's condition and plan its next; the seconds to leave the scheduler alone after a failure."""
        with self._lock:
            word = self._words.get(node)
        if word is None:
            return 0.0
        pause, again = 0.0, HEARTBEAT * spread(f"{node}{self._turns.get(node, 0)}", 0.2)
        try:
            if node not in self._tellers:
                self._tellers[node] = self._teller(node)
            reconcile.publish(self._tellers[node], word.fitness, word.why, self._gates(node))
        except SchedulerError as error:
            if error.missing:
                self._miss(node, word, again)
                return 0.0
            log.warning("%s", logs.line("condition", {"node": node, "written": False, "detail": str(error)}))
            pause = self._backoff.next()
            if not error.forbidden:
                again = 0.0
        else:
            self._backoff.reset()
            self._absent.discard(node)
        with self._lock:
            if node in self._words:
                self._plan(node, self._clock.now().monotonic + again)
        return pause

    def _miss(self, node: str, word: _Word, again: float) -> None:
        """The scheduler has no such node: one that reports is looked for again, one that is silent too is forgotten."""
        self._tellers.pop(node, None)
        if node not in self._absent:
            self._absent.add(node)
            log.warning(
                "%s", logs.line("condition", {"node": node, "written": False, "detail": "there is no such node"})
            )
        with self._lock:
            if word.fitness is not NodeFitness.UNKNOWN:
                self._plan(node, self._clock.now().monotonic + again)
            elif self._words.get(node) == word:
                del self._words[node], self._turns[node]
                self._absent.discard(node)
