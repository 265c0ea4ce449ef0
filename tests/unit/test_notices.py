"""Alerts that are about no port: a resume that lasts, a drain that nobody remembers, a state that is not safe."""

from __future__ import annotations

import json

import pytest
from core_world import CONFIG, Site, comes_up, goes_down, start

from ibmon.alert.alerts import Told, encode, from_notice
from ibmon.drain.pace import RECHECK_SECONDS
from ibmon.messages import Notice, Person, Troubles
from ibmon.model import Severity
from ibmon.notices import WORDS
from ibmon.recording import Frame, SchedulerAct
from ibmon.runtime.replay import NODE, play

HOUR = 3600.0
RESUMED = Frame(t=1000, scheduler=SchedulerAct(do="resume", by="admin"))
SLURM = CONFIG.replace("[action]", '[action]\nscheduler = "slurm"')
ORPHAN = "ibmon: port-down mlx5_0/1 DOWN/Polling 62s>60s [id 0123ab]"
TALE = Frame(t=0, scheduler=SchedulerAct(do="drain", by="root", reason=ORPHAN))


def played(site, frames, until, at=()):
    """The names of the notices at each time of `at`."""
    seen = {}
    for time, _ in play(site, iter(sorted(frames, key=lambda frame: frame.t)), at, until):
        if time in at:
            seen[time] = [notice.name for notice in site.notices]
    return seen


# ------------------------------------------------------------------------------------------- a resume that lasts


def test_a_resume_of_a_node_that_stays_bad_is_alerted_after_an_hour_and_told_once():
    site = Site(CONFIG.replace("[action]", '[action]\noverride_ttl = "3h"'))
    seen = played(site, [start(), goes_down(100), RESUMED], 13_000, at=(4500, 5100, 11_000, 13_000))
    [(told, fields)] = site.told("drain-overridden")
    assert RESUMED.t + HOUR <= told <= RESUMED.t + 1.5 * RECHECK_SECONDS + HOUR
    assert fields == {"text": "resumed while port-down mlx5_0/1; respected for 3h"}
    assert seen == {4500: [], 5100: ["drain-overridden"], 11_000: ["drain-overridden"], 13_000: []}
    [(ended, _)] = site.told("drain-overridden-ended")
    assert ended - told == pytest.approx(2 * HOUR, abs=1)
    assert site.row()["drained"]


def test_a_node_that_gets_well_before_the_hour_is_over_alerts_nobody():
    site = Site()
    played(site, [start(), goes_down(100), RESUMED, comes_up(2000)], 9000)
    assert site.told("drain-overridden") == []


@pytest.mark.parametrize("at", [3000.0, 7000.0])
def test_a_restart_neither_forgets_the_override_nor_tells_of_it_again(at):
    site = Site()
    frames = [start(), goes_down(100), RESUMED, Frame(t=at, restart=True)]
    assert played(site, frames, 20_000, at=(10_000,)) == {10_000: ["drain-overridden"]}
    assert len(site.told("drain-overridden")) == 1


def test_in_observe_mode_nothing_of_it_leaves_the_node():
    site = Site(SLURM.replace('mode = "drain"', 'mode = "observe"'))
    played(site, [start(), TALE], 2000)
    assert site.looks == []
    assert site.notices == ()


# ------------------------------------------------------------------------------------- a drain that nobody remembers


def orphaned(*frames, until=2000.0, at=(2000,)):
    site = Site(SLURM)
    return site, played(site, [start(), TALE, *frames], until, at)


def test_a_node_without_a_stored_state_looks_once_and_tells_of_a_drain_in_our_words():
    site, seen = orphaned()
    assert site.scheduler.calls["drain"] == site.scheduler.calls["undrain"] == 0
    assert RECHECK_SECONDS / 2 <= site.looks[0] <= RECHECK_SECONDS * 1.5
    assert seen == {2000: ["drain-orphaned"]}
    [notice] = site.notices
    assert notice.text == ORPHAN
    assert [fields for _, fields in site.told("drain-orphaned")] == [{"text": ORPHAN}]
    assert site.engine.snapshot(site.now()).drain.orphaned
    assert site.cluster.view(NODE).reason == ORPHAN


def test_a_well_node_looks_once_and_then_makes_no_call():
    site = Site(SLURM)
    played(site, [start()], 20_000)
    assert len(site.looks) == 1
    assert dict(site.scheduler.calls) == {"read_node": 1}


def test_a_node_that_remembers_does_not_look():
    site = Site(SLURM)
    played(site, [start(), Frame(t=1000, restart=True)], 20_000)
    assert len(site.looks) == 1


def test_a_restart_before_the_look_does_not_make_it_forgotten():
    site = Site(SLURM)
    played(site, [start(), TALE, Frame(t=100, restart=True)], 2000)
    assert [n.name for n in site.notices] == ["drain-orphaned"]


def test_a_restart_tells_of_an_orphan_as_an_alert_and_not_as_an_event():
    site, seen = orphaned(Frame(t=1000, restart=True))
    assert seen == {2000: ["drain-orphaned"]}
    assert len(site.told("drain-orphaned")) == 1


def test_the_look_is_tried_until_the_scheduler_answers_and_told_once():
    site, seen = orphaned(
        Frame(t=1, scheduler=SchedulerAct(do="down")),
        Frame(t=5000, scheduler=SchedulerAct(do="up")),
        until=6000.0,
        at=(4900, 6000),
    )
    assert seen == {4900: [], 6000: ["drain-orphaned"]}
    assert 5 < len([t for t in site.looks if t < 5000]) < 30
    assert len(site.told("observe")) == 1


def test_an_orphan_that_a_person_takes_away_at_the_scheduler_is_over_when_that_is_seen():
    site, seen = orphaned(Frame(t=2500, scheduler=SchedulerAct(do="resume")), until=3000.0, at=(2000, 3000))
    assert seen == {2000: ["drain-orphaned"], 3000: []}
    assert len(site.told("drain-orphaned-ended")) == 1
    looks = len(site.looks)
    played(site, [], 20_000, at=(20_000,))
    assert len(site.looks) == looks


def test_an_orphan_that_is_released_by_its_person_is_over_at_once():
    site = Site(SLURM)
    site.people[2500] = Person(1, "release", "ada")
    seen = played(site, [start(), TALE, Frame(t=2500)], 2600, at=(2000, 2501))
    assert seen == {2000: ["drain-orphaned"], 2501: []}
    assert not site.cluster.view(NODE).drained


def test_an_orphan_that_is_met_when_a_drain_is_due_is_told_without_a_look():
    site = Site()  # no scheduler is configured, so nobody looks
    seen = played(site, [start(), TALE, goes_down(100)], 200, at=(200,))
    assert seen == {200: ["drain-orphaned"]}
    assert site.looks == []


def test_a_drain_in_other_words_is_no_orphan():
    site = Site(SLURM)
    other = Frame(t=0, scheduler=SchedulerAct(do="drain", reason="ibmon: by hand"))
    assert played(site, [start(), other], 2000, at=(2000,)) == {2000: []}
    assert len(site.looks) == 1


# ----------------------------------------------------------------------------------------------- our surroundings


def test_trouble_with_the_state_is_told_as_long_as_it_lasts_and_keeps_its_beginning():
    site = Site()
    steps = {10.0: {"state-unsaved": "disk full"}, 20.0: {"state-unsaved": "disk full", "state-lost": "x"}, 30.0: {}}
    seen = []
    played(site, [start()], 1)
    for t, found in steps.items():
        site.time = t
        site._carry_out(site.engine.step(Troubles(found), site.now()))
        site.settle()
        seen.append([(n.name, n.since - site.now().wall + t) for n in site.notices])
    assert seen == [[("state-unsaved", 10.0)], [("state-lost", 20.0), ("state-unsaved", 10.0)], []]
    assert len(site.told("state-unsaved")) == len(site.told("state-unsaved-ended")) == 1


@pytest.mark.parametrize("name", WORDS)
def test_the_alert_of_a_notice_names_the_node_and_no_rule(name):
    made = from_notice(Notice(name, Severity.WARNING, 1893492000.25, "as it is"), "gpu-17")
    [told] = json.loads(encode([Told(made, 1893492240.25)], runbook_url="https://w/rb"))
    words = "".join(part.capitalize() for part in name.split("-"))
    assert told["labels"] == {"alertname": f"Ibmon{words}", "node": "gpu-17", "severity": "warning"}
    assert told["annotations"] == {"summary": f"gpu-17: {name} as it is", "description": WORDS[name]}
    assert told["startsAt"] == "2030-01-01T10:00:00.250Z"
