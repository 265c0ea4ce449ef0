"""Conditions of a whole fleet: changes first, heartbeats spread, gates asked before each write, nobody in the way."""

import threading
import time

import pytest
from bells import Bell

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
        self.broken = {}  # by node, or of all: what a write raises
        self.tried = []
        self.held = threading.Event()  # while it is clear no call returns
        self.held.set()
        self.tellers = 0
        self.news = threading.Condition()
        self.conditions = Conditions(lambda node: Teller(self, node), self.gates, self)
        self.bell = self.conditions._changed = Bell()
        self.conditions.start()

    def now(self):
        return Now(self.at, self.at)

    def gates(self, node):
        return Gates(mode=lambda: self.mode, stop=lambda: self.stop, limits=LimitsConfig())

    def wait(self, count):
        self.until(lambda: len(self.said) >= count)
        return list(self.said)

    def until(self, holds):
        end = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < end, (self.said, self.tried)
            with self.news:
                self.news.wait(0.01)

    def settle(self):
        """Wait until the thread has done, and planned, all that is due."""
        self.until(self.bell.settled)

    def later(self, seconds):
        """Let time pass once all is done that was due before, and have the thread see it."""
        self.settle()
        self.at += seconds
        self.conditions._changed.set()


class Teller:
    def __init__(self, site, node):
        self.site, self.node = site, node
        site.tellers += 1

    def publish(self, fitness, why):
        site = self.site
        with site.news:
            site.tried.append(self.node)
            site.news.notify_all()
        site.held.wait(SECONDS)
        with site.news:
            if error := site.broken.get(self.node) or site.broken.get("*"):
                raise error
            site.said.append((self.node, fitness.value, why))
            site.news.notify_all()

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
    site.later(HEARTBEAT * 1.3)
    assert site.wait(2)[1:] == [("a", "fit", "newer")]


def test_a_change_goes_before_all_heartbeats_that_are_overdue(site):
    names = [f"n{number:03}" for number in range(200)]
    for name in names:
        site.conditions.show(name, NodeFitness.FIT, "")
    site.wait(200)
    site.held.clear()
    site.later(HEARTBEAT * 2)  # all of them at once
    site.until(lambda: len(site.tried) == 201)
    site.conditions.show("n123", NodeFitness.UNFIT, "port-down")
    site.held.set()
    assert site.wait(202)[201] == ("n123", "unfit", "port-down")


def test_of_nodes_that_are_seen_for_the_first_time_the_fit_ones_come_last(site):
    site.held.clear()
    for name in ("a", "b", "c"):
        site.conditions.show(name, NodeFitness.FIT, "")
    site.conditions.show("d", NodeFitness.UNFIT, "port-down")
    site.held.set()
    assert ("d", "unfit", "port-down") in site.wait(4)[:2]


def test_a_node_that_the_scheduler_does_not_have_keeps_no_other_one_waiting(site):
    site.broken["gone"] = SchedulerError("nodes gone not found")
    site.conditions.show("gone", NodeFitness.UNFIT, "port-down")
    site.until(lambda: site.tried == ["gone"])
    for number in range(50):
        site.conditions.show(f"n{number}", NodeFitness.UNFIT, "port-down")
    site.wait(50)
    assert site.tried.count("gone") == 1


def test_a_node_that_could_not_be_written_is_tried_again_ever_less_often(site, caplog):
    site.broken["a"] = SchedulerError("nodes a not found")
    site.conditions.show("a", NodeFitness.UNFIT, "port-down")
    site.conditions.show("b", NodeFitness.UNFIT, "port-down")
    site.wait(1)
    for tries, seconds in enumerate((7, 13, 25, 49), start=2):
        site.later(seconds)
        site.conditions.show("b", NodeFitness.FIT if tries % 2 else NodeFitness.UNFIT, "")
        site.until(lambda tries=tries: site.tried.count("a") == tries)
    assert [record.message for record in caplog.records if "written=false" in record.message] == [
        'event=condition node=a written=false detail="nodes a not found"'
    ]
    site.broken.clear()
    site.later(HEARTBEAT)
    site.until(lambda: ("a", "unfit", "port-down") in site.said)


def test_a_scheduler_that_does_not_answer_is_left_alone_and_afterwards_all_is_told_at_once(site, monkeypatch):
    pauses = []
    monkeypatch.setattr(site.conditions._backoff, "next", lambda: pauses.append(len(site.tried)) or 0.01)
    site.broken["*"] = SchedulerError("connection refused")
    names = [f"n{number}" for number in range(6)]
    for name in names:
        site.conditions.show(name, NodeFitness.UNFIT, "port-down")
    site.until(lambda: len(site.tried) == 6)
    assert pauses[0] == 3
    site.broken.clear()
    site.conditions.show("another", NodeFitness.UNFIT, "port-down")  # and the clock stands still
    assert sorted(name for name, *_ in site.wait(7)) == sorted([*names, "another"])


def test_a_scheduler_that_says_of_itself_that_it_is_in_trouble_is_left_alone_after_one_call(site, monkeypatch):
    pauses = []
    monkeypatch.setattr(site.conditions._backoff, "next", lambda: pauses.append(len(site.tried)) or 0.01)
    site.broken["*"] = KubeError("Kubernetes asks to be left alone for 7 s (429)", 429)
    for number in range(3):
        site.conditions.show(f"n{number}", NodeFitness.UNFIT, "port-down")
    site.until(lambda: len(site.tried) == 3)
    assert pauses[0] == 1


def test_one_odd_node_is_no_trouble_of_the_schedulers_however_often_it_fails(site, monkeypatch):
    pauses = []
    monkeypatch.setattr(site.conditions._backoff, "next", lambda: pauses.append(len(site.tried)) or 0.01)
    site.broken["a"] = KubeError("the status of node a is not valid", 422)
    site.conditions.show("a", NodeFitness.UNFIT, "port-down")
    for tries in range(2, 8):
        site.until(lambda tries=tries: len(site.tried) == tries - 1)
        site.later(HEARTBEAT * 1.3)
    site.conditions.show("b", NodeFitness.UNFIT, "port-down")
    site.wait(1)
    assert pauses == []


def test_a_fault_of_our_own_ends_nothing_but_the_one_write(site, caplog):
    site.broken["a"] = ZeroDivisionError("a fault")
    site.conditions.show("a", NodeFitness.UNFIT, "port-down")
    site.conditions.show("b", NodeFitness.UNFIT, "port-down")
    assert site.wait(1) == [("b", "unfit", "port-down")]
    assert "event=condition-fault node=a" in caplog.text


def test_what_a_stop_held_back_is_told_when_it_ends_and_not_at_a_heartbeat(site):
    site.stop = True
    site.conditions.show("a", NodeFitness.UNFIT, "port-down")
    site.conditions.show("b", NodeFitness.FIT, "")
    site.until(lambda: site.conditions._withheld == {"a", "b"})
    site.stop = False
    site.conditions.again()
    assert sorted(site.wait(2)) == [("a", "unfit", "port-down"), ("b", "fit", "")]


def test_nodes_that_kubernetes_has_not_got_keep_no_other_waiting_and_are_told_of_once(site, caplog):
    gone = {f"gone{i}": KubeError("not found", 404) for i in range(20)}
    site.broken |= gone
    for node in gone:
        site.conditions.show(node, NodeFitness.FIT, "")
    site.conditions.show("a", NodeFitness.UNFIT, "port-down")
    site.until(lambda: len(site.tried) == 21)
    assert site.wait(1) == [("a", "unfit", "port-down")]
    site.later(HEARTBEAT * 1.3)
    site.until(lambda: len(site.tried) == 42)
    assert caplog.text.count("there is no such node") == 20


def test_a_node_that_is_silent_and_not_there_any_more_leaves_nothing_behind(site):
    site.conditions.show("a", NodeFitness.FIT, "")
    site.wait(1)
    site.broken["a"] = KubeError("not found", 404)
    site.conditions.show("a", NodeFitness.UNKNOWN, "it has not reported")
    site.until(lambda: len(site.tried) == 2)
    site.later(HEARTBEAT * 1.3)  # when the first word would have been told again
    site.conditions.show("b", NodeFitness.FIT, "")
    site.wait(2)
    site.conditions.close(SECONDS)
    held = (site.conditions._words, site.conditions._turns, site.conditions._tellers, site.conditions._absent)
    assert not any("a" in names for names in held)


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
    site.later(HEARTBEAT * 2)
    site.conditions.show("b", NodeFitness.FIT, "")
    assert site.wait(2) == [("a", "fit", ""), ("b", "fit", "")]


def test_after_another_instance_has_led_nothing_is_believed_of_what_was_written_before(site):
    site.conditions.show("a", NodeFitness.FIT, "")
    site.wait(1)
    site.conditions.forget()
    site.conditions.show("a", NodeFitness.FIT, "")
    site.wait(2)
    assert site.tellers == 2
