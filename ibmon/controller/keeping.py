"""What the controller puts on disk: its ledger, and the audit log. A thread of its own does it, one write at a time.

It knows nothing of what the ledger says.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any, Final, Protocol

from ibmon.controller.values import Note
from ibmon.ports import StoreError
from ibmon.runtime import logs
from ibmon.store import Store

log = logging.getLogger(__name__)
WAITING_LINES: Final = 10_000
"""Lines that wait for a slow disk at most; beyond that the oldest are in the log alone."""

_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class LedgerConflict(StoreError):  # noqa: N818 (the word that the controller has for it)
    """Another instance has written the ledger since it was loaded: load it anew, and believe that."""


class LedgerPlace(Protocol):
    """Where the ledger lies. Both raise StoreError."""

    def load(self) -> bytes | None:
        """The document, None where there is none."""
        ...

    def save(self, state: bytes, /) -> None:
        """Replace the document; it is safe when this returns."""
        ...


class Keeper:
    """Saves the ledger and writes the audit log. However slow the disk is, what waits for it is bounded.

    Args:
        store: the file of the audit log; of the ledger too unless it lies elsewhere.
        ledger: where the ledger lies.
    """

    def __init__(self, store: Store, ledger: LedgerPlace) -> None:
        self._store = store
        self._ledger = ledger
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ibmon-ledger")
        self._lock = threading.Lock()
        self._next: tuple[bytes, Future[None]] | None = None
        self._lines: deque[tuple[float, Note]] = deque(maxlen=WAITING_LINES)
        self._writing = False

    def load(self) -> Future[bytes | None]:
        """Begin to load the ledger as saved last; the future ends with StoreError where it cannot be read."""
        return self._thread.submit(self._ledger.load)

    def save(self, data: bytes) -> Future[None]:
        """Begin to save the ledger; the future ends with StoreError where that fails.

        One that still waits for its turn is overtaken by a newer one, and ends with it.
        """
        with self._lock:
            if self._next is not None:
                future = self._next[1]
                self._next = data, future
                return future
            future = Future()
            future.set_running_or_notify_cancel()
            self._next = data, future
        self._thread.submit(self._save)
        return future

    def _save(self) -> None:
        with self._lock:
            waiting, self._next = self._next, None
        if waiting is None:
            return
        data, future = waiting
        try:
            self._ledger.save(data)
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        else:
            future.set_result(None)

    def set_aside(self, data: bytes, wall: float) -> str:
        """Keep a ledger that cannot be used beside the new one; where it lies, or why it could not be kept."""
        day = datetime.fromtimestamp(wall, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        path = self._store.path.with_name(f"ledger.aside-{day}")
        try:
            path.write_bytes(data)
        except OSError as error:
            return f"{path}: {error.strerror}"
        return str(path)

    def note(self, notes: Iterable[Note], wall: float) -> None:
        """Log these lines, and add them to the audit log."""
        for note in notes:
            log.log(_LEVELS[note.level], "%s", logs.line(note.event, note.fields))
            with self._lock:
                self._lines.append((wall, note))
                begun, self._writing = self._writing, True
            if not begun:
                self._thread.submit(self._write_lines)

    def _write_lines(self) -> None:
        while True:
            with self._lock:
                if not self._lines:
                    self._writing = False
                    return
                lines = list(self._lines)
                self._lines.clear()
            try:
                # In one transaction: a ledger that is to be saved waits behind it, and each one waits for the disk.
                with contextlib.suppress(StoreError), self._store.transaction():  # the store counts it
                    for wall, note in lines:
                        self._store.add_event(wall, note.level, note.event, note.fields)
            except Exception:
                log.exception("lines of the audit log could not be written")

    def audit(self, limit: int) -> Sequence[Mapping[str, Any]]:
        """The newest lines of the audit log, newest first; StoreError where they cannot be read."""
        rows = self._store.events(limit)
        return [{"at": row.at, "level": row.level, "event": row.event, **row.fields} for row in reversed(rows)]

    def tidy(self, *, whole: bool) -> None:
        """Bound the audit log; `whole`: give its space back too."""
        self._thread.submit(self._tidy, whole)

    def _tidy(self, whole: bool) -> None:  # noqa: FBT001
        try:
            if whole:
                self._store.compact()
            else:
                self._store.prune()
        except StoreError as error:
            log.error("%s", error)

    def close(self) -> None:
        """Finish what was begun, and close the file."""
        self._thread.shutdown(wait=True)
        self._store.close()
