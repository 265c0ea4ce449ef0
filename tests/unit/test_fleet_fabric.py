"""One switch is not forty bad cables: faults that begin together on many nodes make one event, and drains wait."""

from __future__ import annotations

import pytest
from fleet_world import World, finding, hold

from ibmon.config import LimitsConfig
from ibmon.model import Mode, Severity

LEAVES = {"leaf-a": [f"n{i}" for i in range(1, 17)], "leaf-b": [f"n{i}" for i in range(17, 33)]}
LEAF_A = LEAVES["leaf-a"]


def world_of_leaves(count=32, **settings):
    return World(count, leaves=LEAVES, **settings).begin()


def test_a_leaf_that_reboots_is_one_event_and_no_drain():
    world = world_of_leaves()
    for name in LEAF_A:
        world.bad(name, rail=3)
    assert world.work() == []
    assert {reply.code for reply in map(world.say, LEAF_A)} == {"fabric_event"}
    (event,) = world.desk.fleet(world.now).fabric_events
    assert (event.group, event.rail, event.rule, len(event.nodes)) == ("leaf-a", 3, "port-down", 16)
    assert len(world.notes("fabric-event-begins")) == 1
    world.wait(240)
    world.well(*LEAF_A)
    assert world.round(10) == []
    assert world.desk.fleet(world.now).fabric_events == ()
    assert len(world.notes("fabric-event-ends")) == 1


def test_holds_that_run_are_seen_before_the_first_drain_is_due():
    world = world_of_leaves()
    for name in LEAF_A[:3]:
        world.nodes[name].holds = (hold(rail=3, onset=world.wall),)
        world.say(name)
    world.wait(60)
    world.look()
    for name in LEAF_A[:3]:
        world.nodes[name].holds = ()
    assert world.bad(LEAF_A[0], rail=3)[0].code == "fabric_event"
    assert world.work() == []


@pytest.mark.parametrize(("nodes", "apart", "event"), [(3, 30.0, True), (3, 31.0, False), (2, 0.0, False)])
def test_it_takes_three_nodes_of_a_leaf_with_onsets_within_a_minute(nodes, apart, event):
    world = world_of_leaves()
    start = world.wall
    for i in range(nodes):
        world.nodes[LEAF_A[i]].bad(world.wall, finding(rail=3, onset=start - i * apart))
        world.say(LEAF_A[i])
    assert bool(world.desk.fleet(world.now).fabric_events) is event
    assert bool(world.work()) is not event


def test_clocks_that_differ_by_minutes_do_not_hide_an_event():
    world = world_of_leaves()
    for i, name in enumerate(LEAF_A[:3]):
        ahead = (-200.0, 0.0, 200.0)[i]
        world.nodes[name].bad(world.wall, finding(rail=3, onset=world.wall + ahead))
        world.say(name, sent=world.wall + ahead)
    assert len(world.desk.fleet(world.now).fabric_events) == 1


@pytest.mark.parametrize("other", [{"rail": 4}, {"rule": "rate-low", "rail": 3}])
def test_another_rail_or_rule_is_another_fault(other):
    world = world_of_leaves()
    world.bad(*LEAF_A[:2], rail=3)
    world.bad(LEAF_A[2], **other)
    assert world.desk.fleet(world.now).fabric_events == ()
    assert len(world.work()) == 3


def test_another_leaf_is_another_place():
    world = world_of_leaves()
    world.bad("n1", "n2", "n17", "n18", rail=3)
    assert world.desk.fleet(world.now).fabric_events == ()


def test_without_a_topology_it_takes_five_nodes():
    world = World(40).begin()
    world.bad("n1", "n2", "n3", "n4", rail=3)
    assert world.desk.fleet(world.now).fabric_events == ()
    world.bad("n5", rail=3)
    (event,) = world.desk.fleet(world.now).fabric_events
    assert (event.group, len(event.nodes)) == ("", 5)


def test_without_a_topology_it_takes_a_hundredth_of_a_large_fleet():
    world = World(700).begin()
    world.bad(*[f"n{i}" for i in range(1, 7)], rail=3)
    assert world.desk.fleet(world.now).fabric_events == ()
    world.bad("n7", rail=3)
    assert len(world.desk.fleet(world.now).fabric_events) == 1


def test_what_hits_all_leaves_thinly_is_an_event_of_the_fleet():
    leaves = {f"leaf-{i}": [f"n{i}", f"n{i + 20}"] for i in range(1, 21)}
    world = World(40, leaves=leaves).begin()
    world.bad(*[f"n{i}" for i in range(1, 6)], rail=3)
    (event,) = world.desk.fleet(world.now).fabric_events
    assert (event.group, len(event.nodes)) == ("", 5)


def test_one_fault_on_three_leaves_at_once_is_one_event_of_the_fleet():
    leaves = {f"leaf-{i}": [f"n{j}" for j in range(16 * i + 1, 16 * i + 17)] for i in range(8)}
    world = World(128, leaves=leaves).begin()
    for members in leaves.values():
        world.bad(*members, rail=3)
    (event,) = world.desk.fleet(world.now).fabric_events
    assert (event.group, len(event.nodes)) == ("", 128)
    assert world.work() == []
    assert len(world.notes("fabric-event-begins")) - len(world.notes("fabric-event-ends")) == 1
    assert len(world.notes("fabric-event-begins")) <= 3
    assert {world.say(name).code for name in world.nodes} == {"fabric_event"}


def test_when_the_event_is_over_those_still_failed_are_drained_under_the_limits():
    world = world_of_leaves(limits=LimitsConfig(new_per_minute=1000.0))
    world.bad(*LEAF_A, rail=3)
    began = world.mono
    while not world.drained():
        world.wait(min(30.0, max(0.5, world.desk.next_due() - world.mono)))
        world.look()
        world.all_say()
        world.work()
    assert world.mono - began == pytest.approx(900.0, abs=1.0)
    world.round(10)
    assert world.drained() == ["n1", "n10"]  # by time, then by name
    assert {world.say(name).code for name in LEAF_A if name not in {"n1", "n10"}} == {"limit_nodes"}


def test_what_recovers_when_the_event_is_over_is_not_drained():
    world = world_of_leaves(fabric_hold=300.0)
    world.bad(*LEAF_A, rail=3)
    onset = world.wall
    world.wait(240)
    for name in LEAF_A:
        world.nodes[name].findings = (finding(rail=3, onset=onset, recovering=True),)
    assert world.round(20) == []
    world.nodes["n1"].findings = (finding(rail=3, onset=onset),)  # this one's cable is bad after all
    world.say("n1")
    assert world.work() == [("n1", "drain", "done", None)]


def test_a_node_with_another_fault_beside_the_event_is_drained():
    world = world_of_leaves()
    world.nodes["n1"].bad(world.wall, finding(rail=3, onset=world.wall), finding("device-missing", rail=5))
    world.bad(*LEAF_A[1:], rail=3)
    world.say("n1")
    assert world.work() == [("n1", "drain", "done", None)]


def test_a_drain_that_stands_when_an_event_begins_stays():
    world = world_of_leaves()
    world.bad("n1", rail=3)
    world.work()
    world.wait(20)
    world.bad(*LEAF_A[1:], rail=3)
    assert world.work() == []
    assert world.say("n1").decision == "drained"


def test_a_rule_without_a_hold_waits_ten_seconds_for_its_siblings():
    world = world_of_leaves()
    world.bad("n1", rule="link-flap", rail=3)
    assert world.work() == []
    assert (world.row("n1").code, world.say("n1").decision) == ("siblings", "none")
    assert world.desk.next_due() == pytest.approx(world.mono + 10.0)
    world.wait(9)
    world.bad("n2", "n3", rule="link-flap", rail=3)
    world.wait(20)
    assert world.work() == []
    assert world.say("n1").code == "fabric_event"
    world.bad("n20", rule="link-flap", rail=3)
    world.wait(10)
    world.look()
    assert world.work() == [("n20", "drain", "done", None)]


def test_ports_in_init_on_fewer_than_three_nodes_are_their_own_matter():
    world = world_of_leaves()
    world.bad("n1", "n20", rule="port-init", rail=3)
    assert {told[:3] for told in world.work()} == {("n1", "drain", "done"), ("n20", "drain", "done")}


def test_ports_in_init_on_three_nodes_anywhere_are_the_subnet_managers_for_as_long_as_it_lasts():
    world = world_of_leaves()
    world.bad("n1", rule="port-init", rail=3)
    world.wait(300)
    world.look()
    world.say("n1")
    world.ask("mode", "*", mode=Mode.ALERT)
    world.bad("n17", "n30", rule="port-init", rail=0)
    world.ask("mode", "*", mode=Mode.DRAIN)
    assert world.work() == []
    assert world.say("n17").code == "fabric_event"
    assert world.round(80) == []
    world.well("n1")
    assert sorted(told[0] for told in world.work()) == ["n17", "n30"]


def test_what_is_only_watched_makes_no_event():
    world = world_of_leaves()
    for name in LEAF_A:
        world.nodes[name].findings = (
            finding("retransmits", onset=world.wall, drains=False, severity=Severity.WARNING),
            finding("port-down", onset=world.wall, drains=False, severity=Severity.INFO),
        )
        world.say(name)
    assert world.desk.fleet(world.now).fabric_events == ()


def test_work_on_a_leaf_is_no_event():
    world = world_of_leaves()
    assert world.ask("maintenance-start", group="leaf-a", seconds=3600.0, reason="new firmware").done
    world.bad(*LEAF_A, rail=3)
    assert world.desk.fleet(world.now).fabric_events == ()
    assert {reply.code for reply in map(world.say, LEAF_A)} == {"maintenance"}


def test_a_leaf_that_reboots_twice_is_two_events():
    world = world_of_leaves()
    world.bad(*LEAF_A, rail=3)
    world.wait(60)
    world.well(*LEAF_A)
    world.wait(60)
    world.look()
    world.bad(*LEAF_A, rail=3)
    world.wait(800)
    world.look()
    world.all_say()
    assert world.work() == []
    assert len(world.notes("fabric-event-begins")) == 2


def test_a_topology_that_is_learned_later_still_finds_the_leaf():
    world = World(32, leaves=LEAVES)
    world.bad(*LEAF_A[:3], rail=3)
    assert world.desk.fleet(world.now).fabric_events == ()
    world.look()
    assert [event.group for event in world.desk.fleet(world.now).fabric_events] == ["leaf-a"]


def test_alerts_for_one_leaf_at_once_are_an_event_too():
    world = world_of_leaves(drain_on=("IbPortDown",))
    for name in LEAF_A:
        world.alert(name)
    world.wait(11)
    world.look()
    world.all_say()
    assert world.work() == []
    (event,) = world.desk.fleet(world.now).fabric_events
    assert (event.group, event.rule) == ("leaf-a", "alert:IbPortDown")
    assert world.row("n1").code == "fabric_event"
