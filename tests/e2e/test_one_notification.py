"""One fault is told once: by the node itself or by Prometheus, as the exported rules follow the configuration.

A real daemon, a real Prometheus with the rules of `ibmon dashboards export`, a real Alertmanager and people behind it.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from services.alertmanager import Alertmanagers, People
from services.daemon import Daemon
from services.node import NodeTree
from services.processes import wait_for
from services.prometheus import Prometheus

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(120)

QUIET = 6.0
"""Seconds in which a second way would have told: several evaluations, and several resends of a node."""
PUSHING = '[[alertmanager]]\nurl = "{url}"\nresend_interval = "1s"\n'


@pytest.mark.parametrize("push", [True, False], ids=["the-node-tells", "prometheus-tells"])
def test_one_fault_is_one_alert_and_people_hear_of_it_once(tmp_path: Path, *, push: bool) -> None:
    tree = NodeTree(tmp_path / "sys")
    with People() as people, Alertmanagers(people) as alertmanager:
        more = PUSHING.format(url=alertmanager.urls[0]) if push else ""
        with Daemon(tree, tmp_path / "ibmon", env=os.environ, mode="alert", more=more) as daemon:
            exported = daemon.command("dashboards", "export", str(tmp_path / "out"))
            assert exported.returncode == 0, exported.stderr
            rules = sorted((tmp_path / "out/prometheus").glob("*.rules.yml"))
            told = [url.removeprefix("http://") for url in alertmanager.urls]
            with Prometheus([daemon.address], rules=rules, alertmanagers=told) as prometheus:
                prometheus.wait_scraped()
                tree.link_down("mlx5_3")
                fault = {"alertname": "IbmonPortDown", "severity": "critical"}
                wait_for(lambda: people.told("firing", **fault), within=30, what="a notification")
                time.sleep(QUIET)
                labels = {
                    frozenset(alert.items())
                    for notice in people.notices
                    for alert, status in notice.alerts
                    if status == "firing" and fault.items() <= alert.items()
                }
                assert len(labels) == 1, labels
                expected = {"node": "node1", "rule": "port-down", "device": "mlx5_3", "port": "1", "rail": "3"}
                assert expected.items() <= dict(*labels).items()
                others = {alert["alertname"] for notice in people.notices for alert, _ in notice.alerts}
                assert others == {"IbmonPortDown"}
                by_prometheus = prometheus.query('ALERTS{alertname="IbmonPortDown"}')
                assert bool(by_prometheus) is not push
