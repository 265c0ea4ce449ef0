"""What changed between two samples: resets, saturation, counters that rose, and flap episodes.

Pure and bounded: per device two small tables by column, per port at most `MAX_FLAPS` episodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from ibmon.model import Layout, Level, Now, PortState, Sample

MOVED_WINDOW = 3600.0
"""Seconds for which a counter that rose is shown as one that moved."""

FLAP_MERGE = 60.0
"""Signs of a bounce this close together (seconds) are one episode: a state seen, `link_downed`, the carrier."""

FLAP_WINDOW = 86400.0
MAX_FLAPS = 64
MAX_WALL_AGE = 30 * 86400.0


@dataclass(slots=True)
class CounterHistory:
    """Resets, saturation and recent rises of one device generation, by column."""

    layout: Layout
    resets: dict[int, int] = field(default_factory=dict)
    saturated: dict[int, bool] = field(default_factory=dict)
    _rises: dict[int, tuple[float, int, int]] = field(default_factory=dict)  # since, in this half window, in the last

    def take(self, old: Sample, new: Sample, columns: tuple[int, ...], now: Now) -> dict[int, int]:
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


class Flap(msgspec.Struct, frozen=True, array_like=True):
    """One bounce of a link. `counted` is False inside a grace: recorded, but no rule counts it."""

    monotonic: float
    wall: float
    boot_id: str
    counted: bool


def age(flap: Flap, now: Now, boot_id: str) -> float:
    """Seconds since the flap: by the monotonic clock within a boot, else by wall time within 0 and 30 days."""
    if flap.boot_id == boot_id:
        return now.monotonic - flap.monotonic
    return min(max(0.0, now.wall - flap.wall), MAX_WALL_AGE)


@dataclass(slots=True)
class FlapWatch:
    """The bounces of one port and the signs that make them."""

    flaps: tuple[Flap, ...] = ()
    was_active: bool | None = None
    last_sign: float | None = None

    def take(self, sample: Sample, port: int, rises: dict[int, int], now: Now, boot_id: str, *, counted: bool) -> bool:
        """Look at a new sample of the port; True when a new episode begins."""
        state = sample.get(port, Level.ATTR, "state")
        active = None if state is None else state in (PortState.ACTIVE, PortState.ACTIVE_DEFER)
        sign = self.was_active is True and active is False
        for level, name in ((Level.COUNTERS, "link_downed"), (Level.NET, "carrier_down_count")):
            i = sample.layout.column(port, level, name)
            sign = sign or (i is not None and i in rises)
        lasting = active is False and self.last_sign is not None
        if active is not None:
            self.was_active = active
        new = sign and (self.last_sign is None or now.monotonic - self.last_sign > FLAP_MERGE)
        if new:
            kept = tuple(f for f in self.flaps if age(f, now, boot_id) <= FLAP_WINDOW)
            self.flaps = (*kept, Flap(now.monotonic, now.wall, boot_id, counted))[-MAX_FLAPS:]
        if sign or lasting:
            self.last_sign = now.monotonic
        return new

    def count(self, now: Now, boot_id: str, window: float = FLAP_WINDOW) -> int:
        """Counted episodes within the window (seconds)."""
        return sum(1 for f in self.flaps if f.counted and age(f, now, boot_id) <= window)
