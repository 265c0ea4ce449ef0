"""The store: what was promised is on disk, and no state of the disk or the file stops the daemon."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ibmon import database, statedir, store
from ibmon.model import Ownership
from ibmon.ports import StoreError
from ibmon.statedir import StateLock, network_file_system
from ibmon.store import Message, Store

OWNED = Ownership("7f3a9c", "ibmon: port-down mlx5_3/1 DOWN [id 7f3a9c]", 1000.25, held=True)
DAY = 1893456000.0  # 2030-01-01


OPENED = []


def opened(directory, *, node="n1", machine="uuid-1", wall=lambda: DAY):
    OPENED.append(Store(directory, node=node, machine=machine, wall=wall))
    return OPENED[-1]


@pytest.fixture(autouse=True)
def _closed():
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture
def db(tmp_path):
    return opened(tmp_path)


def again(old: Store, **more) -> Store:
    """The same directory as the next process sees it."""
    old.close()
    return opened(old.path.parent, **more)


def message(target="a", subject="s", number=1, topic="finding"):
    return Message(target, subject, topic, f"msg_{target}{subject}{number}", f"{number}".encode(), DAY)


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


# ----------------------------------------------------------------------------------------------------- outbox


def test_messages_wait_in_order_until_they_are_done(db):
    box = db.outbox
    for subject in "xyz":
        box.put(message(subject=subject))
    box.put(message("b", "x"))
    assert [box.pending(t) for t in "abc"] == [3, 1, 0]
    taken = []
    while found := box.take("a"):
        taken.append(found.subject)
        box.done(found)
    assert taken == ["x", "y", "z"]
    assert box.take("b") == message("b", "x")


def test_a_newer_message_of_a_subject_takes_the_place_of_the_older_one(db):
    box = db.outbox
    box.put(message(subject="x", number=1))
    old = box.take("a")
    box.put(message(subject="x", number=2))
    box.done(old)  # it arrived while the newer one came
    assert box.pending("a") == 1
    assert box.take("a").body == b"2"


def test_a_refused_message_lets_the_others_go_first_and_a_newer_one_starts_anew(db):
    box = db.outbox
    box.put(message(subject="x"))
    box.put(message(subject="y"))
    box.behind(box.take("a"))
    assert box.take("a").subject == "y"
    box.put(message(subject="x", number=2))
    assert box.take("a").refused == 0
    box.behind(message(subject="absent"))


def test_waiting_messages_come_back_in_the_next_process_in_their_order(db):
    for subject in "xyz":
        db.outbox.put(message(subject=subject))
    db.outbox.put(message(subject="x", number=2))
    db.outbox.done(message(subject="y"))
    after = again(db)
    assert [after.outbox.take("a").subject, after.outbox.pending("a")] == ["z", 2]
    after.outbox.done(message(subject="z"))
    assert after.outbox.take("a") == message(subject="x", number=2)


def test_the_oldest_go_beyond_the_bound_and_fitness_goes_last(db):
    db.outbox.put(message(subject="node", topic="fitness"))
    for i in range(150):
        db.outbox.put(message(subject=f"s{i}"))
    for box in (db.outbox, (after := again(db)).outbox):
        assert box.pending("a") == store.MAX_MESSAGES
        assert box.take("a").topic == "fitness"
    assert db.outbox.dropped == 51
    after.outbox.done(message(subject="node", topic="fitness"))
    assert after.outbox.take("a").subject == "s51"


def test_targets_that_are_not_configured_any_more_lose_their_messages(db):
    for target in "abc":
        db.outbox.put(message(target))
    db.outbox.keep_targets(["b"])
    after = again(db)
    assert [after.outbox.pending(t) for t in "abc"] == [0, 1, 0]


def test_no_disk_delays_a_message(tmp_path):
    db = opened(tmp_path / "absent")
    db.outbox.put(message())
    found = db.outbox.take("a")
    assert found == message()
    db.outbox.done(found)
    assert db.outbox.pending("a") == 0
    assert db.save_errors == 2


def test_a_message_is_not_given_out_before_the_transaction_around_it_is_over(db):
    taken = []
    with db.transaction():
        db.outbox.put(message())
        thread = threading.Thread(target=lambda: taken.append((db.outbox.take("a"), db._database._depth)))
        thread.start()
        thread.join(0.2)
        assert taken == []
    thread.join()
    assert taken == [(message(), 0)]


# ------------------------------------------------------------------------------------------- lock, file systems

HOLDER = """
import sys
from ibmon.statedir import StateLock
print(StateLock(sys.argv[1]).acquire(), flush=True)
sys.stdin.read()
"""


def test_one_daemon_holds_the_lock_and_its_death_by_kill_9_frees_it(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "True\n"
        lock = StateLock(tmp_path)
        assert lock.acquire() is False
        assert lock.holder() == child.pid
        child.kill()
        child.wait()
        assert lock.acquire() is True
        assert lock.acquire() is True
        assert lock.holder() == os.getpid()
        lock.release()
        assert StateLock(tmp_path).acquire() is True
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_a_released_lock_is_free_in_the_same_process(tmp_path):
    first, second = StateLock(tmp_path), StateLock(tmp_path)
    assert first.acquire()
    assert not second.acquire()
    first.release()
    first.release()
    assert second.acquire()
    second.release()


def test_a_lock_that_cannot_be_used_is_told(tmp_path):
    with pytest.raises(StoreError, match=r"ibmon\.lock cannot be opened: No such file"):
        StateLock(tmp_path / "absent").acquire()
    assert StateLock(tmp_path / "absent").holder() is None


MOUNTS = r"""
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:40 / /var/lib rw shared:5 - nfs4 server:/export rw
31 30 254:2 / /var/lib/local rw - xfs /dev/vdb rw
32 22 0:41 / /mnt/with\040space rw - lustre mds:/fs rw
33 22 0:42 / /srv rw - ext4 /dev/vdc rw
34 33 0:43 / /srv rw master:1 propagate_from:2 - fuse.sshfs host: rw
35 22 0:44 / /home rw
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/etc/ibmon", None),
        ("/var/lib/ibmon", "nfs4"),
        ("/var/lib", "nfs4"),
        ("/var/library", None),
        ("/var/lib/local/ibmon", None),
        ("/mnt/with space/x", "lustre"),
        ("/srv/ibmon", "fuse.sshfs"),
        ("/home/x", None),
    ],
)
def test_the_innermost_and_latest_mount_says_which_file_system_it_is(path, expected):
    assert network_file_system(path, MOUNTS) == expected


def test_an_unknown_table_is_no_network_file_system(tmp_path, monkeypatch):
    assert network_file_system(tmp_path, "") is None
    assert network_file_system(tmp_path) is None
    monkeypatch.setattr(statedir, "Path", lambda path: (_ for _ in ()).throw(OSError(13, "denied")))
    assert network_file_system(str(tmp_path)) is None
