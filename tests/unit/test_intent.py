"""What is wanted of the scheduler: asked until it is true, respecting operators, never more than the mode allows."""

from __future__ import annotations

import itertools
import math

import pytest

from ibmon.config import ActionConfig
from ibmon.drain.intent import LOST_STATE_QUIET, OVERRIDE_ALERT, DrainDesk, DrainMemory
from ibmon.drain.pace import JITTER, RECHECK_SECONDS, RETRY_CAP, RETRY_FIRST, jitter, spread
from ibmon.drain.policy import parse_reason
from ibmon.messages import Drain, EffectDone, Release
from ibmon.model import BlockCode, Finding, Mode, NodeFitness, Now, Ownership, Severity

DRAIN = ActionConfig(mode=Mode.DRAIN)
UNFIT, FIT, WATCH, UNKNOWN = NodeFitness.UNFIT, NodeFitness.FIT, NodeFitness.WATCH, NodeFitness.UNKNOWN
OWNED = Ownership("abc123", "ibmon: port-down mlx5_0/1 DOWN 60s>=60s [id abc123]", asked=5.0, held=True)


def finding(device="mlx5_0", rule="port-down", **more):
    settings = {"drains": True, "trusted": True, **more}
    return Finding(rule, device, 1, "", Severity.CRITICAL, 0.0, "DOWN", "ACTIVE", "DOWN 60s>=60s", **settings)


BAD = (finding(),)


class Desk:
    """A desk with a clock, at a scheduler that answers as the test says."""

    def __init__(self, memory=None, owned=None, *, action=DRAIN, boot="boot-1"):
        self.desk = DrainDesk("node0001", boot, memory or DrainMemory(), owned, Now(0.0, 1e9))
        self.action = action
        self.t = 0.0

    @property
    def now(self):
        return Now(self.t, 1e9 + self.t)

    def decide(self, findings=BAD, fitness=None, *, stopped=False, enabled=True, action=None):
        fitness = fitness or (UNFIT if findings else FIT)
        return self.desk.decide(findings, fitness, action or self.action, self.now, stopped=stopped, enabled=enabled)

    def answer(self, outcome, code=None, effect="drain", id_=None):
        id_ = id_ or (self.desk.intent.id if self.desk.intent else self.desk.owned.id)
        self.desk.done(EffectDone(effect, id_, outcome, code), self.now)

    def drained(self):
        """A desk whose drain stands."""
        assert [type(request) for request in self.decide()] == [Drain]
        self.answer("done")
        return self

    def asked_at(self, seconds, findings=BAD, **more):
        """The seconds up to here at which something was asked, with nothing answered in between but by `reply`."""
        out = []
        reply = more.pop("reply", None)
        end = self.t + seconds
        while self.t < end:
            if self.decide(findings, **more):
                out.append(self.t)
                if reply:
                    self.answer(*reply)
            self.t += 1.0
        return out


# ------------------------------------------------------------------------------------------------------------ asking


def test_a_drain_is_asked_for_once_until_it_is_answered():
    desk = Desk()

    assert [type(r) for r in desk.decide()] == [Drain]
    assert desk.asked_at(10000) == []


def test_the_intent_carries_its_id_in_its_reason_and_both_stay_as_they_were():
    desk = Desk()
    [request] = desk.decide()
    before = request.intent
    desk.answer("failed")
    desk.t = 5000.0
    [again] = desk.decide((finding("mlx5_1"), finding("mlx5_2")))

    assert again.intent == before
    assert parse_reason(before.reason) == before.id
    assert before.since == 1e9


def first_asked(node, seconds):
    """Seconds after which the desk of a node asks for a new drain, with so much jitter."""
    desk = DrainDesk(node, "boot-1", DrainMemory(), None, Now(0.0, 1e9))
    how = {"stopped": False, "enabled": True, "jitter": seconds}
    if desk.decide(BAD, UNFIT, DRAIN, Now(0.0, 1e9), **how):
        return 0.0
    due = desk.next_due(DRAIN)
    assert not desk.decide(BAD, UNFIT, DRAIN, Now(due - 0.01, 1e9), **how)
    assert desk.decide(BAD, UNFIT, DRAIN, Now(due, 1e9), **how)
    return due


def test_nodes_that_become_unfit_together_do_not_ask_together():
    asked = sorted(first_asked(f"node{number}", 30.0) for number in range(200))
    assert asked[0] >= 0
    assert asked[-1] <= 30
    for second in range(0, 30, 5):
        assert 15 <= sum(second <= at < second + 5 for at in asked) <= 55


def test_without_jitter_a_drain_is_asked_for_at_once():
    assert first_asked("node1", 0.0) == 0.0


def test_a_standing_drain_is_confirmed_without_jitter():
    desk = DrainDesk("node1", "boot-1", DrainMemory(), OWNED, Now(0.0, 1e9))
    assert desk.decide(BAD, UNFIT, DRAIN, Now(0.0, 1e9), stopped=False, enabled=True, jitter=30.0)


@pytest.mark.parametrize(("hold", "seconds"), [(0.0, 0.0), (2.0, 1.0), (60.0, 30.0), (600.0, JITTER)])
def test_the_jitter_is_half_of_the_hold_and_bounded(hold, seconds):
    assert jitter(hold) == seconds


def test_a_failed_request_is_made_again_later_and_later():
    asked = Desk().asked_at(3000, reply=("failed",))
    waits = [b - a for a, b in itertools.pairwise(asked)]

    assert len(waits) > 8
    for i, wait in enumerate(waits):
        assert wait == pytest.approx(min(RETRY_CAP, RETRY_FIRST * 2**i), rel=0.2, abs=1)


def test_a_blocked_request_is_made_again_every_five_minutes_or_so_and_says_why():
    desk = Desk()
    asked = desk.asked_at(7200, reply=("blocked", BlockCode.LIMIT_NODES))
    waits = [b - a for a, b in itertools.pairwise(asked)]

    assert len(waits) > 10
    assert all(RECHECK_SECONDS * 0.5 - 1 <= wait <= RECHECK_SECONDS * 1.5 + 1 for wait in waits)
    assert desk.desk.blocked is BlockCode.LIMIT_NODES
    assert desk.desk.errors == {"limit_nodes": len(asked)}


def test_a_drain_that_stands_is_looked_at_again_every_five_minutes_or_so():
    desk = Desk()
    asked = desk.asked_at(7200, reply=("done",))
    waits = [b - a for a, b in itertools.pairwise(asked)]

    assert desk.desk.owned is not None
    assert desk.desk.owned.held
    assert all(RECHECK_SECONDS * 0.5 - 1 <= wait <= RECHECK_SECONDS * 1.5 + 1 for wait in waits)


def test_what_the_scheduler_last_said_is_cleared_when_the_drain_is_made():
    desk = Desk()
    desk.decide()
    desk.answer("failed", BlockCode.SCHEDULER_UNREACHABLE)
    assert desk.desk.blocked is BlockCode.SCHEDULER_UNREACHABLE
    desk.t = 100.0
    desk.drained()

    assert desk.desk.blocked is None
    assert desk.desk.errors == {"scheduler_unreachable": 1}


def test_a_drain_that_stands_although_its_fault_went_meanwhile_is_given_back():
    desk = Desk()
    [asked] = desk.decide()
    assert desk.decide(()) == []
    desk.answer("done", id_=asked.intent.id)

    assert desk.desk.owned == Ownership(asked.intent.id, asked.intent.reason, desk.now.wall, held=True)
    assert desk.decide(()) == [Release(desk.desk.owned)]


def test_a_drain_that_may_still_arrive_after_its_fault_went_is_looked_for_until_it_is_known_not_to():
    desk = Desk()
    [asked] = desk.decide()
    desk.answer("failed")
    desk.t += RETRY_CAP

    [release] = desk.decide(())
    assert (release.owned.id, release.owned.held) == (asked.intent.id, False)
    desk.answer("gone", effect="release", id_=asked.intent.id)
    assert desk.desk.owned is None


def test_next_due_is_the_time_of_the_next_request():
    desk = Desk()
    assert desk.desk.next_due(DRAIN) == math.inf
    desk.decide()
    desk.answer("failed")
    assert desk.decide() == []
    due = desk.desk.next_due(DRAIN)
    desk.t = due - 0.001
    assert desk.decide() == []
    desk.t = due
    assert len(desk.decide()) == 1


def test_nothing_is_wanted_where_nothing_may_drain():
    desk = Desk()

    assert desk.decide((finding(drains=False),), WATCH) == []
    assert desk.desk.intent is None


def test_a_port_that_nobody_accepted_alerts_and_does_not_drain():
    desk = Desk()

    assert desk.decide((finding(trusted=False),)) == []
    assert desk.desk.blocked is BlockCode.INVENTORY_UNCONFIRMED


def test_nodes_do_not_ask_in_step():
    assert len({round(spread(f"node{n}"), 3) for n in range(100)}) > 90
    assert all(0.5 <= spread(f"node{n}") <= 1.5 for n in range(1000))
    assert spread("node1") == spread("node1")


# ------------------------------------------------------------------------------------------------------------ modes


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.ALERT])
def test_below_drain_mode_nothing_is_asked_and_what_would_have_been_is_counted(mode):
    desk = Desk(action=ActionConfig(mode=mode))

    assert desk.asked_at(100) == []
    assert desk.asked_at(10, ()) == []
    assert desk.asked_at(100) == []
    assert desk.desk.would == 2
    assert desk.desk.blocked is BlockCode.MODE


def test_in_drain_mode_nothing_is_counted_as_would():
    assert Desk().drained().desk.would == 0


def test_where_another_daemon_acts_this_one_only_observes():
    desk = Desk()

    assert desk.asked_at(100, enabled=False) == []
    assert desk.desk.blocked is BlockCode.MODE


def test_a_stop_holds_drains_and_releases():
    desk = Desk()
    assert desk.asked_at(100, stopped=True) == []
    assert desk.desk.blocked is BlockCode.STOP
    desk.drained()

    assert desk.asked_at(10000, (), stopped=True) == []
    assert [type(r) for r in desk.decide(())] == [Release]


def test_a_drain_that_was_wanted_before_the_mode_allowed_it_is_made_when_it_does():
    desk = Desk()
    desk.decide(action=ActionConfig(mode=Mode.ALERT))

    assert [type(r) for r in desk.decide()] == [Drain]
    assert desk.desk.blocked is None


# ------------------------------------------------------------------------------------------------------------ release


def test_a_drain_of_ours_is_given_back_when_nothing_wants_it_any_more():
    desk = Desk().drained()
    owned = desk.desk.owned

    assert desk.decide((), FIT) == [Release(owned)]
    desk.answer("gone", effect="release")
    assert desk.desk.owned is None
    assert desk.asked_at(1000, ()) == []


@pytest.mark.parametrize("fitness", [UNKNOWN, UNFIT])
def test_a_node_that_nobody_can_see_is_not_given_back(fitness):
    assert Desk().drained().asked_at(10000, (), fitness=fitness) == []


def test_a_finding_that_may_drain_but_is_not_trusted_keeps_the_drain():
    assert Desk().drained().asked_at(10000, (finding(trusted=False),)) == []


def test_without_auto_release_a_person_gives_back():
    desk = Desk(action=ActionConfig(mode=Mode.DRAIN, auto_release=False)).drained()

    assert desk.asked_at(10000, ()) == []


def test_what_ibmon_does_not_own_it_does_not_give_back():
    assert Desk().asked_at(10000, ()) == []


def test_a_fault_that_returns_before_the_release_keeps_the_same_drain():
    desk = Desk().drained()
    mark = desk.desk.owned.id
    desk.decide(())
    desk.answer("failed", effect="release")
    desk.t = 1000.0
    [request] = desk.decide()

    assert request.intent.id == mark
    assert request.intent.reason == desk.desk.owned.reason


def test_the_next_fault_after_a_release_has_another_id():
    desk = Desk().drained()
    mark = desk.desk.owned.id
    desk.decide(())
    desk.answer("gone", effect="release")
    desk.t = 1000.0
    [request] = desk.decide()

    assert request.intent.id != mark


# ------------------------------------------------------------------------------------------------------------ override


def resumed(*, action=DRAIN, at=1000.0):
    """A desk whose drain an operator took away."""
    desk = Desk(action=action).drained()
    desk.t = at
    assert len(desk.decide()) == 1
    desk.answer("gone")
    return desk


def test_an_operator_who_resumes_the_node_is_respected_for_a_day():
    desk = resumed()
    asked = desk.asked_at(2 * 86400)

    assert asked[0] == 1000 + 86400


@pytest.mark.parametrize("seconds", [OVERRIDE_ALERT, 86400.0])
def test_what_is_due_is_done_at_that_time_although_its_difference_is_rounded_to_less(seconds):
    at = next(t for t in (n / 7 for n in range(500_000)) if (t + seconds) - t < seconds)
    desk = resumed(at=at)
    for expected in (OVERRIDE_ALERT, 86400.0):
        desk.decide()
        assert desk.desk.next_due(DRAIN) == at + expected
        desk.t = at + expected
    assert [type(request) for request in desk.decide()] == [Drain]


def test_the_time_of_the_override_is_told_to_the_clock():
    desk = resumed()
    desk.decide()

    assert desk.desk.blocked is BlockCode.OVERRIDE
    assert desk.desk.next_due(DRAIN) == 1000 + OVERRIDE_ALERT, "people are told then"
    desk.t = 1000 + OVERRIDE_ALERT
    desk.decide()
    assert desk.desk.next_due(DRAIN) == 1000 + 86400


@pytest.mark.parametrize("worse", [(finding(), finding("mlx5_1")), (finding(), finding(rule="rate-low"))])
def test_a_second_port_or_another_fault_ends_the_override(worse):
    desk = resumed()
    assert desk.decide() == []

    assert [type(r) for r in desk.decide(worse)] == [Drain]


def test_a_fault_less_does_not_end_the_override():
    desk = Desk()
    both = (finding(), finding("mlx5_1"))
    desk.decide(both)
    desk.answer("done")
    desk.t = 1000.0
    desk.decide(both)
    desk.answer("gone")

    assert desk.decide((finding("mlx5_1"),)) == []


def test_a_fault_in_a_maintenance_window_does_not_end_the_override():
    desk = resumed()

    assert desk.decide((finding(), finding("mlx5_1", maintenance=True))) == []
    assert desk.desk.blocked is BlockCode.OVERRIDE
    assert [type(r) for r in desk.decide((finding(), finding("mlx5_1")))] == [Drain]  # it outlasts the window


def test_a_drain_names_no_fault_in_a_maintenance_window():
    [request] = Desk().decide((finding("mlx5_1", maintenance=True), finding("mlx5_2")))

    assert parse_reason(request.intent.reason) is not None
    assert "mlx5_2/1" in request.intent.reason
    assert "mlx5_1" not in request.intent.reason
    assert "more" not in request.intent.reason


def test_a_node_that_was_well_in_between_is_drained_for_the_next_fault():
    desk = resumed()
    desk.decide(())

    assert [type(r) for r in desk.decide()] == [Drain]


def test_the_override_outlives_a_restart_but_not_a_boot():
    memory = resumed().desk.memory()
    same, other = Desk(memory), Desk(memory, boot="boot-2")
    same.t = other.t = 2000.0

    assert same.decide() == []
    assert same.desk.blocked is BlockCode.OVERRIDE
    assert [type(r) for r in other.decide()] == [Drain]


def test_without_a_time_to_live_an_operators_resume_is_not_respected():
    assert [type(r) for r in resumed(action=ActionConfig(mode=Mode.DRAIN, override_ttl=0)).decide()] == [Drain]


def test_a_drain_that_went_with_its_fault_is_no_override():
    desk = Desk().drained()
    desk.decide(())
    desk.answer("gone", effect="release")

    assert desk.desk.override is None


# ------------------------------------------------------------------------------------------------------------ restarts


def test_an_intent_outlives_the_process_with_its_id():
    before = Desk()
    [request] = before.decide()
    after = Desk(before.desk.memory())

    assert after.decide() == [request]


def test_a_drain_whose_cause_was_lost_with_the_state_waits_until_the_node_was_well_for_a_while():
    desk = Desk(owned=OWNED)

    assert desk.asked_at(LOST_STATE_QUIET, ()) == []
    assert desk.asked_at(1, ()) == [LOST_STATE_QUIET]


def test_the_wait_for_a_lost_state_starts_anew_when_the_node_is_not_seen_well():
    desk = Desk(owned=OWNED)
    desk.asked_at(500, ())
    desk.decide((), UNKNOWN)
    start = desk.t

    assert desk.asked_at(5000, ())[0] == start + LOST_STATE_QUIET


def test_the_end_of_that_wait_is_told_to_the_clock():
    desk = Desk(owned=OWNED)
    desk.decide(())

    assert desk.desk.next_due(DRAIN) == LOST_STATE_QUIET


def test_an_owned_drain_is_taken_up_again_by_the_fault_that_is_still_there():
    [request] = Desk(owned=OWNED).decide()

    assert request.intent.id == OWNED.id
    assert request.intent.reason == OWNED.reason


def test_a_drain_that_is_given_back_while_the_state_is_whole_does_not_wait():
    memory = Desk().drained().desk.memory()

    assert [type(r) for r in Desk(memory, OWNED).decide(())] == [Release]
