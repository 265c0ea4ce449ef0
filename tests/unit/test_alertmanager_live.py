"""A running daemon and its Alertmanagers: what they hold over faults, restarts, modes and `ibmon test-alert`."""

from __future__ import annotations

import contextlib
import json
import signal

import pytest
from alertmanagers import FakeAlertmanager
from livenode import DECLARED, FAST, NAME, LiveNode, always, until

ALERT = '[action]\nmode = "{mode}"\nboot_grace = "0s"\n'
RULE = '[rules.port-down]\nalert_hold = "100ms"\nhold = "{hold}"\nrecover = "{recover}"\n'


@pytest.fixture
def alertmanager():
    one = FakeAlertmanager()
    yield one
    one.close()


@pytest.fixture
def node(tmp_path):
    with LiveNode(tmp_path) as live:
        yield live


def configure(node, *targets, mode="alert", hold="200ms", recover="200ms"):
    targets = "".join(f'[[alertmanager]]\nurl = "{t.url}"\n' for t in targets)
    node.configure(FAST + DECLARED + RULE.format(hold=hold, recover=recover) + ALERT.format(mode=mode) + targets)


def goes_bad(node, daemon, *targets, **how):
    """The link goes: first a warning, of which all is told, then a critical finding. `how` is for `configure`."""
    configure(node, *targets, hold="10m", **how)
    daemon.reload()
    node.goes_down()
    daemon.wait_metric("ibmon_finding", 1, rule="port-down", severity="warning", device="mlx5_3", port="1")
    for target in targets:
        until(lambda target=target: not target.listens or severities(target) == ["warning"])
    configure(node, *targets, **how)
    daemon.reload()


def severities(alertmanager):
    return [labels["severity"] for labels in alertmanager.firing()]


def test_a_fault_fires_becomes_critical_and_ends(node, alertmanager):
    configure(node, alertmanager)
    daemon = node.serving()
    assert daemon.metric("ibmon_outbox_pending", target=alertmanager.name) == 0
    assert daemon.metric("ibmon_delivery_attempts_total", target=alertmanager.name) == 0
    goes_bad(node, daemon, alertmanager)
    until(lambda: severities(alertmanager) == ["critical"])
    (labels,) = alertmanager.firing()
    assert labels == {
        "alertname": "IbmonPortDown",
        "rule": "port-down",
        "severity": "critical",
        "node": NAME,
        "device": "mlx5_3",
        "port": "1",
        "rail": "3",
    }
    assert alertmanager.requests[-1].alerts[-1]["generatorURL"] == daemon.url("")
    node.comes_up()
    until(lambda: alertmanager.firing() == [])
    assert alertmanager.ends == [("IbmonPortDown", "warning"), ("IbmonPortDown", "critical")]
    daemon.wait_metric("ibmon_outbox_pending", 0, target=alertmanager.name)


def test_in_observe_mode_no_alert_leaves_the_node_and_a_change_to_it_ends_them(node, alertmanager):
    configure(node, alertmanager, mode="observe")
    daemon = node.serving()
    node.goes_down()
    node.wait_fitness("unfit")
    always(lambda: alertmanager.requests == [], 0.5)

    for mode, firing in (("alert", ["critical"]), ("observe", [])):
        configure(node, alertmanager, mode=mode)
        daemon.reload()
        until(lambda firing=firing: severities(alertmanager) == firing)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_restart_ends_no_alert_that_goes_on_and_makes_no_second_one(node, alertmanager, number):
    configure(node, alertmanager, recover="10m")
    daemon = node.serving()
    node.goes_down()
    until(lambda: severities(alertmanager) == ["critical"])
    before = list(alertmanager.ends), set(alertmanager.held)
    daemon.end(number)
    told = len(alertmanager.requests)

    node.serving()
    until(lambda: len(alertmanager.requests) > told)
    always(lambda: severities(alertmanager) == ["critical"], 1.0)
    assert (list(alertmanager.ends), set(alertmanager.held)) == before


def test_what_was_repaired_while_the_daemon_was_away_ends_after_its_restart(node, alertmanager):
    configure(node, alertmanager)
    daemon = node.serving()
    node.goes_down()
    until(lambda: severities(alertmanager) == ["critical"])
    daemon.end(signal.SIGKILL)
    node.comes_up()
    assert severities(alertmanager) == ["critical"]
    node.serving()
    until(lambda: alertmanager.firing() == [])


def test_what_a_lost_state_left_firing_is_ended_by_the_record_alone(node, alertmanager):
    configure(node, alertmanager, recover="10m")
    daemon = node.serving()
    node.goes_down()
    until(lambda: severities(alertmanager) == ["critical"])
    daemon.end(signal.SIGKILL)
    node.comes_up()
    for file in node.state.glob("ibmon.db*"):
        file.unlink()
    node.serving()
    until(lambda: alertmanager.firing() == [])


def test_a_dead_alertmanager_delays_no_verdict_and_hears_what_holds_when_it_is_back(node, alertmanager):
    alertmanager.close()
    configure(node, alertmanager, recover="10m")
    daemon = node.serving()
    goes_bad(node, daemon, alertmanager, recover="10m")
    node.wait_fitness("unfit")
    daemon.wait_line("WARNING", "event=alertmanager-failing", f"target={alertmanager.name}")
    # The warning that became critical has ended, and of that nobody was told either.
    daemon.wait_metric("ibmon_outbox_pending", 2, target=alertmanager.name)
    back = FakeAlertmanager(port=alertmanager.port)
    try:
        until(lambda: severities(back) == ["critical"])
        daemon.wait_line("event=alertmanager-delivering")
    finally:
        back.close()


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("mode", ["alert", "drain"])
def test_a_second_daemon_of_the_node_tells_that_it_is_one_and_nothing_else(node, alertmanager, mode, apart):
    configure(node, alertmanager)
    node.serving()
    state = node.directory / "other" if apart else node.state
    state.mkdir(exist_ok=True)
    with contextlib.closing(FakeAlertmanager()) as told:
        more = ALERT.format(mode=mode) + f'[[alertmanager]]\nurl = "{told.url}"\n'
        text = FAST + DECLARED + RULE.format(hold="200ms", recover="200ms") + more
        second = node.serving(config=node.configure(text, file=node.directory / "second.toml", state=str(state)))
        node.goes_down()
        until(lambda: severities(alertmanager) == ["critical"])
        second.wait_metric("ibmon_node_fitness", 1, fitness="unfit")
        until(lambda: told.firing() == [{"alertname": "IbmonActionsDisabled", "node": NAME, "severity": "warning"}])
        assert len(second.lines("another ibmon runs on")) == 1
        assert [
            a["labels"]["alertname"] for r in alertmanager.requests for a in r.alerts if "rule" not in a["labels"]
        ] == []
        assert not apart or not (state / "alerts.json").exists()


def test_a_daemon_whose_state_directory_cannot_be_locked_tells_that_and_nothing_else(node, alertmanager):
    text = FAST + DECLARED + RULE.format(hold="200ms", recover="200ms") + ALERT.format(mode="drain")
    target = f'[[alertmanager]]\nurl = "{alertmanager.url}"\n'
    node.configure(text + target, state=str(node.directory / "nowhere"))
    daemon = node.serving()
    node.goes_down()
    daemon.wait_metric("ibmon_node_fitness", 1, fitness="unfit")
    until(lambda: [labels["alertname"] for labels in alertmanager.firing()] == ["IbmonActionsDisabled"])


def test_in_observe_mode_a_second_daemon_tells_nobody(node, alertmanager):
    configure(node, mode="observe")
    node.serving()
    more = ALERT.format(mode="observe") + f'[[alertmanager]]\nurl = "{alertmanager.url}"\n'
    second = node.serving(config=node.configure(FAST + DECLARED + more, file=node.directory / "second.toml"))
    second.wait_line("WARNING", "another ibmon runs on")
    second.judge_again()
    assert alertmanager.firing() == []


def test_what_sends_is_loaded_only_where_somebody_is_told(node, alertmanager):
    loaded = {}
    for targets in ((), (alertmanager,)):
        configure(node, *targets)
        daemon = node.serving(python=("-X", "importtime"))
        daemon.end()
        loaded[bool(targets)] = {line.rpartition("|")[2].strip() for line in daemon.lines("import time:")}
    assert "urllib3" not in loaded[False]
    assert {"urllib3", "ibmon.alert.alertmanager"} <= loaded[True]


def test_the_record_holds_what_was_told(node, alertmanager):
    configure(node, alertmanager, recover="10m")
    goes_bad(node, node.serving(), alertmanager, recover="10m")
    until(lambda: severities(alertmanager) == ["critical"])
    rows = json.loads((node.state / "alerts.json").read_text())["alerts"]
    assert [(r["alert"]["labels"]["severity"], r["ended"] is None) for r in rows] == [
        ("critical", True),
        ("warning", False),
    ]
