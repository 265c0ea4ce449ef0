"""Reports of nodes at the controller: which are taken, which are refused, and what is noted of that."""

from __future__ import annotations

import pytest
from fleet_world import World, finding

from ibmon.controller.values import Refused
from ibmon.report import Owned, Wish


def test_a_repeated_or_older_report_is_refused_and_noted_once():
    world = World().begin()
    old = world.nodes["n7"].report(world.wall)
    world.say("n7")
    for _ in range(3):
        assert world.desk.report(old, world.now).code == "replay"
    assert [note["code"] for note in world.notes("report-refused")] == ["replay"]
    world.say("n7")
    world.desk.report(old, world.now)
    assert len(world.notes("report-refused")) == 2


def test_a_report_of_an_earlier_boot_that_comes_late_is_refused():
    world = World().begin()
    node = world.nodes["n7"]
    late = node.report(world.wall)
    world.wait(5)
    node.boot, node.seq = "boot-2", 0
    world.say("n7")
    assert world.desk.report(late, world.now).code == "replay"
    world.say("n7")


@pytest.mark.parametrize("skew", [301.0, -301.0, float("nan"), float("inf")])
def test_a_clock_that_is_wrong_by_more_than_five_minutes_is_refused(skew):
    world = World().begin()
    refused = world.desk.report(world.nodes["n7"].report(world.wall + skew), world.now)
    assert isinstance(refused, Refused)
    assert refused.code == "skew"


@pytest.mark.parametrize("skew", [299.0, -299.0])
def test_a_clock_that_is_wrong_by_less_is_taken(skew):
    world = World().begin()
    assert world.say("n7", sent=world.wall + skew).decision == "none"


def test_a_record_of_another_id_than_the_wish_still_stands_for_itself():
    world = World().begin()
    world.bad("n7")
    world.work()
    old = world.nodes["n7"].owned
    reason = "ibmon: rate-low mlx5_1/1 200<400 [id beef]"
    reply = world.say(
        "n7",
        intent=Wish(drain=True, id="beef", reason=reason, since=world.wall),
        owned=Owned(old.id, old.reason, old.asked, held=True),
        findings=(finding("rate-low", rail=1, onset=world.wall),),
    )
    assert reply.decision == "drained"
    assert world.work() == []
