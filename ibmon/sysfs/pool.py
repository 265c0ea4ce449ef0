"""The reader threads of the live runtime: jobs in, events out, and nobody waits for a device that hangs.

Owns the threads and their queue. One thread reads; when it is told that the thread is stuck, a successor takes over
and the stuck one ends by itself. When to give a device up is decided in `ibmon.sampling`.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from ibmon.messages import Discover, Discovered, Event, ListingDone, Read, ReadDone, ReadListing
from ibmon.model import Device, Listing, Reading
from ibmon.ports import Clock, Tree
from ibmon.sysfs import danger
from ibmon.sysfs.columns import Statistics
from ibmon.sysfs.discover import discover, list_devices
from ibmon.sysfs.reader import Reader, gone, reader

log = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 1.0
"""How long `close` waits for a read in progress; one that hangs in the kernel is left to itself."""

Job: TypeAlias = ReadListing | Discover | Read


class ReaderPool:
    """Reads what it is asked to, in order, on one thread at a time.

    Args:
        post: takes the events; called from reader threads and must not block.
        tree: the sysfs root.
        clock: time for the readings.
        include: shell patterns on device names.
        exclude: shell patterns on device names.
        platform: the kernel that answers, for what is dangerous to read.
        ethtool: where statistics of network interfaces come from.
        files: how columns are read; the fastest way for the tree where None.
    """

    def __init__(
        self,
        post: Callable[[Event], None],
        tree: Tree,
        clock: Clock,
        *,
        include: Iterable[str] = ("*",),
        exclude: Iterable[str] = (),
        platform: danger.Platform | None = None,
        ethtool: Statistics | None = None,
        files: Reader | None = None,
    ) -> None:
        self._post = post
        self._tree = tree
        self._clock = clock
        self._filter = (tuple(include), tuple(exclude))
        self._platform = platform or danger.Platform()
        self._ethtool = ethtool
        self._files = files if files is not None else reader(tree, clock, ethtool=ethtool)
        self._condition = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._parked: dict[str, deque[Job]] = {}  # by stuck device: what was asked of it meanwhile
        self._devices: dict[str, Device] = {}
        self._current: Job | None = None  # what the present worker is at
        self._closed = False
        self._told: set[str] = set()  # reasons that were logged
        self._count = 0
        self._worker = self._start()

    # ------------------------------------------------------------------------------------------ from the engine

    def configure(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        """Other patterns from the next listing on."""
        self._filter = (tuple(include), tuple(exclude))

    def submit(self, jobs: Iterable[Job]) -> None:
        """Do these in turn; each ends in one event. After `close` nothing is done any more."""
        with self._condition:
            if not self._closed:
                self._jobs.extend(jobs)
                self._condition.notify()

    def abandon(self, device: str) -> None:
        """A device is overdue: if the worker is in it, leave that thread there and go on with a new one.

        The result is posted whenever it comes. Until then no other thread starts a job of this device.
        """
        with self._condition:
            if self._closed or self._current is None or _device(self._current) != device:
                return
            self._parked[device] = deque()
            self._current = None
            self._worker = self._start()

    def forget(self, device: str) -> None:
        """A device has gone: close what is open of it."""
        with self._condition:
            self._devices.pop(device, None)
        self._files.forget(device)

    def stuck(self) -> frozenset[str]:
        """The devices that a thread was left in, after `close` also the one whose read it did not wait for."""
        with self._condition:
            return frozenset(self._parked)

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Stop, waiting so long at most for the read in progress; whether no thread is left in a read."""
        with self._condition:
            self._closed = True
            self._jobs.clear()
            self._condition.notify_all()
        self._worker.join(seconds)
        with self._condition:
            if self._current is not None and self._worker.is_alive():
                self._parked.setdefault(_device(self._current), deque())
        self._files.close()
        return not self._worker.is_alive() and not self.stuck()

    # ------------------------------------------------------------------------------------------ in the threads

    def _start(self) -> threading.Thread:
        self._count += 1
        worker = threading.Thread(target=self._run, name=f"ibmon-reader-{self._count}", daemon=True)
        worker.start()
        return worker

    def _run(self) -> None:
        while (job := self._next()) is not None:
            self._post(self._do(job))
            if not self._finished(job):
                return

    def _next(self) -> Job | None:
        """The next job whose device nobody is stuck in; None at the end."""
        with self._condition:
            while not self._closed:
                while self._jobs:
                    job = self._jobs.popleft()
                    parked = self._parked.get(_device(job))
                    if parked is None:
                        self._current = job
                        return job
                    parked.append(job)
                self._condition.wait()
            return None

    def _finished(self, job: Job) -> bool:
        """A job is done; whether this thread still is the one that reads."""
        with self._condition:
            if threading.current_thread() is self._worker:
                self._current = None
                return not self._closed
            self._jobs.extend(self._parked.pop(_device(job), ()))
            self._condition.notify()
            return False

    def _do(self, job: Job) -> Event:
        """The event that a job ends in, whatever happens: without it its device would wait for ever."""
        try:
            return self._try(job)
        except Exception:
            log.exception("reading failed: %r", job)
            return self._failed(job)

    def _try(self, job: Job) -> Event:
        if isinstance(job, ReadListing):
            now = self._clock.now()
            return ListingDone(list_devices(self._tree, *self._filter, now, job.functions, known=self._devices))
        if isinstance(job, Discover):
            return self._discover(job)
        device = self._devices.get(job.device)
        if device is None or device.layout.generation != job.generation:
            now = self._clock.now()
            return ReadDone(gone(job.device, job.generation, job.columns, now, now), job.tiers)
        return ReadDone(self._files.read(device, job.columns), job.tiers)

    def _discover(self, job: Discover) -> Discovered:
        device = discover(self._tree, job.device, job.generation, platform=self._platform, ethtool=self._ethtool)
        self._files.forget(job.device)
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
