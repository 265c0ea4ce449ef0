"""The contracts of `tests/unit` with a real kube-apiserver: what holds for the fake holds for it.

The first run on a machine compiles kube-apiserver for some minutes.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Any

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
from kube_controller_contract import LEASE, LEASE_PATH, NAMESPACE, ControllerContract, clean, client
from services import kustomize
from services.daemon import Daemon
from services.kube import KubeServer
from services.node import NodeTree
from services.processes import wait_for

from ibmon.controller.election import Timing
from ibmon.controller.lease import Leader, LeaseLock
from ibmon.ports import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["backend", "clean", "node"]

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def kube() -> Iterator[KubeServer]:
    """A cluster to which what we ship has been applied, with the tokens of our service accounts.

    `restricted` is that of a node's pod that writes itself, `controller` that of the controller.
    """
    with KubeServer() as server:
        server.apply(shipped("observe", "namespace.yaml"))
        server.apply(shipped("observe", "serviceaccount.yaml"))
        server.apply(shipped("node-direct", "rbac.yaml"))
        server.apply(shipped("controller", "namespace.yaml"))
        server.apply(shipped("controller", "rbac.yaml"))
        server.restricted = server.account_token("ibmon", "ibmon")
        server.controller = server.account_token("ibmon-controller", "ibmon-controller")
        server.wait_for_rights(server.restricted)
        server.wait_for_rights(server.controller, absent=LEASE_PATH)
        yield server


class TestRealServer(ServerContract):
    pass


class TestBackendOnTheRealServer(BackendContract):
    pass


class TestControllerOnTheRealServer(ControllerContract):
    pass


def test_a_leader_that_is_cut_off_ends_before_the_other_begins(clean: KubeServer) -> None:
    cut = threading.Event()

    class Way:
        """A client whose way to the server can be cut."""

        def __init__(self, *, can_be_cut: bool) -> None:
            self._client, self._can_be_cut = client(clean), can_be_cut

        def send(self, call: Any) -> Any:
            if self._can_be_cut and cut.is_set():
                raise SchedulerError("cut off")
            return self._client.send(call)

    timing = Timing(duration=2.0, renew=1.2, retry=0.2)
    first, second = (
        Leader(LeaseLock(Way(can_be_cut=name == "first"), NAMESPACE, LEASE), name, timing=timing)
        for name in ("first", "second")
    )
    first.start()
    wait_for(first.is_leader, within=10, what="the first leader")
    second.start()
    cut.set()
    began = time.monotonic()
    seen = []
    while not second.is_leader():
        assert time.monotonic() - began < 10
        seen.append((first.is_leader(), second.is_leader()))
        time.sleep(0.01)
    assert [state for state, _ in itertools.groupby(seen)] == [(True, False), (False, False)]
    assert not first.is_leader()
    for leader in (first, second):
        leader.close(5)
    assert request(clean, "GET", LEASE_PATH)[1]["spec"].get("holderIdentity", "") == ""


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


@pytest.mark.parametrize("overlay", kustomize.OVERLAYS)
def test_the_server_takes_every_object_that_is_shipped(kube: KubeServer, overlay: str) -> None:
    objects = kustomize.built(overlay)
    known = [found for found in objects if not found["kind"].startswith("ValidatingAdmissionPolicy")]  # since 1.30
    assert len(objects) - len(known) == (2 if overlay in {"node-direct", "controller"} else 0)
    kube.apply(known, dry_run=True)
