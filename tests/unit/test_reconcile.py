"""Scheduler writes: each passes read, gate, record, write, read back; every failure in between is played."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from ibmon.config import LimitsConfig
from ibmon.drain import reconcile
from ibmon.drain.reconcile import Gates
from ibmon.model import BlockCode, Intent, Mode, NodeView, Now, Ownership
from ibmon.ports import SchedulerError, StoreError

ID = "7f3a9c"
REASON = f"ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id {ID}]"
INTENT = Intent(drain=True, id=ID, reason=REASON, since=990.0)
ASKED = Ownership(ID, REASON, asked=1000.0)
HELD = msgspec.structs.replace(ASKED, held=True)
NOW = Now(50.0, 1000.0)


class Pool(msgspec.Struct):
    name: str
    nodes: tuple[NodeView, ...]


class Killed(BaseException):
    """The process dies here."""


class Cluster:
    """A scheduler whose next calls can be made to fail, to be carried out late, or to be raced by a person."""

    def __init__(self, flags=("IDLE",), reason=None, others=99):
        self.flags, self.reason, self.since, self.user = set(flags), reason, 500.0 if reason else None, "root"
        self.others = [NodeView(f"x{i}", frozenset({"IDLE"})) for i in range(others)]
        self.calls, self.faults, self.behind = [], {}, {}

    def _call(self, name):
        self.calls.append(name)
        faults = self.faults.get(name)
        fault = faults.pop(0) if faults else None
        if isinstance(fault, BaseException):
            raise fault
        return fault

    def read_node(self):
        self._call("read_node")
        return self.view()

    def view(self):
        return NodeView("n1", frozenset(self.flags), self.reason, self.user if self.reason else None, self.since)

    def read_pools(self):
        self._call("read_pools")
        return (Pool("gpu", (self.view(), *self.others)),)

    def drain(self, reason):
        fault = self._call("drain")
        if fault != "lost":
            self.flags, self.reason, self.since = self.flags | {"DRAIN"}, reason, 1000.0
        self._afterwards("drain")

    def undrain(self):
        fault = self._call("undrain")
        if fault != "lost":
            self.flags, self.reason, self.since = self.flags - {"DRAIN"}, None, None
        self._afterwards("undrain")

    def _afterwards(self, name):
        if action := self.behind.get(name):
            action(self)

    @property
    def writes(self):
        return [call for call in self.calls if call in {"drain", "undrain"}]


class Memory:
    """A store in memory whose saves can be made to fail."""

    def __init__(self, owned=None, *, broken=False, unreadable=False):
        self.owned, self.broken, self.unreadable, self.history = owned, broken, unreadable, []

    def ownership(self):
        if self.unreadable:
            raise StoreError("disk gone")
        return self.owned

    def record(self, owned):
        if self.broken:
            raise StoreError("disk full")
        self.owned = owned
        self.history.append(owned)


def gates(mode=Mode.DRAIN, *, stop=False, limits=None):
    return Gates(mode=lambda: mode, stop=lambda: stop, limits=limits or LimitsConfig())


def drain(cluster, store, gate=None, intent=INTENT):
    return reconcile.drain(intent, cluster, store, gate or gates(), NOW)


def release(cluster, store, gate=None, owned=HELD, now=NOW):
    return reconcile.release(owned, cluster, store, gate or gates(), now)


def drained(reason=REASON, flags=("IDLE", "DRAIN"), **more):
    return Cluster(flags, reason, **more)


def said(done):
    return done.outcome, done.code


TIMEOUT = SchedulerError("scontrol gave no answer within 10 s")
REFUSED = SchedulerError("Invalid user id", forbidden=True)

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
    done = drain(cluster, store)
    assert said(done) == ("gone", None)
    assert cluster.writes == []
    assert store.owned is None


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
    assert said(drain(cluster, store)) == ("blocked", BlockCode.FOREIGN_DRAIN)
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


# ----------------------------------------------------------------------------------------------------- release


def test_what_is_ours_is_given_back_and_the_record_goes():
    cluster, store = drained(flags=("ALLOCATED", "COMPLETING", "DRAIN")), Memory(HELD)
    done = release(cluster, store)
    assert said(done) == ("gone", None)
    assert (done.effect, done.id, done.detail) == ("release", ID, "")
    assert cluster.flags == {"ALLOCATED", "COMPLETING"}
    assert store.owned is None


def test_a_drain_that_was_only_asked_for_but_stands_is_given_back_too():
    cluster, store = drained(), Memory(ASKED)
    assert said(release(cluster, store, owned=ASKED)) == ("gone", None)
    assert cluster.flags == {"IDLE"}


def test_a_node_resumed_by_a_person_is_gone_and_nothing_is_written():
    cluster, store = Cluster(), Memory(HELD)
    assert said(release(cluster, store)) == ("gone", None)
    assert cluster.writes == []
    assert store.owned is None


def test_a_foreign_reason_ends_our_claim_and_says_whose_it_is():
    cluster, store = drained("ADMIN swap"), Memory(HELD)
    done = release(cluster, store)
    assert said(done) == ("gone", None)
    assert done.detail == "foreign: drained by root: ADMIN swap"
    assert cluster.writes == []
    assert store.owned is None


@pytest.mark.parametrize(
    "record", [None, msgspec.structs.replace(HELD, id="bbbbbb"), msgspec.structs.replace(HELD, reason="x")]
)
def test_without_its_record_in_the_store_a_drain_is_an_orphan_and_stays(record):
    cluster, store = drained(), Memory(record)
    done = release(cluster, store)
    assert said(done) == ("blocked", BlockCode.FOREIGN_DRAIN)
    assert "ibmon release" in done.detail
    assert cluster.writes == []
    assert store.owned == record


@pytest.mark.parametrize("flag", ["MAINT", "REBOOT_REQUESTED", "POWERING_UP", "DOWN", "NOT_RESPONDING", "CLOUD"])
def test_our_drain_stays_while_the_state_forbids_to_touch_it(flag):
    cluster, store = drained(flags=("IDLE", "DRAIN", flag)), Memory(HELD)
    done = release(cluster, store)
    assert said(done) == ("blocked", BlockCode.SCHEDULER_STATE)
    assert flag in done.detail
    assert store.owned == HELD


def test_a_release_that_failed_but_was_carried_out_is_gone():
    cluster, store = drained(), Memory(HELD)

    def late(c):
        raise TIMEOUT

    cluster.behind["undrain"] = late
    assert said(release(cluster, store)) == ("gone", None)
    assert store.owned is None


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({"undrain": [TIMEOUT]}, ("failed", BlockCode.SCHEDULER_UNREACHABLE)),
        ({"undrain": ["lost"]}, ("failed", BlockCode.SCHEDULER_UNREACHABLE)),
        ({"undrain": [REFUSED]}, ("blocked", BlockCode.FORBIDDEN)),
        ({"read_node": [TIMEOUT]}, ("failed", BlockCode.SCHEDULER_UNREACHABLE)),
        ({"read_node": [None, TIMEOUT]}, ("failed", BlockCode.SCHEDULER_UNREACHABLE)),
        ({"read_node": [REFUSED]}, ("failed", BlockCode.FORBIDDEN)),
    ],
)
def test_a_release_that_is_not_known_to_be_done_keeps_its_record(faults, expected):
    cluster, store = drained(), Memory(HELD)
    cluster.faults = {call: list(row) for call, row in faults.items()}
    assert said(release(cluster, store)) == expected
    assert store.owned == HELD


def test_a_record_of_a_drain_that_may_still_arrive_is_kept_for_a_while():
    cluster, store = Cluster(), Memory(ASKED)
    assert said(release(cluster, store, owned=ASKED)) == ("failed", None)
    assert store.owned == ASKED
    later = Now(0.0, ASKED.asked + reconcile.LATE)
    assert said(release(cluster, store, owned=ASKED, now=later)) == ("gone", None)
    assert store.owned is None


def test_a_record_that_cannot_be_removed_does_no_harm():
    cluster, store = drained(), Memory(HELD, broken=True)
    done = release(cluster, store)
    assert done.outcome == "gone"
    assert "not saved" in done.detail
    cluster.flags, cluster.reason = {"IDLE", "DRAIN"}, "ADMIN"
    assert release(cluster, store).outcome == "gone"
    assert cluster.writes == ["undrain"]


def test_an_older_drain_that_we_no_longer_mean_does_not_cost_the_record_of_the_one_that_stands():
    cluster, store = drained(), Memory(HELD)
    old = Ownership("0a0a0a", "ibmon: x [id 0a0a0a]", 1.0, held=True)
    done = release(cluster, store, owned=old)
    assert done.outcome == "gone"
    assert store.owned == HELD
    assert cluster.writes == []


# ------------------------------------------------------------------------------------------------- stop file


def test_the_stop_file_stands_when_it_is_there_or_cannot_be_looked_for(tmp_path):
    stop = tmp_path / "STOP"
    assert not reconcile.stop_file_present(str(stop))
    assert not reconcile.stop_file_present(str(tmp_path / "absent" / "STOP"))
    stop.touch()
    assert reconcile.stop_file_present(str(stop))
    assert not reconcile.stop_file_present(str(stop / "below-a-file"))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert reconcile.stop_file_present(str(loop))
