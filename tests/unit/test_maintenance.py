"""Maintenance windows through the engine: what they hold back, what they keep, and what begins anew at their end."""

from __future__ import annotations

import math

import pytest
from core_world import ACTIVE, CONFIG, Site, comes_up, goes_down, port, start

from ibmon.health.windows import Moment
from ibmon.maintenance import LONGEST, MAX_WINDOWS, START, STOP, Maintenance, Window
from ibmon.memory import load_memory
from ibmon.messages import Answer, Person
from ibmon.model import BlockCode, Now, PortId
from ibmon.people import no_such
from ibmon.recording import Frame
from ibmon.runtime.replay import play

FAST = CONFIG.replace('boot_grace = "0s"', 'boot_grace = "0s"\noverride_ttl = "24h"')


def begins(t, seconds=3600.0, *ports, reason="new cable"):
    return t, Person(1, START, "ada", ports, reason=reason, seconds=seconds)


def stops(t, *ports):
    return t, Person(2, STOP, "ada", ports)


def live(frames, people, at, config=FAST, until=None, **header):
    """The rows at some times, and the site."""
    site = Site(config, **header)
    site.people = dict(people)
    frames = sorted([*frames, *(Frame(t=t) for t in site.people)], key=lambda f: f.t)
    stop = max(at) if until is None else until
    rows = {t: row for t, row in play(site, iter(frames), at, stop) if t in at}
    return rows, site


# ------------------------------------------------------------------------------------------------------ inside a window


def test_a_port_that_goes_down_in_a_window_is_shown_and_neither_alerts_nor_drains():
    rows, site = live([start(), goes_down(100)], [begins(50)], at=[90, 110, 3000])

    assert rows[110]["ports"]["mlx5_0/1"] == "failed"
    assert rows[3000]["node"] == "watch"
    assert rows[3000]["findings"] == rows[3000]["alerts"] == []
    assert not rows[3000]["drained"]
    assert site.scheduler.calls == {}
    assert [a.text for a in site.answers] == ["maintenance of this node for 60min"]


def test_the_hold_begins_when_the_window_ends_by_its_time():
    rows, site = live([start(), goes_down(100)], [begins(50, 600.0)], at=[649, 675, 685, 705, 715])

    assert rows[675]["findings"] == []
    assert [f["severity"] for f in rows[685]["findings"]] == ["warning"]
    assert [rows[t]["drained"] for t in (705, 715)] == [False, True]
    [(ended, fields)] = site.told("maintenance-ended")
    assert ended == pytest.approx(650, abs=1)
    assert fields == {"by": "time", "began_by": "ada", "reason": "new cable"}


def test_a_person_ends_it_early_and_that_is_told_once():
    rows, site = live([start(), goes_down(100)], [begins(50), stops(200)], at=[255, 265, 4000])

    assert [rows[t]["drained"] for t in (255, 265)] == [False, True]
    assert [(t, f["by"]) for t, f in site.told("maintenance-ended")] == [(200, "ada")]
    assert site.answers[-1] == Answer(2, done=True, text="ended the maintenance of this node")


def test_a_window_of_one_port_covers_no_other():
    rows, _ = live([start(), goes_down(100, "mlx5_1")], [begins(50, 3600.0, "mlx5_0/1")], at=[200])

    assert rows[200]["drained"]
    assert rows[200]["alerts"]


@pytest.mark.parametrize("subject", ["mlx5_0/1", "mlx5_0"])
def test_a_window_of_a_port_or_its_device_covers_it(subject):
    rows, _ = live([start(), goes_down(100)], [begins(50, 3600.0, subject)], at=[200])

    assert not rows[200]["drained"]
    assert rows[200]["alerts"] == []


def test_a_whole_class_that_vanishes_in_maintenance_of_the_node_is_no_finding():
    gone = Frame(t=100, remove=("class/infiniband/mlx5_0", "class/infiniband/mlx5_1"))
    rows, _ = live([start(), gone], [begins(50)], at=[2000])
    assert rows[2000]["findings"] == []

    rows, _ = live([start(), gone], [begins(50, 3600.0, "mlx5_0", "mlx5_1")], at=[2000])
    assert [f["rule"] for f in rows[2000]["findings"]] == ["all-devices-missing"]


# ------------------------------------------------------------------------------------------------------ around a drain


def test_a_drain_that_stands_stays_through_the_window_and_goes_when_the_port_has_recovered():
    frames = [start(), goes_down(100), comes_up(400)]
    rows, site = live(frames, [begins(300, 1800.0)], at=[290, 310, 2090, 2110, 3000])

    assert rows[290]["drained"]
    assert [rows[t]["drained"] for t in (310, 2090)] == [
        True,
        True,
    ]  # recovered at 1000, and somebody still works there
    assert rows[310]["alerts"] == []
    assert [rows[t]["drained"] for t in (2110, 3000)] == [False, False]
    assert site.scheduler.calls["undrain"] == 1


def test_a_drain_that_was_due_and_not_made_waits_for_its_hold_once_more():
    observing = FAST.replace("[inventory]", '[action.limits]\nmin_nodes = 0\nmax_drained = "0%"\n[inventory]')
    rows, _ = live([start(), goes_down(100)], [begins(300, 300.0)], at=[290, 310, 640, 665], config=observing)

    assert [f["severity"] for f in rows[290]["findings"]] == ["critical"]
    assert rows[310]["alerts"] == []
    assert [f["severity"] for f in rows[640]["findings"]] == ["warning"]
    assert rows[640]["alerts"]
    assert [f["severity"] for f in rows[665]["findings"]] == ["critical"]


def test_what_is_due_in_a_window_is_blocked_as_maintenance():
    site = Site(FAST)
    frames = iter([start(), goes_down(100), Frame(t=300)])
    site.people[300] = begins(300)[1]
    for _ in play(site, frames, (), 310):
        pass

    assert site.engine.desk.owned is not None
    assert site.engine.snapshot(site.now()).drain.blocked is BlockCode.MAINTENANCE
    assert all(f.maintenance and not f.alerts for f in site.engine.findings)


# ------------------------------------------------------------------------------------------------------ counts


FLAPS = [goes_down(100), comes_up(110), goes_down(300), comes_up(310), goes_down(500), comes_up(510)]


def test_flaps_in_a_window_are_recorded_and_count_for_nothing():
    rows, _ = live([start(), *FLAPS], [begins(50, 600.0)], at=[5000])
    without, _ = live([start(), *FLAPS], [], at=[5000])

    assert {f["rule"] for f in without[5000]["findings"]} == {"flap-storm", "link-flap"}
    assert rows[5000]["findings"] == []
    assert rows[5000]["flaps"] == {}


def test_a_flap_in_a_window_keeps_its_mark():
    _, site = live([start(), *FLAPS], [begins(50, 600.0)], at=[700])
    flaps = site.engine.judge.ports[PortId("mlx5_0", 1)].link.memory.flaps

    assert [flap.counted for flap in flaps] == [False, False, False]


def errors(t, count):
    return Frame(t=t, files=port("mlx5_0", ACTIVE, symbol_error=count, link_downed=0))


@pytest.mark.parametrize(("end", "judged"), [(1500.0, False), (400.0, True)])
def test_errors_that_rose_in_a_window_count_for_nothing_also_when_they_are_read_after_it(end, judged):
    frames = [errors(0, 0), *(errors(1000 + 60 * n, 200_000 * n) for n in range(1, 7)), errors(1489, 5_000_000)]
    frames[0] = Frame(t=0, files={**start().files, **frames[0].files})
    rows, _ = live(frames, [begins(50, end - 50)], at=[9000])

    assert bool(rows[9000]["findings"]) is judged


def test_an_outage_that_began_in_a_window_lasts_from_its_end():
    site = Site(f'{FAST}[rules.port-down]\nhold = "1h"\n')
    site.people = dict([begins(50, 550.0)])
    for _ in play(site, iter([start(), Frame(t=50), goes_down(100), comes_up(800)]), (), 900):
        pass
    [outage] = site.engine.judge.ports[PortId("mlx5_0", 1)].link.memory.outages

    assert outage.seconds == pytest.approx(200, abs=6)


# ------------------------------------------------------------------------------------------------------ restarts


def test_a_window_outlives_a_kill_and_ends_at_its_time():
    frames = [start(), goes_down(100), Frame(t=200, restart=True)]
    rows, site = live(frames, [begins(50, 600.0)], at=[640, 700, 730])

    assert [rows[t]["drained"] for t in (640, 700, 730)] == [False, False, True]
    assert len(site.told("maintenance-ended")) == 1


def test_a_window_outlives_a_boot_by_wall_time():
    frames = [start(), goes_down(100), Frame(t=200, boot_id="second", uptime=60.0)]
    rows, site = live(frames, [begins(50, 600.0)], at=[640, 730])

    assert [rows[t]["drained"] for t in (640, 730)] == [False, True]
    assert len(site.told("maintenance-ended")) == 1


def test_a_window_whose_time_went_by_while_nothing_ran_ends_at_the_start_and_is_told_once():
    frames = [start(), Frame(t=100, boot_id="second", uptime=60.0, wall_step=7200.0), Frame(t=300, restart=True)]
    _, site = live(frames, [begins(50, 600.0)], at=[90, 150, 400])

    assert [round(t) for t, _ in site.told("maintenance-ended")] == [100]
    assert site.engine.maintenance.windows == ()


def test_a_restart_in_a_window_tells_no_finding_again():
    frames = [start(), goes_down(100), Frame(t=400, restart=True)]
    _, site = live(frames, [begins(300)], at=[500])

    assert [t for t, _ in site.told("finding")][-1] <= 300


# ------------------------------------------------------------------------------------------------------ messages


def test_webhooks_hear_of_a_finding_when_its_window_is_over():
    _, site = live([start(), goes_down(100)], [begins(50, 600.0)], at=[800])
    sent = [t for t, s in site.sent if s.topic == "finding"]

    assert sent
    assert min(sent) >= 680


def test_a_finding_that_was_told_before_the_window_is_told_as_cleared_in_it():
    _, site = live([start(), goes_down(100), comes_up(400)], [begins(300, 3600.0)], at=[1500])
    told = [(s.body["state"], t > 300) for t, s in site.sent if s.topic == "finding" and s.subject.startswith("port-d")]

    assert told[-1] == ("cleared", True)
    assert ("open", True) not in told


# ------------------------------------------------------------------------------------------------------ people


KNOWN = {PortId("mlx5_0", 1): None, PortId("mlx5_0", 2): None, PortId("mlx5_1", 1): None}


def desk(t=0.0, windows=()):
    return Maintenance(windows, Now(t, 1e9 + t), "boot", margin=120.0)


def ask(maintenance, action=START, *subjects, seconds=60.0, reason="why", t=0.0):
    person = Person(7, action, "ada", subjects, reason=reason, seconds=seconds)
    return maintenance.asked(person, KNOWN, Now(t, 1e9 + t))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seconds": 0.0}, "more than nothing"),
        ({"seconds": LONGEST + 1}, "at most 168h"),
        ({"reason": ""}, "give a reason"),
    ],
)
def test_a_window_has_a_length_and_a_reason(change, words):
    answer = ask(desk(), **change)
    assert not answer.done
    assert words in answer.text


def test_ports_that_are_not_there_are_named():
    answer = ask(desk(), START, "mlx5_0/1", "mlx5_9")
    assert answer == Answer(7, done=False, text=no_such(["mlx5_9"]))


def test_a_second_window_for_the_same_ports_replaces_the_first():
    maintenance = desk()
    ask(maintenance, START, "mlx5_0", "mlx5_1/1")
    answer = ask(maintenance, START, "mlx5_1/1", "mlx5_0", seconds=7200.0)

    assert answer.text == "maintenance of mlx5_0, mlx5_1/1 for 2h (in place of the one before)"
    assert [w.seconds for w in maintenance.windows] == [7200.0]


def test_windows_are_bounded_in_number():
    windows = tuple(Window((f"d{n}",), Moment(0, 0, "boot"), 60.0, "r", "u") for n in range(MAX_WINDOWS))
    assert not ask(desk(windows=windows)).done


def test_stop_ends_all_or_those_of_the_ports_named():
    maintenance = desk()
    ask(maintenance)
    ask(maintenance, START, "mlx5_0")
    ask(maintenance, START, "mlx5_1/1")

    assert ask(maintenance, STOP, "mlx5_1/1").text == "ended the maintenance of mlx5_1/1; 2 more go on"
    assert not ask(maintenance, STOP, "mlx5_1/1").done
    assert ask(maintenance, STOP).text == "ended the maintenance of this node, mlx5_0"
    assert not maintenance.on
    assert len(maintenance.turn(Now(1, 1))) == 3
    assert maintenance.turn(Now(1, 1)) == ()


def test_counters_are_silent_for_a_while_after_a_window():
    maintenance = desk()
    ask(maintenance, START, "mlx5_0/1")
    now = Now(60.0, 1e9 + 60)
    maintenance.turn(now)

    assert not maintenance.covers("mlx5_0", 1)
    assert maintenance.silences("mlx5_0", 1, now)
    assert not maintenance.silences("mlx5_0", 2, now)
    assert not maintenance.silences("mlx5_0", 1, Now(180.0, 1e9 + 180))


def test_nothing_is_due_without_a_window_and_else_its_end():
    maintenance = desk(10.0)
    assert maintenance.next_due() == math.inf
    ask(maintenance, t=10.0)
    assert maintenance.next_due() == 70.0


def test_a_clock_that_was_set_back_prolongs_a_window_by_no_more_than_its_length():
    stored = Window((), Moment(5e6, 2e9, "another boot"), 600.0, "r", "u")
    maintenance = Maintenance([stored], Now(10.0, 1e9), "boot", margin=0.0)
    assert maintenance.next_due() == 610.0


def test_an_older_state_without_windows_is_read():
    _, site = live([start()], [], at=[20])
    saved = site.store.load()
    memory = load_memory(saved.replace(b'"maintenance":[],', b"").replace(b',"maintenance":[]', b""))
    assert memory is not None
    assert memory.maintenance == ()
