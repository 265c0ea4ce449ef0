"""The whole way through the fleet controller with a real Slurm and a real Alertmanager.

The nodes' daemons may write to no scheduler here: they report, and one controller beside slurmctld drains and gives
back. The controller waits for two report intervals after each start, so the tests of this file share one.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from services.alertmanager import Alertmanagers
from services.controller import QUORUM_WAIT, Controller
from services.daemon import HOLD, INTERVAL, RECOVER, Daemon
from services.node import NodeTree
from services.processes import ServiceError, tail, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from services.slurm import Node, SlurmCluster

pytestmark = pytest.mark.timeout(300)

MEMBERS = 8
"""Nodes with a daemon, one for each test that takes one: what is remembered of a node changes the next verdict."""
ALERT = "NodeFabricBroken"
PORT_DOWN = re.compile(r"ibmon: port-down mlx5_3/1 DOWN/Polling \d+s>2s \[id [0-9a-f]{6,}\]")
ADMIN = "admin: bad DIMM"
FROM_HOLD = 7.0
"""Seconds from the end of a hold to a drain at Slurm, at most."""


class Member:
    """A node of the cluster with its tree and its daemon."""

    def __init__(self, name: str, directory: Path, controller: Controller) -> None:
        self.name = name
        self.tree = NodeTree(directory / "sys")
        # PATH leads to no scontrol: whatever this daemon does to Slurm it does through the controller.
        self.daemon = Daemon(
            self.tree,
            directory / "ibmon",
            env={"PATH": "/usr/bin:/bin"},
            mode="drain",
            scheduler="controller",
            node=name,
            more=controller.of_node(name, directory),
        )


class Site:
    """A controller beside slurmctld, and the nodes that report to it."""

    def __init__(self, slurm: SlurmCluster, controller: Controller, members: list[Member]) -> None:
        self.slurm = slurm
        self.controller = controller
        self.members = members
        self.unused = iter(members)

    def wait_drained(self, member: Member, within: float = 20.0) -> Node:
        self._wait(lambda: self.slurm.node(member.name).drained, within, f"a drain of {member.name}")
        return self.slurm.node(member.name)

    def wait_given_back(self, member: Member, within: float = 20.0) -> None:
        self._wait(lambda: not self.slurm.node(member.name).drained, within, f"the end of the drain of {member.name}")

    def _wait(self, holds: Callable[[], bool], within: float, what: str) -> None:
        try:
            wait_for(holds, within=within, what=what)
        except ServiceError as error:
            logs = "\n".join(tail(log) for log in (self.controller.log, *(m.daemon.log for m in self.members)))
            raise ServiceError(f"{error}; the logs end:\n{logs}") from error

    def stays(self, member: Member, mark: object, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self.slurm.node(member.name).mark == mark
            time.sleep(0.2)


@pytest.fixture(scope="module")
def site(slurm: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("controller")
    more = f'drain_on = ["{ALERT}"]'
    with ExitStack() as stack:
        controller = stack.enter_context(Controller(directory / "controller", env=slurm.env, more=more))
        members = [Member(name, directory / name, controller) for name in slurm.nodes[:MEMBERS]]
        for member in members:
            stack.enter_context(member.daemon)
        controller.wait_quorum()
        yield Site(slurm, controller, members)


@pytest.fixture
def member(site: Site) -> Iterator[Member]:
    """A node that no other test has touched; drained by nobody afterwards."""
    member = next(site.unused)
    yield member
    member.tree.link_up("mlx5_3")
    site.slurm.undrain(member.name)


def test_a_port_down_drains_the_node_through_the_controller_and_its_return_gives_it_back(
    site: Site, member: Member, record_property: Callable[[str, object], None]
) -> None:
    changes = len(site.slurm.updates(member.name))
    member.tree.link_down("mlx5_3")
    failed = time.monotonic()
    drained = site.wait_drained(member)
    took = time.monotonic() - failed
    record_property("seconds_from_file_change_to_drain", round(took, 2))
    print(f"drained {took:.2f} s after the file changed, of which {HOLD:g} s are the hold")
    assert HOLD <= took < HOLD + INTERVAL + FROM_HOLD
    assert PORT_DOWN.fullmatch(drained.reason or ""), drained.reason
    member.daemon.wait_metric("ibmon_drain_active", 1)
    assert member.daemon.gate() == 1

    member.tree.link_up("mlx5_3")
    repaired = time.monotonic()
    site.wait_given_back(member)
    assert time.monotonic() - repaired >= RECOVER - INTERVAL
    member.daemon.wait_metric("ibmon_drain_active", 0)
    assert member.daemon.gate() == 0
    # One write each way: nothing was retried that had worked.
    assert site.slurm.updates(member.name)[changes:] == [
        f"reason set to: {drained.reason}",
        "state set to DRAINED",
        "state set to IDLE",
    ]


def test_while_an_operator_has_stopped_it_nothing_is_written(site: Site, member: Member) -> None:
    stopped = site.controller.command("controller", "stop", "--reason", "switch upgrade")
    assert stopped.returncode == 0, stopped.stderr
    before = site.slurm.node(member.name).mark
    member.tree.link_down("mlx5_3")
    member.daemon.wait_metric("ibmon_drain_blocked", 1, code="stop")
    site.stays(member, before, 3)
    assert site.controller.metric("ibmon_controller_stop") == 1

    assert site.controller.command("controller", "start").returncode == 0
    site.wait_drained(member, within=40)  # the node hears of it with its next report
    member.tree.link_up("mlx5_3")
    site.wait_given_back(member)


def test_a_node_that_an_administrator_drained_stays_as_it_was(site: Site, member: Member) -> None:
    site.slurm.drain(member.name, ADMIN)
    before = site.slurm.node(member.name).mark
    member.tree.link_down("mlx5_3")
    member.daemon.wait_metric("ibmon_drain_blocked", 1, code="foreign_drain", within=40)
    member.tree.link_up("mlx5_3")
    member.daemon.wait_metric("ibmon_node_fitness", 1, fitness="fit")
    site.stays(member, before, 3)


def test_a_node_that_an_operator_resumes_while_it_is_bad_is_not_drained_again(site: Site, member: Member) -> None:
    member.tree.link_down("mlx5_3")
    site.wait_drained(member)
    member.daemon.wait_metric("ibmon_drain_active", 1)
    site.slurm.undrain(member.name)
    member.daemon.wait_metric("ibmon_drain_overridden", 1, within=60)
    assert not site.slurm.node(member.name).drained


def test_a_person_gives_a_node_back_through_the_controller(site: Site, member: Member) -> None:
    member.tree.link_down("mlx5_3")
    site.wait_drained(member)
    member.daemon.wait_metric("ibmon_drain_active", 1)
    told = site.controller.command("release", "--controller", site.controller.url, "--node", member.name)
    assert told.returncode == 0, told.stderr
    site.wait_given_back(member)
    member.daemon.wait_metric("ibmon_drain_overridden", 1, within=60)


def test_a_controller_that_is_killed_and_started_again_gives_back_what_it_drained(site: Site, member: Member) -> None:
    member.tree.link_down("mlx5_3")
    drained = site.wait_drained(member)
    site.controller.process.kill()
    member.tree.link_up("mlx5_3")
    member.daemon.wait_metric("ibmon_node_fitness", 1, fitness="fit")
    assert site.slurm.node(member.name).mark == drained.mark
    site.controller.start()
    began = time.monotonic()
    site.wait_given_back(member, within=QUORUM_WAIT + 40)
    print(f"given back {time.monotonic() - began:.1f} s after the start")
    site.controller.wait_quorum()


class Receiver:
    """The controller as a receiver of an Alertmanager's webhooks."""

    def __init__(self, controller: Controller) -> None:
        self.url = f"{controller.url}/v1/alerts"
        self.credentials = controller.tokens["alert"]


def test_an_alert_drains_its_node_and_only_a_fit_report_after_its_end_gives_it_back(
    site: Site, member: Member, record_property: Callable[[str, object], None]
) -> None:
    """Alertmanager → controller → Slurm; the exporter that the alert came of is killed meanwhile."""
    with Alertmanagers(Receiver(site.controller)) as alertmanager:
        labels = {"alertname": ALERT, "severity": "critical", "node": member.name}
        alertmanager.fire(3600, **labels)
        fired = time.monotonic()
        drained = site.wait_drained(member)
        took = time.monotonic() - fired
        record_property("seconds_from_alert_to_drain", round(took, 2))
        print(f"drained {took:.2f} s after the alert was told to Alertmanager")
        assert re.fullmatch(rf"ibmon: {ALERT} .*\[id [0-9a-z]+\]", drained.reason or ""), drained.reason

        member.daemon.process.kill()
        alertmanager.fire(0, **labels)  # it has ended, and nobody says that the node is fit
        site.stays(member, drained.mark, 6)
        member.daemon.start()
        site.wait_given_back(member, within=60)


def test_an_alert_that_is_not_named_drains_nothing(site: Site, member: Member) -> None:
    with Alertmanagers(Receiver(site.controller)) as alertmanager:
        before = site.slurm.node(member.name).mark
        alertmanager.fire(3600, alertname="SomethingElse", severity="critical", node=member.name)
        site.stays(member, before, 5)
        alertmanager.fire(0, alertname="SomethingElse", severity="critical", node=member.name)


def test_the_audit_log_names_who_did_what(site: Site) -> None:
    told = site.controller.command("controller", "audit", "--json")
    assert told.returncode == 0, told.stderr
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    who = {(line["event"], line.get("user")) for line in lines}
    assert {("stop", "operateer"), ("start", "operateer")} <= who
    assert {"drained", "released"} <= {line["event"] for line in lines}
