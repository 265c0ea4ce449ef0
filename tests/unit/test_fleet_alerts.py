"""What alerts of a Prometheus may drain, and what gives such a drain back: never their end alone."""

from __future__ import annotations

from fleet_world import World

from ibmon.controller.ledger import Ledger
from ibmon.controller.values import AlertSeen
from ibmon.drain import policy
from ibmon.model import Mode, NodeFitness
from ibmon.report import Working


def world_with_alerts(**settings):
    return World(drain_on=("IbPortDown", "IbSlow"), **settings).begin()


def fire(world, node="n7", **alert):
    """An alert fires, and ten seconds for siblings pass."""
    world.alert(node, **alert)
    world.wait(10)
    world.look()
    world.all_say()
    return world.work()


def test_only_names_in_drain_on_may_drain():
    world = world_with_alerts()
    assert fire(world, name="NodeDown") == []
    assert (world.desk.changed, world.row("n7")) == (False, None)
    assert fire(World().begin()) == []


def test_an_alert_drains_in_words_that_carry_its_id():
    world = world_with_alerts()
    assert fire(world) == [("n7", "drain", "done", None)]
    reason = world.cluster.view("n7").reason
    mark = policy.parse_reason(reason)
    assert reason == f"ibmon: IbPortDown n7 port 1 is down [id {mark}]"
    assert (world.row("n7").owner, world.row("n7").state, world.row("n7").id) == ("alertmanager", "held", mark)


def test_a_summary_of_any_length_and_kind_makes_a_reason_that_can_be_read_back():
    world = world_with_alerts()
    summary = "naïve [id 0000]\n" * 40
    world.desk.alert(AlertSeen("IbPortDown", "n7", True, "f1", world.wall, summary), world.now)
    world.round()
    reason = world.cluster.view("n7").reason
    assert len(reason) <= 200
    assert reason.isascii()
    assert policy.parse_reason(reason) == world.row("n7").id


def test_the_ledger_knows_of_the_drain_before_the_scheduler_does():
    world = world_with_alerts()
    world.alert("n7")
    assert world.desk.changed
    world.wait(10)
    world.look()
    world.save()
    job = world.desk.next_job(world.now)
    assert world.desk.changed
    entry = Ledger.read(world.desk.ledger_bytes()).alerts["n7"]
    assert (entry.id, entry.asked, entry.held) == (job.intent.id, world.wall, False)
    world.work()


def test_the_end_of_the_alert_alone_gives_nothing_back():
    world = world_with_alerts()
    fire(world)
    world.nodes["n7"].fitness = NodeFitness.WATCH
    world.alert("n7", firing=False)
    assert world.round(20) == []
    assert world.drained() == ["n7"]


def test_a_later_report_that_says_fit_gives_back():
    world = world_with_alerts()
    fire(world)
    world.say("n7")
    world.wait(5)
    world.alert("n7", firing=False)
    assert world.work() == []  # fit was said before the end
    world.wait(5)
    world.say("n7")
    assert world.work() == [("n7", "release", "gone", None)]
    assert (world.row("n7"), Ledger.read(world.desk.ledger_bytes()).alerts) == (None, {})


def test_a_report_that_was_sent_before_the_end_proves_nothing():
    world = world_with_alerts()
    fire(world)
    world.alert("n7", firing=False)
    world.wait(20)
    world.say("n7", sent=world.wall - 30)
    assert world.work() == []


def test_an_alert_that_fires_again_before_that_keeps_the_drain():
    world = world_with_alerts()
    fire(world)
    world.alert("n7", firing=False)
    world.wait(5)
    world.alert("n7")
    assert world.round(5) == []
    assert world.drained() == ["n7"]


def test_of_several_alerts_the_last_to_end_counts():
    world = world_with_alerts()
    fire(world)
    fire(world, name="IbSlow", fingerprint="f2")
    world.alert("n7", firing=False)
    assert world.round(5) == []
    world.alert("n7", name="IbSlow", fingerprint="f2", firing=False)
    assert world.round(2) == [("n7", "release", "gone", None)]


def test_an_end_that_is_older_than_the_alert_ends_nothing():
    world = world_with_alerts()
    fire(world, starts=world.wall)
    world.alert("n7", firing=False, starts=world.wall - 500)
    world.round(2)
    assert world.drained() == ["n7"]


def test_a_person_may_give_back_and_the_alert_does_not_drain_again():
    world = world_with_alerts()
    fire(world)
    assert world.ask("release", "n7").done
    assert world.work() == [("n7", "release", "gone", None)]
    starts = world.wall - 10
    world.crash()
    for _ in range(10):
        world.alert("n7", starts=starts)
        world.round()
    assert world.drained() == []
    world.alert("n7", fingerprint="another")  # that is news
    world.round(2)
    assert world.drained() == ["n7"]


def test_a_node_that_somebody_resumes_stays_resumed_until_the_alert_ends():
    world = world_with_alerts()
    fire(world)
    world.person("n7", "resume")
    assert world.round(5) == []
    world.alert("n7", firing=False)
    assert fire(world) == [("n7", "drain", "done", None)]


def test_a_node_of_which_nothing_but_alerts_is_known_is_drained_too():
    world = World(drain_on=("IbPortDown",))
    world.look()
    world.wait(61)
    world.look()
    world.alert("n7")
    world.wait(10)
    assert world.work() == [("n7", "drain", "done", None)]
    world.alert("n7", firing=False)
    for _ in range(5):
        world.wait(30)
        world.look()
        assert world.work() == []
    assert world.ask("release", "n7").done
    assert world.work() == [("n7", "release", "gone", None)]


def test_a_silent_node_is_not_drained_for_an_alert():
    world = world_with_alerts()
    world.round(4, silent={"n7"})
    world.alert("n7")
    assert world.round(2, silent={"n7"}) == []
    assert world.row("n7").code == "missing"


def test_the_exporters_death_during_the_drain_gives_nothing_back():
    world = world_with_alerts()
    fire(world)
    world.alert("n7", firing=False)  # no series, no alert
    assert world.round(40, silent={"n7"}) == []
    assert world.drained() == ["n7"]


def test_a_node_that_the_scheduler_does_not_have_is_refused_in_one_line():
    world = world_with_alerts()
    for _ in range(3):
        world.alert("n999")
    assert [note["node"] for note in world.notes("alert-unknown-node")] == ["n999"]
    assert world.desk.changed is False


def test_an_alert_that_comes_before_the_first_view_waits_for_it():
    world = World(drain_on=("IbPortDown",))
    world.alert("n7")
    world.alert("n999")
    world.look()
    assert [note["node"] for note in world.notes("alert-unknown-node")] == ["n999"]
    world.all_say()
    assert world.round(2) == [("n7", "drain", "done", None)]


def test_the_gates_are_the_same_as_for_a_nodes_own_wish():
    world = world_with_alerts()
    world.ask("mode", "n1", mode=Mode.OBSERVE)
    world.nodes["n2"].mode = Mode.OBSERVE
    world.ask("maintenance-start", "n3", seconds=3600.0, reason="cable")
    world.nodes["n4"].maintenance = Working(until=world.wall + 3600, reason="fan", user="root")
    world.person("n5", "drain", "RMA")
    for name in ("n1", "n2", "n3", "n4", "n5"):
        world.alert(name, starts=world.wall - 100 * int(name[1:]))
    world.round(2)
    assert [world.row(f"n{i}").code for i in range(1, 5)] == ["mode", "mode", "maintenance", "maintenance"]
    assert world.drained() == []
    world.ask("stop")
    world.alert("n6")
    assert world.round(2) == []


def test_a_node_that_has_just_booted_is_in_its_grace():
    world = world_with_alerts()
    world.nodes["n7"].boot = "boot-2"
    world.round()
    assert fire(world) == []
    assert world.row("n7").code == "boot_grace"
    assert world.round(20) == [("n7", "drain", "done", None)]


def test_work_on_one_port_of_a_node_does_not_hold_back_what_an_alert_says_of_it():
    world = world_with_alerts()
    world.nodes["n7"].maintenance = Working(until=world.wall + 3600, subjects=("mlx5_0/1",))
    world.all_say()
    assert fire(world) == [("n7", "drain", "done", None)]


def test_an_alert_that_waits_for_work_on_the_whole_node_drains_when_the_window_ends():
    world = world_with_alerts()
    world.nodes["n7"].maintenance = Working(until=world.wall + 100)
    world.all_say()
    assert fire(world) == []
    assert world.round(1, seconds=89) == []
    assert world.desk.next_due() == world.mono + 1
    assert world.round(1, seconds=1) == [("n7", "drain", "done", None)]


def test_an_alert_that_ends_before_it_was_granted_leaves_nothing():
    world = world_with_alerts()
    world.alert("n7")
    world.alert("n7", firing=False)
    assert world.round(3) == []
    assert Ledger.read(world.desk.ledger_bytes()).alerts == {}


def test_a_killed_controller_goes_on_from_the_ledger():
    world = world_with_alerts()
    fire(world)
    world.crash()
    world.look()
    assert world.row("n7").owner == "alertmanager"
    world.alert("n7", firing=False)
    world.wait(1)
    world.all_say()
    assert world.work() == [("n7", "release", "gone", None)]


def test_without_the_ledger_its_drains_are_orphans():
    world = world_with_alerts()
    fire(world)
    world.disk = None
    world.crash()
    world.look()
    world.all_say()
    assert world.row("n7").owner == "orphan"
    assert world.round(10) == []
    assert world.ask("release", "n7").done
    assert world.work() == [("n7", "release", "gone", None)]


def test_the_same_alert_told_again_writes_nothing():
    world = world_with_alerts()
    starts = world.wall
    fire(world, starts=starts)
    assert not world.desk.changed
    world.alert("n7", starts=starts)
    assert not world.desk.changed
