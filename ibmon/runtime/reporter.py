"""The thread that reports to the fleet controller, in the place of the one that talks to a scheduler.

It owns when a report leaves: on a change within a second, every half minute otherwise, every two seconds while a
request waits for its answer, and ever less often while nobody answers. What is in a report and what a reply means is
`ibmon.drain.correspondence`'s.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from ibmon import reporting
from ibmon.alert.delivery import DeliveryMetrics
from ibmon.backoff import Backoff
from ibmon.drain.controller import NotLeaderError, ReplayedError
from ibmon.drain.correspondence import Correspondence, Letter
from ibmon.drain.pace import spread
from ibmon.messages import Drain, EffectDone, FleetWord, Release
from ibmon.model import Now
from ibmon.ports import Clock, SchedulerError
from ibmon.report import INTERVAL, Reply, Report
from ibmon.runtime import logs
from ibmon.snapshot import Snapshot

log = logging.getLogger(__name__)

TARGET: Final = "controller"
"""What the controller is called among the targets of deliveries."""

GAP: Final = 0.5
"""Seconds between two reports at least, so that what changes together is told together."""

WAITING: Final = 2.0
"""Seconds between two reports while a request waits for its answer."""

_RETRY_FIRST, _RETRY_CAP = 1.0, INTERVAL
_ELECTION: Final = 5.0  # seconds between two tries at most while an instance answers that it does not lead
_NUMBERS: Final = 4  # numbers that are tried in a row when the controller has seen one before
_FARTHEST: Final = 2**52  # that reports skip numbers, which end at 2**53
_SPREAD: Final = 0.1  # part of the interval by which nodes differ from each other and from turn to turn


class Way(Protocol):
    """How a report gets to the controller."""

    def send(self, report: Report) -> Reply:
        """The reply; SchedulerError where there is none."""
        ...

    def abort(self) -> None:
        """End the call that is under way, and every later one."""
        ...

    def close(self) -> None:
        """Give back what is kept between calls."""
        ...


class Pace:
    """When the next report is due, in monotonic seconds."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._turn = 0
        self._last = -math.inf
        self._retry: float | None = None
        self._backoff = Backoff(_RETRY_FIRST, _RETRY_CAP, seed=node)
        self._election = Backoff(_RETRY_FIRST, _ELECTION, seed=node)

    @property
    def failures(self) -> int:
        """Reports in a row that nobody answered."""
        return self._backoff.failures + self._election.failures

    def due(self, *, changed: bool, waiting: bool) -> float:
        """The time of the next report. While nobody answers neither a change nor a request makes it sooner."""
        if self._retry is not None:
            return self._retry
        if changed:
            return self._last + GAP
        return self._last + (WAITING if waiting else INTERVAL * spread(f"{self._node}{self._turn}", _SPREAD))

    def sent(self, now: float) -> None:
        """A report was answered."""
        self._turn += 1
        self._last, self._retry = now, None
        self._backoff.reset()
        self._election.reset()

    def failed(self, now: float, *, soon: bool) -> None:
        """A report was not answered; `soon` where another instance may answer at once."""
        self._last = now
        self._retry = now + (self._election if soon else self._backoff).next()


class Numbers:
    """The numbers of reports: growing within a boot, over restarts of the daemon too, and with nothing to store."""

    def __init__(self) -> None:
        self._last = 0
        self._skip = 0

    def next(self, monotonic: float) -> int:
        """Milliseconds since the boot, or one more than the last."""
        self._last = max(self._last + 1, int(monotonic * 1000) + self._skip)
        return self._last

    def skip(self) -> None:
        """The last one was too low: go on far beyond it, the farther the more often that happens."""
        self._skip = min(_FARTHEST, max(1000, 16 * self._skip))


class Reporter:
    """Takes requests as an `Actor` and pictures as a `ConditionKeeper`; `post` takes what comes of them.

    `start` begins the thread; without one `turn` does its work in whatever time the caller has.
    """

    def __init__(
        self,
        post: Callable[[EffectDone | FleetWord], None],
        way: Way,
        correspondence: Correspondence,
        clock: Clock,
        *,
        node: str,
        metrics: DeliveryMetrics,
    ) -> None:
        self._post = post
        self._way = way
        self._correspondence = correspondence
        self._clock = clock
        self._metrics = metrics
        self._pace = Pace(node)
        self._numbers = Numbers()
        self._told = b""  # the digest of what the controller knows
        self._why = ""  # the failure that was written down last
        self.barred = ""  # why the controller refuses this node
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ibmon-controller", daemon=True)
        self.start = self._thread.start

    def submit(self, request: Drain | Release) -> None:
        """Take a request; it leaves with the next picture."""
        self._correspondence.submit(request, self._clock.now())

    def show(self, snapshot: Snapshot) -> Snapshot:
        """Take in the newest picture; the same, which says that actions are off where the controller refuses us."""
        if self._correspondence.show(snapshot):
            self._wake.set()
        return msgspec.structs.replace(snapshot, actions_enabled=False) if self.barred else snapshot

    def close(self, seconds: float) -> None:
        """End, also a call that is under way, within so many seconds."""
        self._closed.set()
        self._wake.set()
        self._way.abort()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    # ------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._closed.is_set():  # looked at last: a close in between would be cleared away unheard
                break
            pause = self.turn(self._clock.now())
            # A controller that does not answer is left alone whatever happens here.
            (self._closed if self._pace.failures else self._wake).wait(pause)
        self._way.close()

    def turn(self, now: Now) -> float:
        """Send what is due; the seconds until something is due again. A fault of our own counts as a failed report."""
        try:
            return self._send_due(now)
        except SchedulerError as error:
            return 0.0 if self._closed.is_set() else self._failed(error, self._clock.now())
        except Exception as error:
            log.exception("event=controller-fault")
            return self._failed(SchedulerError(f"a fault of ibmon: {type(error).__name__}"), self._clock.now())

    def _send_due(self, now: Now) -> float:
        letter, ended = self._correspondence.letter(now, self._numbers.next(now.monotonic))
        self._hand_over(ended)
        if letter is None:
            return INTERVAL
        digest = reporting.digest(letter.report)
        due = self._pace.due(changed=digest != self._told, waiting=self._correspondence.waiting)
        if due > now.monotonic:
            return due - now.monotonic
        letter, reply = self._ask(letter)
        self._told = digest
        return self._arrived(letter, reply, self._clock.now())

    def _ask(self, letter: Letter, tries: int = _NUMBERS) -> tuple[Letter, Reply]:
        """Send a report, under another number where the controller has seen this one or a later one."""
        try:
            return letter, self._way.send(letter.report)
        except ReplayedError:
            if tries == 1:
                raise
        self._numbers.skip()
        seq = self._numbers.next(self._clock.now().monotonic)
        return self._ask(letter._replace(report=msgspec.structs.replace(letter.report, seq=seq)), tries - 1)

    def _arrived(self, letter: Letter, reply: Reply, now: Now) -> float:
        self._metrics.delivery(TARGET, arrived=True)
        self._metrics.outbox(TARGET, 0)
        if self._why:
            log.info("%s", logs.line("controller-answers", {"failures": self._pace.failures}))
        self._why = self.barred = ""
        self._pace.sent(now.monotonic)
        self._hand_over(self._correspondence.answered(letter, reply, now))
        return 0.0  # what was learnt may change the report at once

    def _failed(self, error: SchedulerError, now: Now) -> float:
        """Count a failure, tell the first of its kind, and say how long to wait."""
        self._metrics.delivery(TARGET, arrived=False)
        self._metrics.outbox(TARGET, 1)
        why = str(error)
        if why != self._why:
            self._why = why
            log.log(
                logging.ERROR if error.forbidden else logging.WARNING,
                "%s", logs.line("controller-failing", {"detail": why}),
            )  # fmt: skip
        self.barred = why if error.forbidden else ""
        soon = isinstance(error, NotLeaderError)
        self._pace.failed(now.monotonic, soon=soon)
        told = self._correspondence
        self._hand_over(told.overdue(now) if soon else told.unanswered(error))
        return self._pace.due(changed=False, waiting=False) - now.monotonic

    def _hand_over(self, events: list[EffectDone] | list[EffectDone | FleetWord]) -> None:
        for event in events:
            self._post(event)
