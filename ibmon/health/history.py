"""What changed between two samples: resets, saturation, counters that rose. Pure; small tables by column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ibmon.model import Layout, Now, Sample

MOVED_WINDOW = 3600.0
"""Seconds for which a counter that rose is shown as one that moved."""


@dataclass(slots=True)
class CounterHistory:
    """Resets, saturation and recent rises of one device generation, by column."""

    layout: Layout
    resets: dict[int, int] = field(default_factory=dict)
    saturated: dict[int, bool] = field(default_factory=dict)
    _rises: dict[int, tuple[float, int, int]] = field(default_factory=dict)  # since, in this half window, in the last

    def take(self, old: Sample, new: Sample, columns: Iterable[int], now: Now) -> dict[int, int]:
        """The rise of every counter among `columns` that rose, by column.

        A decrease is a reset: the rise is then the new value (a lower bound), except where the field wraps.
        The first value of a column is a baseline and no rise.
        """
        rises: dict[int, int] = {}
        for i in columns:
            value, before = new.values[i], old.values[i]
            if value == before or value is None:
                continue
            column = self.layout.columns[i]
            if column.maximum is not None:
                self.saturated[i] = value == column.maximum
            if before is None or not column.counts:
                continue
            rise = value - before
            if rise < 0:
                if column.modulus is not None:
                    rise += column.modulus
                else:
                    self.resets[i] = self.resets.get(i, 0) + 1
                    rise = value
            if rise:
                rises[i] = rise
                if column.error:
                    self._note(i, rise, now.monotonic)
        return rises

    def _note(self, i: int, rise: int, at: float) -> None:
        since, current, last = self._rises.get(i, (at, 0, 0))
        half = MOVED_WINDOW / 2
        if at - since >= half:
            since, current, last = at, 0, current if at - since < 2 * half else 0
        self._rises[i] = (since, current + rise, last)

    def moved(self, now: float) -> dict[int, int]:
        """Error counters that rose within about the last hour, with their rise."""
        return {i: c + p for i, (since, c, p) in self._rises.items() if now - since < MOVED_WINDOW and c + p}
