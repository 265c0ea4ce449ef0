"""The thread that tells the scheduler of this node's fitness: on change, in observe mode never, without a storm."""

from __future__ import annotations

import logging
import queue
import threading

import msgspec
import pytest
from exporter_snapshots import typical

from ibmon.config import Config, KubernetesConfig, LimitsConfig
from ibmon.drain import reconcile
from ibmon.drain.cluster import Cluster
from ibmon.drain.kubernetes import Kubernetes
from ibmon.drain.slurm import Slurm
from ibmon.model import Mode, NodeFitness, Ownership
from ibmon.ports import SchedulerError
from ibmon.runtime import condition, schedulers
from ibmon.runtime.condition import ConditionKeeper

PATIENCE = 10.0


class Scheduler:
    """Takes down what is told, and fails as it is bid."""

    def __init__(self) -> None:
        self.told: queue.Queue[tuple[NodeFitness, str]] = queue.Queue()
        self.checked: queue.Queue[None] = queue.Queue()
        self.failures: list[SchedulerError] = []
        self.problems: tuple[str, ...] = ()
        self.free = threading.Event()  # while it is clear no call returns
        self.free.set()

    def publish(self, fitness, why):
        assert self.free.wait(PATIENCE)
        if self.failures:
            raise self.failures.pop()
        self.told.put((fitness, why))

    def check(self):
        self.checked.put(None)
        return self.problems

    def next(self):
        return self.told.get(timeout=PATIENCE)


@pytest.fixture
def scheduler():
    return Scheduler()


@pytest.fixture
def keep(scheduler):
    keepers = []

    def start(mode=Mode.ALERT, *, stop=False):
        gates = reconcile.Gates(mode=lambda: mode, stop=lambda: stop, limits=LimitsConfig())
        keepers.append(ConditionKeeper(scheduler, lambda: gates, "node1", first=0.0))
        return keepers[-1]

    yield start
    for keeper in keepers:
        keeper.close(PATIENCE)
        assert not keeper._thread.is_alive()


def seen(fitness, why="", owned=None):
    snapshot = typical()
    drain = msgspec.structs.replace(snapshot.drain, owned=owned)
    return msgspec.structs.replace(snapshot, fitness=fitness, why=why, drain=drain)


def test_a_change_is_told_at_once_and_what_did_not_change_is_not(keep, scheduler):
    keeper = keep()
    keeper.show(seen(NodeFitness.FIT))
    assert scheduler.next() == (NodeFitness.FIT, "")
    for seconds in range(5):
        keeper.show(seen(NodeFitness.FIT, f"port-down {seconds}s"))
    keeper.show(seen(NodeFitness.UNFIT, "port-down"))
    assert scheduler.next() == (NodeFitness.UNFIT, "port-down")
    assert scheduler.told.empty()


def test_a_drain_of_ours_is_told_by_its_reason(keep, scheduler):
    keep().show(seen(NodeFitness.UNFIT, "port-down 63s", Ownership("7f3a9c", "ibmon: port-down 62s", 1.0, held=True)))
    assert scheduler.next() == (NodeFitness.UNFIT, "ibmon: port-down 62s")


def test_what_does_not_change_is_told_again_as_a_heartbeat(keep, scheduler, monkeypatch):
    monkeypatch.setattr(condition, "HEARTBEAT", 0.02)
    keep().show(seen(NodeFitness.FIT))
    assert [scheduler.next()[0] for _ in range(3)] == [NodeFitness.FIT] * 3


def test_a_refused_write_is_tried_again_with_what_is_true_then(keep, scheduler, monkeypatch, caplog):
    monkeypatch.setattr(condition, "_RETRY_FIRST", 0.2)
    scheduler.failures = [SchedulerError("gone away"), SchedulerError("gone away")]
    scheduler.free.clear()
    keeper = keep()
    keeper.show(seen(NodeFitness.UNFIT))
    keeper.show(seen(NodeFitness.FIT))
    scheduler.free.set()
    assert scheduler.next()[0] is NodeFitness.FIT
    assert caplog.text.count('detail="gone away"') == 2


@pytest.mark.parametrize(("forbidden", "least", "most"), [(True, 240.0, 360.0), (False, 0.0, 5.0)])
def test_what_is_forbidden_is_not_tried_again_in_a_hurry(keep, scheduler, forbidden, least, most):
    keeper = keep()
    keeper.close(PATIENCE)
    keeper.show(seen(NodeFitness.FIT))
    scheduler.failures = [SchedulerError("no", forbidden=forbidden)]
    wait, a_change_comes_first = keeper._turn_once()
    assert least <= wait <= most
    assert not a_change_comes_first


@pytest.mark.parametrize(("mode", "stop"), [(Mode.OBSERVE, False), (Mode.ALERT, True), (Mode.DRAIN, True)])
def test_observe_mode_and_a_stop_tell_and_ask_nothing(keep, scheduler, monkeypatch, mode, stop):
    monkeypatch.setattr(condition, "HEARTBEAT", 0.01)
    turns: queue.Queue[None] = queue.Queue()
    publish = reconcile.publish
    monkeypatch.setattr(reconcile, "publish", lambda *a: (publish(*a), turns.put(None)))
    keep(mode, stop=stop).show(seen(NodeFitness.UNFIT))
    for _ in range(3):
        turns.get(timeout=PATIENCE)
    assert scheduler.told.empty()
    assert scheduler.checked.empty()


def test_in_mode_drain_missing_rights_are_said_once_and_shown(keep, scheduler, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(condition, "HEARTBEAT", 0.02)
    scheduler.problems = ("no right to patch",)
    keeper = keep(Mode.DRAIN)
    keeper.show(seen(NodeFitness.FIT))
    scheduler.next()
    assert keeper.show(seen(NodeFitness.FIT)).actions_enabled is False
    scheduler.problems = ()
    while not keeper.show(seen(NodeFitness.FIT)).actions_enabled:
        scheduler.next()
    asked = scheduler.checked.qsize()
    scheduler.next()
    scheduler.next()
    assert scheduler.checked.qsize() == asked, "what was allowed is not asked again"
    assert 'event=cannot-act detail="no right to patch"' in caplog.text
    assert "event=can-act" in caplog.text


def test_only_mode_drain_asks_for_the_rights_of_a_drain(keep, scheduler):
    keep(Mode.ALERT).show(seen(NodeFitness.FIT))
    scheduler.next()
    assert scheduler.checked.empty()


# ------------------------------------------------------------------------------------------------- who has one


@pytest.mark.parametrize(("name", "kind"), [("none", type(None)), ("slurm", Slurm), ("kubernetes", Kubernetes)])
def test_the_configured_scheduler_is_made(name, kind):
    config = Config()
    config = msgspec.structs.replace(config, action=msgspec.structs.replace(config.action, scheduler=name))
    assert type(schedulers.configured(config, "node1")) is kind


def test_only_kubernetes_is_told():
    config = Config()
    kubernetes = msgspec.structs.replace(config, action=msgspec.structs.replace(config.action, scheduler="kubernetes"))
    gates = reconcile.Gates(mode=lambda: Mode.OBSERVE, stop=lambda: False, limits=LimitsConfig())
    simulated = Cluster(1).client("node0001")
    assert schedulers.keeper(config, Kubernetes(KubernetesConfig()), lambda: gates, "node1") is None
    assert schedulers.keeper(kubernetes, simulated, lambda: gates, "node1") is None
    keeper = schedulers.keeper(kubernetes, Kubernetes(KubernetesConfig()), lambda: gates, "node1")
    assert keeper is not None
    keeper.close(PATIENCE)
