"""The controller's core in an odd world: clocks that are set, nodes that vanish, twins, bent wishes."""

import msgspec
import pytest
from fleet_world import Node, World, finding

from ibmon.controller.alarms import MOST_ALERTS, MOST_NODES
from ibmon.controller.ledger import Ledger
from ibmon.controller.roster import MISSING, REMEMBERED, SAVE_EVERY, SETTLE
from ibmon.controller.values import Refused
from ibmon.model import BlockCode, NodeFitness
from ibmon.report import Wish

DAY = 86400.0


def without(world, *gone):
    """A view of the scheduler that lacks these nodes."""
    view = world.view()
    pools = tuple(msgspec.structs.replace(p, nodes=tuple(n for n in p.nodes if n.name not in gone)) for p in view.pools)
    return world.view(nodes={name: node for name, node in view.nodes.items() if name not in gone}, pools=pools)


def test_a_node_that_the_scheduler_has_not_got_any_more_keeps_no_other_waiting():
    world = World().begin()
    world.bad("n1")
    world.work()
    world.wait(30)
    world.desk.scheduler(without(world, "n1"), world.now)
    assert world.well("n1")[0].code == BlockCode.SCHEDULER_UNREACHABLE.value
    world.bad("n2")
    assert [job[:2] for job in world.work()] == [("n2", "drain")]
    world.look()  # it is there again
    assert [job[:2] for job in world.work()] == [("n1", "release")]


def orphan():
    """A world in which n1 has lost the record of its drain."""
    world = World().begin()
    world.bad("n1")
    world.work()
    node = world.nodes["n1"]
    node.findings, node.fitness, node.wish, node.owned = (), NodeFitness.FIT, Wish(), None
    world.round()
    return world


def test_a_release_that_a_person_asked_for_outlives_a_view_that_lacks_the_node():
    world = orphan()
    world.scheduler_is("down")
    assert world.ask("release", "n1").done
    world.work()
    world.scheduler_is("up")
    world.desk.scheduler(without(world, "n1"), world.now)
    assert world.work() == []
    world.wait(30)
    world.look()
    world.work()
    assert world.drained() == []


def test_a_release_for_a_node_that_stays_away_is_forgotten_after_a_day():
    world = orphan()
    world.scheduler_is("down")
    world.ask("release", "n1")
    world.wait(DAY)
    world.scheduler_is("up")
    world.desk.scheduler(without(world, "n1"), world.now)
    world.work()
    assert Ledger.read(world.disk).releases == {}


@pytest.mark.parametrize("what", ["fit", "only watched", "another text"])
def test_a_wish_without_a_cause_or_with_another_text_than_the_record_drains_nothing(what):
    world = World().begin()
    node = world.nodes["n1"]
    node.bad(world.wall)
    if what == "fit":
        node.findings, node.fitness = (), NodeFitness.FIT
    elif what == "only watched":
        node.findings = (finding(drains=False),)
    else:
        node.owned = msgspec.structs.replace(node.owned, reason=f"ibmon: other words [id {node.owned.id}]")
    world.say("n1")
    assert world.round() == []
    assert len(world.notes("wish-refused")) == 1


def test_two_machines_with_one_name_are_told_once_and_only_one_of_them_is_heard():
    world = World().begin()
    twin = Node("n1")
    twin.boot = "boot-2"
    world.wait(15)
    world.desk.report(twin.report(world.wall), world.now)
    for _ in range(10):
        world.wait(15)
        refused = world.desk.report(world.nodes["n1"].report(world.wall), world.now)
        assert isinstance(refused, Refused)
        world.wait(15)
        assert not isinstance(world.desk.report(twin.report(world.wall), world.now), Refused)
    assert "two machines" in refused.text


def test_a_node_may_boot_again_and_again():
    world = World().begin()
    for number in range(5):
        world.nodes["n1"].boot = f"another-{number}"
        world.round()


@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_a_window_lasts_as_long_as_was_said_whatever_the_clock_is_set_to(ahead):
    world = World().begin()
    world.ask("maintenance-start", "n1", reason="new optics", seconds=300.0)
    world.wall += ahead
    world.round(2)
    world.wall -= ahead
    world.bad("n1")
    assert world.round() == []
    world.round(7)
    assert world.drained() == ["n1"]
    assert len(world.notes("maintenance-over")) == 1


def test_a_clock_that_is_set_a_day_ahead_forgets_no_node():
    world = World().begin()
    world.wall += REMEMBERED
    for _ in range(int((MISSING + SAVE_EVERY) / 30) + 1):
        world.wait(30)
        world.work()
    assert len(world.notes("nodes-missing")) == 1
    world.wall -= REMEMBERED
    world.work()
    assert world.notes("node-forgotten") == []
    assert world.desk.counts(world.now).quorum.seen == 40


def test_an_alert_that_ended_before_the_clock_was_set_back_is_over_all_the_same():
    world = World(drain_on=("IbPortDown",)).begin()
    world.alert("n1")
    world.wait(15)
    assert [job[:2] for job in world.work()] == [("n1", "drain")]
    world.alert("n1", firing=False)
    world.wall -= DAY
    world.round(3)
    assert world.drained() == []


def test_a_controller_that_never_lives_long_still_leaves_to_the_next_who_the_fleet_is():
    world = World(20)
    world.look()
    world.all_say()
    world.wait(SETTLE)
    world.all_say()
    world.work()
    assert len(Ledger.read(world.disk).seen) == 20
    world.crash()
    world.look()
    world.bad("n1")
    assert world.round(3, silent=[f"n{i}" for i in range(2, 21)]) == []


def test_nodes_that_were_seen_in_the_future_count_for_a_day_and_not_longer():
    world = World(1)
    future = {f"gone{i}": int(world.wall + 30 * DAY) for i in range(9)}
    world.disk = msgspec.json.encode(Ledger(seen=future))
    world.crash()
    assert world.desk.counts(world.now).quorum.seen == 9
    world.wait(REMEMBERED)
    world.all_say()
    world.work()
    assert world.desk.counts(world.now).quorum.seen == 1


def test_of_a_node_that_falls_silent_it_is_said_once_that_nothing_is_known():
    world = World(3).begin()
    world.round(2, silent=["n2"])
    world.round(silent=["n2", "n3"])
    assert world.desk.silenced() == {"n2"}
    world.round(2, silent=["n2", "n3"])
    world.say("n3")  # it is back before anybody asks
    assert world.desk.silenced() == set()


def test_alerts_fill_no_memory_however_many_names_they_have():
    world = World(3, drain_on=("IbPortDown",))  # the scheduler was not read yet
    for number in range(MOST_NODES + 50):
        world.alert(f"x{number}")
    for number in range(MOST_ALERTS + 50):
        world.alert("x0", fingerprint=f"another-{number}")
    alerts = Ledger.read(world.desk.ledger_bytes()).alerts
    assert (len(alerts), len(alerts["x0"].firing)) == (MOST_NODES, MOST_ALERTS)
    assert len(world.notes("alerts-too-many")) == 50


def test_the_other_of_two_machines_with_one_name_is_heard_when_the_one_is_gone():
    world = World().begin()
    twin = Node("n1")
    twin.boot = "boot-2"
    world.wait(15)
    world.desk.report(twin.report(world.wall), world.now)
    world.wait(MISSING)
    world.all_say()
