"""Threads that are used again: a new one costs more than all the rest of a small answer.

Owns the threads. It must not know what they run.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

_PATIENCE: Final = 60.0  # seconds that a thread waits for its next job before it ends

Job = Callable[[], None]


class Workers:
    """Runs each job at once, in a thread that has nothing to do or in a new one. Jobs do not raise."""

    def __init__(self, name: str, *, patience: float = _PATIENCE) -> None:
        self._name = name
        self._patience = patience
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0  # threads that wait, less the jobs that wait for them

    def run(self, job: Job) -> None:
        """Start a job; RuntimeError where the system gives no more threads."""
        with self._lock:
            reuse = self._idle > 0
            if reuse:
                self._idle -= 1
                self._jobs.put(job)
        if not reuse:
            threading.Thread(target=self._work, args=(job,), name=self._name, daemon=True).start()

    def _work(self, first: Job) -> None:
        job: Job | None = first
        while job is not None:
            job()
            del job  # it may hold a socket
            job = self._next()

    def _next(self) -> Job | None:
        with self._lock:
            self._idle += 1
        try:
            return self._jobs.get(timeout=self._patience)
        except queue.Empty:
            pass
        with self._lock:
            try:
                return self._jobs.get_nowait()  # it came between the time-out and the lock
            except queue.Empty:
                self._idle -= 1
                return None
