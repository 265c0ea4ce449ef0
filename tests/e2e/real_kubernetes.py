"""The contract of `tests/unit/kube_contract.py` with a real kube-apiserver: what holds for the fake holds for it.

    tests/e2e/run.sh tests/e2e/real_kubernetes.py

Named so that it is run by its name only: the first run compiles kube-apiserver for some minutes.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
from kube_contract import (
    OTHER,
    OURS,
    Api,
    BackendContract,
    ServerContract,
    backend,
    kubeconfig,
    node,
    request,
    shipped,
)
from services.daemon import Daemon
from services.kube import KubeServer
from services.node import NodeTree
from services.processes import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["backend", "node"]

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def kube() -> Iterator[KubeServer]:
    """A cluster to which what we ship has been applied, with the token of our service account as `restricted`."""
    with KubeServer() as server:
        server.apply(shipped("observe", "namespace.yaml"))
        server.apply(shipped("observe", "serviceaccount.yaml"))
        server.apply(shipped("node-direct", "rbac.yaml"))
        token = server.account_token("ibmon", "ibmon")
        server.restricted = token
        _wait_for_rights(server, token)
        yield server


def _wait_for_rights(server: KubeServer, token: str) -> None:
    """Rights are in force some milliseconds after they were written."""
    event = {"metadata": {"generateName": "x-"}, "involvedObject": {"kind": "Node", "name": "x"}, "reason": "X"}

    def granted() -> bool:
        listed = request(server, "GET", "/api/v1/nodes?limit=1", token=token)[0]
        path = "/api/v1/namespaces/default/events?dryRun=All"
        return (listed, request(server, "POST", path, event, token=token)[0]) == (200, 201)

    wait_for(granted, within=20, what="the rights of the service account")


class TestRealServer(ServerContract):
    pass


class TestBackendOnTheRealServer(BackendContract):
    pass


@pytest.fixture
def daemon(kube: KubeServer, node: Api, tmp_path: Path) -> Iterator[Daemon]:
    """The daemon of that node, as its service account."""
    credentials = kubeconfig(kube, tmp_path / "kubeconfig", kube.restricted)
    tree = NodeTree(tmp_path / "sys")
    env = {**os.environ, "NODE_NAME": node.name}
    more = f'[kubernetes]\nkubeconfig = "{credentials}"\n'
    made = Daemon(tree, tmp_path / "ibmon", env=env, mode="drain", scheduler="kubernetes", more=more)
    made.tree = tree
    with made:
        yield made


@pytest.mark.parametrize("cordoned", [False, True])
def test_a_port_down_brings_the_taint_and_its_return_takes_it_away(node: Api, daemon: Daemon, cordoned: bool) -> None:
    node.set(unschedulable=cordoned or None)

    daemon.tree.link_down("mlx5_3")
    wait_for(lambda: OURS in node.taints, within=20, what="the taint")
    assert node.taints == [OTHER, OURS]
    reason = node.annotations["ibmon.dev/drain"]
    assert re.fullmatch(r"ibmon: port-down mlx5_3/1 DOWN/Polling \d+s>2s \[id [0-9a-f]{6}\]", reason)
    daemon.wait_metric("ibmon_drain_active", 1)

    daemon.tree.link_up("mlx5_3")
    wait_for(lambda: node.taints == [OTHER], within=20, what="the end of the taint")
    daemon.wait_metric("ibmon_drain_active", 0)
    assert node.annotations == {}
    assert node.cordoned is cordoned


def test_a_taint_of_our_key_by_somebody_else_stays_as_it_is(node: Api, daemon: Daemon) -> None:
    theirs = OURS | {"value": "maintenance"}
    node.set(taints=[OTHER, theirs])
    daemon.tree.link_down("mlx5_3")
    daemon.wait_metric("ibmon_drain_blocked", 1, code="foreign_drain")
    assert node.taints == [OTHER, theirs]
    assert node.annotations == {}


@pytest.mark.parametrize("part", ["config.yaml", "daemonset.yaml"])
def test_the_server_takes_the_shipped_objects(kube: KubeServer, part: str) -> None:
    kube.apply(shipped("observe", part), dry_run=True)
