"""Two fleet controllers and the nodes that report to them, on a real kube-apiserver with what is shipped.

The nodes' daemons have no way to Kubernetes. Both controllers are the shipped service account; a Lease says which one
leads, a ConfigMap holds what must outlive it. A leader waits for two report intervals before it drains, so the tests
of this file share one site.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from kube_contract import OTHER, OURS, Api, kubeconfig, new_node, shipped
from kube_controller_contract import LEASE, LEASE_PATH, LEDGER, NAMESPACE
from services.controller import QUORUM_WAIT, Controller
from services.daemon import Daemon
from services.front import Front
from services.kube import KubeServer
from services.node import NodeTree
from services.processes import ServiceError, tail, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(300)

MEMBERS, OTHERS = 4, 3
"""Nodes with a daemon, one for each test that takes one, and nodes that only the cluster knows."""
LEASE_SECONDS = 15.0
"""How long a candidate waits for a leader that says nothing."""
TAKEN_OVER = LEASE_SECONDS + 15.0
"""Seconds after a leader's death in which the other one answers, at most: the lease, one try, one beat, and slack."""
CONDITION = "RdmaFabricUnhealthy"
PORT_DOWN = re.compile(r"ibmon: port-down mlx5_3/1 DOWN/Polling \d+s>2s \[id [0-9a-f]{6,}\]")
_MORE = f"""\
lease = "{NAMESPACE}/{LEASE}"
ledger = "configmap:{NAMESPACE}/{LEDGER}"
[kubernetes]
timeout = "5s"
kubeconfig = "{{kubeconfig}}"
"""


class Member:
    """A node of the cluster with its tree and its daemon, which is told the node's name as a pod is."""

    def __init__(self, node: Api, directory: Path, controller: Controller) -> None:
        self.node = node
        self.tree = NodeTree(directory / "sys")
        self.daemon = Daemon(
            self.tree,
            directory / "ibmon",
            env={**os.environ, "NODE_NAME": node.name},
            mode="drain",
            scheduler="controller",
            node="",
            more=controller.of_node(node.name, directory),
        )

    @property
    def condition(self) -> tuple[str, str]:
        """Status and message of the node's condition; empty where there is none."""
        found = self.node.conditions().get(CONDITION, {})
        return found.get("status", ""), found.get("message", "")


class Site:
    """Two controllers of which one leads, and the nodes that report to that one."""

    def __init__(self, controllers: list[Controller], members: list[Member]) -> None:
        self.controllers = controllers
        self.members = members
        self.unused = iter(members)

    @property
    def leader(self) -> Controller:
        """The instance that leads; an assertion where it is not exactly one."""
        [leader] = [one for one in self.controllers if one.status("/readyz") == 200]
        return leader

    @property
    def follower(self) -> Controller:
        """The other one."""
        leader = self.leader
        [follower] = [one for one in self.controllers if one is not leader]
        return follower

    def wait(self, holds: Callable[[], bool], what: str, within: float = 20.0) -> None:
        """Waits; raises `ServiceError` with the ends of all logs."""
        try:
            wait_for(holds, within=within, what=what, every=0.1)
        except ServiceError as error:
            logs = [*(one.log for one in self.controllers), *(m.daemon.log for m in self.members)]
            raise ServiceError("\n".join([f"{error}; the logs end:", *map(tail, logs)])) from error


@pytest.fixture(scope="module")
def kube() -> Iterator[KubeServer]:
    with KubeServer() as server:
        server.apply(shipped("controller", "namespace.yaml"))
        server.apply(shipped("controller", "rbac.yaml"))
        server.controller = server.account_token(NAMESPACE, "ibmon-controller")
        server.wait_for_rights(server.controller, absent=LEASE_PATH)
        yield server


@pytest.fixture(scope="module")
def site(kube: KubeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    more = _MORE.format(kubeconfig=kubeconfig(kube, directory / "kubeconfig", kube.controller))
    with ExitStack() as stack:
        settings = {"env": os.environ, "scheduler": "kubernetes", "more": more}
        first = Controller(directory / "first", **settings)
        second = Controller(directory / "second", **settings, twin=first)
        controllers = [first, second]

        def ready() -> int | None:
            return next((one.port for one in controllers if one.status("/readyz") == 200), None)

        first.front = stack.enter_context(Front(ready)).url
        nodes = [new_node(kube) for _ in range(MEMBERS + OTHERS)]
        members = [Member(node, directory / node.name, first) for node in nodes[:MEMBERS]]
        site = Site(controllers, members)
        for controller in controllers:
            stack.callback(controller.__exit__)
            controller.start(leads=False)
        # Whoever makes the Lease waits for as long as somebody might still hold a deleted one.
        site.wait(lambda: ready() is not None, "a leader", within=TAKEN_OVER)
        for member in members:
            stack.enter_context(member.daemon)
        yield site


@pytest.fixture
def member(site: Site) -> Iterator[Member]:
    """A node that no other test has touched, before a leader that may drain; given back by ibmon afterwards."""
    site.leader.wait_quorum()
    member = next(site.unused)
    yield member
    member.tree.link_up("mlx5_3")
    site.wait(lambda: OURS not in member.node.taints, f"the end of the taint of {member.node.name}", within=40)


def test_an_instance_that_does_not_lead_answers_503_and_is_alive(site: Site) -> None:
    follower = site.follower
    assert follower.status("/healthz") == 200
    assert follower.status("/readyz") == 503
    assert follower.status("/v1/report", b"{}") == 503
    stopped = follower.command("controller", "stop", "--reason", "x")
    assert stopped.returncode != 0
    assert "not the leader" in stopped.stderr
    assert site.leader.metric("ibmon_controller_stop") == 0


def test_a_port_down_brings_taint_and_condition_by_the_controller_and_its_return_takes_them_away(
    site: Site, member: Member
) -> None:
    node = member.node
    site.wait(lambda: member.condition[0] == "False", "the condition of a node that is well")

    member.tree.link_down("mlx5_3")
    site.wait(lambda: OURS in node.taints, "the taint")
    assert node.taints == [OTHER, OURS]
    reason = node.annotations["ibmon.dev/drain"]
    assert PORT_DOWN.fullmatch(reason), reason
    site.wait(lambda: member.condition[0] == "True", "the condition")
    assert PORT_DOWN.fullmatch(member.condition[1]), member.condition
    member.daemon.wait_metric("ibmon_drain_active", 1)
    assert member.daemon.gate() == 1

    member.tree.link_up("mlx5_3")
    site.wait(lambda: node.taints == [OTHER], "the end of the taint")
    site.wait(lambda: member.condition[0] == "False", "the end of the condition")
    assert node.annotations == {}
    member.daemon.wait_metric("ibmon_drain_active", 0)
    assert member.daemon.gate() == 0
    assert "cannot-act" not in site.leader.log.read_text()  # it has asked for its rights by a dry run


def test_a_taint_of_our_key_by_somebody_else_stays_as_it_is(site: Site, member: Member) -> None:
    theirs = OURS | {"value": "maintenance"}
    member.node.set(taints=[OTHER, theirs])
    member.tree.link_down("mlx5_3")
    member.daemon.wait_metric("ibmon_drain_blocked", 1, code="foreign_drain", within=40)
    site.wait(lambda: member.condition[0] == "True", "the condition, which is a word and no drain")
    member.tree.link_up("mlx5_3")
    member.daemon.wait_metric("ibmon_node_fitness", 1, fitness="fit")
    site.wait(lambda: member.condition[0] == "False", "the end of the condition")
    assert member.node.taints == [OTHER, theirs]
    assert member.node.annotations == {}


def test_a_node_that_an_administrator_cordoned_stays_cordoned_after_ours_is_gone(site: Site, member: Member) -> None:
    member.node.set(unschedulable=True)
    member.tree.link_down("mlx5_3")
    site.wait(lambda: OURS in member.node.taints, "the taint")
    member.daemon.wait_metric("ibmon_drain_active", 1)
    member.tree.link_up("mlx5_3")
    site.wait(lambda: member.node.taints == [OTHER], "the end of the taint")
    assert member.node.cordoned
    assert member.node.annotations == {}


def test_a_stop_outlives_its_leader_and_after_the_start_the_next_one_drains_no_sooner_than_its_quorum(
    site: Site, member: Member
) -> None:
    killed, next_one = site.leader, site.follower
    stopped = killed.command("controller", "stop", "--reason", "switch upgrade")
    assert stopped.returncode == 0, stopped.stderr
    member.tree.link_down("mlx5_3")
    member.daemon.wait_metric("ibmon_drain_blocked", 1, code="stop")
    before = member.node.version

    killed.process.kill()
    died = time.monotonic()
    site.wait(lambda: next_one.status("/readyz") == 200, "the other one to lead", within=TAKEN_OVER)
    took = time.monotonic() - died
    print(f"the other one leads {took:.1f} s after the kill")
    assert next_one.metric("ibmon_controller_stop") == 1
    site.wait(lambda: len(next_one.get("/api/v1/nodes")) >= MEMBERS, "reports to the next leader", within=40)
    member.daemon.wait_metric("ibmon_drain_blocked", 1, code="stop")
    assert member.node.version == before  # neither taint nor condition

    killed.start(leads=False)
    started = next_one.command("controller", "start")
    assert started.returncode == 0, started.stderr
    site.wait(lambda: OURS in member.node.taints, "the taint", within=QUORUM_WAIT + 60)
    assert time.monotonic() - died - took >= QUORUM_WAIT - 1  # it led a little before that was seen
    told = next_one.command("controller", "audit", "--json")
    newest_first = [json.loads(line)["event"] for line in told.stdout.splitlines()]
    assert [event for event in newest_first if event in {"quorum-open", "drained"}] == ["drained", "quorum-open"]
    assert site.leader is next_one
    member.tree.link_up("mlx5_3")
    site.wait(lambda: member.node.taints == [OTHER], "the end of the taint", within=40)
