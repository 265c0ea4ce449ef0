"""What a controller may do after a start, a kill or a change of the leader, whom it still counts, and what it shows."""

from __future__ import annotations

import pytest
from fleet_world import World

from ibmon.config import LimitsConfig
from ibmon.controller.values import DrainJob
from ibmon.report import Working

# ----------------------------------------------------------------------------------------- starts and crashes


def test_a_new_controller_waits_two_intervals_and_for_nine_in_ten_of_the_fleet():
    world = World().begin()
    world.wait(600)
    world.all_say()
    world.look()
    world.work()
    world.crash()
    world.look()
    for i in range(1, 36):
        world.say(f"n{i}")
    world.bad("n1")
    world.wait(61)
    world.look()
    world.bad("n2", rail=1)
    assert world.work() == []  # 35 of 40
    assert (world.row("n2").code, world.say("n2").decision) == ("quorum", "none")
    world.say("n36")
    assert [told[0] for told in world.work()] == ["n1", "n2"]
    assert world.notes("quorum-open")[-1] == {"reported": 36, "seen": 40}


def test_a_fresh_controller_drains_nothing_for_two_intervals():
    world = World()
    world.look()
    world.all_say()
    world.bad("n7")
    world.wait(59)
    world.look()
    assert world.work() == []
    assert world.desk.next_due() == pytest.approx(world.mono + 1)
    world.wait(1)
    assert world.work() == [("n7", "drain", "done", None)]


def test_nodes_that_were_silent_for_a_day_do_not_count():
    world = World().begin()
    world.round(1, 601.0)
    world.crash()
    world.wait(86_500)
    world.crash()
    quorum = world.desk.fleet(world.now).quorum
    assert (quorum.seen, quorum.reported) == (0, 0)


def test_a_node_that_is_silent_for_a_day_is_forgotten():
    world = World().begin()
    for _ in range(90):
        world.wait(1000)
        world.look()
        world.all_say("n7")
        world.work()
    assert world.notes("node-forgotten") == [{"node": "n7"}]
    assert world.desk.fleet(world.now).quorum.seen == 39


def test_a_leader_waits_for_the_quorum_anew_and_a_follower_decides_nothing():
    world = World().begin()
    world.desk.lead(False, world.now)
    assert world.bad("n7")[0].decision == "none"
    assert (world.work(), world.desk.stopped) == ([], True)
    assert not world.ask("stop").done
    world.desk.lead(True, world.now)
    world.say("n7")
    assert world.work() == []
    assert world.round(1) == []
    assert world.round(1) == [("n7", "drain", "done", None)]


def test_a_killed_controller_finds_the_drains_of_its_nodes_again():
    world = World().begin()
    world.bad("n7")
    world.work()  # killed before the node heard of it
    world.crash()
    world.look()
    world.all_say()
    assert world.nodes["n7"].owned.held
    world.round(3)
    assert sum(isinstance(job, DrainJob) for job in world.jobs) == 1
    world.well("n7")
    world.round(1)
    assert world.drained() == []


def test_giving_back_needs_no_quorum():
    world = World().begin()
    world.bad("n7")
    world.work()
    world.say("n7")
    world.crash()
    world.look()
    world.well("n7")
    assert world.work() == [("n7", "release", "gone", None)]


# -------------------------------------------------------------------------------------------------- views


def test_all_that_is_known_of_a_node_can_be_looked_at():
    world = World().begin()
    world.nodes["n7"].maintenance = Working(until=world.wall + 60, reason="cable", user="root", subjects=("mlx5_0/1",))
    world.bad("n7")
    world.work()
    seen = world.desk.node("n7", world.now)
    assert seen["report"]["findings"][0]["rule"] == "port-down"
    assert (seen["scheduler"]["flags"], seen["drains"][0]["state"]) == (["DRAIN", "IDLE"], "held")
    assert world.desk.node("nobody", world.now) is None


def test_the_numbers_for_metrics():
    world = World(count=100, limits=LimitsConfig(new_per_minute=1000.0)).begin()
    for i in range(1, 5):
        world.bad(f"n{i}", rail=i)
    world.work()
    world.all_say()
    counts = world.desk.counts(world.now)
    assert counts.nodes == {"fit": 96, "watch": 0, "unfit": 4, "unknown": 0}
    assert counts.drains == {("node", "held"): 2, ("node", "withheld"): 2}
    assert (counts.pools[0].allowed, counts.pools[0].used, counts.missing) == (2, 2, 0)
    assert (counts.decisions["drained", ""], counts.decisions["blocked", "limit_nodes"]) == (2, 2)


def test_each_change_of_a_decision_is_one_line():
    world = World(count=100, limits=LimitsConfig(new_per_minute=1000.0)).begin()
    for i in range(1, 4):
        world.bad(f"n{i}", rail=i)
    world.round(10)
    assert len(world.notes("blocked")) == 1
    assert [note["node"] for note in world.notes("drained")] == ["n1", "n2"]
