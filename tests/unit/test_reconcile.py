"""Scheduler writes: each passes read, gate, record, write, read back; every failure in between is played."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from cluster_faults import (
    ASKED,
    HELD,
    ID,
    REASON,
    REFUSED,
    TIMEOUT,
    Cluster,
    Killed,
    Memory,
    drain,
    drained,
    gates,
    release,
    said,
)

from ibmon.config import LimitsConfig
from ibmon.drain.reconcile import Gates
from ibmon.model import BlockCode, Intent, Mode, NodeView, Ownership

# ------------------------------------------------------------------------------------------------------- drain


def test_a_drain_is_recorded_before_it_is_written_and_held_after_it_was_read_back_and_counted():
    cluster, store = Cluster(), Memory()
    done = drain(cluster, store)
    assert said(done) == ("done", None)
    assert (done.effect, done.id) == ("drain", ID)
    assert cluster.calls == ["read_node", "read_pools", "drain", "read_node", "read_pools"]
    assert store.history == [ASKED, HELD]
    assert done.view == cluster.view()
    assert cluster.reason == REASON


@pytest.mark.parametrize(("mode", "stop"), [(Mode.OBSERVE, False), (Mode.ALERT, False), (Mode.DRAIN, True)])
@pytest.mark.parametrize("start", [Cluster, drained])
def test_in_observe_in_alert_and_under_a_stop_nothing_is_written_either_way(mode, stop, start):
    cluster, store = start(), Memory(HELD)
    code = BlockCode.STOP if stop else BlockCode.MODE
    assert said(drain(cluster, store, gates(mode, stop=stop))) == ("blocked", code)
    assert said(release(cluster, store, gates(mode, stop=stop))) == ("blocked", code)
    assert cluster.calls == []
    assert store.owned == HELD


@pytest.mark.parametrize("asked_times", [1, 2, 3])
def test_a_stop_that_appears_meanwhile_is_seen_right_before_the_write(asked_times):
    answers = itertools.chain([False] * (asked_times - 1), itertools.repeat(True))
    cluster, store = Cluster(), Memory()
    gate = Gates(mode=lambda: Mode.DRAIN, stop=lambda: next(answers), limits=LimitsConfig())
    done = drain(cluster, store, gate)
    if asked_times < 3:
        assert said(done) == ("blocked", BlockCode.STOP)
        assert cluster.writes == []
        assert store.owned is None
    else:
        assert said(done) == ("done", None)


def test_a_stop_that_appears_before_the_undrain_is_obeyed():
    answers = iter([False, True])
    cluster, store = drained(), Memory(HELD)
    gate = Gates(mode=lambda: Mode.DRAIN, stop=lambda: next(answers), limits=LimitsConfig())
    assert said(release(cluster, store, gate)) == ("blocked", BlockCode.STOP)
    assert cluster.writes == []


@pytest.mark.parametrize(
    "reason",
    ["ADMIN hardware swap", "ibmon: mlx5_1:1 DOWN", f"{REASON}; keep for RMA", REASON.replace(ID, "aaaaaa"), None],
)
@pytest.mark.parametrize("record", [None, HELD])
def test_a_drain_that_is_not_ours_is_neither_overwritten_nor_lifted(reason, record):
    cluster, store = drained(reason), Memory(record)
    before = cluster.view()
    done = drain(cluster, store)
    assert said(done) == ("blocked", BlockCode.FOREIGN_DRAIN)
    assert "foreign" in done.detail
    assert said(release(cluster, store)) == ("gone", None)
    assert cluster.writes == []
    assert cluster.view() == before


def test_our_standing_drain_is_not_written_again():
    cluster, store = drained(), Memory(HELD)
    assert said(drain(cluster, store)) == ("done", None)
    assert cluster.calls == ["read_node"]
    assert store.history == []


def test_a_standing_drain_of_ours_with_an_older_id_stays_and_its_id_is_told():
    old = Ownership("0a0a0a", "ibmon: rate-low mlx5_0/1 200<400 [id 0a0a0a]", 1.0, held=True)
    cluster, store = drained(old.reason), Memory(old)
    done = drain(cluster, store)
    assert (done.outcome, done.id) == ("done", "0a0a0a")
    assert cluster.writes == []


def test_a_drain_that_a_person_took_away_is_told_and_not_made_again():
    cluster, store = Cluster(), Memory(HELD)
    for _ in range(2):  # the caller may be killed before it has saved what follows from it
        assert said(drain(cluster, store)) == ("gone", None)
        assert cluster.writes == []
        assert store.owned == msgspec.structs.replace(HELD, held=False, gone=True)


def test_the_next_drain_takes_the_place_of_one_that_a_person_took_away():
    cluster, store = Cluster(), Memory(msgspec.structs.replace(HELD, id="0a0a0a", held=False, gone=True))
    assert said(drain(cluster, store)) == ("done", None)
    assert store.owned == HELD


@pytest.mark.parametrize("record", [ASKED, msgspec.structs.replace(HELD, id="0a0a0a")])
def test_a_drain_that_never_stood_or_an_older_one_does_not_count_as_taken_away(record):
    cluster, store = Cluster(), Memory(record)
    assert said(drain(cluster, store)) == ("done", None)
    assert store.owned == HELD


@pytest.mark.parametrize("flag", ["MAINT", "REBOOT_REQUESTED", "DOWN", "POWERED_DOWN", "NEW_FLAG"])
def test_a_node_in_another_state_is_left_alone_and_the_answer_names_it(flag):
    cluster, store = Cluster(("IDLE", flag)), Memory()
    done = drain(cluster, store)
    assert said(done) == ("blocked", BlockCode.SCHEDULER_STATE)
    assert flag in done.detail
    assert cluster.writes == []
    assert store.history == []


def test_without_a_count_there_is_no_drain():
    cluster, store = Cluster(), Memory()
    cluster.faults["read_pools"] = [TIMEOUT]
    assert said(drain(cluster, store)) == ("blocked", BlockCode.LIMIT_UNREADABLE)
    assert cluster.writes == []


def ours(name, since):
    return NodeView(name, frozenset({"IDLE", "DRAIN"}), f"ibmon: x {name} [id abcdef]", "root", since)


def test_at_the_limit_there_is_no_drain():
    cluster, store = Cluster(), Memory()
    cluster.others[:2] = [ours("x0", 1.0), ours("x1", 2.0)]
    assert said(drain(cluster, store)) == ("blocked", BlockCode.LIMIT_NODES)
    assert cluster.writes == []


def test_a_drain_that_turns_out_to_be_beyond_the_limit_is_taken_back():
    cluster, store = Cluster(), Memory()
    cluster.others[0] = ours("x0", 1.0)
    cluster.behind["drain"] = lambda c: c.others.__setitem__(slice(1, 3), [ours("a1", 999.0), ours("a2", 999.5)])
    done = drain(cluster, store)
    assert said(done) == ("blocked", BlockCode.LIMIT_NODES)
    assert cluster.writes == ["drain", "undrain"]
    assert cluster.flags == {"IDLE"}
    assert store.owned is None


def test_a_drain_within_the_limit_stays_though_later_ones_go_beyond_it():
    cluster, store = Cluster(), Memory()
    cluster.behind["drain"] = lambda c: c.others.__setitem__(slice(0, 2), [ours("x0", 1001.0), ours("x1", 1002.0)])
    assert said(drain(cluster, store)) == ("done", None)
    assert store.owned == HELD


def test_a_drain_beyond_the_limit_that_could_not_be_taken_back_is_counted_again_later():
    cluster, store = Cluster(), Memory()
    cluster.behind["drain"] = lambda c: c.others.__setitem__(slice(0, 2), [ours("a0", 999.0), ours("a1", 999.0)])
    cluster.faults["undrain"] = [TIMEOUT]
    assert said(drain(cluster, store)) == ("failed", BlockCode.LIMIT_NODES)
    assert store.owned == ASKED
    assert said(drain(cluster, store)) == ("blocked", BlockCode.LIMIT_NODES)
    assert cluster.flags == {"IDLE"}


def test_when_the_second_count_fails_the_drain_stands_and_the_count_is_made_up_for():
    cluster, store = Cluster(), Memory()
    cluster.faults["read_pools"] = [None, TIMEOUT]
    done = drain(cluster, store)
    assert done.outcome == "done"
    assert "counted again" in done.detail
    assert store.owned == ASKED
    assert said(drain(cluster, store)) == ("done", None)
    assert store.owned == HELD
    assert cluster.writes == ["drain"]


def test_a_call_that_failed_but_was_carried_out_is_done():
    cluster, store = Cluster(), Memory()

    def late(c):
        raise TIMEOUT

    cluster.behind["drain"] = late
    assert said(drain(cluster, store)) == ("done", None)
    assert store.owned == HELD


def test_a_call_that_failed_keeps_its_record_and_a_later_arrival_is_ours():
    cluster, store = Cluster(), Memory()
    cluster.faults["drain"] = [TIMEOUT]
    assert said(drain(cluster, store)) == ("failed", BlockCode.SCHEDULER_UNREACHABLE)
    assert store.owned == ASKED
    cluster.drain(REASON)  # the stuck controller does it now
    cluster.calls.clear()
    assert said(drain(cluster, store)) == ("done", None)
    assert cluster.writes == []
    assert store.owned == HELD


def test_a_call_that_was_taken_but_shows_nothing_is_failed_and_tried_again():
    cluster, store = Cluster(), Memory()
    cluster.faults["drain"] = ["lost"]
    assert said(drain(cluster, store)) == ("failed", BlockCode.SCHEDULER_UNREACHABLE)
    assert said(drain(cluster, store)) == ("done", None)


@pytest.mark.parametrize("reads", [[TIMEOUT], [None, TIMEOUT]])
def test_a_node_that_cannot_be_read_is_an_unknown_outcome(reads):
    cluster, store = Cluster(), Memory()
    cluster.faults["read_node"] = list(reads)
    done = drain(cluster, store)
    assert said(done) == ("failed", BlockCode.SCHEDULER_UNREACHABLE)
    assert done.view is None
    assert len(cluster.writes) == len(reads) - 1


def test_a_refusal_by_permission_is_blocked_and_leaves_no_record():
    cluster, store = Cluster(), Memory()
    cluster.faults["drain"] = [REFUSED]
    done = drain(cluster, store)
    assert said(done) == ("blocked", BlockCode.FORBIDDEN)
    assert "Invalid user id" in done.detail
    assert store.owned is None


def test_a_person_who_drains_in_the_same_moment_keeps_the_drain():
    cluster, store = Cluster(), Memory()
    cluster.behind["drain"] = lambda c: setattr(c, "reason", "ADMIN")
    assert said(drain(cluster, store)) == ("blocked", BlockCode.FOREIGN_DRAIN)
    assert store.owned is None
    assert cluster.reason == "ADMIN"


def test_a_person_who_drains_while_our_call_is_stuck_is_respected_and_a_late_arrival_is_still_ours():
    cluster, store = Cluster(), Memory()

    def person(c):
        c.reason = "ADMIN"
        raise TIMEOUT

    cluster.behind["drain"] = person
    done = drain(cluster, store)
    assert (said(done), done.open) == (("blocked", BlockCode.FOREIGN_DRAIN), True)
    assert store.owned == ASKED
    cluster.reason = REASON  # the stuck call is carried out after all
    assert said(release(cluster, store, owned=ASKED)) == ("gone", None)
    assert cluster.flags == {"IDLE"}


def test_when_the_record_cannot_be_saved_the_drain_goes_on_and_is_not_given_back_until_it_is_saved():
    cluster, store = Cluster(), Memory(broken=True)
    done = drain(cluster, store)
    assert done.outcome == "done"
    assert "not saved: disk full" in done.detail
    assert said(release(cluster, store)) == ("blocked", BlockCode.FOREIGN_DRAIN)
    assert cluster.writes == ["drain"]
    store.broken = False
    assert said(drain(cluster, store)) == ("done", None)
    assert store.owned.held
    assert said(release(cluster, store, owned=store.owned)) == ("gone", None)
    assert cluster.flags == {"IDLE"}


def test_a_drain_beyond_the_limit_whose_record_is_not_saved_stays():
    cluster, store = Cluster(), Memory(broken=True)
    cluster.behind["drain"] = lambda c: c.others.__setitem__(slice(0, 2), [ours("a0", 999.0), ours("a1", 999.0)])
    assert said(drain(cluster, store)) == ("done", BlockCode.LIMIT_NODES)
    assert cluster.writes == ["drain"]


def test_an_unreadable_record_stops_no_drain_but_every_release():
    cluster, store = Cluster(), Memory(unreadable=True)
    assert drain(cluster, store).outcome == "done"
    assert said(release(cluster, store)) == ("failed", None)
    assert cluster.writes == ["drain"]


@pytest.mark.parametrize(
    "intent", [Intent(drain=False), Intent(drain=True), Intent(drain=True, id="bbbb", reason=REASON)]
)
def test_an_intent_without_a_reason_that_carries_its_id_is_a_fault_of_the_caller(intent):
    with pytest.raises(ValueError, match="carries its id"):
        drain(Cluster(), Memory(), intent=intent)


@pytest.mark.parametrize(
    ("call", "nth"),
    [("read_node", 0), ("read_pools", 0), ("drain", 0), ("done", 0), ("read_node", 1), ("read_pools", 1)],
)
def test_killed_at_any_call_the_next_run_ends_with_one_drain_that_is_ours(call, nth):
    cluster, store = Cluster(), Memory()

    def die(c):
        c.behind.clear()
        raise Killed

    if call == "done":  # written, and the process dies before it hears of it
        cluster.behind["drain"] = die
    else:
        cluster.faults[call] = [None] * nth + [Killed()]
    with pytest.raises(Killed):
        drain(cluster, store)
    assert said(drain(cluster, store)) == ("done", None)
    assert store.owned == HELD
    assert "undrain" not in cluster.writes
    assert said(release(cluster, store)) == ("gone", None)
    assert cluster.flags == {"IDLE"}
