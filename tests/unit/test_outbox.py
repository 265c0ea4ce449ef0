"""The outbox: each subject's newest message for each target, kept until it is delivered."""

from __future__ import annotations

import threading

import pytest
from stores import again, close_all, message, opened

from ibmon import store


@pytest.fixture(autouse=True)
def _closed():
    yield
    close_all()


@pytest.fixture
def db(tmp_path):
    return opened(tmp_path)


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
