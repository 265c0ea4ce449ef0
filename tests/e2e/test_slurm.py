"""The whole way with a real Slurm: a port fails and the node is drained, it recovers and the node is given back.

And the four ways in which this must not happen: somebody else's drain, before or over ours, a mode or a stop that
forbids it, and a daemon killed in the middle. What Slurm itself does stands in `test_slurm_behaviour.py`.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from services.daemon import HOLD, INTERVAL, RECOVER, Daemon
from services.node import NodeTree
from services.processes import wait_for

if TYPE_CHECKING:
    from services.slurm import Node, SlurmCluster

pytestmark = pytest.mark.timeout(120)

PORT_DOWN = re.compile(r"ibmon: port-down mlx5_3/1 DOWN/Polling \d+s>2s \[id [0-9a-f]{6,}\]")
ADMIN = "admin: bad DIMM"


@pytest.fixture
def tree(tmp_path: Path) -> NodeTree:
    return NodeTree(tmp_path / "sys")


def daemon_of(slurm: SlurmCluster, node: str, tree: NodeTree, tmp_path: Path, mode: str = "drain") -> Daemon:
    """The daemon of one node of the cluster: it finds scontrol and Slurm's configuration in its environment."""
    env = {**slurm.env, "SLURMD_NODENAME": node}
    return Daemon(tree, tmp_path / "ibmon", env=env, mode=mode, scheduler="slurm", node=node)


def wait_drained(slurm: SlurmCluster, node: str, within: float = 20) -> Node:
    wait_for(lambda: slurm.node(node).drained, within=within, what=f"a drain of {node}")
    return slurm.node(node)


def wait_given_back(slurm: SlurmCluster, node: str, within: float = 20) -> None:
    wait_for(lambda: not slurm.node(node).drained, within=within, what=f"the end of the drain of {node}")


def assert_stays(slurm: SlurmCluster, node: str, before: Node, seconds: float) -> None:
    """The drain, its reason, its user and its time are those of `before`, now and for some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert slurm.node(node).mark == before.mark
        time.sleep(0.2)


def test_a_port_down_drains_the_node_and_its_return_gives_it_back(
    slurm: SlurmCluster, slurm_node: str, tree: NodeTree, tmp_path: Path
) -> None:
    changes = len(slurm.updates(slurm_node))
    with daemon_of(slurm, slurm_node, tree, tmp_path) as daemon:
        tree.link_down("mlx5_3")
        failed = time.monotonic()
        drained = wait_drained(slurm, slurm_node)

        assert time.monotonic() - failed >= HOLD
        assert PORT_DOWN.fullmatch(drained.reason or ""), drained.reason
        assert drained.user == "root"
        daemon.wait_metric("ibmon_drain_active", 1)

        tree.link_up("mlx5_3")
        repaired = time.monotonic()
        wait_given_back(slurm, slurm_node)

        # The recover time runs from the last bad sample, which may be one interval older than the repair.
        assert time.monotonic() - repaired >= RECOVER - INTERVAL
        daemon.wait_metric("ibmon_drain_active", 0)
        assert slurm.reason(slurm_node) is None
    # One write each way: nothing was retried that had worked.
    assert slurm.updates(slurm_node)[changes:] == [
        f"reason set to: {drained.reason}",
        "state set to DRAINED",
        "state set to IDLE",
    ]


def test_a_node_that_an_administrator_drained_before_stays_as_it_was(
    slurm: SlurmCluster, slurm_node: str, tree: NodeTree, tmp_path: Path
) -> None:
    slurm.drain(slurm_node, ADMIN)
    before, changes = slurm.node(slurm_node), slurm.updates(slurm_node)
    with daemon_of(slurm, slurm_node, tree, tmp_path) as daemon:
        tree.link_down("mlx5_3")
        daemon.wait_metric("ibmon_drain_blocked", 1, code="foreign_drain")
        assert_stays(slurm, slurm_node, before, seconds=2)

        tree.link_up("mlx5_3")
        daemon.wait_metric("ibmon_node_fitness", 1, fitness="fit")
        assert_stays(slurm, slurm_node, before, seconds=3)
    assert slurm.updates(slurm_node) == changes


def test_an_administrators_drain_laid_over_ours_is_not_lifted(
    slurm: SlurmCluster, slurm_node: str, tree: NodeTree, tmp_path: Path
) -> None:
    with daemon_of(slurm, slurm_node, tree, tmp_path) as daemon:
        tree.link_down("mlx5_3")
        wait_drained(slurm, slurm_node)
        daemon.wait_metric("ibmon_drain_active", 1)
        slurm.drain(slurm_node, ADMIN)
        before, changes = slurm.node(slurm_node), slurm.updates(slurm_node)
        assert before.reason == ADMIN

        tree.link_up("mlx5_3")
        daemon.wait_metric("ibmon_node_fitness", 1, fitness="fit")
        assert_stays(slurm, slurm_node, before, seconds=3)
    assert slurm.updates(slurm_node) == changes


@pytest.mark.parametrize(
    ("mode", "stopped"),
    [
        pytest.param("observe", False, id="mode-observe"),
        pytest.param("alert", False, id="mode-alert"),
        pytest.param("drain", True, id="stop-file"),
    ],
)
def test_where_acting_is_forbidden_nothing_is_written_to_slurm(
    slurm: SlurmCluster, slurm_node: str, tree: NodeTree, tmp_path: Path, mode: str, stopped: bool
) -> None:
    changes = slurm.updates(slurm_node)
    daemon = daemon_of(slurm, slurm_node, tree, tmp_path, mode=mode)
    if stopped:
        daemon.stop_file.touch()
    with daemon:
        tree.link_down("mlx5_3")
        daemon.wait_metric("ibmon_node_fitness", 1, fitness="unfit")
        assert_stays(slurm, slurm_node, slurm.node(slurm_node), seconds=2)
        assert not slurm.node(slurm_node).drained
    assert slurm.updates(slurm_node) == changes


def deadly_scontrol(slurm: SlurmCluster, directory: Path, moment: str) -> dict[str, str]:
    """An environment with a scontrol that kills its caller, the daemon, before or after it has drained a node."""
    real = slurm.bin / "scontrol"
    act = {"before": "", "after": f'"{real}" "$@"; '}[moment]
    directory.mkdir()
    script = directory / "scontrol"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in\n*[Dd][Rr][Aa][Ii][Nn]*) {act}kill -KILL $PPID;;\n*) exec "{real}" "$@";;\nesac\n'
    )
    script.chmod(0o755)
    return {**slurm.env, "PATH": f"{directory}:{slurm.env['PATH']}"}


@pytest.mark.parametrize("moment", ["before", "after", "held"])
def test_a_daemon_killed_around_the_drain_still_owns_it_and_gives_it_back(
    slurm: SlurmCluster, slurm_node: str, tree: NodeTree, tmp_path: Path, moment: str
) -> None:
    daemon = daemon_of(slurm, slurm_node, tree, tmp_path)
    healthy = daemon.env
    if moment != "held":
        daemon.env = {**healthy, **deadly_scontrol(slurm, tmp_path / "deadly", moment)}
    with daemon:
        tree.link_down("mlx5_3")
        if moment == "held":
            daemon.wait_metric("ibmon_drain_active", 1)
            daemon.process.kill()
        assert daemon.process.wait(20) == -9
        left = slurm.node(slurm_node)
        assert left.drained == (moment != "before")

        daemon.env = healthy
        daemon.start()
        drained = wait_drained(slurm, slurm_node)
        if left.drained:
            assert drained.mark == left.mark  # written once
        daemon.wait_metric("ibmon_drain_active", 1)

        tree.link_up("mlx5_3")
        wait_given_back(slurm, slurm_node)


@pytest.mark.parametrize("trouble", ["controller_hung", "controller_down"])
def test_a_controller_that_is_away_delays_the_drain_and_leaves_the_metrics_alone(
    slurm: SlurmCluster, slurm_node: str, tree: NodeTree, tmp_path: Path, trouble: str
) -> None:
    changes = len(slurm.updates(slurm_node))
    with daemon_of(slurm, slurm_node, tree, tmp_path) as daemon:
        with getattr(slurm, trouble)():
            tree.link_down("mlx5_3")
            daemon.wait_metric("ibmon_drain_blocked", 1, code="scheduler_unreachable")
            assert daemon.metric("ibmon_port_state", device="mlx5_3") == 1
            assert daemon.metric("ibmon_node_fitness", fitness="unfit") == 1
        wait_drained(slurm, slurm_node, within=60)
        tree.link_up("mlx5_3")
        wait_given_back(slurm, slurm_node, within=60)
    assert slurm.updates(slurm_node)[changes:].count("state set to DRAINED") == 1
