"""Conditions of a whole fleet: changes first, heartbeats spread, gates asked before each write."""

import threading

import pytest

from ibmon.config import LimitsConfig
from ibmon.controller.conditions import HEARTBEAT, Conditions
from ibmon.drain.kube_client import KubeError
from ibmon.drain.reconcile import Gates
from ibmon.model import Mode, NodeFitness, Now
from ibmon.ports import SchedulerError

SECONDS = 20  # no test waits so long unless it fails


class Site:
    """Takes what is published; the clock runs only when told."""

    def __init__(self):
        self.at = 0.0
        self.said = []
        self.mode, self.stop = Mode.DRAIN, False
        self.broken, self.gone = 0, set()
        self.news = threading.Condition()
        self.conditions = Conditions(lambda node: Teller(self, node), self.gates, self)
        self.conditions.start()

    def now(self):
        return Now(self.at, self.at)

    def gates(self, node):
        return Gates(mode=lambda: self.mode, stop=lambda: self.stop, limits=LimitsConfig())

    def wait(self, count):
        with self.news:
            assert self.news.wait_for(lambda: len(self.said) >= count, SECONDS), self.said
            return list(self.said)


class Teller:
    def __init__(self, site, node):
        self.site, self.node = site, node

    def publish(self, fitness, why):
        with self.site.news:
            if self.node in self.site.gone:
                self.site.said.append((self.node, "gone", why))
                self.site.news.notify_all()
                raise KubeError("not found", 404)
            if self.site.broken:
                self.site.broken -= 1
                raise SchedulerError("connection refused")
            self.site.said.append((self.node, fitness.value, why))
            self.site.news.notify_all()

    def check(self):
        return ()


@pytest.fixture
def site():
    site = Site()
    yield site
    site.conditions.close(SECONDS)


def test_a_change_of_fitness_is_told_at_once_and_a_change_of_words_is_not(site):
    site.conditions.show("a", NodeFitness.FIT, "")
    site.wait(1)
    site.conditions.show("a", NodeFitness.FIT, "other figures")
    site.conditions.show("b", NodeFitness.UNFIT, "port-down")
    site.conditions.show("a", NodeFitness.UNFIT, "rate-low")
    assert sorted(site.wait(3)[1:]) == [("a", "unfit", "rate-low"), ("b", "unfit", "port-down")]


def test_an_unchanged_verdict_is_told_again_as_a_heartbeat_with_the_newest_words(site):
    site.conditions.show("a", NodeFitness.FIT, "")
    site.wait(1)
    site.conditions.show("a", NodeFitness.FIT, "newer")
    site.at = HEARTBEAT * 1.3
    site.conditions.show("b", NodeFitness.FIT, "")  # wakes the thread
    assert ("a", "fit", "newer") in site.wait(3)


def test_a_scheduler_that_does_not_answer_is_asked_again(site, monkeypatch):
    monkeypatch.setattr(site.conditions._backoff, "next", lambda: 0.01)
    site.broken = 2
    site.conditions.show("a", NodeFitness.UNFIT, "port-down")
    assert site.wait(1) == [("a", "unfit", "port-down")]


@pytest.mark.parametrize(("mode", "stop"), [(Mode.OBSERVE, False), (Mode.DRAIN, True)])
def test_nothing_is_written_in_observe_mode_or_under_a_stop(site, mode, stop):
    site.mode, site.stop = mode, stop
    site.conditions.show("a", NodeFitness.UNFIT, "port-down")
    site.conditions.show("b", NodeFitness.UNFIT, "port-down")
    site.conditions.close(SECONDS)
    assert site.said == []


def test_what_is_forgotten_is_not_told(site):
    site.conditions.show("a", NodeFitness.FIT, "")
    site.wait(1)
    site.conditions.forget()
    site.at = HEARTBEAT * 2
    site.conditions.show("b", NodeFitness.FIT, "")
    assert site.wait(2) == [("a", "fit", ""), ("b", "fit", "")]


def test_nodes_that_kubernetes_has_not_got_keep_no_other_waiting_and_are_told_of_once(site, caplog):
    site.gone = {f"gone{i}" for i in range(20)}
    for node in site.gone:
        site.conditions.show(node, NodeFitness.FIT, "")
    site.conditions.show("a", NodeFitness.UNFIT, "port-down")
    assert ("a", "unfit", "port-down") in site.wait(21)
    site.at = HEARTBEAT * 1.3
    site.conditions.show("b", NodeFitness.FIT, "")
    site.wait(43)
    assert caplog.text.count("there is no such node") == 20


def test_a_node_that_is_silent_and_not_there_any_more_leaves_nothing_behind(site):
    site.conditions.show("a", NodeFitness.FIT, "")
    site.wait(1)
    site.gone = {"a"}
    site.conditions.show("a", NodeFitness.UNKNOWN, "it has not reported")
    site.wait(2)
    site.at = HEARTBEAT * 1.3  # when the first word would have been told again
    site.conditions.show("b", NodeFitness.FIT, "")
    site.wait(3)
    site.conditions.close(SECONDS)
    held = (site.conditions._words, site.conditions._turns, site.conditions._tellers, site.conditions._absent)
    assert not any("a" in names for names in held)
