"""Who leads, in virtual time: at most one at any moment, whatever is lost, late, cut off or suspended."""

from __future__ import annotations

import random

import pytest
from elections import DURATION, RENEW, RETRY, Pod, World, leading, live
from hypothesis import given, settings
from hypothesis import strategies as st

from ibmon.controller.election import Candidate, Seen, Timing


@pytest.fixture
def world():
    return World()


@pytest.fixture
def two(world):
    """Two candidates, of which the first leads."""
    first, second = Pod(world, "first"), Pod(world, "second")
    first.leader.turn()
    world.advance(DURATION)
    first.leader.turn()
    second.leader.turn()
    assert leading(first, second) == [True, False]
    return first, second


def test_who_makes_the_lease_holds_it_for_its_duration_before_it_leads(world):
    pod = Pod(world, "first")
    pod.leader.turn()
    assert world.lease.holder == "first"
    world.advance(DURATION - 0.01)
    pod.leader.turn()
    assert not pod.leader.is_leader()
    world.advance(0.01)
    pod.leader.turn()
    assert (pod.leader.is_leader(), pod.leader.term, pod.leader.holder) == (True, 1, "first")


def test_who_leads_goes_on_leading(world, two):
    live(world, *two, seconds=3600)
    assert leading(*two) == [True, False]
    assert two[0].leader.term == 1
    assert two[1].leader.holder == "first"


def test_a_leader_asks_for_one_thing_a_turn(world, two):
    first, _ = two
    reads = []
    first.lock.read = lambda: reads.append(1)
    live(world, first, seconds=60)
    assert reads == []


def test_after_a_crash_the_other_leads_a_lease_duration_after_it_saw_the_last_renewal(world, two):
    _, second = two
    world.advance(DURATION - 0.01)
    second.leader.turn()
    assert not second.leader.is_leader()
    world.advance(0.01)
    second.leader.turn()
    assert second.leader.is_leader()


def test_who_is_cut_off_ends_after_the_renew_deadline_and_before_another_begins(world, two):
    first, second = two
    first.lock.cut = True
    world.advance(RENEW - 0.01)
    first.leader.turn()
    assert leading(*two) == [True, False]
    world.advance(0.01)
    assert leading(*two) == [False, False]
    second.leader.turn()
    assert leading(*two) == [False, False]
    world.advance(DURATION - RENEW)
    second.leader.turn()
    assert leading(*two) == [False, True]
    first.lock.cut = False
    first.leader.turn()
    assert (leading(*two), first.leader.holder) == ([False, True], "second")


def test_an_answer_that_took_long_makes_the_leadership_shorter(world, two):
    first, _ = two
    world.advance(RETRY)
    first.lock.there, first.lock.back = 1.0, 3.0
    began = world.now
    first.leader.turn()
    world.advance(began + RENEW - world.now - 0.01)
    assert first.leader.is_leader()
    world.advance(0.01)
    assert not first.leader.is_leader()


def test_a_leader_that_slept_through_its_deadline_does_not_lead_when_it_wakes(world, two):
    world.advance(60)
    assert leading(*two) == [False, False]


def test_who_leads_again_after_a_break_leads_in_another_term(world, two):
    first, _ = two
    world.advance(RENEW)
    assert not first.leader.is_leader()
    first.leader.turn()
    assert (first.leader.is_leader(), first.leader.term) == (True, 2)


@pytest.mark.parametrize("wall", [0.0, 4e9])
def test_no_wall_clock_decides_anything(world, wall):
    first, second = Pod(world, "first"), Pod(world, "second")
    first.leader._wall = lambda: wall
    first.leader.turn()
    world.advance(DURATION)
    live(world, first, second, seconds=60)
    assert leading(first, second) == [True, False]


def test_of_two_who_claim_in_the_same_moment_one_leads(world):
    first, second = Pod(world, "first"), Pod(world, "second")
    world.put("gone", DURATION, None)
    first.leader.turn()
    second.leader.turn()
    world.advance(DURATION)
    real = first.lock.read

    def read():
        found = real()
        if found.holder == "gone":
            second.leader.turn()  # between the read and the write of the first
        return found

    first.lock.read = read
    first.leader.turn()
    assert leading(first, second) == [False, True]
    assert first.leader.holder == "second"


def test_a_renewal_whose_answer_was_lost_counts_for_nothing_until_it_is_seen(world, two):
    first, second = two
    first.lock.loses_answers = True
    world.advance(RENEW - 1)
    first.leader.turn()
    world.advance(1)
    assert not first.leader.is_leader()
    first.lock.loses_answers = False
    first.leader.turn()
    assert first.leader.is_leader()
    live(world, second, seconds=RENEW)
    assert not second.leader.is_leader()


def test_a_renewal_that_arrives_late_makes_the_other_wait_anew(world, two):
    first, second = two
    first.lock.arrives_after = 10.0
    world.advance(RETRY)
    first.leader.turn()
    live(world, second, seconds=16)
    assert leading(*two) == [False, False]
    live(world, second, seconds=DURATION + RETRY)
    assert leading(*two) == [False, True]


def test_an_annotation_that_somebody_writes_costs_no_leadership(world, two):
    first, _ = two
    world.put("first", DURATION, world.lease.version)
    world.advance(RETRY)
    first.leader.turn()
    assert (first.leader.is_leader(), first.leader.term) == (True, 1)


def test_a_lease_that_is_deleted_lets_no_second_one_lead(world, two):
    first, second = two
    first.lock.cut = True
    world.advance(RETRY)
    world.lease = None
    second.leader.turn()
    assert (leading(*two), world.lease.holder) == ([True, False], "second")
    live(world, second, seconds=RENEW)
    assert leading(*two) == [False, False]
    live(world, second, seconds=DURATION)
    assert leading(*two) == [False, True]


def test_a_leader_that_makes_its_deleted_lease_anew_goes_on_leading(world, two):
    first, _ = two
    for _ in range(3):
        world.lease = None
        live(world, *two, seconds=4)
    assert (leading(*two), first.leader.term) == ([True, False], 1)


def test_a_lease_that_was_made_without_an_answer_is_no_leadership_yet(world):
    pod = Pod(world, "first")
    pod.lock.loses_answers = True
    pod.leader.turn()
    pod.lock.loses_answers = False
    world.advance(DURATION - RETRY)
    pod.leader.turn()
    assert not pod.leader.is_leader()
    live(world, pod, seconds=DURATION + RETRY)
    assert pod.leader.is_leader()


@pytest.mark.parametrize("holder", ["second", "somebody"])
def test_a_hand_that_takes_the_lease_away_is_obeyed_at_the_next_renewal(world, two, holder):
    first, _ = two
    world.put(holder, DURATION, world.lease.version)
    world.advance(RETRY)
    first.leader.turn()
    assert not first.leader.is_leader()


def test_a_hand_that_empties_the_lease_makes_an_election(world, two):
    first, _ = two
    world.put("", DURATION, world.lease.version)
    world.advance(RETRY)
    first.leader.turn()
    assert (world.lease.holder, first.leader.term) == ("first", 2)


def test_the_promise_of_the_holder_counts_not_our_own_setting(world):
    world.put("other", 60.0, None)
    pod = Pod(world, "first")
    pod.leader.turn()
    world.advance(59.9)
    pod.leader.turn()
    assert not pod.leader.is_leader()
    world.advance(0.1)
    pod.leader.turn()
    assert pod.leader.is_leader()


@pytest.mark.parametrize("promised", [0.0, -5.0])
def test_a_promise_that_is_none_is_taken_for_our_own(world, promised):
    world.put("other", promised, None)
    pod = Pod(world, "first")
    pod.leader.turn()
    world.advance(DURATION - 0.01)
    pod.leader.turn()
    assert not pod.leader.is_leader()


def test_a_lease_that_is_given_back_is_taken_in_the_next_turn(world, two):
    first, second = two
    first.leader.close(0)
    assert leading(*two) == [False, False]
    second.leader.turn()
    assert leading(*two) == [False, True]
    first.leader.turn()
    assert not first.leader.is_leader()


def test_who_does_not_lead_gives_nothing_back(world, two):
    _, second = two
    second.leader.close(0)
    assert world.lease.holder == "first"


def test_a_lease_that_another_holds_meanwhile_is_not_given_back(world, two):
    first, _ = two
    world.put("somebody", DURATION, world.lease.version)
    first.leader.close(0)
    assert world.lease.holder == "somebody"


def test_one_trouble_is_one_line_and_its_end_makes_the_next_one_new(world, two, caplog):
    first, _ = two
    first.lock.cut = True
    live(world, first, seconds=6)
    first.lock.cut = False
    live(world, first, seconds=2)
    first.lock.cut = True
    live(world, first, seconds=4)
    assert caplog.text.count("event=lease-trouble") == 2
    assert "cut off" in caplog.text


def test_a_fault_in_a_turn_ends_neither_the_thread_nor_the_election(world, two, caplog):
    first, _ = two
    real, first.leader._wall = first.leader._wall, lambda: 1e30 / 0
    first.leader.turn()
    assert "a turn of the election failed" in caplog.text
    first.leader._wall = real
    world.advance(RETRY)
    first.leader.turn()
    world.advance(RENEW - 0.01)
    assert first.leader.is_leader()


def test_a_change_of_leadership_is_a_line(world, two, caplog):
    first, _ = two
    first.lock.cut = True
    live(world, *two, seconds=16)
    assert "event=not-leading" in caplog.text
    assert leading(*two) == [False, True]


def test_followers_are_not_in_step(world):
    waits = {round(Pod(world, f"pod-{number}").leader.turn(), 3) for number in range(20)}
    assert len(waits) > 15
    assert all(RETRY <= wait <= 2.2 * RETRY for wait in waits)


def test_resigning_holds_against_an_answer_that_comes_later():
    candidate = Candidate("a")
    candidate.resign()
    candidate.won(Seen("a", 15, "1"), 0.0, 0.1)
    assert not candidate.leads(0.2)
    assert not candidate.may_claim(100.0)


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 2, 2), (15, 10, 0), (5, 10, 2)])
def test_times_that_would_let_two_lead_are_refused(times):
    duration, renew, retry = times
    with pytest.raises(ValueError, match="retry < renew < duration"):
        Timing(duration=duration, renew=renew, retry=retry)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), rates=st.tuples(*[st.floats(0.9, 1.1)] * 3))
def test_at_most_one_leads_whatever_happens(seed, rates):
    """Clocks a tenth fast or slow, slow calls, lost answers, late writes, cuts, restarts, a Lease that is deleted."""
    chance = random.Random(seed)
    world = World()
    pods = [Pod(world, f"pod-{number}", rate) for number, rate in enumerate(rates)]
    born = len(pods)
    for _ in range(150):
        world.advance(chance.choice((0.1, 0.5, 1.0, 2.0, 4.0)))
        place = chance.randrange(len(pods))
        pod = pods[place]
        lock = pod.lock
        lock.there, lock.back = chance.choice(((0, 0), (0, 0), (0.1, 1.0), (2.0, 2.5)))
        lock.cut = chance.random() < 0.15
        lock.loses_answers = chance.random() < 0.1
        lock.arrives_after = chance.uniform(5, 30) if chance.random() < 0.05 else None
        what = chance.random()
        if what < 0.02:
            pods[place] = Pod(world, f"pod-{born}", rates[place])  # the old one was killed
            born += 1
        elif what < 0.04:
            pod.leader.close(0)
            pods[place] = Pod(world, f"pod-{born}", rates[place])
            born += 1
        elif what < 0.06:
            world.lease = None
        else:
            pod.leader.turn()
        assert sum(leading(*pods)) <= 1


def test_one_leads_nearly_all_the_time_when_nothing_happens(world):
    pods = [Pod(world, f"pod-{number}") for number in range(3)]
    live(world, *pods, seconds=20)
    for _ in range(200):
        live(world, *pods, seconds=2)
        assert sum(leading(*pods)) == 1
