"""The history of a node as people read it: from the store's file, which it opens for reading alone.

It never writes, repairs or upgrades the file, and a running daemon need not be asked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from ibmon.statedir import network_file_system
from ibmon.store import EventRow, event_rows

LEVELS: Final = ("info", "warning", "error")
_ALONE: Final = "mode=ro&immutable=1"
_BUSY: Final = 2.0  # seconds that a daemon on a network file system, where there is no WAL, may hold the file


class EventLogError(Exception):
    """The history cannot be read; the text says why."""


class Wanted(NamedTuple):
    """Which events are wanted: None means any.

    `since` is wall time. `port` is a port or a device. `level` is the lowest of `LEVELS`.
    """

    since: float | None = None
    rule: str | None = None
    port: str | None = None
    level: str | None = None

    def takes(self, row: EventRow) -> bool:
        """Whether this event is one of them."""
        if self.since is not None and row.at < self.since:
            return False
        if self.rule is not None and row.fields.get("rule") != self.rule:
            return False
        if self.level is not None and _rank(row.level) < _rank(self.level):
            return False
        return self.port is None or _about(row.fields, self.port)


ANYTHING: Final = Wanted()


def _rank(level: str) -> int:
    return LEVELS.index(level) if level in LEVELS else len(LEVELS)


def _about(fields: dict[str, Any], subject: str) -> bool:
    """Whether an event tells of this port or its device, or of this device or any of its ports."""
    named = str(fields.get("port") or fields.get("device") or "")
    return bool(named) and (subject in (named, _device(named)) or named == _device(subject))


def _device(port: str) -> str:
    return port.rpartition("/")[0]


def read_events(path: Path, wanted: Wanted = ANYTHING, *, after: int = 0, limit: int = 100) -> list[EventRow]:
    """The newest `limit` events numbered above `after` that are wanted, oldest first.

    Raises:
        EventLogError: the file is not there, may not be read, or is none of this version.
    """
    with closing(_open(path)) as database:
        try:
            rows = database.execute(
                "SELECT seq, at, level, event, fields FROM events WHERE seq > ? ORDER BY seq DESC", (after,)
            )
            chosen = list(islice((row for row in event_rows(rows) if wanted.takes(row)), limit))
        except sqlite3.Error as error:
            raise EventLogError(f"{path} cannot be read: {error}") from error
    return chosen[::-1]


def _open(path: Path) -> sqlite3.Connection:
    try:
        with path.open("rb"):
            pass
    except FileNotFoundError as error:
        raise EventLogError(f"there is no history here: {path} does not exist") from error
    except OSError as error:  # SQLite would say no more than "unable to open"
        raise EventLogError(f"{path} cannot be read: {error.strerror}") from error
    problem: sqlite3.Error | None = None
    for mode in _modes(path):
        try:
            database = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_BUSY)
        except sqlite3.Error as error:
            problem = problem or error
            continue
        try:
            database.execute("SELECT 1 FROM events LIMIT 1").fetchall()
        except sqlite3.Error as error:
            database.close()
            problem = problem or error
            continue
        return database
    raise EventLogError(f"{path} cannot be read: {problem}") from problem


def _modes(path: Path) -> Iterator[str]:
    """How to open it: as a file that stands alone, or as a reader beside a writer.

    A clean stop leaves one file and no WAL, and a running daemon has one: without it nothing newer lies elsewhere, and
    `immutable` makes no files beside it, which a reader of a WAL database does or fails to
    (https://www.sqlite.org/wal.html, "Read-Only Databases"). On a network file system there is never a WAL.
    """
    wal = Path(f"{path}-wal")
    alone = not wal.exists() and network_file_system(path.parent) is None
    yield _ALONE if alone else "mode=ro"
    if not alone and (not wal.exists() or not wal.stat().st_size):
        yield _ALONE
