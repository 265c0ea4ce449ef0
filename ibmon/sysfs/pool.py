"""The reader threads of the live runtime: jobs in, events out, and nobody waits for a device that hangs.

Owns the threads and their queue. One thread asks its source; when it is told that the thread is stuck, a successor with
a source of its own takes over and the stuck one ends by itself. Where all answers come at once, as on a healthy node,
the thread that wants them asks and collects by itself, and no other is woken. When to give a device up is decided in
`ibmon.sampling`.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from ibmon.messages import Discover, Discovered, Event, ListingDone, Read, ReadDone, ReadListing
from ibmon.model import Device, Listing, Reading
from ibmon.ports import Clock
from ibmon.sysfs import danger
from ibmon.sysfs.contents import gone
from ibmon.sysfs.source import Answer, Names, Question, Source, SourceError

log = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 1.0
"""How long `close` waits for a read in progress; one that hangs in the kernel is left to itself."""

PATIENCE: Final = 5.0
"""Seconds that a device gets whose turn comes after it was given up: it was overdue because another one hung."""

Job: TypeAlias = ReadListing | Discover | Read

Task: TypeAlias = tuple[Job, Question | None]
"""A job, and what a source is asked for it: nothing where it is a look at a device, or a read of one that has gone."""

BATCH: Final = 32, 4096
"""Questions that the worker asks at once, and their columns together: to wake a process for each read costs as much as
the read, and what waits on its way must fit into a socket's buffer, also what a new process must be told before."""

ON_THE_SPOT: Final = 512, 16_384
"""The same for what is asked on the spot, which is only what a process knows already: any node in one breath."""


class _Left(NamedTuple):
    """A device that a thread was left in: the process that reads it, and what was asked of it meanwhile."""

    pid: int
    jobs: deque[Job]


class _Handed(NamedTuple):
    """What a source was asked already: the worker of that source waits for the answers."""

    source: Source
    tasks: list[Task]


class ReaderPool:
    """Reads what it is asked to, in order, on one thread at a time.

    Args:
        post: takes the events; called from reader threads and must not block.
        sources: makes the source of one more thread; called in the thread that makes the pool or gives a device up.
        clock: time for readings that nobody could do.
        include: shell patterns on device names.
        exclude: shell patterns on device names.
        platform: the kernel that answers, for what is to be said of what is dangerous to read.
    """

    def __init__(
        self,
        post: Callable[[Event], None],
        sources: Callable[[], Source],
        clock: Clock,
        *,
        include: Iterable[str] = ("*",),
        exclude: Iterable[str] = (),
        platform: danger.Platform | None = None,
    ) -> None:
        self._post = post
        self._sources = sources
        self._clock = clock
        self._filter = (tuple(include), tuple(exclude))
        self._platform = platform or danger.Platform()
        self._condition = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._left: dict[str, _Left] = {}
        self._overdue: set[str] = set()  # given up while their job still waited for its turn
        self._devices: dict[str, Device] = {}
        self._batch: deque[Task] = deque()  # what the present source is asked; it is at the first
        self._began = 0.0  # monotonic time at which it began with that
        self._idle = False  # the worker waits for work
        self._asked = False  # the batch was asked for by whoever will collect it
        self._handed: list[_Handed] = []  # what was asked for and did not come in time
        self._closed = False
        self._told: set[str] = set()  # reasons that were logged
        self._count = 0
        self._start()

    # ------------------------------------------------------------------------------------------ from the engine

    def configure(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        """Other patterns from the next listing on."""
        self._filter = (tuple(include), tuple(exclude))

    def submit(self, jobs: Iterable[Job], *, collected: bool = False) -> None:
        """Do these in turn; each ends in one event. After `close` nothing is done any more.

        Where the caller says that they will be `collected`, that may be asked for on the spot.
        """
        with self._condition:
            if self._closed:
                return
            self._jobs.extend(jobs)
            if not (collected and self._ask()):
                self._condition.notify_all()

    def collect(self) -> list[Event]:
        """The events of what was asked for on the spot, as far as they are known by now; the rest will be posted."""
        if not self._asked:
            return []
        with self._condition:
            return self._collect()

    def abandon(self, device: str) -> None:
        """A device is overdue: if the worker is in it, leave that thread there and go on with a new one.

        The result is posted whenever it comes. Until then no other thread starts a job of this device. A device
        whose turn has not come yet is left when it takes long by itself, see `turn`.
        """
        with self._condition:
            if self._closed:
                return
            if self._batch and _device(self._batch[0][0]) == device:
                self._leave(device)
            elif any(_device(job) == device for job in (*(job for job, _ in self._batch), *self._jobs)):
                self._overdue.add(device)

    def turn(self) -> None:
        """To be called now and then: leave a device that was given up before its turn came, and hangs as well."""
        with self._condition:
            if self._closed or not self._batch:
                return
            device = _device(self._batch[0][0])
            if device in self._overdue and self._clock.now().monotonic - self._began >= PATIENCE:
                self._leave(device)

    def forget(self, device: str) -> None:
        """A device has gone: close what is open of it."""
        with self._condition:
            self._devices.pop(device, None)
        self._source.forget(device)

    def stuck(self) -> Mapping[str, int]:
        """The devices that a thread was left in, each with the id of the process that reads it.

        After `close` also the one whose read it did not wait for.
        """
        with self._condition:
            return {device: left.pid for device, left in self._left.items()}

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Stop, waiting so long at most for the read in progress; whether no thread is left in a read."""
        with self._condition:
            self._closed = True
            self._jobs.clear()
            self._hand_over()
            self._condition.notify_all()
        self._worker.join(seconds)
        with self._condition:
            if self._batch and self._worker.is_alive():
                self._left.setdefault(_device(self._batch[0][0]), _Left(self._source.pid or 0, deque()))
        return not self._worker.is_alive() and not self.stuck()

    # ------------------------------------------------------------------------------------------ on the spot

    @property
    def asked(self) -> bool:
        """Whether there is something to collect."""
        return self._asked

    def _ask(self) -> bool:
        """Ask for all that waits in the caller's thread, while the worker has nothing to do; whether that was done."""
        if not self._idle or self._batch:
            return False
        self._take(*ON_THE_SPOT)
        questions = [question for _, question in self._batch if question is not None]
        if self._jobs or not questions or not self._source.ask(questions):
            self._jobs.extendleft(job for job, _ in reversed(self._batch))
            self._batch.clear()
            return False
        self._began = self._clock.now().monotonic
        self._asked = True
        return True

    def _collect(self) -> list[Event]:
        answers = self._source.arrived()
        jobs = [self._batch.popleft()[0] for _ in answers]
        events = [self._event(job, answer) for job, answer in zip(jobs, answers, strict=True)]
        if self._overdue:
            self._overdue.difference_update(map(_device, jobs))
        if events:
            self._began = self._clock.now().monotonic
        self._hand_over()
        if self._jobs:
            self._condition.notify_all()
        return events

    def _hand_over(self) -> None:
        """Let the worker wait for what was asked for on the spot and has not come yet."""
        if self._asked:
            self._asked = False
            if self._batch:
                self._handed.append(_Handed(self._source, list(self._batch)))
                self._condition.notify_all()

    # ------------------------------------------------------------------------------------------ in the threads

    def _start(self) -> None:
        self._count += 1
        self._idle = False
        self._source = self._sources()
        self._worker = threading.Thread(
            target=self._run, args=(self._source,), name=f"ibmon-reader-{self._count}", daemon=True
        )
        self._worker.start()

    def _leave(self, device: str) -> None:
        """Let the worker wait for the read that it is in, and a successor do the rest."""
        self._hand_over()
        self._overdue.discard(device)
        self._left[device] = _Left(self._source.pid or 0, deque())
        self._batch.popleft()
        self._jobs.extendleft(job for job, _ in reversed(self._batch))
        self._batch = deque()
        self._source.retract()
        self._start()

    def _run(self, source: Source) -> None:
        try:
            source.open()  # before a job is taken, so that no device is blamed for it
            while (work := self._next(source)) is not None:
                if not all(self._finished(job, event) for job, event in work):
                    return
        finally:
            source.close()

    def _next(self, source: Source) -> Iterator[tuple[Job, Event]] | None:
        """The next job whose device nobody is stuck in, or several reads that are done together; None at the end."""
        with self._condition:
            while True:
                handed = next((handed for handed in self._handed if handed.source is source), None)
                if handed is not None:
                    self._handed.remove(handed)
                    return self._do(source, handed.tasks, source.rest())
                if self._closed:
                    return None
                if not self._batch:
                    self._take(*BATCH)
                if self._batch and not self._asked:
                    self._began = self._clock.now().monotonic
                    tasks = list(self._batch)
                    questions = [question for _, question in tasks if question is not None]
                    return self._do(source, tasks, source.answers(questions) if questions else iter(()))
                self._idle = True
                self._condition.wait()
                self._idle = False

    def _take(self, reads: int, columns: int) -> None:
        """Move jobs from the queue to the batch. A job of a device that somebody is stuck in waits for that."""
        while self._jobs:
            job = self._jobs[0]
            if self._left and (left := self._left.get(_device(job))) is not None:
                left.jobs.append(self._jobs.popleft())
                continue
            question: Question | None = None
            if isinstance(job, Read):
                device = self._devices.get(job.device)
                if device is not None and device.layout.generation == job.generation:
                    question = device, job.columns  # else it is not there, or another one by now
                columns -= len(job.columns)
            elif isinstance(job, ReadListing):
                question = Names(*self._filter, job.functions, tuple(self._devices))
            if self._batch and (question is None or len(self._batch) >= reads or columns < 0):
                return
            self._batch.append((self._jobs.popleft(), question))
            if question is None:
                return

    def _finished(self, job: Job, event: Event) -> bool:
        """A job is done; whether this thread still is the one that reads."""
        self._post(event)
        with self._condition:
            if threading.current_thread() is self._worker:
                self._batch.popleft()
                self._began = self._clock.now().monotonic
                self._overdue.discard(_device(job))
                return not self._closed
            left = self._left.pop(_device(job), None)
            if left is not None:
                self._jobs.extend(left.jobs)
                self._condition.notify()
            return False

    def _do(
        self, source: Source, tasks: Sequence[Task], answers: Iterator[Answer | None]
    ) -> Iterator[tuple[Job, Event]]:
        """Each job and the event that it ends in, whatever happens: without it its device would wait for ever."""
        for job, question in tasks:
            yield job, self._one(source, job) if question is None else self._answered(job, answers)

    def _answered(self, job: Job, answers: Iterator[Answer | None]) -> Event:
        try:
            answer = next(answers, None)
        except Exception:
            log.exception("reading failed: %r", job)
            answer = None
        return self._event(job, answer)

    def _event(self, job: Job, answer: Answer | None) -> Event:
        if isinstance(answer, Reading) and isinstance(job, Read):
            return ReadDone(answer, job.tiers)
        return ListingDone(answer) if isinstance(answer, Listing) else self._failed(job)

    def _one(self, source: Source, job: Job) -> Event:
        """The event of a job that is done alone, or without asking anybody."""
        if isinstance(job, Read):
            now = self._clock.now()
            return ReadDone(gone(job.device, job.generation, job.columns, now, now), job.tiers)
        try:
            if isinstance(job, Discover):
                return self._discover(source, job)
        except SourceError:
            pass  # it was logged where it was seen
        except Exception:
            log.exception("reading failed: %r", job)
        return self._failed(job)

    def _discover(self, source: Source, job: Discover) -> Discovered:
        device = source.discover(job.device, job.generation)
        with self._condition:
            if device is None:
                self._devices.pop(job.device, None)
            else:
                self._devices[job.device] = device
        if device is not None:
            self._tell(danger.skips(self._platform, device.name, device.driver).reasons)
        return Discovered(job.device, device)

    def _tell(self, reasons: tuple[str, ...]) -> None:
        """Log once what is left alone on this host, and why."""
        for reason in reasons:
            if reason not in self._told:
                self._told.add(reason)
                log.warning("%s", reason)

    def _failed(self, job: Job) -> Event:
        """What is posted for a job that ended in a fault of ours."""
        now = self._clock.now()
        if isinstance(job, ReadListing):
            return ListingDone(Listing(None, errno.EIO, now))
        if isinstance(job, Discover):
            return Discovered(job.device, None)
        none = (None,) * len(job.columns)
        errnos = dict.fromkeys(job.columns, errno.EIO)
        return ReadDone(Reading(job.device, job.generation, job.columns, none, errnos, {}, now, now), job.tiers)


def _device(job: Job) -> str:
    """The device that a job may get stuck in; the listing has none."""
    return "" if isinstance(job, ReadListing) else job.device
