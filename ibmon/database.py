"""One SQLite file that must survive everything: opening, checking, upgrading, setting aside, transactions.

It knows no table; those are `ibmon/store.py`'s. One connection serves every thread, one at a time, under a lock.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, TypeVar

from ibmon.ports import StoreError
from ibmon.statedir import network_file_system

_BUSY: Final = 2.0  # seconds that another process (a person with sqlite3) may hold the file
_KEPT_ASIDE: Final = 3
_COMPANIONS: Final = ("", "-wal", "-shm", "-journal")
_HINTS: Final = (
    ("full", "free some space there"),
    ("readonly", "make the file and its directory writable for the service"),
    ("unable to open", "make the directory there and writable for the service"),
    ("locked", "another process holds it"),
)

_Result = TypeVar("_Result")


class _UnusableError(Exception):
    """The file cannot serve this daemon; the text says why."""


class Database:
    """A SQLite file that is opened by its first use, and again after every failure.

    `upgrades` holds one script a version; a file of version N has had the first N. A file that is
    empty, broken, of a newer version or of another machine (`identity` differs in a key that both know) is renamed to
    ``NAME.aside-DATE`` and a new one begun: `set_aside` says why. `save_errors` counts writes that failed.
    """

    def __init__(
        self,
        path: Path,
        upgrades: Sequence[str],
        identity: Mapping[str, str],
        wall: Callable[[], float],
    ) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.set_aside: str | None = None
        self.network: str | None = None
        self.save_errors = 0
        self.losses = 0  # how often something may have been lost: a rollback, a file closed and opened anew
        self._upgrades = upgrades
        self._identity = identity
        self._wall = wall
        self._connection: sqlite3.Connection | None = None
        self._read_only: str | None = None
        self._depth = 0
        self._broken: StoreError | None = None

    def read(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """What `work` reads; StoreError where the file cannot be read."""
        with self.lock:
            try:
                return work(self._open())
            except sqlite3.Error as error:
                self._broken = self._failed("read", error)
                raise self._broken from error
            finally:
                if not self._depth:
                    self._broken = None

    def write(self, work: Callable[[sqlite3.Connection], _Result]) -> _Result:
        """Do `work` and commit it, alone or with the transaction around it; StoreError if it is not on disk now."""
        with self.transaction():
            if self._broken:  # of the transaction around it nothing will be kept
                raise self._broken
            try:
                return work(self._open())
            except sqlite3.Error as error:
                self._broken = self._failed("saved", error)
                raise self._broken from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all writes inside together or none of them; StoreError at its end if they are not on disk now."""
        with self.lock:
            if self._depth:
                yield
                return
            try:
                self._begin()
                self._depth = 1
                try:
                    yield
                finally:
                    self._depth = 0
                self._commit()
            except StoreError:
                self.save_errors += 1
                self._lose()
                raise
            except BaseException:
                self._lose()
                raise
            finally:
                self._broken = None

    def compact(self) -> None:
        """Give unused pages back to the file system; StoreError where there is no room for the copy this needs."""
        with self.lock:
            try:
                self._open().execute("VACUUM")
            except sqlite3.Error as error:
                raise self._failed("compacted", error) from error

    def close(self) -> None:
        """Close the file; SQLite then leaves everything in the one file."""
        with self.lock:
            self._drop()

    # ---------------------------------------------------------------------------------------- transactions

    def _begin(self) -> None:
        if self._read_only:
            self._drop()  # it may be writable again
        try:
            connection = self._open()
            if self._read_only:
                raise sqlite3.OperationalError(self._read_only)
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise self._failed("saved", error) from error

    def _commit(self) -> None:
        if self._broken:
            raise self._broken
        try:
            self._open().execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed("saved", error) from error

    def _lose(self) -> None:
        """Roll back. What fails here fails again, and is told, with the next use."""
        self.losses += 1
        if self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                self._drop()

    def _failed(self, what: str, error: sqlite3.Error) -> StoreError:
        """The error in one line, and the file closed: the next use opens and checks it anew."""
        if not self._read_only:
            self._drop()
        hint = next((hint for word, hint in _HINTS if word in str(error)), "look whether its disk is full or broken")
        return StoreError(f"{self.path} cannot be {what}: {error}; {hint}")

    def _drop(self) -> None:
        connection, self._connection, self._read_only = self._connection, None, None
        if connection is not None:
            self.losses += 1
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    # --------------------------------------------------------------------------------------------- opening

    def _open(self) -> sqlite3.Connection:
        """The connection, opened if there is none; sqlite3.Error or StoreError where that cannot be."""
        if self._connection is None:
            try:
                self._connection = self._open_file()
            except _UnusableError as why:
                self._put_aside(str(why))
                self._connection = self._open_file()
            except OSError as error:
                raise StoreError(f"{self.path} cannot be reached: {error.strerror}") from error
        return self._connection

    def _open_file(self) -> sqlite3.Connection:
        if self.path.exists() and self.path.stat().st_size == 0:
            raise _UnusableError("it was empty")
        try:
            return self._connect()
        except sqlite3.OperationalError as error:  # full, read-only, busy: says nothing about the content
            reader = self._connect_read_only()
            if reader is None:
                raise
            self._read_only = str(error)
            return reader
        except sqlite3.DatabaseError as error:
            raise _UnusableError(f"it is broken: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        try:
            self.network = network_file_system(self.path.parent)
            connection.execute(f"PRAGMA journal_mode = {'DELETE' if self.network else 'WAL'}")
            connection.execute("PRAGMA synchronous = FULL")
            _check(connection)
            self._upgrade(connection)
            self._recognise(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_read_only(self) -> sqlite3.Connection | None:
        """The file as it is, where nothing can be written; None where it cannot even be read.

        `immutable` needs no other file beside it, and is right only where no WAL holds newer pages.
        """
        modes = ["mode=ro"]
        wal = Path(f"{self.path}-wal")
        if not wal.exists() or not wal.stat().st_size:
            modes.append("immutable=1")
        for mode in modes:
            uri = f"{self.path.absolute().as_uri()}?{mode}"
            try:
                connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            except sqlite3.Error:
                continue
            try:
                _check(connection)
                if _version(connection) == len(self._upgrades):
                    self._recognise(connection, learn=False)
                    return connection
            except sqlite3.Error:
                pass
            except BaseException:
                connection.close()
                raise
            connection.close()
        return None

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        version = _version(connection)
        if version > len(self._upgrades):
            raise _UnusableError(
                f"a newer ibmon made it (version {version} of the file, this one knows {len(self._upgrades)})"
            )
        if version == len(self._upgrades):
            return
        connection.execute("BEGIN IMMEDIATE")
        if version == 0:
            connection.execute("CREATE TABLE identity (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        for script in self._upgrades[version:]:
            for statement in script.split(";"):  # executescript would commit first
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(self._upgrades)}")
        connection.execute("COMMIT")

    def _recognise(self, connection: sqlite3.Connection, *, learn: bool = True) -> None:
        """Whether the file is this machine's; what it did not know of it yet is written down."""
        known = dict(connection.execute("SELECT key, value FROM identity").fetchall())
        for key, value in self._identity.items():
            if known.get(key, value) != value:
                raise _UnusableError(f"it belongs to another machine ({key} {known[key]}, here {value})")
        new = [(key, value) for key, value in self._identity.items() if key not in known]
        if new and learn:
            connection.executemany("INSERT INTO identity (key, value) VALUES (?, ?)", new)

    def _put_aside(self, why: str) -> None:
        """Keep a copy for people under a dated name; of such copies only the newest stay."""
        stamp = datetime.fromtimestamp(self._wall(), timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        name = f"{self.path.name}.aside-{stamp}"
        try:
            for end in _COMPANIONS:
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{self.path}{end}").replace(self.path.parent / f"{name}{end}")
        except OSError as error:
            raise StoreError(f"{self.path} cannot be set aside ({why}): {error.strerror}; move it away") from error
        self.set_aside = f"{why}; kept as {name}"
        main_files = (path for path in self.path.parent.glob(f"{self.path.name}.aside-*") if path.name.endswith("Z"))
        for old in sorted(main_files)[:-_KEPT_ASIDE]:
            for end in _COMPANIONS:
                with contextlib.suppress(OSError):
                    Path(f"{old}{end}").unlink()


def _check(connection: sqlite3.Connection) -> None:
    """sqlite3.DatabaseError where SQLite finds the file damaged."""
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise sqlite3.DatabaseError(answer)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
