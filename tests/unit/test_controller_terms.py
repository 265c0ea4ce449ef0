"""Terms of office, threads and faults of the running controller: what is old decides nothing, no fault is unsaid."""

from __future__ import annotations

import math
import threading
import urllib.request
from types import SimpleNamespace

import pytest
from controller_world import NODES, SECONDS, World

from ibmon.config import LimitsConfig
from ibmon.controller.assembly import settings
from ibmon.controller.conditions import Conditions
from ibmon.controller.fleet import FleetDesk
from ibmon.controller.keeping import Keeper
from ibmon.controller.ledger import Ledger
from ibmon.controller.roster import MISSING
from ibmon.controller.values import Ask, Note
from ibmon.controller.worker import CHECK_SECONDS
from ibmon.drain.reconcile import Gates
from ibmon.model import NodeFitness
from ibmon.ports import StoreError
from ibmon.store import Store


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.stop()


class Told:
    """What was told to the scheduler about the nodes' fitness."""

    def __init__(self, controller, clock):
        self.said = []
        controller._conditions = Conditions(self.node, lambda _: self.gates(controller), clock)
        controller._conditions.start()

    def gates(self, controller):
        return Gates(mode=lambda: controller._mode_now(NODES[0]), stop=controller._stopped_now, limits=LimitsConfig())

    def node(self, name):
        return SimpleNamespace(publish=lambda fitness, why: self.said.append((name, fitness.value, why)))


def beat(controller, *, stop_file=False):
    controller.server.call(lambda: controller._beat(stop_file)).result(SECONDS)


def ask(controller, clock, action):
    told = controller.server.call(lambda: controller._front.ask(Ask(action=action, user="alice"), clock.now()))
    assert told.result(SECONDS).done


def elected(term):
    return SimpleNamespace(is_leader=lambda: True, term=term, close=lambda _: None)


# ----------------------------------------------------------------------------------------------- terms of office


def test_while_a_new_term_begins_no_thread_is_told_that_this_instance_leads(world, monkeypatch):
    """The desk of the term before may not know of a stop that another instance has taken in."""
    controller = world.start()
    place, asked, go = controller._keeper._ledger, threading.Event(), threading.Event()
    load = place.load

    def slow():
        asked.set()
        go.wait(SECONDS)
        return load()

    monkeypatch.setattr(place, "load", slow)
    controller._leader = elected(1)
    beat(controller)
    assert asked.wait(SECONDS)
    assert not controller.leads()
    go.set()
    world.until(controller.leads)


def test_a_job_of_an_earlier_term_is_not_begun_in_the_next_one(world):
    """Else it would drain before the quorum, by what was known before another instance may have led."""
    controller = world.start()
    world.open_quorum()
    before = controller._worker._age
    controller._leader = elected(1)
    beat(controller)
    world.until(controller.leads)
    assert controller._worker._age > before


def test_an_instance_that_does_not_lead_saves_nothing(world):
    controller = world.start()
    saved = []
    save = controller._keeper._ledger.save
    controller._keeper._ledger.save = lambda data: saved.append(data) or save(data)
    controller._leader = SimpleNamespace(is_leader=lambda: False, term=0, close=lambda _: None)
    controller.server.call(controller.desk._book.touch).result(SECONDS)
    controller.server.call(controller._turn).result(SECONDS)
    controller._keeper._thread.submit(int).result(SECONDS)
    assert saved == []
    controller._leader = None
    controller.server.call(controller._turn).result(SECONDS)
    controller._keeper._thread.submit(int).result(SECONDS)
    assert len(saved) == 1


def test_an_instance_that_does_not_lead_hears_nobody_and_makes_no_news_of_that(world):
    desk = FleetDesk(
        settings(world.config().config), Ledger(seen={NODES[0]: 1_700_000_000}), world.clock.now(), leader=False
    )
    world.clock.ahead += 2 * MISSING
    desk.fleet(world.clock.now())
    assert [note.event for note in desk.notes()] == []


def test_a_ledger_that_cannot_be_loaded_is_one_line_however_often_it_is_tried(world, monkeypatch, caplog):
    controller = world.start()

    def fail():
        raise StoreError("the API does not answer")

    monkeypatch.setattr(controller._keeper._ledger, "load", fail)
    controller._leader = elected(1)
    for _ in range(3):
        beat(controller)
        world.until(lambda: controller._beginning is None)
        assert not controller.leads()
    assert caplog.text.count("nothing is decided before that works") == 1
    monkeypatch.undo()
    beat(controller)
    world.until(controller.leads)


def test_the_lease_is_given_back_after_the_last_write_has_ended(world):
    controller = world.start()
    alive = []
    leader = elected(1)
    leader.close = lambda _: alive.append(controller._worker._thread.is_alive())
    controller._leader = leader
    world.stop()
    assert alive == [False]


# ------------------------------------------------------------------------------------------------------ conditions


def test_of_a_node_that_goes_silent_the_scheduler_is_told_that_nothing_is_known(world):
    """A heartbeat of its last word would say that it is well."""
    controller = world.start()
    told = Told(controller, world.clock)
    world.report(NODES[0])
    world.until(lambda: told.said == [(NODES[0], "fit", "")])
    world.clock.ahead += MISSING
    beat(controller)
    world.until(lambda: told.said[1:] == [(NODES[0], "unknown", "it has not reported for 90 s")])
    world.report(NODES[0])
    world.until(lambda: told.said[2:] == [(NODES[0], "fit", "")])


@pytest.mark.parametrize("way", ["word", "file"])
def test_after_a_stop_the_scheduler_is_told_at_once_what_the_stop_held_back(world, way):
    controller = world.start()
    told = Told(controller, world.clock)
    file = world.directory / "STOP"
    if way == "word":
        ask(controller, world.clock, "stop")
    else:
        file.touch()
        beat(controller, stop_file=True)
    world.report(NODES[0], NodeFitness.UNFIT)
    world.until(lambda: controller._conditions._withheld == {NODES[0]})
    assert told.said == []
    if way == "word":
        ask(controller, world.clock, "start")
    else:
        file.unlink()
        beat(controller)
    world.until(lambda: [said[:2] for said in told.said] == [(NODES[0], "unfit")])


# ---------------------------------------------------------------------------------------------------------- faults


def test_a_fault_in_what_comes_from_the_scheduler_is_a_line_in_the_log_and_the_next_news_is_taken(
    world, monkeypatch, caplog
):
    controller = world.start()

    def fail(*_):
        raise ZeroDivisionError("a fault of our own")

    monkeypatch.setattr(controller.desk, "scheduler", fail)
    world.later(1.0)
    world.until(lambda: "a fault of our own" in caplog.text)
    monkeypatch.undo()
    world.later(1.0)
    world.fresh()


def test_a_right_that_is_missing_is_one_line_and_a_metric_before_any_node_is_bad(world, caplog):
    problem = "Kubernetes forbids ibmon to patch node x: its service account needs the verb patch on nodes"
    controller = world.start()
    world.until(lambda: controller._worker._check_due == math.inf)  # the check after the start has found nothing
    controller._worker._scheduler.check = lambda _: (problem,)
    controller._worker._check_due = float("-inf")
    for _ in range(2):
        world.later(CHECK_SECONDS)
        world.until(lambda: controller._worker._check_due > world.clock.now().monotonic)

    def counted():
        with urllib.request.urlopen(f"{controller.server.url}/metrics", timeout=SECONDS) as answer:
            return 'ibmon_controller_scheduler_errors_total{code="forbidden"} 2.0' in answer.read().decode()

    world.until(counted)
    assert caplog.text.count("cannot-act") == 1
    assert problem in caplog.text


def test_many_notes_are_one_write_to_the_disk(tmp_path):
    """A stop that is to be saved waits behind them."""
    store = Store(tmp_path, node="controller")
    begun = []
    transaction = store.transaction
    store.transaction = lambda: begun.append(1) or transaction()
    keeper, noted = Keeper(store, store), threading.Event()
    keeper._thread.submit(noted.wait, SECONDS)  # the disk is slow
    keeper.note([Note("info", "node-forgotten", {"node": f"n{number}"}) for number in range(2000)], 1000.0)
    saved = keeper.save(b"{}")
    noted.set()
    saved.result(SECONDS)
    assert len(begun) == 1
    assert [line["node"] for line in keeper.audit(3)] == ["n1999", "n1998", "n1997"]
    keeper.close()
