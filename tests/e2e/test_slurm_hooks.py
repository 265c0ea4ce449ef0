"""The hooks of deploy/slurm called by a real slurmd: what a refusal does, and that nothing else ever drains a node."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from services.daemon import COMMAND
from services.processes import wait_for
from services.slurm import SlurmCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(120)

HOOKS = Path(__file__).parents[2] / "deploy/slurm"
OURS = "ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id 7f3a9c]"
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
DRAINED, BAD, WEDGED = "node1", "node2", "node3"


class Hooked:
    """A cluster of three nodes whose Prolog, HealthCheckProgram and Epilog are ours.

    All nodes are one host, so a wrapper tells ibmon by SLURMD_NODENAME which node's verdict to read, and writes down in
    which environment it was called.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.chmod(0o755)
        wrapper = directory / "ibmon"
        wrapper.write_text(
            f"#!/bin/sh\n/usr/bin/env > {directory}/$PPID.env\n"
            f'/usr/bin/test -e "{directory}/$SLURMD_NODENAME.hangs" && /usr/bin/sleep 60\n'
            f'exec {COMMAND} --config "{directory}/$SLURMD_NODENAME.toml" "$@"\n'
        )
        wrapper.chmod(0o755)
        for name in ("prolog", "healthcheck", "epilog"):
            text = (HOOKS / f"{name}.sh").read_text()
            assert text.count("IBMON=/usr/bin/ibmon\n") == 1
            text = text.replace("IBMON=/usr/bin/ibmon\n", f"IBMON={wrapper}\n")
            # Where the hook itself was called, and in which environment.
            text = text.replace("#!/bin/sh\n", f"#!/bin/sh\n/usr/bin/env >> {directory}/{name}.$SLURMD_NODENAME\n", 1)
            (directory / f"{name}.sh").write_text(text)
            (directory / f"{name}.sh").chmod(0o755)
        self.settings = (
            f"Prolog={directory}/prolog.sh\nEpilog={directory}/epilog.sh\n"
            f"HealthCheckProgram={directory}/healthcheck.sh\nHealthCheckInterval=3\n"
            "SchedulerParameters=nohold_on_prolog_fail\n"
        )
        for node in (DRAINED, BAD, WEDGED):
            (directory / f"{node}.run").mkdir()
            (directory / f"{node}.toml").write_text(f'[state]\nruntime_directory = "{directory}/{node}.run"\n')
            self.verdict(node, held=False)

    def verdict(self, node: str, *, held: bool) -> None:
        """What the daemon of a node last said: unfit, and drained by ibmon or not."""
        owned = {"id": "7f3a9c", "reason": OURS, "asked": 1.0, "held": True} if held else None
        document = {
            "v": 1, "node": node, "boot_id": BOOT, "monotonic": time.monotonic(), "fitness": "unfit", "why": "bad",
            "mode": "drain", "drain": {"owned": owned, "overridden": False}, "findings": [], "ports": [],
        }  # fmt: skip
        beside = self.directory / f"{node}.run/.new"
        beside.write_text(json.dumps(document))
        beside.replace(self.directory / f"{node}.run/verdict.json")

    def calls(self, hook: str, node: str) -> list[dict[str, str]]:
        """The environments in which a hook was called on a node."""
        file = self.directory / f"{hook}.{node}"
        text = file.read_text() if file.exists() else ""
        return [dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))] if text else []


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Hooked, SlurmCluster]]:
    # Root's jobs may enter pytest's directories; Slurm's own user is root here.
    hooks = Hooked(tmp_path_factory.mktemp("hooks"))
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
