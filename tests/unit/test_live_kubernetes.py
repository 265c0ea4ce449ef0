"""A running daemon and a Kubernetes API: the taint comes and goes, and what is missing is said and stops no metric."""

from __future__ import annotations

import re

import pytest
from fake_kube import FakeKube
from kube_contract import kubeconfig
from livenode import DECLARED, FAST, QUICK, LiveNode, always, until
from test_kubernetes_contract import shipped_rights

ACTION = """
[action]
mode = "drain"
scheduler = "kubernetes"
boot_grace = "0s"
stop_file = "{directory}/STOP"
[kubernetes]
kubeconfig = "{directory}/kubeconfig"
"""


@pytest.fixture
def kube():
    with FakeKube() as fake:
        for number in range(1, 11):
            fake.add(f"gpu-{number}")
        yield fake


@pytest.fixture
def node(tmp_path):
    with LiveNode(tmp_path) as live:
        live.configure(FAST + DECLARED + QUICK + ACTION.format(directory=tmp_path))
        yield live


def serving(node, kube, rights):
    kubeconfig(kube, node.directory / "kubeconfig", kube.token(*rights))
    return node.serving(environment={"NODE_NAME": "gpu-1"})


def drains(kube):
    """The writes of the node itself; its condition is written on its own."""
    return [path for path in kube.calls("PATCH") if not path.endswith("/status")]


def taints(kube):
    return kube.nodes["gpu-1"]["spec"].get("taints", [])


def test_the_taint_comes_with_the_fault_and_goes_with_it(node, kube):
    daemon = serving(node, kube, shipped_rights())
    node.wait_fitness("fit")

    node.goes_down()
    daemon.wait_metric("ibmon_drain_active", 1)
    assert taints(kube) == [{"key": "ibmon.dev/fabric", "value": "unfit", "effect": "NoSchedule"}]
    reason = kube.nodes["gpu-1"]["metadata"]["annotations"]["ibmon.dev/drain"]
    assert re.fullmatch(r"ibmon: port-down mlx5_3/1 DOWN/Polling \d+s>\d+s \[id [0-9a-f]{6}\]", reason)

    node.comes_up()
    until(lambda: not taints(kube))
    daemon.wait_metric("ibmon_drain_active", 0)
    assert "annotations" not in kube.nodes["gpu-1"]["metadata"]


def test_a_right_that_is_missing_is_one_line_and_a_metric_and_the_daemon_goes_on(node, kube):
    rights = [right for right in shipped_rights() if (right.verb, right.resource) != ("patch", "nodes")]
    daemon = serving(node, kube, rights)
    node.goes_down()
    daemon.wait_metric("ibmon_drain_blocked", 1, code="forbidden")
    daemon.wait_line("needs the verb patch on nodes")
    assert daemon.metric("ibmon_action_errors_total", code="forbidden") >= 1
    always(lambda: len(drains(kube)) == 1, seconds=1.0)
    assert daemon.metric("ibmon_up") == 1
    assert taints(kube) == []
