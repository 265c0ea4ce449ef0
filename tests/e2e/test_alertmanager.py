"""The whole way with real Alertmanagers: a port fails, the alert is there once, stays as long as the fault, and ends.

What Alertmanager itself does with what it is told (two promises, an end that is told again) is held here too.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from services.alertmanager import PEER_TIMEOUT, RESOLVE_TIMEOUT, Alertmanagers, People
from services.daemon import INTERVAL, RECOVER, Daemon
from services.node import NodeTree
from services.processes import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(180)

RESEND = 1.0
"""Seconds between two messages to an Alertmanager; an alert expires after four of them."""
ALERT_HOLD = 1.0
"""Seconds a port must be down until it alerts (services/daemon.py)."""

WARNING = ("IbmonPortDown", "warning")
CRITICAL = ("IbmonPortDown", "critical")


@pytest.fixture
def people() -> Iterator[People]:
    with People() as who:
        yield who


@pytest.fixture
def alertmanager(people: People) -> Iterator[Alertmanagers]:
    with Alertmanagers(people) as one:
        yield one


@pytest.fixture
def tree(tmp_path: Path) -> NodeTree:
    return NodeTree(tmp_path / "sys")


def daemon_of(tree: NodeTree, tmp_path: Path, alertmanagers: Alertmanagers, mode: str = "alert") -> Daemon:
    targets = "".join(
        f'[[alertmanager]]\nurl = "{url}"\nresend_interval = "{RESEND:g}s"\nrunbook_url = "https://wiki.example/rb"\n'
        for url in alertmanagers.urls
    )
    return Daemon(tree, tmp_path / "ibmon", env=os.environ, mode=mode, more=targets)


def wait_firing(alertmanagers: Alertmanagers, *keys: tuple[str, str], number: int = 0, within: float = 20.0) -> None:
    what = f"{keys or 'nothing'} firing"
    wait_for(lambda: set(alertmanagers.alerts(number)) == set(keys), within=within, what=what, every=0.02)


def stays(holds: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert holds()
        time.sleep(0.1)


def test_a_fault_is_an_alert_within_its_hold_and_the_next_read_and_ends_with_it(
    tree: NodeTree,
    tmp_path: Path,
    people: People,
    alertmanager: Alertmanagers,
    record_property: Callable[[str, object], None],
) -> None:
    with daemon_of(tree, tmp_path, alertmanager) as daemon:
        tree.link_down("mlx5_3")
        failed = time.monotonic()
        wait_firing(alertmanager, WARNING)
        seen = time.monotonic() - failed
        record_property("seconds_from_file_change_to_alert", round(seen, 2))
        print(f"alert {seen:.2f} s after the file changed")
        assert ALERT_HOLD <= seen < ALERT_HOLD + INTERVAL + 1.0

        wait_firing(alertmanager, CRITICAL)
        alert = alertmanager.alerts()[CRITICAL]
        assert alert["labels"] == {
            "alertname": "IbmonPortDown",
            "rule": "port-down",
            "severity": "critical",
            "node": "node1",
            "device": "mlx5_3",
            "port": "1",
            "rail": "3",
        }
        assert alert["annotations"]["observed"] == "DOWN/Polling"
        assert alert["annotations"]["runbook_url"] == "https://wiki.example/rb/port-down.md"
        assert alert["generatorURL"] == f"http://{daemon.address}/"
        wait_for(lambda: people.told("firing", severity="critical"), within=10, what="a notification")

        tree.link_up("mlx5_3")
        repaired = time.monotonic()
        wait_firing(alertmanager)
        # It is ended and does not merely expire: that would take up to four intervals more.
        assert RECOVER - INTERVAL <= time.monotonic() - repaired < RECOVER + INTERVAL + 1.5
        wait_for(lambda: people.told("resolved", severity="critical"), within=10, what="a notification of the end")
        notices = len(people.notices)
        stays(lambda: len(people.notices) == notices, 3 * RESEND)  # the end is told again, and nobody hears of it again


def test_an_alert_outlives_every_timeout_while_it_is_repeated_and_expires_when_the_daemon_is_gone(
    tree: NodeTree, tmp_path: Path, people: People, alertmanager: Alertmanagers
) -> None:
    with daemon_of(tree, tmp_path, alertmanager) as daemon:
        tree.link_down("mlx5_3")
        wait_firing(alertmanager, CRITICAL)
        wait_for(lambda: people.told("resolved", severity="warning"), within=10, what="the end of the warning")
        told = len(people.notices)
        stays(lambda: set(alertmanager.alerts()) == {CRITICAL}, max(RESOLVE_TIMEOUT, 4 * RESEND) + 2)
        assert len(people.notices) == told, "people heard of it again"

        daemon.process.kill()
        killed = time.monotonic()
        stays(lambda: CRITICAL in alertmanager.alerts(), 1.5 * RESEND)
        wait_firing(alertmanager, within=10)
        assert time.monotonic() - killed < 4 * RESEND + 1


def test_a_restart_goes_on_with_what_fires_and_ends_what_is_over(
    tree: NodeTree, tmp_path: Path, people: People, alertmanager: Alertmanagers
) -> None:
    with daemon_of(tree, tmp_path, alertmanager) as daemon:
        tree.link_down("mlx5_3")
        wait_firing(alertmanager, CRITICAL)
        wait_for(lambda: people.told("resolved", severity="warning"), within=10, what="the end of the warning")
        told = len(people.notices)
        daemon.process.kill()
        daemon.start()
        stays(lambda: set(alertmanager.alerts()) == {CRITICAL}, 5 * RESEND)
        assert len(people.notices) == told

        tree.link_up("mlx5_3")
        daemon.process.kill()
        daemon.start()
        wait_firing(alertmanager)


def test_a_cluster_is_told_everything_and_people_hear_of_it_once(
    tree: NodeTree, tmp_path: Path, people: People
) -> None:
    with Alertmanagers(people, count=2) as cluster:
        wait_for(cluster.settled, within=30, what="a cluster of two")
        with daemon_of(tree, tmp_path, cluster):
            tree.link_down("mlx5_3")
            for number in range(2):
                wait_firing(cluster, CRITICAL, number=number)

            def heard() -> list[set[tuple[str, str]]]:
                return [{(labels["severity"], status) for labels, status in alerts} for _, alerts in people.notices]

            wait_for(lambda: any(("critical", "firing") in told for told in heard()), within=20, what="a notification")
            stays(lambda: sum(("critical", "firing") in told for told in heard()) == 1, 2 * PEER_TIMEOUT + 1)
            assert len(heard()) == len({frozenset(told) for told in heard()}), heard()


def test_a_silence_is_respected(tree: NodeTree, tmp_path: Path, people: People, alertmanager: Alertmanagers) -> None:
    alertmanager.silence(60, rule="port-down", node="node1")
    with daemon_of(tree, tmp_path, alertmanager):
        tree.link_down("mlx5_3")
        wait_for(
            lambda: alertmanager.alerts().get(CRITICAL, {}).get("status", {}).get("state") == "suppressed",
            within=20,
            what="a silenced alert",
        )
        stays(lambda: not people.notices, 3.0)


def test_in_observe_mode_nothing_arrives(tree: NodeTree, tmp_path: Path, alertmanager: Alertmanagers) -> None:
    with daemon_of(tree, tmp_path, alertmanager, mode="observe") as daemon:
        tree.link_down("mlx5_3")
        daemon.wait_metric("ibmon_node_fitness", 1, fitness="unfit")
        stays(lambda: not alertmanager.alerts(), 2 * INTERVAL)

        # People can try the way all the same.
        tried = daemon.command("test-alert")
        assert tried.returncode == 0, tried.stdout + tried.stderr
        assert tried.stdout.startswith(f"am:{alertmanager.urls[0].removeprefix('http://')}: ok, HTTP 200 after 0.")
        assert set(alertmanager.alerts()) == {("IbmonTest", "info")}
