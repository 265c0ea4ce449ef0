"""Who is next: cases that may be worked on, in order, without walking over all of them at every event."""

from __future__ import annotations

import heapq
import math

from ibmon.controller.cases import Case


class Line:
    """A queue of cases that were found ready, and the time at which to look at the others again.

    Giving back comes first, what a person wants before the rest; drains follow by (since, name). Of each kind those
    whose last call failed come last. A case in here may have changed since: whoever takes it looks once more.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, bool, float, str, str]] = []
        self._in: set[tuple[str, str]] = set()
        self.wake = math.inf  # monotonic time at which time alone may make another case ready
        self.stale = True  # something changed that may concern every case

    def clear(self) -> None:
        """Begin a new look at all cases."""
        self._heap.clear()
        self._in.clear()
        self.wake, self.stale = math.inf, False

    def ready(self, case: Case, *, giving: bool) -> None:
        """Add a case."""
        if (case.node, case.owner) in self._in:
            return
        self._in.add((case.node, case.owner))
        rank = (0 if case.by else 1) if giving else 2
        heapq.heappush(self._heap, (rank, case.failing, case.since, case.node, case.owner))

    def later(self, until: float) -> None:
        """A case may become ready at this monotonic time."""
        self.wake = min(self.wake, until)

    def pop(self) -> tuple[str, str] | None:
        """Node and owner of the first case, or None."""
        if not self._heap:
            return None
        *_, node, owner = heapq.heappop(self._heap)
        self._in.discard((node, owner))
        return node, owner
