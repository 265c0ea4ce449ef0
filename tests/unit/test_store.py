"""The store: what was promised is on disk, and no state of the disk or the file stops the daemon."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from stores import DAY, again, close_all, message, opened

from ibmon import database, store
from ibmon.eventlog import read_events
from ibmon.model import Ownership
from ibmon.ports import StoreError

OWNED = Ownership("7f3a9c", "ibmon: port-down mlx5_3/1 DOWN [id 7f3a9c]", 1000.25, held=True)


@pytest.fixture(autouse=True)
def _closed():
    yield
    close_all()


@pytest.fixture
def db(tmp_path):
    return opened(tmp_path)


# ---------------------------------------------------------------------------------------------- what is promised


def test_a_new_store_knows_nothing(db):
    assert db.load() is None
    assert db.ownership() is None
    assert db.events() == []
    assert db.set_aside is None
    assert db.network is None


def test_state_and_ownership_come_back_in_the_next_process(db):
    db.save(b"\x00state\xff")
    db.record(OWNED)
    after = again(db)
    assert after.load() == b"\x00state\xff"
    assert after.ownership() == OWNED
    after.record(None)
    after.close()
    assert again(after).ownership() is None


def test_the_newest_state_and_record_are_the_ones_kept(db):
    for i in range(3):
        db.save(bytes([i]))
        db.record(Ownership(f"{i}" * 4, "r", float(i), held=bool(i % 2)))
    after = again(db)
    assert after.load() == b"\x02"
    assert after.ownership() == Ownership("2222", "r", 2.0, held=False)


def test_the_same_state_again_is_not_written(db, monkeypatch):
    db.save(b"state")
    writes = []
    monkeypatch.setattr(db._database, "write", writes.append)
    db.save(b"state")
    assert writes == []
    db.save(b"other")
    assert len(writes) == 1


def test_a_state_whose_transaction_was_lost_is_written_again(db):
    def broken_tick():
        with db.transaction():
            db.save(b"state")
            raise KeyError

    with pytest.raises(KeyError):
        broken_tick()
    assert db.load() is None
    db.save(b"state")
    assert db.load() == b"state"


def test_a_transaction_is_all_or_nothing(db):
    with db.transaction():
        db.save(b"one")
        db.add_event(1.0, "info", "a", {})

    def broken_tick():
        with db.transaction():
            db.save(b"two")
            db.record(OWNED)
            db.add_event(2.0, "info", "b", {})
            raise KeyError

    with pytest.raises(KeyError):
        broken_tick()
    assert db.load() == b"one"
    assert db.ownership() is None
    assert [row.event for row in db.events()] == ["a"]


def test_events_are_kept_in_order_with_their_fields_and_bounded(db, monkeypatch):
    monkeypatch.setattr(store, "MAX_EVENTS", 150)
    with db.transaction():
        for i in range(400):
            db.add_event(float(i), "warning", "finding", {"port": "mlx5_0/1", "n": i, "text": "ü"})
    rows = db.events(limit=1000)
    assert len(rows) == 150
    assert (rows[-1].at, rows[-1].level, rows[-1].event) == (399.0, "warning", "finding")
    assert rows[-1].fields == {"port": "mlx5_0/1", "n": 399, "text": "ü"}
    assert [row.seq for row in rows] == sorted(row.seq for row in rows)
    assert [row.at for row in db.events(limit=2)] == [398.0, 399.0]
    db.compact()


@pytest.mark.parametrize("fields", [b"\xff", b'{"a":', b'{"a": "\xff"}', b"[]", "text", 7])
def test_a_damaged_event_hides_no_other(db, fields):
    """SQLite finds no damage within a row; the daemon reads its history before it does anything else."""
    for number in (1, 2, 3):
        db.add_event(number, "info", "event", {"number": number})
    db.close()
    with contextlib.closing(sqlite3.connect(db.path)) as file:
        file.execute("UPDATE events SET fields = ? WHERE seq = 2", (fields,))
        file.commit()
    assert [row.seq for row in db.events()] == [1, 3]
    assert [row.seq for row in read_events(db.path)] == [1, 3]


@pytest.mark.parametrize("damage", ["fields = x'7b'", "fields = x'5b5d'", "at = 'x'", "at = 1e300", "level = x'ff'"])
def test_a_damaged_event_is_left_out_and_hides_no_other(db, damage):
    for name in ("one", "two", "three"):
        db.add_event(1.0, "info", name, {"port": "mlx5_0/1"})
    with contextlib.closing(sqlite3.connect(db.path)) as file, file:
        file.execute(f"UPDATE events SET {damage} WHERE event = 'two'")
    assert [row.event for row in db.events()] == ["one", "three"]


def test_several_threads_use_one_store(db):
    def work(i):
        for n in range(20):
            db.save(f"{i} {n}".encode())
            db.record(OWNED)
            db.outbox.put(message(subject=f"{i}", number=n))
            db.outbox.take("a")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert db.outbox.pending("a") == 4
    assert db.save_errors == 0


KILLED = """
import os, signal, sys
from ibmon.model import Ownership
from ibmon.store import Store
store = Store(sys.argv[1], node="n1", machine="uuid-1")
store.save(b"saved")
store.record(Ownership("7f3a9c", "r", 1.0))
with store.transaction():
    store.save(b"lost")
    store.record(None)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_9_in_a_transaction_loses_only_that_and_leaves_a_store_that_opens(tmp_path):
    child = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert child.returncode == -signal.SIGKILL
    after = opened(tmp_path)
    assert after.load() == b"saved"
    assert after.ownership() == Ownership("7f3a9c", "r", 1.0)
    assert after.set_aside is None


def test_what_was_saved_is_synchronous_and_in_wal(db):
    db.save(b"x")
    connection = db._database._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# ------------------------------------------------------------------------------------------------- bad files


def full(tmp_path):
    made = opened(tmp_path)
    made.save(b"state")
    made.record(OWNED)
    made.close()
    return made.path


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it was empty"),
        (b'{"half": [1, 2', "it is broken"),
        (os.urandom(4096 * 3), "it is broken"),
        (b"SQLite format 3\x00" + b"\xff" * 5000, "it is broken"),
    ],
)
def test_a_file_that_is_empty_or_broken_is_kept_aside_and_history_is_unknown(tmp_path, content, why):
    full(tmp_path).write_bytes(content)
    db = opened(tmp_path)
    assert db.load() is None
    assert db.ownership() is None
    assert db.set_aside == f"{db._database.set_aside}"
    assert db.set_aside.startswith(why)
    aside = tmp_path / "ibmon.db.aside-20300101T000000Z"
    assert aside.name in db.set_aside
    assert aside.read_bytes() == content
    db.save(b"new")
    db.close()
    assert opened(tmp_path).load() == b"new"


def test_pages_destroyed_in_the_middle_are_found_when_it_is_opened(tmp_path):
    path = full(tmp_path)
    data = bytearray(path.read_bytes())
    data[4096:8192] = b"\xa5" * 4096
    path.write_bytes(data)
    db = opened(tmp_path)
    assert db.ownership() is None
    assert db.set_aside.startswith("it is broken")


def test_only_the_newest_files_set_aside_are_kept(tmp_path):
    for day in range(6):
        (tmp_path / "ibmon.db").write_bytes(b"broken " * 100)
        db = opened(tmp_path, wall=lambda day=day: DAY + day * 86400)
        db.load()
        db.close()
    assert len(list(tmp_path.glob("*.aside-*"))) == 3
    assert (tmp_path / "ibmon.db.aside-20300106T000000Z").exists()


@pytest.mark.parametrize(
    ("node", "machine", "aside"),
    [
        ("n1", "uuid-1", False),
        ("n1", None, False),
        ("n2", "uuid-1", True),
        ("n1", "uuid-2", True),
    ],
)
def test_a_store_of_another_machine_is_set_aside(tmp_path, node, machine, aside):
    full(tmp_path)
    db = opened(tmp_path, node=node, machine=machine)
    assert (db.load() is None) is aside
    assert (db.ownership() is None) is aside
    assert bool(db.set_aside) is aside
    if aside:
        assert "another machine" in db.set_aside


def test_an_identity_that_was_not_known_is_written_down_when_it_is(tmp_path):
    first = opened(tmp_path, machine=None)
    first.save(b"x")
    second = again(first, machine="uuid-1")
    assert second.load() == b"x"
    third = again(second, machine="uuid-2")
    assert third.load() is None


def test_a_file_of_a_newer_version_is_set_aside(tmp_path):
    path = full(tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    db = opened(tmp_path)
    assert db.load() is None
    assert "newer ibmon" in db.set_aside


def test_each_older_version_is_upgraded_with_what_it_holds(tmp_path, monkeypatch):
    full(tmp_path)
    more = ("CREATE TABLE extra (x)", "INSERT INTO extra SELECT reason FROM ownership; ALTER TABLE state ADD COLUMN y")
    monkeypatch.setattr(store, "UPGRADES", (*store.UPGRADES, *more))
    db = opened(tmp_path)
    assert db.load() == b"state"
    assert db.ownership() == OWNED
    assert db._database.read(lambda c: c.execute("SELECT x FROM extra").fetchone()) == (OWNED.reason,)
    assert db._database.read(database._version) == len(store.UPGRADES) == 3


def test_an_upgrade_that_fails_changes_nothing(tmp_path, monkeypatch):
    full(tmp_path)
    monkeypatch.setattr(store, "UPGRADES", (*store.UPGRADES, "CREATE TABLE extra (x); CREATE TABLE extra (x)"))
    with pytest.raises(StoreError, match="already exists"):
        opened(tmp_path).load()
    monkeypatch.undo()
    db = opened(tmp_path)
    assert db.load() == b"state"


# -------------------------------------------------------------------------------------------------- bad disks


def limit_pages(db, pages):
    """As if the disk were full at this size."""
    db.load()
    db._database._connection.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_is_one_clear_line_the_old_state_stays_and_saving_works_again_afterwards(db):
    db.save(b"old")
    limit_pages(db, 1)
    with pytest.raises(StoreError, match=r"cannot be saved: database or disk is full; free some space there") as caught:
        db.save(b"x" * 100_000)
    assert "\n" not in str(caught.value)
    assert db.load() == b"old"
    assert db.save_errors == 1
    db.save(b"x" * 100_000)  # the file was opened anew, without the limit
    assert db.load() == b"x" * 100_000
    assert db.save_errors == 1


def test_a_failed_save_inside_a_transaction_takes_all_of_it_back(db):
    db.save(b"old")
    limit_pages(db, 1)

    def tick():
        with db.transaction():
            db.record(None)
            db.add_event(1.0, "info", "too long", {"x": "y" * 100_000})
            db.add_event(1.0, "info", "short", {})

    with pytest.raises(StoreError, match="full"):
        tick()
    assert db.load() == b"old"
    assert db.events() == []


def test_an_event_that_cannot_be_kept_is_counted_and_no_more(db):
    limit_pages(db, 1)
    db.add_event(1.0, "info", "too long", {"x": "y" * 100_000})
    assert db.save_errors == 1
    assert db.events() == []


@pytest.mark.parametrize("place", ["absent", "file"])
def test_a_directory_that_cannot_be_used_is_an_error_that_names_it(tmp_path, place):
    (tmp_path / "file").touch()
    db = opened(tmp_path / place)
    for call in (db.load, db.ownership, lambda: db.save(b"x"), lambda: db.record(OWNED)):
        with pytest.raises(StoreError, match=r"ibmon\.db cannot be"):
            call()
    db.add_event(1.0, "info", "x", {})


def test_a_directory_that_comes_back_is_used_again(tmp_path):
    db = opened(tmp_path / "late")
    with pytest.raises(StoreError):
        db.save(b"x")
    (tmp_path / "late").mkdir()
    db.save(b"x")
    assert db.load() == b"x"


def read_only(monkeypatch):
    """SQLite as it answers in a directory that cannot be written to."""
    real = sqlite3.connect

    def connect(place, **more):
        if "mode=ro" in str(place):
            raise sqlite3.OperationalError("unable to open database file")  # no -shm can be made
        if "immutable" in str(place):
            return real(place, **more)
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr(database.sqlite3, "connect", connect)


def test_where_nothing_can_be_written_the_old_file_is_still_read_and_later_written(tmp_path, monkeypatch):
    full(tmp_path)
    db = opened(tmp_path)
    with monkeypatch.context() as patch:
        read_only(patch)
        assert db.load() == b"state"
        assert db.ownership() == OWNED
        for _ in range(2):
            with pytest.raises(StoreError, match="readonly database; make the file and its directory writable"):
                db.save(b"new")
        assert db.load() == b"state"
        assert db.set_aside is None
    db.save(b"new")
    assert db.load() == b"new"


def test_a_read_only_file_whose_newest_pages_are_in_a_wal_is_not_read_without_them(tmp_path, monkeypatch):
    full(tmp_path)
    (tmp_path / "ibmon.db-wal").write_bytes(b"newer pages")
    read_only(monkeypatch)
    db = opened(tmp_path)
    with pytest.raises(StoreError, match="readonly"):
        db.ownership()


def test_a_file_held_by_somebody_else_is_told(db, monkeypatch):
    db.save(b"x")
    db._database._connection.execute("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(db.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked; another process holds it"):
        db.save(b"y")
    other.execute("ROLLBACK")
    other.close()
    db.save(b"y")


def test_a_network_file_system_gets_no_wal_and_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "network_file_system", lambda directory: "nfs4")
    db = opened(tmp_path)
    db.save(b"x")
    assert db.network == "nfs4"
    assert db._database._connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
