"""A node that drains through the fleet controller: what it asks, what it makes of answers, and what it never does."""

from __future__ import annotations

import pytest
from fleet_side import NAME, DeskNode, FleetSide, act, fault

from ibmon.config import ActionConfig
from ibmon.drain import policy
from ibmon.drain.correspondence import PATIENCE
from ibmon.messages import Drain, Person
from ibmon.model import BlockCode, Intent, Mode
from ibmon.ports import SchedulerError


@pytest.fixture
def fleet():
    return FleetSide()


@pytest.fixture
def node(fleet):
    return DeskNode(fleet)


def drained(node, fleet):
    node.findings = (fault(),)
    node.live(4)
    assert policy.owns(node.disk.ownership(), fleet.cluster.view(NAME))
    return fleet.reason


# ------------------------------------------------------------------------------------------ the plain way


def test_a_drain_is_on_record_before_the_controller_hears_of_it_and_held_once_it_stands(node, fleet):
    node.findings = (fault(),)
    node.tick()
    first = node.report()

    assert (first.intent.drain, first.intent.id) == (True, first.owned.id)
    assert not first.owned.held
    assert fleet.reason == first.intent.reason
    assert node.disk.ownership().held
    assert node.desk.owned.held
    assert node.report().owned.held


def test_the_node_is_given_back_when_its_findings_are_gone_and_its_record_goes_with_it(node, fleet):
    drained(node, fleet)
    node.findings = ()
    node.live(6)

    assert fleet.reason == ""
    assert node.disk.ownership() is None
    assert node.desk.owned is None
    assert node.report().owned is None
    assert node.outcomes == [("drain", "done", None), ("release", "gone", None)]


def test_a_wish_that_is_blocked_stays_and_is_granted_by_a_later_report_without_being_asked_anew(node, fleet):
    act(fleet, "drain")
    node.findings = (fault(),)
    node.after(1)
    node.report()
    assert node.outcomes == [("drain", "blocked", BlockCode.FOREIGN_DRAIN)]
    assert node.desk.blocked is BlockCode.FOREIGN_DRAIN

    act(fleet, "resume")
    node.after(1)
    assert not node.told.waiting
    node.report()
    assert node.outcomes[1:] == [("drain", "done", None)]
    assert policy.claims(fleet.cluster.view(NAME))
    assert node.desk.blocked is None


def test_the_same_answer_to_report_after_report_is_told_once(node, fleet):
    act(fleet, "drain")
    node.findings = (fault(),)
    node.live(20)
    assert node.outcomes == [("drain", "blocked", BlockCode.FOREIGN_DRAIN)]


def test_a_blocked_wish_that_is_withdrawn_is_given_back_even_if_it_was_granted_meanwhile(node, fleet):
    act(fleet, "drain")
    node.findings = (fault(),)
    node.live(2)
    reason = node.desk.intent.reason
    act(fleet, "resume")
    fleet.cluster.client(NAME).drain(reason)  # the controller has just done what it was asked for
    node.findings = ()
    node.after(70)
    node.live(6)

    assert fleet.reason == ""
    assert node.disk.ownership() is None


def test_a_blocked_wish_that_is_withdrawn_leaves_no_record_in_the_end(node, fleet):
    act(fleet, "drain")
    node.findings = (fault(),)
    node.live(2)
    assert node.disk.ownership() is not None
    node.findings = ()
    node.live(500)
    assert node.disk.ownership() is None
    assert fleet.reason == "bad DIMM"


def test_a_new_fault_before_that_end_keeps_the_id_under_which_a_drain_may_still_come(node, fleet):
    act(fleet, "drain")
    node.findings = (fault(),)
    node.live(2)
    first = node.disk.ownership().id
    node.findings = ()
    node.live(4)
    node.findings = (fault("mlx5_0"),)
    node.live(4)
    assert node.disk.ownership().id == first
    assert fleet.reports[-1].intent.id == first


def test_an_answer_about_one_drain_is_none_about_another(node, fleet):
    act(fleet, "drain")
    node.findings = (fault(),)
    node.tick()
    letter, _ = node.told.letter(node.now, 1)
    reply = fleet.answer(letter.report)
    other = Intent(drain=True, id="0ther0", reason="ibmon: port-down mlx5_0/1 [id 0ther0]")
    node.told.submit(Drain(other), node.now)
    assert node.told.answered(letter, reply, node.now) == []
    assert node.told.waiting


def test_a_code_that_this_version_does_not_know_is_shown_in_words(node, fleet):
    node.findings = (fault(),)
    node.tick()
    letter, _ = node.told.letter(node.now, 1)
    reply = fleet.answer(letter.report)
    events = node.told.answered(letter, type(reply)("blocked", "full_moon", mode=Mode.DRAIN), node.now)

    assert [(e.outcome, e.code, e.detail) for e in events] == [
        ("blocked", BlockCode.SCHEDULER_UNREACHABLE, "the controller says full_moon")
    ]


# ------------------------------------------------------------------------------------------ people


def test_who_resumes_a_drained_node_is_respected_at_the_next_report(node, fleet):
    drained(node, fleet)
    act(fleet, "resume")
    node.live(4)

    assert fleet.reason == ""
    assert node.desk.blocked is BlockCode.OVERRIDE
    assert node.disk.ownership().gone
    node.live(60)
    assert fleet.reason == "", "drained again against a person's word"
    assert not fleet.reports[-1].intent.drain


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_a_kill_before_the_engine_took_that_answer_in_does_not_forget_the_person(node, fleet, turns):
    drained(node, fleet)
    act(fleet, "resume")
    node.after(2)
    letter, _ = node.told.letter(node.now, 100)
    node.told.answered(letter, fleet.answer(letter.report), node.now)  # and nothing of it reaches the engine
    for turn in range(turns):
        node.tick()
        node.told.letter(node.now, 101 + turn)
    node.start()
    node.live(10)

    assert fleet.reason == ""
    assert node.desk.blocked is BlockCode.OVERRIDE


@pytest.mark.parametrize("effects", range(24))
@pytest.mark.parametrize("lag", [0, 1, 3])
@pytest.mark.parametrize("full", [False, True])
def test_a_kill_between_any_two_effects_forgets_no_person_who_resumed_the_node(node, fleet, effects, lag, full):
    drained(node, fleet)
    act(fleet, "resume")
    node.lag, node.fuse, node.disk.full = lag, effects, full
    node.live(10)
    node.disk.full = False
    node.live(10)
    node.fuse = None
    node.start()
    node.live(60)

    assert fleet.reason == "", "drained again against a person's word"
    assert node.desk.blocked is BlockCode.OVERRIDE


@pytest.mark.parametrize("effects", range(24))
@pytest.mark.parametrize("lag", [0, 1, 3, 5])
def test_nor_does_one_where_the_engine_has_not_even_heard_of_the_drain_yet(node, fleet, effects, lag):
    node.findings, node.lag = (fault(),), lag
    while not node.disk.ownership() or not node.disk.ownership().held:
        node.tick()
        node.report()
    act(fleet, "resume")
    node.fuse = effects
    node.live(20)
    node.fuse = None
    node.start()
    node.live(60)

    assert fleet.reason == "", "drained again against a person's word"
    assert node.desk.blocked is BlockCode.OVERRIDE


def test_a_person_gives_the_node_back_through_the_controller_with_their_name(node, fleet):
    drained(node, fleet)
    node.desk.give_back(Person(1, "release", "alice"), action=_action(node), now=node.now, stopped=False, enabled=True)
    node.live(4)

    wishes = [r.intent for r in fleet.reports if r.intent.by]
    assert wishes[0].by == "alice"
    assert not wishes[0].drain
    assert fleet.reason == ""
    assert node.desk.asked.outcome == "gone"
    assert node.desk.blocked is BlockCode.OVERRIDE


def test_a_drain_without_any_record_is_the_controllers_to_give_back_and_who_asks_is_told_so(node, fleet):
    act(fleet, "drain", reason="ibmon: port-down mlx5_3/1 DOWN [id 7f3a9c]")
    node.desk.give_back(Person(1, "release", "bob"), action=_action(node), now=node.now, stopped=False, enabled=True)
    node.live(4)

    assert fleet.reason
    assert (node.desk.asked.outcome, node.desk.asked.code) == ("blocked", BlockCode.FOREIGN_DRAIN)
    assert "at the controller: ibmon release" in node.desk.asked.detail


def _action(node):
    return ActionConfig(mode=node.mode, scheduler="controller")


# ------------------------------------------------------------------------------------------ what bars it


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.ALERT])
def test_in_observe_and_alert_mode_nothing_is_wished_and_the_report_says_the_mode(node, fleet, mode):
    node.mode = mode
    node.findings = (fault(),)
    node.live(6)

    assert {(r.mode, r.intent.drain) for r in fleet.reports} == {(mode, False)}
    assert node.desk.blocked is BlockCode.MODE
    assert fleet.reports[-1].findings[0].drains


def test_a_stop_file_that_comes_while_a_wish_is_out_withdraws_it(node, fleet):
    fleet.silent = True
    node.findings = (fault(),)
    node.live(4)
    assert fleet.reports[-1].intent.drain
    node.stopped = True
    node.live(4)

    assert not fleet.reports[-1].intent.drain
    assert node.desk.blocked is BlockCode.STOP
    fleet.silent = False
    node.live(4)
    assert fleet.reason == ""


def test_a_stop_at_the_controller_is_obeyed_within_a_report_and_ends_as_soon(node, fleet):
    fleet.stop = True
    node.findings = (fault(),)
    node.live(4)
    assert node.desk.blocked is BlockCode.STOP
    assert not fleet.reports[-1].intent.drain
    fleet.stop = False
    node.live(4)
    assert policy.claims(fleet.cluster.view(NAME))


def test_a_controller_that_withholds_draining_shows_as_mode_and_takes_no_standing_drain_back(node, fleet):
    reason = drained(node, fleet)
    fleet.mode = Mode.OBSERVE
    node.live(4)
    assert node.desk.blocked is BlockCode.MODE
    node.findings = ()
    node.live(6)
    assert fleet.reason == reason
    fleet.mode = Mode.DRAIN
    node.live(6)
    assert fleet.reason == ""


def test_a_controller_that_cannot_be_reached_changes_neither_stop_nor_mode(node, fleet):
    fleet.stop = True
    node.findings = (fault(),)
    node.live(4)
    node.lost = "report"
    fleet.stop = False
    node.live(300)
    assert node.desk.blocked is BlockCode.STOP


# ------------------------------------------------------------------------------------------ trouble


def test_an_unreachable_controller_is_no_fault_and_the_drain_happens_once_when_it_returns(node, fleet):
    node.lost = "report"
    node.findings = (fault(),)
    node.live(60)
    assert node.desk.blocked is BlockCode.SCHEDULER_UNREACHABLE
    node.lost = ""
    node.live(4)
    assert policy.claims(fleet.cluster.view(NAME))
    assert [o[1] for o in node.outcomes].count("done") == 1


def test_a_refused_key_shows_as_forbidden(node, fleet):
    node.findings = (fault(),)
    node.tick()
    node.told.letter(node.now, 1)
    (event,) = node.told.unanswered(SchedulerError("no", forbidden=True))
    assert (event.outcome, event.code) == ("failed", BlockCode.FORBIDDEN)


def test_a_request_about_which_the_controller_says_nothing_fails_after_a_minute_and_the_wish_stays(node, fleet):
    fleet.silent = True
    node.findings = (fault(),)
    node.live(PATIENCE - 2)
    assert node.outcomes == []
    node.live(6)
    assert node.outcomes == [("drain", "failed", BlockCode.SCHEDULER_UNREACHABLE)]
    fleet.silent = False  # it knows the fleet now
    node.report()
    assert policy.claims(fleet.cluster.view(NAME))


def test_a_wish_whose_fault_is_gone_before_it_was_decided_is_given_back_by_its_record(node, fleet):
    fleet.silent = True
    node.findings = (fault(),)
    node.live(4)
    fleet.cluster.client(NAME).drain(node.desk.intent.reason)
    node.findings = ()
    node.live(4)
    fleet.silent = False
    node.live(60)

    assert fleet.reason == ""
    assert node.disk.ownership() is None


def test_a_lost_reply_costs_nothing_as_the_next_report_tells_again(node, fleet):
    node.findings = (fault(),)
    node.lost = "reply"
    node.live(2)
    assert policy.claims(fleet.cluster.view(NAME))
    assert node.disk.ownership().held is False
    node.lost = ""
    node.live(2)
    assert node.disk.ownership().held
    node.findings = ()
    node.lost = "reply"
    node.live(2)
    node.lost = ""
    node.live(40)
    assert fleet.reason == ""
    assert node.disk.ownership() is None


def test_a_drain_that_is_gone_before_the_engine_hears_of_it_is_not_given_back_again(node, fleet):
    """Its record says that it is gone, so a report that asked for it would have nothing to rest on."""
    drained(node, fleet)
    node.findings = ()
    node.tick()  # it asks to give the node back
    node.findings = (fault(),)
    node.lost = "reply"  # the controller does so
    node.live(2)
    node.lost, node.lag = "", 3
    node.live(2)  # wanted again, it is found to be gone
    assert node.disk.ownership().gone
    node.findings = ()
    node.tick()
    assert node.report().intent.id == ""
    node.lag = 0
    node.live(60)
    assert fleet.reason == ""
    assert not node.told.waiting


def test_a_node_killed_between_asking_and_the_answer_owns_its_drain_after_the_restart(node, fleet):
    node.findings = (fault(),)
    node.lost = "reply"
    node.live(2)
    node.lost = ""
    node.start()
    node.live(4)
    assert node.desk.owned.held
    node.findings = ()
    node.live(6)
    assert fleet.reason == ""


def test_a_node_killed_so_and_well_again_gives_back_what_it_had_only_asked_for(node, fleet):
    node.findings = (fault(),)
    node.lost = "reply"
    node.live(2)
    node.lost = ""
    node.findings = ()
    node.start()
    node.live(700)
    assert fleet.reason == ""
    assert node.disk.ownership() is None


def test_with_a_full_disk_the_node_is_drained_and_not_given_back_until_the_record_is_saved(node, fleet):
    node.disk.broken = True
    node.findings = (fault(),)
    node.live(4)
    reason = fleet.reason
    assert reason
    assert fleet.reports[-1].owned is None
    node.findings = ()
    node.live(30)
    assert fleet.reason == reason
    assert node.outcomes[-1][:2] == ("release", "failed")
    node.disk.broken = False
    node.live(400)
    assert fleet.reason == ""


def test_a_store_that_lost_the_record_gives_nothing_back(node, fleet):
    reason = drained(node, fleet)
    node.disk.record(None)
    node.findings = ()
    node.live(30)
    assert fleet.reason == reason
    assert node.outcomes[-1] == ("release", "blocked", BlockCode.FOREIGN_DRAIN)


def test_an_answer_to_an_older_report_ends_no_newer_request(node, fleet):
    drained(node, fleet)
    node.after(2)
    before, _ = node.told.letter(node.now, 50)
    reply = fleet.answer(before.report)
    node.findings = ()
    node.tick()
    assert node.told.waiting
    assert node.told.answered(before, reply, node.now) == []
    assert node.told.waiting
    node.report()
    assert fleet.reason == ""


def test_with_overrides_switched_off_a_node_that_is_still_bad_is_drained_again(fleet):
    node = DeskNode(fleet)
    node.override_ttl = 0.0
    drained(node, fleet)
    act(fleet, "resume")
    for _ in range(4):
        node.report()
    assert policy.claims(fleet.cluster.view(NAME))
