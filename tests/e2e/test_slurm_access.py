"""Who may change a node of a real Slurm, and what its topology, its hidden partitions and its slurmrestd tell ibmon.

No daemon runs here: these are ibmon's two ways to Slurm themselves. Debian's slurmrestd is of 22.05, which cannot
change a node, so here it must be told apart; tests/unit holds the newer ones' published interface.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from services.slurm import SlurmCluster, as_user
from services.slurmdbd import Accounting

from ibmon.config import SlurmConfig
from ibmon.drain.slurm import Slurm
from ibmon.drain.slurmrest import SlurmRest
from ibmon.ports import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(180)

REASON = "ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id 7f3a9c]"
SLURM_USER, OPERATOR, ADMINISTRATOR, NOBODY = "daemon", "games", "man", "nobody"
SETTINGS = """\
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={directory}/jwt.key
TopologyPlugin=topology/tree
PartitionName=hidden Nodes=node[2-3] Hidden=YES
"""
TOPOLOGY = """\
SwitchName=leaf1 Nodes=node[1-2]
SwitchName=leaf2 Nodes=node3
SwitchName=spine Switches=leaf[1-2]
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    levels = {OPERATOR: "operator", ADMINISTRATOR: "administrator", NOBODY: "none"}
    with SlurmCluster(3, SETTINGS, topology=TOPOLOGY, user=SLURM_USER, accounting=Accounting(levels)) as cluster:
        yield cluster


@pytest.fixture
def undrained(cluster: SlurmCluster) -> Iterator[str]:
    yield "node1"
    cluster.undrain("node1")


def slurm_of(cluster: SlurmCluster, node: str = "", user: str = "root", directory: Path | None = None) -> Slurm:
    """ibmon's way through scontrol, which a user of the host runs."""
    if directory is not None:
        script = directory / "scontrol"
        script.write_text(f'#!/bin/sh\nexec {shlex.join([*as_user(user), str(cluster.bin / "scontrol")])} "$@"\n')
        script.chmod(0o755)
    config = SlurmConfig(node_name=node, directory=str(directory or cluster.bin))
    return Slurm(config, environ={"SLURM_CONF": cluster.env["SLURM_CONF"]})


@pytest.mark.parametrize("user", ["root", SLURM_USER, ADMINISTRATOR])
def test_root_the_slurm_user_and_an_administrator_may_drain_and_give_back(
    cluster: SlurmCluster, undrained: str, tmp_path: Path, user: str
) -> None:
    slurm = slurm_of(cluster, undrained, user, tmp_path)

    slurm.drain(REASON)

    assert (cluster.node(undrained).reason, cluster.node(undrained).user) == (REASON, user)
    assert slurm.read_node().user == user

    slurm.undrain()

    assert not cluster.node(undrained).drained


@pytest.mark.parametrize("user", [OPERATOR, NOBODY])
def test_an_operator_and_anybody_else_may_read_and_are_forbidden_to_change(
    cluster: SlurmCluster, undrained: str, tmp_path: Path, user: str
) -> None:
    slurm = slurm_of(cluster, undrained, user, tmp_path)
    assert "IDLE" in slurm.read_node().flags
    assert {pool.name for pool in slurm.read_pools()} >= {"all"}

    for change in (lambda: slurm.drain(REASON), slurm.undrain):
        with pytest.raises(SchedulerError, match="Invalid user id") as caught:
            change()
        assert caught.value.forbidden

    assert not cluster.node(undrained).drained


def test_the_fleet_holds_hidden_partitions_and_needs_no_name_of_this_node(cluster: SlurmCluster) -> None:
    fleet = {pool.name: [view.name for view in pool.nodes] for pool in slurm_of(cluster).read_fleet()}

    assert fleet == {"all": ["node1", "node2", "node3"], "hidden": ["node2", "node3"]}


@pytest.mark.parametrize("field", ["Comment", "Extra", "Reason"])
def test_words_of_several_lines_at_one_node_hide_neither_it_nor_the_others(cluster: SlurmCluster, field: str) -> None:
    try:
        cluster.scontrol("update", "NodeName=node2", f"{field}=rack 7\nState=DOWN\n\nReason=ours to keep")
        pools = slurm_of(cluster, "node1").read_fleet()
        assert {pool.name: len(pool.nodes) for pool in pools} == {"all": 3, "hidden": 2}
        assert all("DOWN" not in view.flags for pool in pools for view in pool.nodes)
        assert "DOWN" not in slurm_of(cluster, "node2").read_node().flags
    finally:
        cluster.scontrol("update", "NodeName=node2", f"{field}=")


def test_each_node_has_its_leaf_and_none_has_one_without_a_topology(cluster: SlurmCluster, slurm: SlurmCluster) -> None:
    assert slurm_of(cluster).read_topology() == {"node1": "leaf1", "node2": "leaf1", "node3": "leaf2"}
    assert slurm_of(slurm).read_topology() == {}


def test_a_slurmrestd_that_cannot_change_a_node_is_told_apart(cluster: SlurmCluster, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(cluster.token("root"))
    with cluster.slurmrestd() as url:
        config = SlurmConfig(node_name="node1", rest_url=url, rest_user="root", rest_token_file=str(token))

        with pytest.raises(SchedulerError) as caught:
            SlurmRest(config, environ={}).read_node()

        needs = "ibmon needs v0.0.39 (Slurm 23.02) or later, or leave slurm.rest_url empty"
        assert str(caught.value) == f"slurmrestd at {url} offers v0.0.38; {needs}"
        assert not caught.value.forbidden


@pytest.mark.parametrize("content", ["not.a.token", None])
def test_a_slurmrestd_that_refuses_the_caller_is_a_refusal(
    cluster: SlurmCluster, tmp_path: Path, content: str | None
) -> None:
    token = tmp_path / "token"
    token.write_text(content or "")
    with cluster.slurmrestd() as url:
        config = SlurmConfig(node_name="node1", rest_url=url, rest_token_file=str(token) if content else "")

        with pytest.raises(SchedulerError, match="it does not accept the caller") as caught:
            SlurmRest(config, environ={}).read_node()

        assert caught.value.forbidden
        assert content is None or content not in str(caught.value)
