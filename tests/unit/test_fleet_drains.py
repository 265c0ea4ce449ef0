"""A node's wish becomes a drain and ends as none: what is asked, what is answered, what people and crashes do to it."""

from __future__ import annotations

import itertools

import pytest
from fleet_world import World

from ibmon.config import LimitsConfig
from ibmon.controller import cases
from ibmon.controller.values import ReleaseJob
from ibmon.drain import reconcile
from ibmon.model import BlockCode, Mode, NodeFitness
from ibmon.ports import SchedulerError
from ibmon.report import Wish


def test_a_wish_is_drained_in_the_nodes_own_words_and_the_next_report_hears_of_it():
    world = World().begin()
    assert [(r.decision, r.code) for r in world.bad("n7")] == [("none", "")]
    assert world.work() == [("n7", "drain", "done", None)]
    assert world.cluster.view("n7").reason == world.nodes["n7"].wish.reason
    assert world.say("n7").decision == "drained"
    assert world.nodes["n7"].owned.held
    assert world.work() == []
    assert world.row("n7").state == "held"
    assert world.row("n7").owner == "node"


def test_a_fit_node_that_presents_the_id_is_given_back_and_told_so():
    world = World().begin()
    world.bad("n7")
    world.work()
    world.say("n7")
    assert world.well("n7")[0].decision == "drained"
    assert world.work() == [("n7", "release", "gone", None)]
    assert world.say("n7").decision == "released"
    assert world.nodes["n7"].owned is None
    assert (world.say("n7").decision, world.drained(), world.row("n7")) == ("none", [], None)


@pytest.mark.parametrize(("fitness", "back"), [("fit", True), ("watch", True), ("unfit", False), ("unknown", False)])
def test_only_a_report_that_says_fit_or_watch_gives_back(fitness, back):
    world = World().begin()
    world.bad("n7")
    world.work()
    world.say("n7")
    world.nodes["n7"].well()
    world.nodes["n7"].fitness = NodeFitness(fitness)
    world.say("n7")
    assert bool(world.work()) is back


def test_a_person_on_the_node_gets_it_back_whatever_its_fitness():
    world = World().begin()
    world.bad("n7")
    world.work()
    world.say("n7")
    node = world.nodes["n7"]
    node.wish = Wish(id=node.owned.id, by="root")
    world.say("n7")
    assert isinstance(world.desk.next_job(world.now), ReleaseJob)


def test_a_request_on_the_node_that_has_ended_there_gives_nothing_back_later():
    world = World().begin()
    world.bad("n7")
    world.work()
    world.say("n7")
    node = world.nodes["n7"]
    wanted, node.wish = node.wish, Wish(id=node.owned.id, by="root")
    world.ask("stop")
    world.say("n7")
    node.wish = wanted
    world.say("n7")
    world.ask("start")
    assert world.round(3) == []
    assert world.drained() == ["n7"]


def test_what_the_node_owns_without_wishing_anything_stays_as_it_is():
    world = World().begin()
    world.bad("n7")
    world.work()
    world.say("n7")
    world.nodes["n7"].wish = Wish()
    assert world.say("n7").decision == "drained"
    assert world.work() == []


def test_without_the_nodes_own_record_nothing_is_given_back():
    world = World().begin()
    world.bad("n7")
    world.work()
    mark = world.nodes["n7"].owned.id
    world.say("n7", intent=Wish(id=mark), owned=None, fitness=NodeFitness.FIT)
    assert world.work() == []
    assert world.drained() == ["n7"]


def test_the_text_is_compared_too_before_anything_is_given_back():
    world = World().begin()
    world.bad("n7")
    world.work()
    world.say("n7")
    world.person("n7", "drain", world.cluster.view("n7").reason.replace("port-down", "port-down (RMA)"))
    world.well("n7")
    world.work()
    assert world.cluster.view("n7").drained
    assert world.say("n7").decision == "released"
    assert world.row("n7").owner == "foreign"


def test_a_wish_whose_text_does_not_carry_its_id_is_no_wish():
    world = World().begin()
    reply = world.say("n7", intent=Wish(drain=True, id="abcd", reason="ibmon: port-down n7 [id ffff]"))
    assert (reply.decision, world.work()) == ("none", [])
    assert world.notes("wish-refused")[0]["node"] == "n7"


# --------------------------------------------------------------------------------- people at the scheduler


def test_a_node_that_somebody_resumes_is_not_drained_again():
    world = World().begin()
    world.bad("n7")
    world.work()
    world.say("n7")
    world.person("n7", "resume")
    world.wait(30)
    world.look()
    reply = world.say("n7")
    assert (reply.decision, world.nodes["n7"].overridden) == ("released", True)
    assert world.round(5) == []
    world.well("n7")
    world.bad("n7")
    assert world.work() == [("n7", "drain", "done", None)]  # another fault has another id


def test_a_view_that_was_read_before_the_drain_does_not_take_it_for_resumed():
    world = World().begin()
    world.bad("n7")
    before = world.view()
    world.wait(1)
    world.work()
    world.desk.scheduler(before, world.now)
    assert world.say("n7").decision == "drained"
    assert world.row("n7").state == "held"
    assert world.desk.fleet(world.now).pools[0].used == 1


def test_a_drain_that_somebody_else_put_over_ours_is_theirs():
    world = World().begin()
    world.bad("n7")
    world.work()
    world.say("n7")
    world.person("n7", "drain", "RMA 4711")
    world.wait(30)
    world.look()
    assert (world.say("n7").decision, world.say("n7").code) == ("blocked", "foreign_drain")
    world.person("n7", "resume")
    world.wait(30)
    world.look()
    assert world.say("n7").decision == "released"


def test_a_node_that_somebody_else_has_drained_is_left_alone():
    world = World().begin()
    world.person("n7", "drain", "swap the fan")
    world.look()
    assert world.bad("n7")[0].code == "foreign_drain"
    assert world.work() == []
    assert world.row("n7").owner in {"node", "foreign"}
    assert world.cluster.view("n7").reason == "swap the fan"


def test_a_fault_that_returns_while_the_node_is_given_back_is_drained_anew_and_nobody_is_taken_for_a_person():
    world = World().begin()
    world.bad("n7")
    world.work()
    world.say("n7")
    world.well("n7")
    job = world.desk.next_job(world.now)
    world.nodes["n7"].bad(world.wall)
    world.say("n7")
    done = world.carry_out(job)
    world.desk.done(type("O", (), {"node": "n7", "done": done}), world.now)
    world.say("n7")
    assert not world.nodes["n7"].overridden
    assert world.work() == [("n7", "drain", "done", None)]
    assert world.say("n7").decision == "drained"


# ------------------------------------------------------------------------------------------ one after the other


def test_jobs_are_serial_and_the_oldest_wish_comes_first():
    world = World().begin()
    for name, since in (("n3", 30.0), ("n1", 20.0), ("n2", 20.0)):
        world.nodes[name].bad(world.wall - since)
        world.say(name)
    first = world.desk.next_job(world.now)
    assert (first.node, world.desk.next_job(world.now)) == ("n3", None)
    world.desk.done(type("O", (), {"node": "n3", "done": world.carry_out(first)}), world.now)
    assert [told[0] for told in world.work()] == ["n1", "n2"]


def test_giving_back_comes_before_draining():
    world = World().begin()
    world.bad("n7")
    world.work()
    world.say("n7")
    world.bad("n1", "n2")
    world.well("n7")
    assert [told[:2] for told in world.work()] == [("n7", "release"), ("n1", "drain"), ("n2", "drain")]


def test_the_limit_is_exact_and_the_others_are_told_why():
    world = World(count=100, limits=LimitsConfig(new_per_minute=1000.0)).begin()
    for i in range(1, 9):
        world.bad(f"n{i}", rail=i)
    assert [told[0] for told in world.work()] == ["n1", "n2"]
    world.round(3)
    assert world.drained() == ["n1", "n2"]
    assert {world.say(f"n{i}").code for i in range(3, 9)} == {"limit_nodes"}
    world.well("n1")
    world.round(2)
    assert world.drained() == ["n2", "n3"]


def test_one_a_minute_is_one_a_minute_and_the_desk_knows_when_the_next_is_due():
    world = World(count=400, limits=LimitsConfig()).begin()
    for i in range(1, 4):
        world.bad(f"n{i}", rail=i)
    assert [told[2] for told in world.work()] == ["done"]
    drained_at = world.wall
    assert world.say("n2").code == "limit_rate"
    world.look()
    assert world.work() == []
    assert world.desk._line.wake == pytest.approx(world.mono + 60.0, abs=0.1)
    while len(world.drained()) < 2:
        world.wait(min(30.0, world.desk.next_due() - world.mono))
        world.look()
        world.all_say()
        world.work()
    assert world.wall - drained_at == pytest.approx(60.0, abs=0.1)


def test_what_the_scheduler_counts_at_the_moment_of_the_drain_decides_and_is_asked_once_a_view():
    world = World(count=100, limits=LimitsConfig(new_per_minute=1000.0)).begin()
    for other in ("n91", "n92"):  # drained by nodes that ask no controller
        world.person(other, "drain", f"ibmon: port-down {other} [id 00{other[1:]}]")
    for i in range(1, 6):
        world.bad(f"n{i}", rail=i)
    assert world.work() == [("n1", "drain", "blocked", BlockCode.LIMIT_NODES)]
    assert world.drained() == ["n91", "n92"]
    assert world.work() == []


# ----------------------------------------------------------------------------------------- what holds back


def test_no_drain_in_any_mode_but_drain_on_either_side():
    world = World(mode=Mode.OBSERVE).begin()
    assert world.bad("n7")[0].code == "mode"
    world = World().begin()
    world.nodes["n7"].mode = Mode.ALERT
    reply = world.bad("n7")[0]
    assert (reply.code, reply.mode, world.work()) == ("mode", Mode.DRAIN, [])


def test_a_silent_node_is_unknown_and_never_drained_and_its_drain_stays():
    world = World().begin()
    world.bad("n7")
    world.work()
    world.say("n7")
    world.ask("mode", "n8", mode=Mode.ALERT)
    world.bad("n8", rail=5)  # waits for the mode, then falls silent
    world.round(3, silent={"n7", "n8"})
    world.ask("mode", "n8", mode=Mode.DRAIN)
    assert world.work() == []
    fleet = world.desk.fleet(world.now)
    assert (fleet.nodes["missing"], fleet.nodes["unknown"], fleet.nodes["fit"]) == (2, 2, 38)
    assert world.drained() == ["n7"]
    assert [note["nodes"] for note in world.notes("nodes-missing")] == [["n7", "n8"]]
    row = next(row for row in world.desk.nodes(world.now) if row.name == "n8")
    assert (row.fitness, row.missing, row.code) == ("unknown", True, "missing")
    world.say("n8")
    assert world.notes("node-back") == [{"node": "n8"}]
    assert world.work() == [("n8", "drain", "done", None)]


def test_a_node_that_fell_silent_after_it_asked_for_its_release_is_given_back_when_it_is_heard_again():
    world = World().begin()
    world.bad("n7")
    world.work()
    world.say("n7")
    world.ask("stop")
    world.nodes["n7"].well()
    world.say("n7")
    world.round(3, silent={"n7"})
    world.ask("start")
    assert world.round(2, silent={"n7"}) == []
    assert world.drained() == ["n7"]
    assert world.round(1) == [("n7", "release", "gone", None)]


def test_an_old_view_of_the_scheduler_drains_nobody():
    world = World().begin()
    world.wait(89)
    world.all_say()
    world.wait(2)
    assert world.bad("n7")[0].code == "scheduler_unreachable"
    assert world.work() == []


def test_a_scheduler_that_is_away_is_asked_for_nothing_and_the_drain_happens_once_when_it_returns():
    world = World().begin()
    world.scheduler_is("down")
    world.bad("n7")
    assert world.work() == [("n7", "drain", "failed", BlockCode.SCHEDULER_UNREACHABLE)]
    world.bad("n8", rail=1)
    assert world.work() == []
    asked = world.round(120)
    assert asked == []
    assert (world.say("n7").decision, world.say("n7").code) == ("blocked", "scheduler_unreachable")
    world.scheduler_is("up")
    assert sorted(world.round()) == [("n7", "drain", "done", None), ("n8", "drain", "done", None)]
    assert len(world.notes("scheduler-failed")) == 1


def test_a_drain_that_the_scheduler_makes_late_is_seen_and_given_back():
    world = World().begin()
    write = world.cluster.drain

    def hang(node, reason):
        world.scheduler_is("hang")
        write(node, reason)

    world.cluster.drain = hang
    world.bad("n7")
    assert world.work()[0][2] == "failed"
    world.well("n7")
    world.round(3)
    world.cluster.drain = write
    world.scheduler_is("up")
    assert world.drained() == ["n7"]
    assert world.round(1)[-1] == ("n7", "release", "gone", None)
    world.all_say()
    assert (world.drained(), world.nodes["n7"].owned) == ([], None)


def put_off(world):
    """From now on the scheduler answers questions and puts drains off; what is to be called when it makes them."""
    write, waiting = world.cluster.drain, []

    def drain(node, reason):
        waiting.append((node, reason))
        raise SchedulerError("no answer within the deadline", general=True)

    def catch_up():
        world.cluster.drain = write
        for node, reason in waiting:
            write(node, reason)

    world.cluster.drain = drain
    return catch_up


def test_a_drain_that_comes_when_the_scheduler_has_been_away_for_an_hour_is_given_back_though_it_comes_after_a_view():
    world = World().begin()
    catch_up = put_off(world)
    world.bad("n7")
    assert world.work()[0][2] == "failed"
    world.well("n7")
    world.scheduler_is("down")
    world.round(120)
    world.scheduler_is("up")
    world.round(2)
    catch_up()
    assert world.round(1)[-1] == ("n7", "release", "gone", None)
    world.all_say()
    assert (world.drained(), world.nodes["n7"].owned) == ([], None)


def test_a_drain_that_comes_later_than_anybody_waits_for_is_told_as_an_orphan_and_is_a_persons_to_give_back():
    world = World().begin()
    catch_up = put_off(world)
    world.bad("n7")
    world.work()
    world.well("n7")
    world.round(12)
    assert world.nodes["n7"].owned is None
    catch_up()
    world.round(1)
    assert [note["node"] for note in world.notes("orphan")] == ["n7"]
    assert world.row("n7").owner == "orphan"
    world.ask("release", "n7")
    world.work()
    assert world.drained() == []


def test_a_wish_that_ends_before_it_was_granted_costs_no_call():
    world = World(count=100, limits=LimitsConfig(new_per_minute=1000.0)).begin()
    for i in range(1, 9):
        world.bad(f"n{i}", rail=i)
    world.work()
    world.well(*[f"n{i}" for i in range(3, 9)])
    assert world.round(12) == []
    assert all(world.nodes[f"n{i}"].owned is None for i in range(3, 9))


def test_a_wish_that_pauses_before_it_was_granted_is_not_called_released():
    world = World(count=100, limits=LimitsConfig(new_per_minute=1000.0)).begin()
    for i in range(1, 4):
        world.bad(f"n{i}", rail=i)
    world.work()
    wish = world.nodes["n3"].wish
    world.nodes["n3"].wish = Wish()  # a stop or a mode on the node
    for _ in range(15):
        world.round()
        assert world.say("n3").decision == "none"
    world.nodes["n3"].wish = wish
    world.well("n1")
    world.round(3)
    assert world.drained() == ["n2", "n3"]


def test_a_node_that_the_scheduler_does_not_know_is_told_once_and_never_drained():
    world = World().begin()
    stranger = type(world.nodes["n1"])("elsewhere")
    stranger.bad(world.wall)
    for _ in range(3):
        reply = world.desk.report(stranger.report(world.wall), world.now)
        assert (reply.decision, reply.code) == ("blocked", "scheduler_unreachable")
    assert world.work() == []
    assert [note["node"] for note in world.notes("node-unknown-at-scheduler")] == ["elsewhere"]
    assert world.desk.counts(world.now).unknown_names == 1


def test_what_fails_is_tried_again_less_and_less_often():
    world = World().begin()
    world.cluster.drain = lambda node, reason: None  # taken, and never done
    world.bad("n7")
    tries = []
    for _ in range(180):
        tries += [world.wall for _ in world.round(1, 10.0)]
    gaps = [later - sooner for sooner, later in itertools.pairwise(tries)]
    assert gaps[0] <= 40
    assert gaps == sorted(gaps[:4]) + gaps[4:]
    assert all(240 <= gap <= 370 for gap in gaps[5:])
    assert len(tries) < 15


def test_the_core_and_reconcile_agree_on_how_late_a_drain_may_come():
    assert cases.LATE == reconcile.LATE
