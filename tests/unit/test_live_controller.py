"""A running daemon and a fleet controller on the loopback: what it reports, what it believes, what its gate answers."""

from __future__ import annotations

import re
import signal
import time

import pytest
from fleet_http import MASTER, ControllerServer, secret, signed
from fleet_side import FleetSide
from livenode import DECLARED, FAST, NAME, QUICK, LiveNode, until

from ibmon.cli import quickcheck, verdictfile
from ibmon.drain.cluster import Cluster
from ibmon.model import Mode
from ibmon.recording import SchedulerAct
from ibmon.report import Reply, node_key

CONFIG = """
[action]
mode = "drain"
scheduler = "controller"
boot_grace = "0s"
stop_file = "{directory}/STOP"
[controller]
url = "{url}"
key_file = "{directory}/node.key"
"""


@pytest.fixture
def fleet():
    names = [f"node{number}" for number in range(1, 21)]
    return FleetSide(Cluster(names, wall=time.time), wall=time.time, node=NAME)


@pytest.fixture
def server(fleet):
    with ControllerServer(fleet.answer) as there:
        yield there


@pytest.fixture
def node(tmp_path, server):
    with LiveNode(tmp_path) as live:
        (tmp_path / "node.key").write_text(secret(NAME))
        live.configure(FAST + DECLARED + QUICK + CONFIG.format(directory=tmp_path, url=server.url))
        yield live


def gate(node):
    """The exit code of `ibmon check --gate`."""
    return quickcheck.answer(quickcheck.Options(gate=True), verdictfile.read(node.runtime)).code


def test_a_node_is_drained_through_the_controller_shut_for_jobs_and_given_back(node, server, fleet):
    daemon = node.serving()
    node.wait_fitness("fit")
    until(lambda: fleet.reports and fleet.reports[-1].fitness == "fit", "a report that says fit")
    assert daemon.metric("ibmon_delivery_failures_total", target="controller") == 0
    assert gate(node) == 0

    node.goes_down()
    daemon.wait_metric("ibmon_drain_active", 1)
    assert re.fullmatch(r"ibmon: port-down mlx5_3/1 DOWN/Polling \d+s>\d+s \[id [0-9a-f]{6}\]", fleet.reason)
    until(lambda: gate(node) == 1, "a gate that is shut")
    wishes = [report for report in fleet.reports if report.intent.drain]
    assert wishes[0].owned.reason == wishes[0].intent.reason == fleet.reason
    assert wishes[0].findings[0].drains

    node.comes_up()
    until(lambda: not fleet.reason, "the node given back")
    daemon.wait_metric("ibmon_drain_active", 0)
    until(lambda: gate(node) == 0, "a gate that is open")
    assert server.refused == []
    numbers = [report.seq for report in server.reports]
    assert numbers == sorted(set(numbers))


def test_stop_and_mode_of_the_controller_are_obeyed_and_a_person_is_respected(node, server, fleet):
    fleet.stop, fleet.mode = True, Mode.DRAIN
    daemon = node.serving()
    until(lambda: server.reports, "a report")
    node.goes_down()
    daemon.wait_metric("ibmon_drain_blocked", 1, code="stop")
    assert not fleet.reason
    fleet.stop, fleet.mode = False, Mode.OBSERVE
    node.comes_up()  # each change is reported, and brings the new word
    node.wait_fitness("fit")
    node.goes_down()
    daemon.wait_metric("ibmon_drain_blocked", 1, code="mode")
    until(lambda: node.verdict()["mode"] == "alert", "the mode in the verdict")
    node.comes_up()
    node.wait_fitness("fit")
    fleet.mode = Mode.DRAIN  # not before: the fault that goes would be drained for, and the node given back at once
    node.goes_down()
    daemon.wait_metric("ibmon_drain_active", 1)

    fleet.cluster.act(NAME, SchedulerAct(by="admin", do="resume"))
    node.goes_down("mlx5_2/1")  # news, so a report
    daemon.wait_line("outcome=gone")
    daemon.wait_line("somebody gave the node back")


def test_a_forged_answer_is_a_failure_and_shuts_no_gate(node, server, fleet):
    def forged(server, handler, report):
        reply = Reply("drained", "", stop=False, mode=Mode.DRAIN)
        server.send(handler, 200, *signed(reply, handler.headers["webhook-id"], secret("node2")))

    server.script = [forged] * 1000
    daemon = node.serving()
    node.goes_down()
    daemon.wait_metric("ibmon_drain_blocked", 1, code="scheduler_unreachable")
    daemon.wait_line("WARNING", "is not signed with this node's key")
    assert node.verdict()["drain"]["active"] is False
    assert gate(node) == 0
    assert {f["rule"] for f in node.verdict()["findings"]} == {"port-down"}

    server.script = []  # it is the controller's own voice again
    daemon.wait_metric("ibmon_drain_active", 1)
    assert fleet.reason


@pytest.mark.parametrize("apart", [False, True])
def test_a_kill_while_drained_leaves_a_node_that_is_given_back_later_and_a_second_daemon_is_silent(node, fleet, apart):
    daemon = node.serving()
    node.goes_down()
    daemon.wait_metric("ibmon_drain_active", 1)
    reason = fleet.reason
    text = FAST + DECLARED + QUICK + node.config.read_text().partition(QUICK)[2]
    text += "[rules.rate-low]\nhold = '61s'\n"  # by the hash of its configuration it would be known
    state = node.directory / "other" if apart else node.state
    state.mkdir(exist_ok=True)
    second = node.start(config=node.configure(text, file=node.directory / "second.toml", state=str(state)))
    second.wait_metric("ibmon_actions_enabled", 0)
    until(lambda: (owned := fleet.reports[-1].owned) is not None and owned.held, "the first one's last news")
    second.judge_again()
    assert len({report.config_hash for report in fleet.reports}) == 1
    daemon.end(signal.SIGKILL)
    again = node.serving()
    again.wait_metric("ibmon_drain_active", 1)
    assert fleet.reason == reason
    node.comes_up()
    until(lambda: not fleet.reason, "the node given back")
    again.wait_metric("ibmon_drain_active", 0)
    assert again.end() == 0


def test_a_wrong_key_is_one_line_that_names_the_file_and_switches_actions_off(node, server, fleet):
    key = secret("node2")
    (node.directory / "node.key").write_text(key)
    daemon = node.serving()
    line = daemon.wait_line("ERROR", "does not take this node's reports")
    assert str(node.directory / "node.key") in line
    daemon.wait_metric("ibmon_actions_enabled", 0)
    node.goes_down()
    daemon.wait_metric("ibmon_drain_blocked", 1, code="forbidden")
    assert len(daemon.lines("does not take this node's reports")) < 5
    assert key.removeprefix("whsec_") not in daemon.text
    assert node_key(MASTER, NAME).hex() not in daemon.text
    assert server.reports == []
