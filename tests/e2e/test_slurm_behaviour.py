"""What ibmon's design relies on in Slurm, held against the real one, so that a newer Slurm that differs is noticed.

No ibmon runs here; `test_slurm.py` has the daemon.
"""

from __future__ import annotations

import json
import time

import pytest
from services.processes import wait_for
from services.slurm import MESSAGE_TIMEOUT, Node, SlurmCluster

from ibmon.drain.slurm_node import is_away

pytestmark = pytest.mark.timeout(120)

OURS = "ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id 7f3a9c]"


def test_a_drain_shows_state_reason_user_and_time(slurm: SlurmCluster, slurm_node: str) -> None:
    slurm.drain(slurm_node, OURS)

    node = slurm.node(slurm_node)
    assert node.state >= {"IDLE", "DRAIN"}
    assert (node.reason, node.user) == (OURS, "root")
    assert node.time is not None


def test_a_second_drain_silently_overwrites_the_first_ones_reason(slurm: SlurmCluster, slurm_node: str) -> None:
    slurm.drain(slurm_node, "admin: bad DIMM")

    slurm.drain(slurm_node, OURS)

    assert slurm.reason(slurm_node) == OURS


def test_undrain_lifts_any_drain_and_may_be_repeated(slurm: SlurmCluster, slurm_node: str) -> None:
    slurm.drain(slurm_node, "admin: bad DIMM")

    slurm.undrain(slurm_node)
    slurm.undrain(slurm_node)

    node = slurm.node(slurm_node)
    assert not node.drained
    assert node.reason is None


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param(("state=drain",), "must specify a reason", id="drain-without-reason"),
        pytest.param(("state=resume",), "Invalid node state", id="resume-of-a-node-in-service"),
    ],
)
def test_a_refused_change_leaves_the_node_alone(
    slurm: SlurmCluster, slurm_node: str, change: tuple[str, ...], complaint: str
) -> None:
    refused = slurm.scontrol("update", f"nodename={slurm_node}", *change)

    assert refused.returncode == 1
    assert complaint in refused.stdout + refused.stderr
    assert not is_away(refused.stdout + refused.stderr)
    assert not slurm.node(slurm_node).drained


def test_an_unknown_name_in_a_list_fails_but_the_known_nodes_are_drained(slurm: SlurmCluster, slurm_node: str) -> None:
    done = slurm.scontrol("update", f"nodename={slurm_node},nosuchnode", "state=drain", "reason=part")

    assert done.returncode == 1
    assert slurm.node(slurm_node).drained


def test_a_drain_lets_the_running_job_end_by_itself(slurm: SlurmCluster, slurm_node: str) -> None:
    wait_for(lambda: slurm.state(slurm_node) == {"IDLE"}, within=20, what="an idle node")
    job = slurm.start_job(slurm_node, "sleep", "2")
    wait_for(lambda: "ALLOCATED" in slurm.state(slurm_node), within=10, what="the job's start")

    slurm.drain(slurm_node, OURS)

    assert slurm.state(slurm_node) >= {"ALLOCATED", "DRAIN"}
    assert job.wait(20) == 0


def test_a_hung_controller_fails_the_call_and_drains_when_it_wakes(slurm: SlurmCluster, slurm_node: str) -> None:
    started = time.monotonic()
    with slurm.controller_hung():
        failed = slurm.scontrol("update", f"nodename={slurm_node}", "state=drain", f"reason={OURS}")
        waited = time.monotonic() - started

    assert failed.returncode == 1
    assert waited >= MESSAGE_TIMEOUT
    assert is_away(failed.stderr)
    wait_for(lambda: slurm.reason(slurm_node) == OURS, within=10, what="the drain that had failed")


def test_without_a_controller_the_call_fails_and_a_drain_outlives_it(slurm: SlurmCluster, slurm_node: str) -> None:
    slurm.drain(slurm_node, OURS)
    before = slurm.node(slurm_node)

    with slurm.controller_down():
        failed = slurm.scontrol("update", f"nodename={slurm_node}", "state=undrain")

    assert failed.returncode == 1
    assert is_away(failed.stderr)
    assert before.drained
    assert slurm.node(slurm_node).mark == before.mark
    # While a node has not yet answered the new controller, UNDRAIN is refused; the fixture needs it to work.
    wait_for(
        lambda: slurm.scontrol("update", f"nodename={slurm_node}", "state=undrain").returncode == 0,
        within=20,
        what="an accepted UNDRAIN",
    )


def test_sinfo_tells_the_same_in_json(slurm: SlurmCluster, slurm_node: str) -> None:
    slurm.drain(slurm_node, OURS)

    document = json.loads(slurm.client("sinfo", "--json").stdout)

    [node] = [node for node in document["nodes"] if node["name"] == slurm_node]
    assert "DRAIN" in node["state_flags"]
    assert (node["reason"], node["reason_set_by_user"]) == (OURS, "root")
    assert abs(time.time() - node["reason_changed_at"]) < 30


def test_the_cluster_reads_a_reason_that_looks_like_fields() -> None:
    line = "NodeName=n1 State=MIXED*+DRAIN+PLANNED Owner=N/A Reason=a b=c [id 7f] x [root@2024-02-03T04:05:06]"

    assert Node.parse(line) == Node(
        frozenset({"MIXED", "DRAIN", "PLANNED"}), "a b=c [id 7f] x", "root", "2024-02-03T04:05:06"
    )
