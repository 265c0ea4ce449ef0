"""What should be firing now and what has just ended: one board that all Alertmanagers are told from.

It owns the alerts and the record of them, and knows nothing of HTTP. `show` is for the engine's thread and never waits
for a disk or a network; everything else is for the senders'.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ibmon.alert.alertrecord import AlertRecord, Row
from ibmon.alert.alerts import Alert, Identity

log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """An alert on the board since `version`; over since `ended` (wall time), and forgotten at `forget` (monotonic)."""

    alert: Alert
    version: int
    ended: float | None = None
    forget: float = math.inf


class Batch(NamedTuple):
    """All that is to be told now, as of `version`."""

    version: int
    entries: tuple[Entry, ...]


class Board:
    """The desired alerts.

    Args:
        record: where they are kept for the next process.
        keep_ends: seconds for which an end is told again and again; by then every Alertmanager has ended the alert by
            itself, also one that heard nothing.
        wall: the wall clock, for the time of an end.
        monotonic: the clock for `keep_ends`.
    """

    def __init__(
        self,
        record: AlertRecord,
        keep_ends: float,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._record = record
        self._keep_ends = keep_ends
        self._wall = wall
        self._monotonic = monotonic
        forget = monotonic() + keep_ends
        self._entries: dict[Identity, Entry] = {
            row.alert.identity: Entry(row.alert, 1, row.ended, math.inf if row.ended is None else forget)
            for row in record.load()
        }
        self._version = 1
        self._shown = False
        self._changes, self._saved = 0, 0
        self._unsaved = False
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    def show(self, alerts: Iterable[Alert]) -> None:
        """This is what should be firing; whatever else is on the board has ended now."""
        with self._lock:
            self._version += 1
            self._changes += 1
            self._shown = True
            ended, forget = self._wall(), self._monotonic() + self._keep_ends
            before, self._entries = self._entries, {}
            for alert in alerts:
                self._entries[alert.identity] = self._firing(alert, before.pop(alert.identity, None))
            for identity, entry in before.items():
                over = Entry(entry.alert, self._version, ended, forget) if entry.ended is None else entry
                self._entries[identity] = over

    def _firing(self, alert: Alert, known: Entry | None) -> Entry:
        if known is None or known.ended is not None:
            return Entry(alert, self._version)
        alert = alert.on_rail_of(known.alert)
        return known if known.alert == alert else Entry(alert, self._version)

    def batch(self) -> Batch | None:
        """What is to be told now; None while nobody has said what should be firing."""
        with self._lock:
            if not self._shown:
                return None
            now = self._monotonic()
            for identity in [i for i, entry in self._entries.items() if entry.forget <= now]:
                del self._entries[identity]
                self._changes += 1
            return Batch(self._version, tuple(self._entries.values()))

    def save(self) -> None:
        """Bring the record up to date; called before what a batch says is sent. Trouble with the disk stops nothing."""
        with self._writing:
            with self._lock:
                changes = self._changes
                rows = [Row(entry.alert, entry.ended) for entry in self._entries.values()]
            if changes == self._saved:
                return
            try:
                self._record.save(rows)
            except OSError as error:
                if not self._unsaved:
                    log.error("%s: %s; after a restart old alerts end late", self._record.path, error.strerror)
                self._unsaved = True
                return
            self._saved, self._unsaved = changes, False
