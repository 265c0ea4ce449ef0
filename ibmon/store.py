"""What must outlive the process: engine state, ownership of a drain, messages to deliver, events.

It decides nothing and is never used while sampling. The engine's thread (state, events, messages), the scheduler's
(ownership) and the senders' (outbox) share its one connection, one at a time.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from ibmon.database import Database
from ibmon.model import Ownership
from ibmon.ports import StoreError

FILE_NAME: Final = "ibmon.db"
MAX_EVENTS: Final = 10_000
MAX_MESSAGES: Final = 100  # per target
_PRUNE_EVERY: Final = 100
_ASKED, _HELD, _GONE = 0, 1, 2  # the column `held`

# What was released here is never changed, only added to.
UPGRADES: Final[tuple[str, ...]] = (
    """
    CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), saved REAL NOT NULL, body BLOB NOT NULL);
    CREATE TABLE ownership (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        id TEXT NOT NULL, reason TEXT NOT NULL, asked REAL NOT NULL, held INTEGER NOT NULL
    );
    CREATE TABLE outbox (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        target TEXT NOT NULL, subject TEXT NOT NULL, topic TEXT NOT NULL, id TEXT NOT NULL,
        body BLOB NOT NULL, queued REAL NOT NULL,
        UNIQUE (target, subject)
    );
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL, level TEXT NOT NULL, event TEXT NOT NULL, fields BLOB NOT NULL
    )
    """,
)


class EventRow(NamedTuple):
    """One row of history; `at` is wall time, within what a calendar shows."""

    seq: int
    at: Annotated[float, msgspec.Meta(gt=-1e11, lt=1e11)]
    level: str
    event: str
    fields: dict[str, Any]


def event_rows(rows: Iterable[Sequence[Any]]) -> Iterator[EventRow]:
    """The events of rows of the file, without those that are damaged: one must not hide the others.

    SQLite's pages bear no checksum, so a damaged column may hold anything.
    """
    for *others, fields in rows:
        with contextlib.suppress(ValueError):  # msgspec's own is one
            yield msgspec.convert((*others, msgspec.json.decode(_bytes(fields))), EventRow)


def _bytes(value: object) -> bytes:
    """What a column of bytes holds; a damaged one may hold anything, which nobody can make out then."""
    return value if isinstance(value, bytes) else b""


class Message(msgspec.Struct, frozen=True):
    """One message for one target. `queued` is wall time; `refused` counts the answers that it was at fault for."""

    target: str
    subject: str
    topic: str
    id: str
    body: bytes
    queued: float
    refused: int = 0


class Store:
    """`ports.Store` in a directory; the messages to deliver are `outbox`.

    It opens by its first use and again after each failure, so a disk that comes back is used again. `set_aside` says
    why an old file was not used, `network` names the type of a network file system (then without WAL), `save_errors`
    counts failed writes. `machine` is the DMI product UUID, None where it cannot be read.
    """

    def __init__(
        self, directory: str | Path, *, node: str, machine: str | None = None, wall: Callable[[], float] = time.time
    ) -> None:
        identity = {"node": node, **({"machine": machine} if machine else {})}
        self._database = Database(Path(directory) / FILE_NAME, UPGRADES, identity, wall)
        self._wall = wall
        self._added = 0
        self._saved: tuple[int, bytes] | None = None
        self.outbox = Outbox(self._database)

    @property
    def path(self) -> Path:
        """The file."""
        return self._database.path

    @property
    def set_aside(self) -> str | None:
        """Why the file that was there is not used, and where it is; None where all is well."""
        return self._database.set_aside

    @property
    def network(self) -> str | None:
        """Type of the network file system that the directory is on, or None."""
        return self._database.network

    @property
    def save_errors(self) -> int:
        """How many writes have failed."""
        return self._database.save_errors

    def load(self) -> bytes | None:
        """The engine's state as saved last, or None where there is none."""
        row = self._database.read(lambda db: db.execute("SELECT body FROM state").fetchone())
        return None if row is None else _bytes(row[0])

    def save(self, state: bytes) -> None:
        """Commit the engine's state; the same state again costs nothing."""
        if self._saved == (self._database.losses, state):
            return
        row = (self._wall(), state)
        sql = "INSERT OR REPLACE INTO state (one, saved, body) VALUES (1, ?, ?)"
        self._database.write(lambda db: db.execute(sql, row))
        self._saved = (self._database.losses, state)

    def ownership(self) -> Ownership | None:
        """The record of a drain that is ours or was asked for."""
        sql = "SELECT id, reason, asked, held FROM ownership"
        row = self._database.read(lambda db: db.execute(sql).fetchone())
        return None if row is None else Ownership(row[0], row[1], row[2], held=row[3] == _HELD, gone=row[3] == _GONE)

    def record(self, owned: Ownership | None) -> None:
        """Commit (or with None remove) the record of a drain."""
        if owned is None:
            self._database.write(lambda db: db.execute("DELETE FROM ownership"))
            return
        row = (owned.id, owned.reason, owned.asked, _GONE if owned.gone else _HELD if owned.held else _ASKED)
        sql = "INSERT OR REPLACE INTO ownership (one, id, reason, asked, held) VALUES (1, ?, ?, ?, ?)"
        self._database.write(lambda db: db.execute(sql, row))

    def add_event(self, at: float, level: str, event: str, fields: dict[str, Any]) -> None:
        """One row of history; `prune` bounds them. A failure is counted, and no more."""
        row = (at, level, event, msgspec.json.encode(fields))
        sql = "INSERT INTO events (at, level, event, fields) VALUES (?, ?, ?, ?)"
        with contextlib.suppress(StoreError):
            self._database.write(lambda db: db.execute(sql, row))
        self._added += 1
        if self._added % _PRUNE_EVERY == 0:
            with contextlib.suppress(StoreError):
                self.prune()

    def prune(self) -> None:
        """Keep the newest `MAX_EVENTS` events; done by itself now and then."""
        sql = "DELETE FROM events WHERE seq <= (SELECT max(seq) FROM events) - ?"
        self._database.write(lambda db: db.execute(sql, (MAX_EVENTS,)))

    def compact(self) -> None:
        """Give the space of what was deleted back to the file system."""
        self._database.compact()

    def events(self, limit: int = 100) -> list[EventRow]:
        """The newest events, oldest first, without those that are damaged."""
        sql = "SELECT seq, at, level, event, fields FROM events ORDER BY seq DESC LIMIT ?"
        rows = self._database.read(lambda db: db.execute(sql, (limit,)).fetchall())
        return list(event_rows(rows[::-1]))

    def transaction(self) -> AbstractContextManager[None]:
        """Commit everything that is saved inside together, or none of it: one transaction a tick."""
        return self._database.transaction()

    def close(self) -> None:
        """Close the file, so that all of it is in `ibmon.db` itself."""
        self._database.close()


class Outbox:
    """Messages that wait for their target: in memory, with a copy in the file for the next process.

    A failing disk thus delays no message. A newer message of a target's subject takes the place of an older one, and
    of more than `MAX_MESSAGES` for a target the oldest go, those of topic ``fitness`` last. No method raises
    StoreError; the store counts it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[str, dict[str, Message]] | None = None
        self.dropped = 0

    def put(self, message: Message) -> None:
        """Queue a message."""
        with self._database.lock:
            queue = self._queues().setdefault(message.target, {})
            queue.pop(message.subject, None)  # the newest goes to the end
            queue[message.subject] = message
            lost = sorted(queue.values(), key=lambda m: m.topic == "fitness")[: max(0, len(queue) - MAX_MESSAGES)]
            for old in lost:
                del queue[old.subject]
            self.dropped += len(lost)

            def write(db: sqlite3.Connection) -> None:
                _insert(db, message)
                _delete(db, lost)

            self._mirror(write)

    def take(self, target: str) -> Message | None:
        """The next message for a target: the least refused, of those the oldest. It stays until `done`.

        It waits for a transaction that is under way, so nothing is sent before the state that it tells of is saved.
        """
        with self._database.lock:
            queue = self._queues().get(target, {})
            return min(queue.values(), key=lambda m: m.refused, default=None)

    def done(self, message: Message) -> None:
        """Take a message out; a newer one of its subject stays."""
        with self._database.lock:
            queue = self._queues().get(message.target, {})
            if message.subject in queue and queue[message.subject].id == message.id:
                del queue[message.subject]
            self._mirror(lambda db: _delete(db, [message]))

    def behind(self, message: Message) -> None:
        """Let the others of its target go first."""
        with self._database.lock:
            queue = self._queues().get(message.target, {})
            now = queue.get(message.subject)
            if now is not None and now.id == message.id:
                queue[message.subject] = msgspec.structs.replace(now, refused=now.refused + 1)

    def pending(self, target: str) -> int:
        """How many messages wait for a target."""
        with self._database.lock:
            return len(self._queues().get(target, {}))

    def keep_targets(self, targets: Sequence[str]) -> None:
        """Drop what waits for targets that are not configured any more."""
        with self._database.lock:
            gone = [m for target, queue in self._queues().items() if target not in targets for m in queue.values()]
            for message in gone:
                self._queues().pop(message.target, None)
            if gone:
                self._mirror(lambda db: _delete(db, gone))

    def _queues(self) -> dict[str, dict[str, Message]]:
        """The messages by target and subject, oldest first; read from the file once."""
        if self._waiting is None:
            self._waiting = {}
            sql = "SELECT target, subject, topic, id, body, queued FROM outbox ORDER BY seq"
            with contextlib.suppress(StoreError):
                for row in self._database.read(lambda db: db.execute(sql).fetchall()):
                    self._waiting.setdefault(row[0], {})[row[1]] = Message(*row)
        return self._waiting

    def _mirror(self, write: Callable[[sqlite3.Connection], object]) -> None:
        with contextlib.suppress(StoreError):
            self._database.write(write)


def _insert(db: sqlite3.Connection, message: Message) -> None:
    row = (message.target, message.subject, message.topic, message.id, message.body, message.queued)
    # REPLACE removes the older row of the same target and subject; the new seq puts it at the end.
    sql = "INSERT OR REPLACE INTO outbox (target, subject, topic, id, body, queued) VALUES (?, ?, ?, ?, ?, ?)"
    db.execute(sql, row)


def _delete(db: sqlite3.Connection, messages: Sequence[Message]) -> None:
    db.executemany("DELETE FROM outbox WHERE id = ? AND target = ?", [(m.id, m.target) for m in messages])
