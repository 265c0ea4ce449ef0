"""A thread that tells one target, and can be woken and ended. What it tells, and when, is its subclass's."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from ibmon.alert.transport import Transport


class TargetThread(ABC):
    """One target's thread and its transport.

    Args:
        name: of the thread, after ``ibmon-``.
        transport: the way to the target; `stop` aborts what is under way.
    """

    def __init__(self, name: str, transport: Transport) -> None:
        self._transport = transport
        self._work = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ibmon-{name}", daemon=True)
        self.start, self.join = self._thread.start, self._thread.join

    def wake(self) -> None:
        """There is something new to tell."""
        self._work.set()

    def stop(self) -> None:
        """End the thread soon."""
        self._stopped.set()
        self._work.set()
        self._transport.abort()

    def _goes_on(self) -> bool:
        """Whether there is another turn; what `wake` or `stop` says from here on is heard in it or after it."""
        self._work.clear()
        return not self._stopped.is_set()  # looked at last: a stop in between would be cleared away unheard

    @abstractmethod
    def _run(self) -> None:
        """Tell what there is until stopped; the thread's life."""
