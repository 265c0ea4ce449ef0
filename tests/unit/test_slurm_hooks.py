"""The hooks of deploy/slurm in the environment that Slurm gives them: one cause refuses a job, all else passes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ibmon.cli.verdictfile import boot_id

HOOKS = Path(__file__).parents[2] / "deploy/slurm"
GATES = ("prolog.sh", "healthcheck.sh", "epilog.sh")
REASON = "ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id 7f3a9c]"
REFUSE = f"echo 'refuse: {REASON}'; exit 1"


class Hooks:
    """The hooks in a directory, with the paths at their top set to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ibmon, self.calls = directory / "ibmon", directory / "calls"
        self.uptime = directory / "uptime"
        self.uptime.write_text("60.25 100.00\n")
        for hook in HOOKS.glob("*.sh"):
            text = hook.read_text()
            for line in ("IBMON=/usr/bin/ibmon\n", "LIMIT=5 ", "WAIT=600 ", "UPTIME=/proc/uptime\n"):
                assert text.count(line) <= 1
            text = text.replace("IBMON=/usr/bin/ibmon\n", f"IBMON={self.ibmon}\n").replace("LIMIT=5 ", "LIMIT=1 ")
            text = text.replace("WAIT=600 ", "WAIT=1 ").replace("UPTIME=/proc/uptime\n", f"UPTIME={self.uptime}\n")
            (directory / hook.name).write_text(text)
            (directory / hook.name).chmod(0o755)

    def answers(self, body: str) -> None:
        self.ibmon.write_text(f'#!/bin/sh\necho "$*" >> {self.calls}\n{body}\n')
        self.ibmon.chmod(0o755)

    def run(self, name: str, **environment: str) -> subprocess.CompletedProcess[str]:
        bare = [f"{key}={value}" for key, value in {"PWD": "/", "SLURMD_NODENAME": "node1", **environment}.items()]
        command = ["/usr/bin/env", "-i", *bare, str(self.directory / name)]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


@pytest.fixture
def hooks(tmp_path):
    return Hooks(tmp_path)


# ------------------------------------------------------------------------------------------------------------ the gates


@pytest.mark.parametrize(("name", "code"), [("prolog.sh", 1), ("healthcheck.sh", 1), ("epilog.sh", 0)])
def test_while_our_drain_is_in_force_a_hook_says_so_and_an_epilog_never_fails(hooks, name, code):
    hooks.answers(REFUSE)
    done = hooks.run(name, SLURM_JOB_ID="17")

    assert done.returncode == code
    assert (REASON in done.stdout + done.stderr) is bool(code)
    assert hooks.calls.read_text() == "check --gate\n"


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param("echo 'pass: unfit: port-down mlx5_3/1'; exit 0", id="unfit-and-not-drained"),
        pytest.param("echo 'Traceback (most recent call last):' >&2; exit 1", id="broken-interpreter"),
        pytest.param("exit 1", id="says-nothing"),
        pytest.param("echo 'refuse: x'; exit 0", id="says-refuse-and-passes"),
        pytest.param("echo 'refuse: x'; exit 2", id="another-code"),
        pytest.param("echo 'ibmon: there is no option --gate' >&2; exit 2", id="too-old"),
        pytest.param("echo 'refuse: x'; kill -KILL $$", id="killed"),
        pytest.param("echo 'refuse: x'; sleep 30; exit 1", id="hangs"),
        pytest.param("trap '' TERM; sleep 30 & wait; sleep 30; exit 1", id="hangs-and-ignores-its-end"),
        pytest.param("yes refuse: 2>/dev/null | head -c 5000000; exit 0", id="floods"),
    ],
)
def test_everything_else_passes_in_time(hooks, name, body):
    hooks.answers(body)
    began = time.monotonic()
    done = hooks.run(name)

    assert (done.returncode, done.stdout) == (0, "")
    assert "refuse" not in done.stderr
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("name", GATES)
def test_without_ibmon_every_job_passes(hooks, name):
    assert hooks.run(name).returncode == 0
    hooks.ibmon.write_text("no program")
    assert hooks.run(name).returncode == 0
    hooks.ibmon.chmod(0o755)
    assert hooks.run(name).returncode == 0


def document(**changes):
    return {
        "v": 1, "boot_id": boot_id(), "monotonic": time.monotonic(), "node": "node1", "fitness": "unfit", "why": "bad",
        "mode": "drain", "drain": {"overridden": False, "owned": {"id": "7f3a9c", "reason": REASON, "held": True}},
        **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 1),
        ({"mode": "observe"}, 0),
        ({"monotonic": -1e6}, 0),
        ({"boot_id": "another"}, 0),
        ({"drain": {"owned": None}}, 0),
        ({"drain": {"overridden": False, "owned": {"reason": REASON, "held": False}}}, 0),
    ],
)
def test_the_real_ibmon_answers_by_its_verdict(hooks, changes, code):
    run = hooks.directory / "run"
    run.mkdir()
    (hooks.directory / "c.toml").write_text(f'[state]\nruntime_directory = "{run}"\n')
    (run / "verdict.json").write_text(json.dumps(document(**changes)))
    hooks.answers(f'exec {sys.executable} -m ibmon --config {hooks.directory}/c.toml "$@"')
    shutil.copy(hooks.directory / "prolog.sh", hooks.directory / "patient.sh")
    text = (hooks.directory / "patient.sh").read_text().replace("LIMIT=1 ", "LIMIT=15 ")
    (hooks.directory / "patient.sh").write_text(text)

    assert hooks.run("patient.sh").returncode == code


# ------------------------------------------------------------------------------------------------------------ the wait


def test_after_a_boot_the_wait_asks_ibmon_and_lets_slurmd_start_whatever_it_says(hooks):
    hooks.answers("exit 1")
    assert hooks.run("wait.sh").returncode == 0
    assert hooks.calls.read_text() == "wait --for 1s\n"


@pytest.mark.parametrize("uptime", ["900.00 1.0\n", "86400.5 1.0\n", "", "soon\n", "-5 1\n"])
def test_a_slurmd_that_restarts_beside_jobs_waits_for_nothing(hooks, uptime):
    hooks.answers("sleep 30")
    hooks.uptime.write_text(uptime)

    assert hooks.run("wait.sh").returncode == 0
    assert not hooks.calls.exists()


def test_the_wait_is_covered_by_the_units_time_limit_and_its_failure_by_the_dash():
    unit = (HOOKS / "slurmd.service.d/ibmon-wait.conf").read_text()
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    wait = int((HOOKS / "wait.sh").read_text().split("WAIT=")[1].split()[0])

    assert settings["ExecStartPre"] == "-/etc/slurm/ibmon/wait.sh"
    assert settings["TimeoutStartSec"] == "12min"
    assert wait + 15 < 12 * 60


def test_the_daemon_is_not_ordered_after_the_slurmd_that_waits_for_it():
    dropin = (HOOKS.parents[1] / "systemd/drop-ins/slurm.conf").read_text()
    after = [line for line in dropin.splitlines() if line.startswith("After=")]

    assert after == ["After=munge.service"]


@pytest.mark.parametrize("name", [*GATES, "wait.sh"])
def test_every_command_of_a_hook_is_a_builtin_or_an_absolute_path(name):
    text = (HOOKS / name).read_text()
    assert text.startswith("#!/bin/sh\n")
    for word in ("timeout", "logger", "ibmon"):
        uses = [line for line in text.splitlines() if not line.startswith("#") and f"/{word} " in line]
        assert all(f"/usr/bin/{word} " in line for line in uses)
    assert (HOOKS / name).stat().st_mode & 0o111
