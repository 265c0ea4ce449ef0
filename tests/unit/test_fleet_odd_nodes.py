"""Whose trouble a failed call is: one odd node keeps no other waiting, a scheduler in trouble is spared."""

from __future__ import annotations

import pytest
from fleet_world import World

from ibmon.ports import SchedulerError

ODD = SchedulerError("slurm_update error: Invalid node state specified")
AWAY = SchedulerError("slurm_update error: Unable to contact slurm controller (connect failure)", general=True)


def fail(world, call, error, *names):
    """From now on the scheduler answers this call about these nodes with an error."""
    real = getattr(world.cluster, call)

    def broken(node, *more):
        if node in names:
            raise error
        return real(node, *more)

    setattr(world.cluster, call, broken)


@pytest.mark.parametrize("error", [ODD, SchedulerError("Kubernetes forbids ibmon to patch node n7", forbidden=True)])
def test_an_odd_node_is_put_aside_alone_and_keeps_no_drain_of_others_waiting(error):
    world = World().begin()
    fail(world, "view", error, "n7")
    world.bad("n7", rail=7)
    world.wait(1)
    world.bad("n8", rail=1)
    told = world.work()
    assert [(node, outcome) for node, _, outcome, _ in told] == [("n7", "failed"), ("n8", "done")]
    world.bad("n9", rail=2)
    assert world.work() == [("n9", "drain", "done", None)]
    assert world.say("n7").decision == "blocked"
    assert (world.row("n7").state, world.row("n7").code) == ("withheld", world.say("n7").code)


def test_an_odd_node_is_tried_again_ever_less_often_and_told_of_once():
    world = World().begin()
    fail(world, "drain", ODD, "n7")
    world.bad("n7")
    tries = [done for _ in range(60) for done in world.round()]
    assert {(node, outcome) for node, _, outcome, _ in tries} == {("n7", "failed")}
    assert 6 < len(tries) < 15
    assert [note["detail"] for note in world.notes("blocked")] == [str(ODD)]


def test_an_odd_node_keeps_nobody_from_being_given_back():
    world = World().begin()
    world.bad("n7", "n8", "n9")
    world.work()
    fail(world, "undrain", ODD, "n7")
    world.wait(30)
    world.look()
    world.all_say()
    world.well("n7", "n8", "n9")
    assert sorted(node for node, _, outcome, _ in world.work() if outcome == "gone") == ["n8", "n9"]
    assert world.drained() == ["n7"]


def test_a_call_that_finds_the_scheduler_itself_in_trouble_spares_it_the_others():
    world = World().begin()
    fail(world, "drain", AWAY, "n7")
    world.bad("n7", rail=7)
    world.wait(1)
    world.bad("n8", rail=1)
    assert [node for node, *_ in world.work()] == ["n7"]
    assert world.say("n8").code == "scheduler_unreachable"
    world.wait(29)
    world.look()
    assert ("n8", "drain", "done", None) in world.work()


def test_what_befalls_several_nodes_one_after_the_other_is_the_schedulers_trouble_whatever_it_says():
    world = World().begin()
    names = [f"n{i}" for i in range(11, 20)]
    fail(world, "drain", ODD, *names)
    for rail, name in enumerate(names):
        world.bad(name, rail=rail)
        world.wait(1)
    assert [node for node, *_ in world.work()] == names[:3]


def test_several_odd_nodes_are_no_trouble_of_the_schedulers_while_others_can_be_drained():
    world = World().begin()
    fail(world, "drain", ODD, "n11", "n13", "n15", "n17")
    names = [f"n{i}" for i in range(11, 20)]
    for rail, name in enumerate(names):
        world.bad(name, rail=rail)
        world.wait(1)
    assert len(world.work()) == 9
    assert world.drained() == ["n12", "n14", "n16", "n18", "n19"]
