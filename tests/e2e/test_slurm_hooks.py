"""The hooks of deploy/slurm called by a real slurmd: what a refusal does, and that nothing else ever drains a node."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from services.hooks import REASON as OURS
from services.hooks import Hooked
from services.processes import wait_for
from services.slurm import SlurmCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(120)

DRAINED, BAD, WEDGED = "node1", "node2", "node3"


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hooked, SlurmCluster]]:
    # Root's jobs may enter pytest's directories; Slurm's own user is root here.
    hooks = Hooked(tmp_path_factory.mktemp("hooks"), (DRAINED, BAD, WEDGED))
    with SlurmCluster(nodes=3, settings=hooks.settings) as cluster:
        yield hooks, cluster


def test_a_health_check_in_its_bare_environment_finds_ibmon_and_changes_nothing(
    hooked: tuple[Hooked, SlurmCluster],
) -> None:
    hooks, slurm = hooked
    hooks.verdict(DRAINED, held=True)
    slurm.drain(DRAINED, OURS)
    before = slurm.node(DRAINED)
    log = slurm.directory / f"slurmd.{DRAINED}.log"
    wait_for(lambda: OURS in log.read_text(errors="replace"), within=20, what="the health check's word in slurmd's log")

    [environment] = hooks.calls("healthcheck", DRAINED)
    assert set(environment) == {"PWD", "SLURMD_NODENAME"}
    slurm.restart_slurmd(DRAINED)  # a health check that says no keeps no slurmd from registering
    assert slurm.node(DRAINED).mark == before.mark
    assert not slurm.node(BAD).drained
    slurm.undrain(DRAINED)
    hooks.verdict(DRAINED, held=False)


def test_a_node_that_is_unfit_and_not_drained_starts_its_job_and_is_not_drained_by_it(
    hooked: tuple[Hooked, SlurmCluster],
) -> None:
    hooks, slurm = hooked
    hooks.verdict(BAD, held=False)

    assert slurm.start_job(BAD, "true").wait(30) == 0
    wait_for(lambda: slurm.state(BAD) == {"IDLE"}, within=20, what="the end of the job and its epilog")
    assert hooks.calls("prolog", BAD)
    assert hooks.calls("epilog", BAD)
    assert slurm.node(BAD).mark == (False, None, None, None)


def test_a_hanging_ibmon_delays_a_job_by_seconds_and_neither_refuses_nor_drains(
    hooked: tuple[Hooked, SlurmCluster],
) -> None:
    hooks, slurm = hooked
    hooks.verdict(WEDGED, held=True)
    (hooks.directory / f"{WEDGED}.hangs").touch()
    began = time.monotonic()

    assert slurm.start_job(WEDGED, "true").wait(40) == 0
    assert time.monotonic() - began < 20
    (hooks.directory / f"{WEDGED}.hangs").unlink()
    assert not slurm.node(WEDGED).drained


def test_a_job_that_had_the_node_before_the_drain_is_refused_and_the_drain_stays_ours(
    hooked: tuple[Hooked, SlurmCluster],
) -> None:
    hooks, slurm = hooked
    wait_for(lambda: slurm.state(DRAINED) == {"IDLE"}, within=20, what="an idle node")
    got = slurm.client("salloc", "--no-shell", f"--nodelist={DRAINED}", "--job-name=before")
    assert got.returncode == 0, got.stderr
    [job] = re.findall(r"Granted job allocation (\d+)", got.stderr)
    slurm.drain(DRAINED, OURS)
    hooks.verdict(DRAINED, held=True)
    before = slurm.node(DRAINED)

    step = slurm.client("srun", f"--jobid={job}", "true")
    assert "Job prolog failed" in step.stderr
    wait_for(
        lambda: "ALLOCATED" not in slurm.state(DRAINED) and "COMPLETING" not in slurm.state(DRAINED),
        within=30, what="the end of the refused job",
    )  # fmt: skip
    assert slurm.node(DRAINED).mark == before.mark, "Slurm has put its own reason over ours"
    slurm.undrain(DRAINED)
