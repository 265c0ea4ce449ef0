"""A running daemon and a Slurm: what is drained and given back, and what a stop, a person or a full disk forbids."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from livenode import DECLARED, FAST, NAME, QUICK, LiveNode, always, until

# Ten nodes in one partition; the state of this one is in a file, its reason in another. One call a line in `calls`.
SCONTROL = r"""#!/bin/sh
d=${0%/*}
echo "$*" >> "$d/calls"
if [ -e "$d/away" ]; then echo "Unable to contact slurm controller (connect failure)" >&2; exit 1; fi
case "$*" in
*"show node"*)
    for n in 1 2 3 4 5 6 7 8 9 10; do
        case "$*" in *"show node node"*) [ "$*" = "--all --oneliner show node node$n" ] || continue ;; esac
        state=IDLE reason=
        if [ $n = 1 ] && [ -s "$d/reason" ]; then
            state=IDLE+DRAIN reason=" Reason=$(cat "$d/reason") [root@2030-01-01T10:00:00]"
        fi
        echo "NodeName=node$n Arch=x86_64 State=$state ThreadsPerCore=1 Partitions=train$reason"
    done ;;
update*)
    for a; do
        case "$a" in
        Reason=*) printf %s "${a#Reason=}" > "$d/reason" ;;
        State=UNDRAIN) rm -f "$d/reason" ;;
        esac
    done ;;
*) exit 1 ;;
esac
"""
ACTION = """
[action]
mode = "drain"
scheduler = "slurm"
boot_grace = "0s"
stop_file = "{directory}/STOP"
[slurm]
node_name = "node1"
directory = "{directory}/slurm"
"""


class Slurm:
    """The scheduler's side."""

    def __init__(self, directory: Path) -> None:
        self.place = directory / "slurm"
        self.place.mkdir()
        (self.place / "scontrol").write_text(SCONTROL)
        (self.place / "scontrol").chmod(0o755)

    @property
    def reason(self) -> str:
        """The reason of this node's drain; empty where it is not drained."""
        try:
            return (self.place / "reason").read_text()
        except FileNotFoundError:
            return ""

    @reason.setter
    def reason(self, text: str) -> None:
        (self.place / "reason").write_text(text)

    @property
    def writes(self) -> list[str]:
        """The updates that were asked for."""
        try:
            return [line for line in (self.place / "calls").read_text().splitlines() if line.startswith("update")]
        except FileNotFoundError:
            return []

    @property
    def asked(self) -> bool:
        """Whether anything at all was asked of it."""
        return (self.place / "calls").exists()


@pytest.fixture
def node(tmp_path):
    with LiveNode(tmp_path) as live:
        live.configure(FAST + DECLARED + QUICK + ACTION.format(directory=tmp_path))
        yield live


@pytest.fixture
def slurm(node):
    return Slurm(node.directory)


def test_a_node_is_drained_with_its_reason_and_given_back_when_the_port_returned(node, slurm):
    daemon = node.serving()
    node.wait_fitness("fit")
    assert not slurm.asked, "a node that is well makes no call"

    node.goes_down()
    daemon.wait_metric("ibmon_drain_active", 1)
    pattern = r"ibmon: port-down mlx5_3/1 DOWN/Polling \d+s>\d+s \[id [0-9a-f]{6}\]"
    assert re.fullmatch(pattern, slurm.reason)
    assert slurm.writes == [f"update NodeName={NAME} State=DRAIN Reason={slurm.reason}"]
    assert daemon.metric("ibmon_drain_since_timestamp_seconds") is not None

    node.comes_up()
    until(lambda: not slurm.reason)
    daemon.wait_metric("ibmon_drain_active", 0)
    assert slurm.writes[1:] == [f"update NodeName={NAME} State=UNDRAIN"]


def test_while_the_stop_file_stands_nothing_is_written_in_either_direction(node, slurm):
    stop = node.directory / "STOP"
    stop.touch()
    daemon = node.serving()
    node.goes_down()
    daemon.wait_metric("ibmon_drain_blocked", 1, code="stop")
    node.wait_fitness("unfit")
    assert not slurm.asked

    stop.unlink()
    until(lambda: slurm.reason)
    daemon.wait_metric("ibmon_drain_blocked", 0, code="stop")
    daemon.wait_metric("ibmon_drain_active", 1)

    stop.touch()
    daemon.wait_line("stop-file", "present=true")
    node.comes_up()
    node.wait_fitness("fit")
    always(lambda: slurm.reason, 0.4)
    stop.unlink()
    until(lambda: not slurm.reason)


def test_a_drain_of_an_administrator_stays_as_it_is(node, slurm):
    slurm.reason = "bad DIMM, ticket 4711"
    daemon = node.serving()
    node.goes_down()
    daemon.wait_metric("ibmon_drain_blocked", 1, code="foreign_drain")
    node.comes_up()
    node.wait_fitness("fit")

    always(lambda: slurm.reason == "bad DIMM, ticket 4711", 0.4)
    assert slurm.writes == []


def test_a_controller_that_does_not_answer_is_no_fault_of_the_node(node, slurm):
    (slurm.place / "away").touch()
    daemon = node.serving()
    node.goes_down()
    daemon.wait_metric("ibmon_drain_blocked", 1, code="scheduler_unreachable")

    assert {f["rule"] for f in node.verdict()["findings"]} == {"port-down"}
    assert daemon.metric("ibmon_drain_wanted") == 1
    assert daemon.metric("ibmon_drain_active") == 0
    assert slurm.writes == []


def test_kill_9_while_drained_gives_the_node_back_later_and_only_once(node, slurm):
    daemon = node.serving()
    node.goes_down()
    daemon.wait_metric("ibmon_drain_active", 1)
    reason = slurm.reason
    daemon.end(signal.SIGKILL)

    again = node.serving()
    again.wait_metric("ibmon_drain_active", 1)
    assert slurm.reason == reason
    assert len(slurm.writes) == 1
    node.comes_up()
    until(lambda: not slurm.reason)
    again.wait_metric("ibmon_drain_active", 0)
    assert len(slurm.writes) == 2


def test_with_a_full_disk_a_bad_node_is_drained_and_not_given_back_until_the_record_is_saved(node, slurm):
    daemon = node.serving()
    node.wait_fitness("fit")
    daemon.limit_files(16384)
    node.goes_down()
    until(lambda: slurm.reason)
    daemon.wait_line("ERROR", "going on from memory")
    node.comes_up()
    node.wait_fitness("fit")

    always(lambda: slurm.reason, 0.4)
    assert len(slurm.writes) == 1


def test_a_lost_record_makes_the_drain_nobodys_and_it_stays(node, slurm):
    daemon = node.serving()
    node.goes_down()
    daemon.wait_metric("ibmon_drain_active", 1)
    daemon.end(signal.SIGKILL)
    for path in node.state.iterdir():
        path.unlink()
    node.comes_up()
    (node.state / "ibmon.db").touch()

    again = node.serving()
    again.wait_line("ERROR", "ibmon.db.aside-")
    node.wait_fitness("fit")
    always(lambda: slurm.reason, 0.4)
    assert len(slurm.writes) == 1


@pytest.mark.parametrize("apart", ["nothing", "state", "runtime"])
def test_of_two_daemons_on_one_state_or_runtime_directory_only_the_first_acts(node, slurm, apart):
    first = node.serving()
    own = node.directory / "own"
    own.mkdir()
    second_file = node.configure(
        FAST + DECLARED + QUICK + ACTION.format(directory=node.directory),
        file=node.directory / "second.toml",
        **{apart: str(own)},
    )
    second = node.serving(config=second_file)
    assert first.metric("ibmon_actions_enabled") == 1
    assert second.metric("ibmon_actions_enabled") == 0
    second.wait_line("WARNING", "another ibmon runs on")

    node.goes_down()
    first.wait_metric("ibmon_drain_active", 1)
    second.wait_metric("ibmon_drain_wanted", 1)
    always(lambda: node.verdict()["actions_enabled"], 0.4)  # what hooks read is the word of the one that acts
    assert second.metric("ibmon_drain_active") == 0
    assert len(slurm.writes) == 1

    first.end(signal.SIGKILL)
    node.comes_up()
    second.wait_metric("ibmon_drain_wanted", 0)
    assert node.verdict()["fitness"] == "unfit", "the second one wrote"
    always(lambda: slurm.reason, 0.3)
    assert len(slurm.writes) == 1, "the second one acted"

    assert len(second.lines("another ibmon runs on")) == 1
    third = node.serving()  # kill -9 has freed the locks
    assert third.metric("ibmon_actions_enabled") == 1
    until(lambda: not slurm.reason)
    assert len(slurm.writes) == 2
