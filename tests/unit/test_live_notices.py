"""A running daemon tells an Alertmanager of itself: a drain without a record, a name unknown, a state that was lost."""

from __future__ import annotations

import queue
from types import SimpleNamespace

import pytest
from alertmanagers import FakeAlertmanager
from livenode import DECLARED, FAST, NAME, QUICK, LiveNode, until
from test_live_slurm import ACTION, Slurm

from ibmon.drain.cluster import Cluster
from ibmon.messages import Observe, SchedulerSaw
from ibmon.model import Now
from ibmon.recording import SchedulerAct
from ibmon.runtime.actor import Actor
from ibmon.runtime.memory_store import MemoryStore

ORPHAN = "ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id 0123ab]"


@pytest.fixture
def alertmanager():
    one = FakeAlertmanager()
    yield one
    one.close()


@pytest.fixture
def node(tmp_path, alertmanager):
    with LiveNode(tmp_path) as live:
        to = f'[[alertmanager]]\nurl = "{alertmanager.url}"\n'
        live.configure(FAST + DECLARED + QUICK + ACTION.format(directory=tmp_path) + to)
        yield live


def names(alertmanager):
    return [labels["alertname"] for labels in alertmanager.firing()]


def test_a_drain_in_our_words_that_is_met_without_a_record_fires_and_stays(node, alertmanager):
    slurm = Slurm(node.directory)
    slurm.reason = ORPHAN
    daemon = node.serving()
    node.goes_down()
    daemon.wait_metric("ibmon_drain_orphaned", 1)
    until(lambda: "IbmonDrainOrphaned" in names(alertmanager))
    mine = [labels for labels in alertmanager.firing() if labels["alertname"] == "IbmonDrainOrphaned"]
    assert mine == [{"alertname": "IbmonDrainOrphaned", "node": NAME, "severity": "warning"}]
    assert slurm.writes == []
    assert daemon.lines("event=drain-orphaned")


def test_a_host_that_the_scheduler_does_not_know_fires_and_says_that_it_cannot_act(node, alertmanager):
    place = Slurm(node.directory).place
    (place / "scontrol").write_text('#!/bin/sh\n[ "$2" = aliases ] && exit\necho "not found" >&2\nexit 1\n')
    node.config.write_text(node.config.read_text().replace('node_name = "node1"', ""))
    daemon = node.serving()
    assert daemon.metric("ibmon_actions_enabled") == 1
    node.goes_down()
    until(lambda: "IbmonNodeNameUnknown" in names(alertmanager))
    daemon.wait_metric("ibmon_actions_enabled", 0)


def test_a_look_reads_the_node_and_nothing_else():
    cluster = Cluster(["node1"])
    client, heard = cluster.client("node1"), queue.Queue()
    clock = SimpleNamespace(now=lambda: Now(0.0, 0.0))
    actor = Actor(heard.put, client, MemoryStore(), lambda: None, clock)
    actor.submit(Observe())
    assert heard.get(timeout=20) == SchedulerSaw(cluster.view("node1"))
    cluster.act("node1", SchedulerAct(do="down"))
    actor.submit(Observe())
    saw = heard.get(timeout=20)
    assert saw.view is None
    assert "connection refused" in saw.detail
    assert dict(client.calls) == {"read_node": 2}
    actor.close(5.0)


def test_a_state_that_was_set_aside_fires(node, alertmanager):
    (node.state / "ibmon.db").write_bytes(b"no database" * 1000)
    node.serving()
    until(lambda: names(alertmanager) == ["IbmonStateLost"])
