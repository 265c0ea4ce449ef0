"""The thread that keeps the scheduler's word about every node's fitness true: on change, and as a heartbeat.

For schedulers that have a place for it (Kubernetes' node conditions), where the nodes themselves may not write. Its
writes pass `reconcile.publish`, as all do. Trouble with the scheduler, or with one node there, ends here in a log line.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from ibmon.backoff import Backoff
from ibmon.controller.blame import Blame
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
    """Writes one condition a node, one call at a time: changes first, then whose heartbeat is due the longest.

    A node that cannot be written (the scheduler has it no more) waits for its own next try and keeps nobody waiting.

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
        self._urgent: dict[str, None] = {}  # the oldest change first
        self._due: list[tuple[float, int, str]] = []  # monotonic time, turn, node
        self._turns: dict[str, int] = {}  # the newest turn of each node; an older entry of it is void
        self._withheld: set[str] = set()  # a gate was closed
        self._absent: set[str] = set()  # the scheduler has no such node, which was said
        self._failing: dict[str, int] = {}  # how often a node's write has failed in a row
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._backoff = Backoff(_RETRY_FIRST, _RETRY_CAP, seed="conditions")
        self._blame = Blame()
        self._said = ""
        self._thread = threading.Thread(target=self._run, name="ibmon-conditions", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def show(self, node: str, fitness: NodeFitness, why: str) -> None:
        """What holds of a node now. Only a change of its fitness is told before the next heartbeat."""
        with self._lock:
            before = self._words.get(node)
            self._words[node] = word = _Word(fitness, why)
            if before is not None and before.fitness is fitness:
                return
            self._ask(node, word, urgent=before is not None)
        self._changed.set()

    def again(self) -> None:
        """A gate may have opened: try once more what was held back."""
        with self._lock:
            for node in self._withheld:
                self._ask(node, self._words[node])
            self._withheld.clear()
        self._changed.set()

    def forget(self) -> None:
        """Write nothing any more until a node is shown again, and believe nothing that was written: another leads."""
        with self._lock:
            for held in (
                self._words,
                self._tellers,
                self._failing,
                self._urgent,
                self._withheld,
                self._absent,
                self._due,
            ):
                held.clear()

    def close(self, seconds: float) -> None:
        """End, and wait so long at most for the call that is out."""
        self._closed.set()
        self._changed.set()
        self._thread.join(seconds)

    # ------------------------------------------------------------------------------------- under the lock

    def _ask(self, node: str, word: _Word, *, urgent: bool = False) -> None:
        """Have a word told now: before all heartbeats where it is a change, or one that people wait for."""
        if urgent or word.fitness is not NodeFitness.FIT:
            self._turns[node] = self._turns.get(node, 0) + 1
            self._urgent[node] = None
        else:
            self._plan(node, self._clock.now().monotonic)

    def _plan(self, node: str, at: float) -> None:
        turn = self._turns[node] = self._turns.get(node, 0) + 1
        heapq.heappush(self._due, (at, turn, node))

    # ------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        while True:
            self._changed.clear()
            if self._closed.is_set():  # looked at last: a close in between would be cleared away unheard
                return
            node, wait = self._next()
            if node is None:
                self._changed.wait(wait)
            elif (pause := self._tell(node)) > 0:
                self._closed.wait(pause)

    def _next(self) -> tuple[str | None, float | None]:
        """The node that is due, else the seconds until one is (None: none is planned)."""
        with self._lock:
            if self._urgent:
                node = next(iter(self._urgent))
                del self._urgent[node]
                return node, 0.0
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
        """Write one node's condition and plan its next; the seconds to leave the scheduler alone after failures."""
        with self._lock:
            word = self._words.get(node)
            if word is None:
                return 0.0
            turn = self._turns[node]
            teller = self._tellers.get(node)
        try:
            if teller is None:
                teller = self._teller(node)
                with self._lock:
                    if node in self._words and turn == self._turns.get(node):  # else all was forgotten meanwhile
                        self._tellers[node] = teller
            told = reconcile.publish(teller, word.fitness, word.why, self._gates(node))
        except SchedulerError as error:
            if error.missing:
                self._miss(node, turn, word)
                return 0.0
            return self._failed(node, turn, str(error), forbidden=error.forbidden, general=error.general)
        except Exception as error:
            log.exception("event=condition-fault node=%s", node)
            return self._failed(node, turn, type(error).__name__)
        self._worked(node, turn, told=told)
        return 0.0

    def _worked(self, node: str, turn: int, *, told: bool) -> None:
        now = self._clock.now().monotonic
        with self._lock:
            if told:
                self._failing.pop(node, None)
                self._absent.discard(node)
                if self._blame.general:  # the scheduler is back: nobody waits for what it did not answer
                    for other in self._failing:
                        self._plan(other, now)
                self._blame.worked()
                self._said = ""
                self._backoff.reset()
            if node not in self._words or turn != self._turns.get(node):
                return
            if told:
                self._withheld.discard(node)
                self._plan(node, now + HEARTBEAT * spread(f"{node}{turn}", 0.2))
            else:
                self._withheld.add(node)

    def _miss(self, node: str, turn: int, word: _Word) -> None:
        """The scheduler has no such node: one that reports is looked for again, one that is silent too is forgotten."""
        with self._lock:
            self._tellers.pop(node, None)
            if node not in self._absent:
                self._absent.add(node)
                detail = {"node": node, "written": False, "detail": "there is no such node"}
                log.warning("%s", logs.line("condition", detail))
            if turn != self._turns.get(node) or node not in self._words:
                return
            if word.fitness is not NodeFitness.UNKNOWN:
                self._plan(node, self._clock.now().monotonic + HEARTBEAT * spread(f"{node}{turn}", 0.2))
                return
            del self._words[node], self._turns[node]
            self._failing.pop(node, None)
            self._absent.discard(node)

    def _failed(self, node: str, turn: int, why: str, *, forbidden: bool = False, general: bool = False) -> float:
        """Plan another try; the seconds to leave the scheduler alone, where it is not this node's own trouble."""
        with self._lock:
            tries = self._failing.get(node, 0) + 1
            if tries == 1 and why != self._said:
                self._said = why
                log.warning("%s", logs.line("condition", {"node": node, "written": False, "detail": why}))
            if node in self._words:
                self._failing[node] = tries
                if turn == self._turns.get(node):
                    wait = HEARTBEAT if forbidden else min(HEARTBEAT, _RETRY_FIRST * 2.0 ** min(tries - 1, 10))
                    self._plan(node, self._clock.now().monotonic + wait * spread(f"{node}{turn}", 0.2))
            return self._backoff.next() if self._blame.failed(node, general=general) else 0.0
