"""An event that a thread waits for, and of which a test can see whether it does."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Bell(threading.Event):
    """Wakes a thread; knows whether the thread waits for it, and how long it means to (seconds, None: for ever)."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = False
        self.pause: float | None = None
        self.before_clear: Callable[[], None] = lambda: None

    def clear(self) -> None:
        """As an event's, at the worst moment."""
        self.before_clear()
        super().clear()

    def wait(self, timeout: float | None = None) -> bool:
        """As an event's."""
        self.pause, self.waits = timeout, True
        try:
            return super().wait(timeout)
        finally:
            self.waits = False

    def settled(self) -> bool:
        """Whether the thread has nothing in hand: it waits, and nobody has rung."""
        return not self.is_set() and self.waits
