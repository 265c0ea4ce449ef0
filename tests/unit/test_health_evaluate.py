"""Time and severity of one rule on one port: holds, recovery, graces, and time in which nobody could look."""

from __future__ import annotations

import math

import msgspec
import pytest

from ibmon.health.evaluate import Episode, advance, due_in
from ibmon.health.facts import GOOD, UNKNOWN, Condition, Verdict
from ibmon.health.rules import RULE_BY_ID
from ibmon.health.settings import of_rule

STATE = of_rule(RULE_BY_ID["port-down"])._replace(alert_hold=30, hold=60, recover=600)
COUNT = of_rule(RULE_BY_ID["link-flap"])._replace(alert_hold=0, hold=0, recover=3600)
BAD = Condition(Verdict.BAD, "DOWN/Polling", "ACTIVE", "DOWN/Polling")
WARN = BAD._replace(reach="warning")


def count(verdict, quiet, reach="critical"):
    return Condition(verdict, 3, 3, "flaps=3", reach, quiet)


def run(*steps, episode=None, settings=STATE, may_start=True):
    """The episode after each (condition, seconds since the last look)."""
    out = []
    for condition, seconds in steps:
        episode = advance(episode, condition, settings, seconds, may_start=may_start, wall=1000.0)
        out.append(episode)
    return out


def last(*steps, **more):
    return run(*steps, **more)[-1]


def severities(*steps, **more):
    return [episode and episode.severity for episode in run(*steps, **more)]


FAILED = last((BAD, 0), (BAD, 60))
WARNED = last((BAD, 0), (BAD, 30))


# ------------------------------------------------------------------------------------------------------------ opening


def test_a_condition_is_seen_then_alerts_then_is_held():
    assert severities((BAD, 0), (BAD, 29), (BAD, 1), (BAD, 29), (BAD, 1)) == [
        None,
        None,
        "warning",
        "warning",
        "critical",
    ]


def test_the_first_sight_counts_no_time():
    assert severities((BAD, 1000)) == [None]


@pytest.mark.parametrize("hold", [0, 30])
def test_a_hold_of_zero_is_held_at_first_sight(hold):
    settings = STATE._replace(alert_hold=0, hold=hold)

    assert severities((BAD, 0), settings=settings) == ["critical" if hold == 0 else "warning"]


def test_a_condition_that_ends_before_its_alert_leaves_nothing():
    assert run((BAD, 0), (BAD, 29), (GOOD, 1))[-1] is None


def test_a_condition_that_comes_back_before_its_alert_starts_anew():
    assert severities((BAD, 0), (BAD, 29), (GOOD, 1), (BAD, 5), (BAD, 29)) == [None, None, None, None, None]


def test_a_condition_that_reaches_a_warning_only_stays_one_for_ever():
    assert severities((WARN, 0), (WARN, 30), (WARN, 9999)) == [None, "warning", "warning"]


def test_the_words_are_those_of_the_newest_bad_read_and_the_onset_that_of_the_first():
    newer = Condition(Verdict.BAD, "INIT/Polling", "ACTIVE", "INIT/Polling")
    first = advance(None, BAD, STATE, 0, may_start=True, wall=5.0)
    episode = advance(first, newer, STATE, 10, may_start=True, wall=15.0)

    assert (episode.words, episode.observed, episode.onset) == ("INIT/Polling", "INIT/Polling", 5.0)


def test_float_seconds_do_not_miss_a_hold():
    steps = [(BAD, 0), *[(BAD, 0.1)] * 600]

    assert severities(*steps)[-1] == "critical"
    assert severities(*steps)[-2] == "warning"


# ------------------------------------------------------------------------------------------------------------ closing


@pytest.mark.parametrize(("episode", "severity"), [(WARNED, "warning"), (FAILED, "critical")])
def test_a_finding_recovers_for_its_time_and_then_goes(episode, severity):
    steps = run((GOOD, 5), (GOOD, 599), (GOOD, 1), episode=episode)

    assert [s and (s.recovering, s.severity) for s in steps] == [(True, severity), (True, severity), None]


def test_a_blip_restarts_the_recovery():
    steps = run((GOOD, 5), (GOOD, 599), (BAD, 1), (GOOD, 5), (GOOD, 599), (GOOD, 1), episode=FAILED)

    assert [s and s.recovering for s in steps] == [True, True, False, True, True, None]


def test_a_blip_leaves_what_was_reached():
    assert last((GOOD, 5), (BAD, 5), episode=FAILED).severity == "critical"


def test_the_hold_of_a_warning_starts_anew_after_a_blip_of_health():
    steps = ((BAD, 0), (BAD, 59), (GOOD, 5), (BAD, 5), (BAD, 59), (BAD, 1))

    assert severities(*steps) == [None, "warning", "warning", "warning", "warning", "critical"]


def test_without_a_recover_time_a_finding_goes_at_once():
    assert last((GOOD, 5), episode=FAILED, settings=STATE._replace(recover=0)) is None


def test_what_the_severity_has_reached_does_not_fall_while_the_condition_holds():
    assert last((WARN, 9999), episode=FAILED).severity == "critical"


# ------------------------------------------------------------------------------------------------------- no sight


@pytest.mark.parametrize("before", [None, last((BAD, 0)), WARNED, FAILED, last((GOOD, 5), episode=FAILED)])
def test_unknown_neither_opens_nor_closes_nor_moves_anything(before):
    assert last((UNKNOWN, 9999), episode=before) == before


@pytest.mark.parametrize("before", [last((BAD, 0)), WARNED])
def test_in_a_grace_a_condition_is_shown_and_no_hold_runs(before):
    after = last((BAD, 9999), episode=before, may_start=False)

    assert (after.severity, after.elapsed) == (before.severity, before.elapsed)


def test_in_a_grace_recovery_goes_on():
    assert last((GOOD, 5), (GOOD, 600), episode=FAILED, may_start=False) is None


def test_the_hold_runs_from_the_end_of_the_grace():
    seen = last((BAD, 0), (BAD, 500), may_start=False)

    assert severities((BAD, 5), (BAD, 54), (BAD, 1), episode=seen) == [None, "warning", "critical"]


# --------------------------------------------------------------------------------------------------------- counting


def test_a_count_recovers_from_its_last_bad_moment():
    held = last((count(Verdict.BAD, 0), 0), settings=COUNT)
    steps = [(count(Verdict.GOOD, quiet), 10) for quiet in (100, 3599, 3600)]

    assert [s and s.recovering for s in run(*steps, episode=held, settings=COUNT)] == [True, True, None]


def test_a_count_that_was_quiet_while_nobody_looked_is_over_at_the_first_look():
    held = last((count(Verdict.BAD, 0), 0), settings=COUNT)

    assert last((count(Verdict.GOOD, 7200), 0), episode=held, settings=COUNT) is None


def test_a_count_falls_to_a_warning_when_it_was_below_critical_for_long_enough():
    held = last((count(Verdict.BAD, 0), 0), settings=COUNT)

    assert last((count(Verdict.BAD, 3599, "warning"), 10), episode=held, settings=COUNT).severity == "critical"
    assert last((count(Verdict.BAD, 3600, "warning"), 10), episode=held, settings=COUNT).severity == "warning"


# ----------------------------------------------------------------------------------------------------------- storing


@pytest.mark.parametrize("episode", [last((BAD, 0)), WARNED, FAILED, last((GOOD, 5), (GOOD, 99), episode=FAILED)])
def test_what_is_stored_is_time_elapsed_and_goes_on_where_it_stood(episode):
    stored = msgspec.json.decode(msgspec.json.encode(episode), type=Episode)

    assert stored == episode
    for condition in (BAD, GOOD):
        assert last((condition, 30), episode=stored) == last((condition, 30), episode=episode)


# ------------------------------------------------------------------------------------------------------------- due


@pytest.mark.parametrize(
    "before",
    [last((BAD, 0)), last((BAD, 0), (BAD, 12)), WARNED, last((BAD, 0), (BAD, 41)), last((GOOD, 5), episode=FAILED)],
)
def test_due_in_is_when_something_changes_and_not_earlier(before):
    condition = GOOD if before.recovering else BAD
    wait = due_in(before, condition, STATE)
    early = last((condition, wait - 0.01), episode=before)
    late = last((condition, wait), episode=before)

    assert (early.severity, early.recovering) == (before.severity, before.recovering)
    assert late is None or late.severity != before.severity


@pytest.mark.parametrize(("episode", "condition"), [(FAILED, BAD), (WARNED, WARN)])
def test_what_only_a_read_can_change_is_never_due(episode, condition):
    assert due_in(episode, condition, STATE) == math.inf
