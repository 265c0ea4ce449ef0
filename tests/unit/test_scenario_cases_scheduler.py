"""What happens between a node and its scheduler in the field: people, outages, states, crowds, two of our own.

Each story is played through the engine and `reconcile` in virtual time. What a real Slurm and a real Kubernetes do is
held by the tests of their backends and by tests/e2e.
"""

from __future__ import annotations

import pytest
from core_world import CONFIG, comes_up, goes_down, node, path, port, start
from scheduler_world import Member, play_all

from ibmon.drain.cluster import Cluster
from ibmon.model import BlockCode
from ibmon.recording import Frame, SchedulerAct
from ibmon.runtime.memory_store import MemoryStore
from ibmon.runtime.replay import play

RETRIED = 300 + 60  # seconds after which whatever waits for another try has had one
RECOVER = 600
ADMIN = "ADMIN hardware swap"
START = 1_893_492_000.0


def seen(member, frames, at, until=None):
    """The rows at these times."""
    frames = sorted(frames, key=lambda frame: frame.t)
    return {t: row for t, row in play(member, iter(frames), at, until or max(at)) if t in at}


def at_scheduler(t, do, reason=None, by="admin"):
    return Frame(t=t, scheduler=SchedulerAct(do=do, reason=reason, by=by))


# ----------------------------------------------------------------------------------------------------- people


def test_a_node_that_an_administrator_drained_never_comes_back_because_of_us():
    """The reason was replaced by a check that hung, and the next good run resumed what it took for its own."""
    member = Member()
    hung = path("mlx5_0", "counters/link_downed")
    story = [
        start(),
        at_scheduler(1, "drain", f"{ADMIN} [root@2030-01-01T10:00:00]"),
        goes_down(600, "mlx5_1"),
        Frame(t=1200, block=(hung,)),
        Frame(t=2900, unblock=(hung,)),
        comes_up(3000, "mlx5_1"),
    ]
    rows = seen(member, story, [900, 1900, 2990, 3000 + RECOVER + RETRIED])

    assert [alert["rule"] for alert in rows[900]["alerts"]] == ["port-down"]
    assert member.view.blocked is None
    for row in rows.values():
        assert row["calls"] == {"drain": 0, "release": 0}
    assert member.drained
    assert member.cluster.view(member.name).reason.startswith(ADMIN)
    assert rows[3000 + RECOVER + RETRIED]["node"] == "fit"


def test_while_somebody_else_has_drained_the_node_the_code_says_so():
    member = Member()
    seen(member, [start(), at_scheduler(1, "drain", ADMIN), goes_down(600)], [900])

    assert member.view.blocked is BlockCode.FOREIGN_DRAIN
    assert not member.view.orphaned


def test_a_drain_in_our_words_of_which_we_have_no_record_stays_and_is_shown_as_an_orphan():
    member = Member()
    lost = "ibmon: port-down mlx5_0/1 DOWN/Polling 62s>60s [id 7f3a9c]"
    story = [start(), at_scheduler(1, "drain", lost, by="ibmon"), goes_down(600), comes_up(1200)]
    rows = seen(member, story, [900], 900)

    assert member.view.orphaned
    assert rows[900]["calls"]["drain"] == 0
    rows = seen(member, [comes_up(1200)], [1200 + RECOVER + RETRIED])
    assert rows[1200 + RECOVER + RETRIED]["calls"]["release"] == 0
    assert member.cluster.view(member.name).reason == lost


def test_a_reason_of_ours_that_a_person_has_edited_is_that_persons_drain():
    member = Member()
    ours = seen(member, [start(), goes_down(100)], [300])[300]["reason"]
    edited = f"{ours}; keep for RMA"
    rows = seen(member, [at_scheduler(310, "drain", edited), comes_up(320)], [320 + RECOVER + RETRIED])

    assert rows[320 + RECOVER + RETRIED]["node"] == "fit"
    assert rows[320 + RECOVER + RETRIED]["calls"]["release"] == 0
    assert member.cluster.view(member.name).reason == edited


# ---------------------------------------------------------------------------------------------------- outages


@pytest.mark.parametrize("outage", ["hang", "down"])
@pytest.mark.parametrize("restarts", [(), (500,), (105, 300, 700, 1010)])
def test_a_drain_that_fell_due_while_the_controller_was_away_is_made_once_when_it_is_back(outage, restarts):
    story = [
        start(),
        Frame(t=100, scheduler=SchedulerAct(do=outage), files=goes_down(100).files),
        *(Frame(t=t, restart=True) for t in restarts),
        at_scheduler(1000, "up"),
    ]
    member = Member()
    rows = seen(member, story, [200, 995, 1000 + RETRIED])

    for t in (200, 995):
        assert (rows[t]["node"], rows[t]["drained"]) == ("unfit", False)
        assert rows[t]["ports"] == {"mlx5_0/1": "failed", "mlx5_1/1": "ok"}
        assert {alert["rule"] for alert in rows[t]["alerts"]} == {"port-down"}
    assert rows[1000 + RETRIED]["drained"]
    assert rows[1000 + RETRIED]["calls"] == {"drain": 1, "release": 0}


def test_while_the_controller_is_away_the_code_says_so_and_errors_are_counted():
    member = Member()
    story = [start(), Frame(t=100, scheduler=SchedulerAct(do="hang"), files=goes_down(100).files)]
    seen(member, story, [900])

    assert member.view.blocked is BlockCode.SCHEDULER_UNREACHABLE
    assert member.view.action_errors["scheduler_unreachable"] >= 2


def test_a_port_that_is_well_again_before_the_controller_is_back_drains_nothing():
    story = [
        start(),
        Frame(t=100, scheduler=SchedulerAct(do="hang"), files=goes_down(100).files),
        comes_up(300),
        at_scheduler(300 + RECOVER + 30, "up"),
    ]
    member = Member()
    rows = seen(member, story, [200, 4000])

    assert rows[200]["node"] == "unfit"
    assert (rows[4000]["node"], rows[4000]["calls"]) == ("fit", {"drain": 0, "release": 0})
    assert not member.drained


def test_a_controller_that_is_away_while_all_is_well_is_not_asked_and_nothing_comes_of_it():
    member = Member()
    rows = seen(member, [start(), at_scheduler(100, "hang")], [4000])

    assert (rows[4000]["node"], rows[4000]["findings"]) == ("fit", [])
    assert not member.scheduler.calls


# ----------------------------------------------------------------------------------------------------- states


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("IDLE", "REBOOT_REQUESTED"), BlockCode.SCHEDULER_STATE),
        (("IDLE", "REBOOT_ISSUED"), BlockCode.SCHEDULER_STATE),
        (("IDLE", "MAINTENANCE"), BlockCode.SCHEDULER_STATE),
        (("DOWN", "POWERED_DOWN"), BlockCode.SCHEDULER_STATE),
        (("IDLE", "POWERING_UP"), BlockCode.SCHEDULER_STATE),
        (("DOWN", "NOT_RESPONDING"), BlockCode.SCHEDULER_STATE),
    ],
)
def test_a_node_that_reboots_is_in_maintenance_or_away_is_left_alone_until_it_is_back(flags, code):
    member = Member(flags={1: flags, 2000: ("IDLE",)})
    rows = seen(member, [start(), Frame(t=1), goes_down(600), Frame(t=2000)], [1900])

    assert rows[1900]["calls"] == {"drain": 0, "release": 0}
    assert member.view.blocked is code
    assert seen(member, [Frame(t=2000)], [2000 + RETRIED])[2000 + RETRIED]["drained"]


def test_slurms_own_drain_for_a_reboot_keeps_its_reason():
    member = Member(flags={1: ("IDLE", "REBOOT_REQUESTED")})
    seen(
        member, [start(), Frame(t=1, scheduler=SchedulerAct(do="drain", reason="Reboot ASAP")), goes_down(600)], [1900]
    )

    assert member.cluster.view(member.name).reason == "Reboot ASAP"
    assert member.scheduler.calls["drain"] == 0


@pytest.mark.parametrize("flag", ["REBOOT_REQUESTED", "POWERING_DOWN", "MAINTENANCE"])
def test_a_drain_of_ours_is_not_lifted_while_the_node_is_in_such_a_state(flag):
    member = Member(flags={400: ("IDLE", flag), 2000: ("IDLE",)})
    story = [start(), goes_down(100), Frame(t=400), comes_up(410)]
    rows = seen(member, story, [300, 1990])

    assert rows[300]["drained"]
    assert (rows[1990]["node"], rows[1990]["calls"]["release"]) == ("fit", 0)
    rows = seen(member, [Frame(t=2000)], [2000 + RETRIED])
    assert rows[2000 + RETRIED]["calls"] == {"drain": 1, "release": 1}
    assert not member.drained


@pytest.mark.parametrize(
    "flags", [("IDLE", "RESERVED"), ("IDLE", "PLANNED"), ("MIXED",), ("IDLE", "COMPLETING"), ("ALLOCATED",)]
)
def test_a_node_that_works_is_drained_and_given_back_and_its_work_goes_on(flags):
    """Only DRAIN comes and goes: nothing that a job would notice."""
    member = Member(flags={1: flags})
    rows = seen(member, [start(), Frame(t=1), goes_down(600)], [900])

    assert rows[900]["drained"]
    assert member.cluster.view(member.name).flags == {*flags, "DRAIN"}
    rows = seen(member, [comes_up(1200)], [1200 + RECOVER + RETRIED])  # twenty minutes later, the job still runs
    assert rows[1200 + RECOVER + RETRIED]["calls"] == {"drain": 1, "release": 1}
    assert member.cluster.view(member.name).flags == set(flags)


@pytest.mark.parametrize("auto", [True, False])
def test_a_drain_of_ours_on_a_node_that_got_new_hardware_is_lifted_when_that_is_well(auto):
    member = Member(config=CONFIG.replace("[action]", f"[action]\nauto_release = {str(auto).lower()}"))
    guid = {
        f"class/infiniband/{name}/node_guid": f"b859:9f03:00d0:00{n}a\n" for n, name in enumerate(["mlx5_0", "mlx5_1"])
    }
    other = {file: text.replace("b859", "043f") for file, text in guid.items()}
    story = [
        Frame(t=0, files={**node("mlx5_0", "mlx5_1"), **guid}),
        goes_down(100),
        Frame(t=1000, boot_id="another", uptime=30.0, files={**node("mlx5_0", "mlx5_1"), **other}),
    ]
    rows = seen(member, story, [990, 1000 + RECOVER - 20, 1000 + 2 * RECOVER + RETRIED])

    assert rows[990]["drained"]
    assert rows[1000 + RECOVER - 20]["drained"]
    assert rows[1000 + 2 * RECOVER + RETRIED]["node"] == "fit"
    assert rows[1000 + 2 * RECOVER + RETRIED]["drained"] is not auto


# -------------------------------------------------------------------------------------------------- lost state


def test_after_its_state_was_lost_a_daemon_begins_with_the_counts_it_finds_and_gives_nothing_back():
    """The disk was full, and after a restart the file is empty: history and ownership are unknown."""
    member = Member()
    counts = {"link_downed": 40, "symbol_error": 60000, "port_rcv_errors": 60000}
    first = Frame(t=0, files={**port("mlx5_0", **counts), **port("mlx5_1", **counts)})
    before = seen(member, [first, goes_down(100)], [400])[400]
    member.store = MemoryStore()
    end = 500 + RECOVER + RETRIED
    rows = seen(member, [Frame(t=410, restart=True), comes_up(500)], [450, end])

    assert before["drained"]
    assert [f["rule"] for f in rows[450]["findings"] if f["severity"] != "info"] in ([], ["port-down"])
    assert [f["rule"] for f in rows[end]["findings"] if f["severity"] != "info"] == []
    assert (rows[end]["node"], rows[end]["flaps"].get("mlx5_1/1")) == ("fit", None)
    assert rows[end]["calls"] == before["calls"] == {"drain": 1, "release": 0}
    assert member.cluster.view(member.name).reason == before["reason"]
    assert member.view.orphaned


# ----------------------------------------------------------------------------------------------------- crowds


def test_a_leaf_switch_that_reboots_drains_no_more_than_the_limit_and_those_are_given_back():
    names = [f"node{number:04}" for number in range(1, 33)]
    clock, soon = [0.0], 120
    cluster = Cluster(names, wall=lambda: START + clock[0])
    limits = '[action.limits]\nmax_drained = "12.5%"\nnew_per_minute = 1000\n'
    members = [Member(name, cluster, CONFIG + limits + f'[rules.port-down]\nrecover = "{soon}s"\n') for name in names]
    hit = members[:16]
    stories = {m: [start(), *([goes_down(30), comes_up(270)] if m in hit else [])] for m in members}
    drained, blocked = set(), set()
    for clock[0] in play_all(stories, 270 + 2 * soon):
        assert sum(member.drained for member in members) <= 4
        drained |= {member.name for member in members if member.drained}
        if clock[0] == 240:
            blocked = {member.name for member in hit if member.view.blocked is BlockCode.LIMIT_NODES}
            texts = {tuple((f.rule, f.severity.value, f.observed, f.limit) for f in member.firing) for member in hit}
            assert len(texts) == 1  # worded alike, so that they group
            assert all(len(member.firing) == 1 for member in hit)

    assert len(drained) == 4
    assert blocked == {member.name for member in hit} - drained
    assert sum(member.scheduler.calls["drain"] for member in members) == 4
    assert not any(member.drained for member in members)
    assert not any(member.firing for member in members)


def test_where_the_limit_cannot_be_counted_nobody_is_drained():
    member = Member()
    member.scheduler.read_pools = lambda: ()  # the node is in no pool that could be counted
    rows = seen(member, [start(), goes_down(100)], [1000])

    assert rows[1000]["calls"]["drain"] == 0
    assert member.view.blocked is BlockCode.LIMIT_UNREADABLE


# --------------------------------------------------------------------------------------------- two of our own


def test_two_daemons_that_do_not_see_each_others_lock_neither_lift_nor_overwrite_each_others_drain():
    """A package and a container with a state directory of its own. A lock is the first line, this the next."""
    cluster = Cluster(100, wall=lambda: START)
    host, pod = (Member("node0007", cluster, wall=START + n / 7) for n in range(2))
    story = [start(), goes_down(100), comes_up(1000)]
    reasons = set()
    for _ in play_all({host: list(story), pod: list(story)}, 1000 + RECOVER + RETRIED):
        reasons.add(cluster.view("node0007").reason)

    assert len(reasons - {None}) == 1
    assert host.scheduler.calls["drain"] + pod.scheduler.calls["drain"] == 1
    assert host.scheduler.calls["undrain"] + pod.scheduler.calls["undrain"] == 1
    assert not host.drained


def test_a_drain_of_a_daemon_that_was_killed_is_not_lifted_by_the_other_one_on_its_node():
    cluster = Cluster(100, wall=lambda: START)
    host, pod = (Member("node0007", cluster, wall=START + n / 7) for n in range(2))
    list(play_all({host: [start(), goes_down(100)]}, 300))
    reason = cluster.view("node0007").reason
    list(play_all({pod: [start(), goes_down(100), comes_up(1000)]}, 1000 + RECOVER + RETRIED))

    assert cluster.view("node0007").reason == reason
    assert pod.scheduler.calls["drain"] == pod.scheduler.calls["undrain"] == 0
