"""Who is read when: tiers at multiples, deadlines, quarantine, backoff after a firmware timeout, muted counters."""

from __future__ import annotations

import errno
import math

import pytest

from ibmon.config import SamplingConfig
from ibmon.messages import Abandon, Discover, Read, ReadListing
from ibmon.model import Column, Layout, Level, Now, Reading, Tier
from ibmon.sampling import Sampler

CONFIG = SamplingConfig(state_interval=5, counter_interval=10, slow_interval=60, read_deadline=5)
STATE, COUNTER, SLOW = Tier.STATE, Tier.COUNTER, Tier.SLOW
EVERY = (STATE, COUNTER, SLOW)
# Two ports' states, two counters, one slow attribute: the indexes that the tests speak of.
COLUMNS = (
    Column(1, Level.ATTR, "state", STATE),
    Column(2, Level.ATTR, "state", STATE),
    Column(1, Level.COUNTERS, "link_downed", COUNTER),
    Column(1, Level.COUNTERS, "symbol_error", COUNTER),
    Column(1, Level.ATTR, "rate", SLOW),
)
PORT_STATE, LINK_DOWNED, SYMBOL_ERROR = 0, 2, 3


def layout(name="mlx5_0", generation=1):
    return Layout.build(name, generation, COLUMNS)


def sampler(*names, now=0.0, config=CONFIG):
    plan = Sampler(config, now)
    for name in names or ("mlx5_0",):
        plan.add(layout(name), now)
    return plan


def reads(plan, now):
    """The reads that are due; a device whose facts are asked for is found to be as it was."""
    due = plan.due(now)
    for effect in due:
        if isinstance(effect, Discover):
            plan.discovering.pop(effect.device)
    return [effect for effect in due if isinstance(effect, Read)]


def listings(plan, now):
    return sum(isinstance(effect, ReadListing) for effect in plan.due(now))


def tiers(plan, now):
    return [read.tiers for read in reads(plan, now)]


def answer(plan, now, errnos=None, columns=(0, 1, 2, 3, 4), device="mlx5_0", generation=1):
    """A read came back, with these errnos by column."""
    errnos = errnos or {}
    values = tuple(None if i in errnos else 1 for i in columns)
    plan.done(Reading(device, generation, tuple(columns), values, errnos, {}, Now(now, now), Now(now, now)), now)


def ask(plan, now, errnos=None):
    """What is due, answered at once; the columns that were read."""
    asked = reads(plan, now)
    for read in asked:
        known = {i: e for i, e in (errnos or {}).items() if i in read.columns}
        answer(plan, now, known, read.columns, read.device)
    return [read.columns for read in asked]


# ---------------------------------------------------------------------------------------------------------- tiers


def test_everything_is_read_at_the_start_and_each_tier_at_multiples_of_its_interval():
    plan = sampler()
    seen = {}
    for second in range(121):
        for read in reads(plan, float(second)):
            seen[second] = read.tiers
            answer(plan, float(second))

    assert sorted(seen) == list(range(0, 121, 5))
    for second, due in seen.items():
        assert (COUNTER in due) is (second % 10 == 0)
        assert (SLOW in due) is (second % 60 == 0)


def test_multiples_count_from_the_phase():
    plan = Sampler(CONFIG, 3.0)
    plan.add(layout(), 3.0)

    assert [t for t in range(20) if ask(plan, float(t))] == [3, 8, 13, 18]


def test_a_late_poll_skips_what_it_missed_and_keeps_the_multiples():
    plan = sampler()
    ask(plan, 0.0)

    assert len(ask(plan, 33.0)) == 1
    assert plan.next_due() == 35.0


def test_columns_come_tier_by_tier_in_the_order_of_the_layout():
    assert ask(sampler(), 0.0) == [(0, 1, 2, 3, 4)]


def test_a_listing_is_asked_for_at_each_state_interval_but_never_twice_at_a_time():
    plan = sampler()

    assert listings(plan, 0.0) == 1
    assert listings(plan, 5.0) == 0
    plan.listed()
    assert listings(plan, 6.0) == 1


def test_next_due_is_a_time_at_which_something_is_due():
    plan = sampler("mlx5_0", "mlx5_1")
    now = 0.0
    for _ in range(100):
        effects = plan.due(now)
        assert effects
        for effect in effects:
            if isinstance(effect, Read):
                answer(plan, now, columns=effect.columns, device=effect.device)
            elif isinstance(effect, Discover):
                plan.add(layout(effect.device), now)
        plan.listed()
        assert plan.due(now) == []
        now = plan.next_due()
        assert now > 0


def test_without_devices_only_the_listing_is_due():
    plan = Sampler(CONFIG, 0.0)

    assert listings(plan, 0.0) == 1
    assert plan.next_due() == math.inf  # until the listing is here


def test_new_intervals_come_into_force_at_the_next_multiple():
    plan = sampler()
    ask(plan, 0.0)
    plan.configure(SamplingConfig(state_interval=2, counter_interval=4, slow_interval=8, read_deadline=5), 1.0)

    assert [t for t in range(1, 9) if ask(plan, float(t))] == [2, 4, 6, 8]


def test_static_facts_are_read_again_now_and_then():
    plan = sampler()
    found = []
    for second in range(0, 1300, 5):
        for effect in plan.due(float(second)):
            if isinstance(effect, Discover):
                found.append(second)
                plan.add(layout(generation=effect.generation), float(second))
            elif isinstance(effect, Read):
                answer(plan, float(second), columns=effect.columns, generation=effect.generation)

    assert found == [600, 1200]


# ------------------------------------------------------------------------------------------------------- deadlines


def test_an_overdue_read_is_abandoned_once():
    plan = sampler()
    plan.due(0.0)

    assert [Abandon("mlx5_0") in plan.due(t) for t in (4.9, 5.0, 6.0, 600.0)] == [False, True, False, False]


def test_a_stalled_device_gets_no_second_read_and_the_others_go_on():
    plan = sampler("mlx5_0", "mlx5_1")
    plan.due(0.0)
    answer(plan, 0.1, device="mlx5_1")
    asked = []
    for second in range(1, 600):
        for read in reads(plan, float(second)):
            asked.append(read.device)
            answer(plan, float(second), device=read.device)

    assert set(asked) == {"mlx5_1"}
    assert len(asked) == 119


def test_only_the_device_whose_turn_it_is_is_marked_and_those_behind_it_get_their_own_time():
    plan = sampler("mlx5_0", "mlx5_1", "mlx5_2")
    plan.due(0.0)
    marked = {}
    for tenth in range(1, 200):
        if tenth == 51:  # the reader has left mlx5_0 and gone on to mlx5_1
            answer(plan, 5.1, device="mlx5_1")
        for effect in plan.due(tenth / 10):
            if isinstance(effect, Abandon):
                marked[effect.device] = tenth / 10

    assert marked == {"mlx5_0": 5.0, "mlx5_2": 10.0, "mlx5_1": 15.0}


def test_a_look_behind_a_read_that_hangs_is_not_marked_with_it():
    plan = sampler("mlx5_0")
    plan.due(0.0)
    plan.discover("mlx5_9", 0.0)

    assert [e.device for e in plan.due(5.0) if isinstance(e, Abandon)] == ["mlx5_0"]
    assert plan.quarantined == frozenset()
    assert [e.device for e in plan.due(10.0) if isinstance(e, Abandon)] == ["mlx5_9"]


def test_a_device_that_answers_late_is_read_again():
    plan = sampler()
    plan.due(0.0)
    plan.due(10.0)
    answer(plan, 100.0)

    assert reads(plan, 100.0)


def test_a_read_that_is_out_stays_the_only_one_when_the_device_is_discovered_anew():
    plan = sampler()
    plan.due(0.0)
    plan.add(layout(generation=2), 2.0)

    assert reads(plan, 4.0) == []
    assert Abandon("mlx5_0") in plan.due(5.0)
    answer(plan, 100.0, {LINK_DOWNED: errno.ETIMEDOUT}, generation=1)
    assert tiers(plan, 100.0) == [EVERY]  # and its errors belong to files that are no more


def test_an_answer_from_before_a_restart_ends_no_wait():
    plan = sampler()
    plan.due(0.0)
    answer(plan, 1.0, generation=7)

    assert reads(plan, 5.0) == []


def test_a_discovery_that_hangs_puts_the_name_into_quarantine_once():
    plan = Sampler(CONFIG, 0.0)
    plan.discover("mlx5_9", 0.0)

    assert [Abandon("mlx5_9") in plan.due(t) for t in (4.9, 5.0, 6.0)] == [False, True, False]
    assert plan.quarantined == {"mlx5_9"}


def test_a_quarantined_device_is_not_read():
    plan = sampler()
    plan.quarantined = frozenset({"mlx5_0"})

    assert reads(plan, 0.0) == []
    assert plan.next_due() == math.inf  # the listing is out, and nothing else is to be asked


def test_a_read_out_of_turn_waits_for_the_one_that_is_out():
    plan = sampler()
    plan.due(0.0)

    assert plan.out_of_turn("mlx5_0", (4,), 1.0) == []
    answer(plan, 1.0)
    assert plan.out_of_turn("mlx5_0", (4,), 1.0) == [Read("mlx5_0", 1, (), (4,))]
    assert plan.out_of_turn("gone", (4,), 1.0) == []


# --------------------------------------------------------------------------------------------------------- backoff


@pytest.mark.parametrize("code", [errno.ETIMEDOUT, errno.EBUSY, errno.ECANCELED])
def test_a_firmware_timeout_stops_all_reads_for_a_minute_and_then_one_file_is_tried(code):
    plan = sampler()
    plan.due(0.0)
    answer(plan, 0.0, {LINK_DOWNED: code})

    assert [t for t in range(1, 60) if reads(plan, float(t))] == []
    assert [(r.tiers, r.columns) for r in reads(plan, 60.0)] == [((), (PORT_STATE,))]


def test_a_probe_that_fails_waits_again_and_one_that_works_reads_everything_at_once():
    plan = sampler()
    plan.due(0.0)
    answer(plan, 0.0, {LINK_DOWNED: errno.ETIMEDOUT})
    plan.due(60.0)
    answer(plan, 60.0, {PORT_STATE: errno.ETIMEDOUT}, (PORT_STATE,))

    assert reads(plan, 119.0) == []
    assert [r.columns for r in reads(plan, 120.0)] == [(PORT_STATE,)]
    answer(plan, 120.0, columns=(PORT_STATE,))
    assert tiers(plan, 120.0) == [EVERY]


def test_the_backoff_of_a_device_holds_up_no_other():
    plan = sampler("mlx5_0", "mlx5_1")
    plan.due(0.0)
    answer(plan, 0.0, {LINK_DOWNED: errno.ETIMEDOUT})
    answer(plan, 0.0, device="mlx5_1")

    assert [r.device for r in reads(plan, 5.0)] == ["mlx5_1"]


# ---------------------------------------------------------------------------------------------------------- muting


def until_muted(plan, code=errno.EINVAL, column=LINK_DOWNED):
    """The seconds up to 600 at which the column was read, failing each time."""
    return [t for t in range(0, 600, 5) if any(column in columns for columns in ask(plan, float(t), {column: code}))]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EPERM, errno.EIO, errno.ENODATA])
def test_a_counter_that_fails_three_times_in_a_row_is_left_alone(code):
    assert until_muted(sampler(), code) == [0, 10, 20]


def test_a_muted_counter_is_tried_again_after_ten_minutes_and_returns_when_it_works():
    plan = sampler()
    until_muted(plan)
    tried = [t for t in range(600, 1900, 5) if any(LINK_DOWNED in c for c in ask(plan, float(t), {LINK_DOWNED: 22}))]
    back = [t for t in range(1900, 2900, 5) if any(LINK_DOWNED in c for c in ask(plan, float(t)))]

    assert tried == [620, 1220, 1820]
    assert back[:3] == [2420, 2430, 2440]


def test_a_muted_counter_takes_no_other_with_it():
    plan = sampler()
    until_muted(plan)
    plan.read_now("mlx5_0", 597.0)

    assert ask(plan, 597.0) == [(0, 1, SYMBOL_ERROR, 4)]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO, errno.EACCES])
def test_the_state_of_a_port_is_never_muted(code):
    assert until_muted(sampler(), code, PORT_STATE) == list(range(0, 600, 5))


def test_a_success_in_between_starts_the_count_anew():
    plan = sampler()
    for second, fails in ((0, True), (10, True), (20, False), (30, True), (40, True)):
        ask(plan, float(second), {LINK_DOWNED: errno.EINVAL} if fails else {})

    assert any(LINK_DOWNED in columns for columns in ask(plan, 50.0))


@pytest.mark.parametrize("code", [errno.ENODEV, errno.ENOENT])
def test_a_device_that_is_going_is_no_reason_to_mute(code):
    assert until_muted(sampler(), code) == list(range(0, 600, 10))


def test_a_counter_that_always_times_out_beside_a_state_that_answers_is_muted_too():
    """Else its device would be left alone for a minute again and again, and the node be unknown in each."""
    plan = sampler()

    assert until_muted(plan, errno.ETIMEDOUT) == [0, 65, 130]
    assert plan.devices["mlx5_0"].backoff_until is None


def test_a_device_that_times_out_as_a_whole_is_no_reason_to_mute():
    plan = sampler()
    for second in range(0, 600, 5):
        ask(plan, float(second), dict.fromkeys(range(20), errno.ETIMEDOUT))

    assert plan.devices["mlx5_0"].muted == {}


def test_a_new_generation_of_the_device_forgets_what_was_muted():
    plan = sampler()
    until_muted(plan)
    plan.add(layout(generation=2), 600.0)

    assert any(LINK_DOWNED in read.columns for read in reads(plan, 600.0))
