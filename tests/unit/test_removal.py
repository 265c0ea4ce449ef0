"""What is removed gives back first: the script for packages on a running daemon, and the one for Kubernetes."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from livenode import COMMAND, DECLARED, FAST, QUICK, LiveNode
from test_live_slurm import ACTION, Slurm

DEPLOY = Path(__file__).parents[2] / "deploy"


def script(directory, name, text):
    file = directory / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def run(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, env=environment or None)


# ------------------------------------------------------------------------------------------------------------ packages


class Package:
    """The script with the paths at its top set to a directory."""

    def __init__(self, directory, ibmon):
        self.stopped = directory / "stopped"
        systemctl = script(directory, "systemctl", f'echo "$*" > {self.stopped}')
        text = (DEPLOY / "packaging/before-removal.sh").read_text()
        for line, mine in (("IBMON=/usr/bin/ibmon\n", ibmon), ("SYSTEMCTL=/usr/bin/systemctl\n", systemctl)):
            assert text.count(line) == 1
            text = text.replace(line, f"{line.partition('=')[0]}={mine}\n")
        self.file = directory / "before-removal.sh"
        self.file.write_text(text)
        self.file.chmod(0o755)

    def remove(self):
        return run(str(self.file))


def test_a_package_that_is_removed_gives_its_node_back_and_stops(tmp_path):
    with LiveNode(tmp_path) as node:
        node.configure(FAST + DECLARED + QUICK + ACTION.format(directory=tmp_path))
        slurm = Slurm(tmp_path)
        command = f"exec {shlex.join(COMMAND)} --config {node.config}"
        package = Package(tmp_path, script(tmp_path, "ibmon", f'{command} "$@"'))
        daemon = node.serving()
        node.goes_down()
        daemon.wait_metric("ibmon_drain_active", 1)
        assert slurm.reason

        done = package.remove()
        assert (done.returncode, done.stderr) == (0, "")
        assert slurm.reason == ""
        assert package.stopped.read_text() == "disable --now ibmon.service\n"
        assert daemon.metric("ibmon_drain_overridden") == 1, "it is not drained again before the daemon has stopped"


@pytest.mark.parametrize(
    ("ibmon", "asked", "said"),
    [
        ("echo 'pass: fit'", ["check --gate"], ""),
        ("echo 'a traceback' >&2; exit 1", ["check --gate"], ""),
        (
            '[ "$1" = check ] && echo "refuse: ibmon: port-down [id 7f3a9c]"; exit 1',
            ["check --gate", "release --reason ibmon is removed from this node"],
            "ibmon: this node is still drained: ibmon: port-down [id 7f3a9c]; give it back at the scheduler\n",
        ),
        (
            '[ "$1" = check ] && echo "pass: fit; on record: ibmon: port-down [id 7f3a9c]" && exit 0; exit 1',
            ["check --gate", "release --reason ibmon is removed from this node"],
            "ibmon: this node is still drained: ibmon: port-down [id 7f3a9c]; give it back at the scheduler\n",
        ),
    ],
    ids=["nothing-of-ours", "broken", "refused", "the-mode-was-lowered"],
)
def test_nothing_keeps_a_package_from_being_removed_and_what_is_left_is_named(tmp_path, ibmon, asked, said):
    calls = tmp_path / "calls"
    package = Package(tmp_path, script(tmp_path, "ibmon", f'echo "$*" >> {calls}\n{ibmon}'))
    done = package.remove()
    assert (done.returncode, done.stderr) == (0, said)
    assert calls.read_text().splitlines() == asked
    assert package.stopped.exists()


# ---------------------------------------------------------------------------------------------------------- Kubernetes


def removed(tmp_path, **pods):
    """The script's end and what kubectl was asked; a pod's value is how it answers the gate and a release."""
    calls = tmp_path / "calls"
    lines = [f'echo "$*" >> {calls}', f'case "$*" in *"get pods"*) printf "%s\\n" {" ".join(pods)} ;;']
    for name, (gate, release) in pods.items():
        lines += [f'*"exec {name} -- ibmon check"*) {gate} ;;', f'*"exec {name} -- ibmon release"*) {release} ;;']
    kubectl = script(tmp_path, "kubectl", "\n".join([*lines, "esac"]))
    done = run(str(DEPLOY / "kubernetes/remove.sh"), "some/where", KUBECTL=str(kubectl), PATH="/usr/bin:/bin")
    return done, calls.read_text().splitlines()


DRAINED = "echo 'refuse: ibmon: port-down [id 7f3a9c]'; exit 1"


def test_a_deployment_is_deleted_when_every_drained_node_was_given_back(tmp_path):
    done, calls = removed(tmp_path, well=("echo 'pass: fit'", "exit 1"), bad=(DRAINED, "exit 0"))
    assert done.returncode == 0
    assert [call for call in calls if " release " in call] == [
        "-n ibmon exec bad -- ibmon release --reason ibmon is removed"
    ]
    assert calls[-1] == "delete -k some/where"


LOWERED = "echo 'pass: fit; on record: ibmon: port-down [id 7f3a9c]'"
SILENT = "echo 'pass: unknown: no daemon runs here; no word of a drain'"


@pytest.mark.parametrize(
    "bad",
    [
        (DRAINED, "exit 1"), (LOWERED, "exit 1"), (SILENT, "exit 1"), (":", "exit 1"),
        ("exit 1", "exit 0"), ("exit 137", "exit 0"),
    ],
)  # fmt: skip
def test_where_a_node_may_still_be_drained_nothing_is_deleted_and_the_pod_is_named(tmp_path, bad):
    done, calls = removed(tmp_path, one=bad, two=(DRAINED, "exit 0"))
    assert done.returncode == 1
    assert done.stderr == "remove.sh: one was not given back; nothing is deleted\n"
    assert any("exec two -- ibmon release" in call for call in calls), "the others are given back all the same"
    assert not any("delete" in call for call in calls)


def test_without_a_directory_it_says_how_it_is_called(tmp_path):
    done = run(str(DEPLOY / "kubernetes/remove.sh"), PATH="/usr/bin:/bin")
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
