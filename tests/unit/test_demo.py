"""The demo's command and its stage. Stories are played in test_scenarios.py, in virtual time."""

from __future__ import annotations

import threading
import time
from types import MappingProxyType

import pytest
from click.testing import CliRunner

from ibmon.cli.demo import command
from ibmon.model import NodeFitness
from ibmon.recording import Frame, RecordingError
from ibmon.simulate import demo
from ibmon.simulate.gated import GatedTree
from ibmon.simulate.scenarios import SCENARIOS, Ending, Scenario

SECONDS = 20  # no test waits so long unless it fails


def test_the_list_names_every_scenario_with_its_title():
    out = CliRunner().invoke(command, ["--list"]).output

    assert [line.split()[0] for line in out.splitlines()] == list(SCENARIOS)
    assert SCENARIOS["reboot"].title in out


def test_an_unknown_scenario_is_one_line_that_names_the_others_and_exit_code_2():
    result = CliRunner().invoke(command, ["cabel"])

    assert result.exit_code == 2
    assert "no scenario 'cabel'; there are cable, healthy," in result.output


def short(ending: Ending) -> Scenario:
    """A node that is rebooted, and nothing else."""
    return Scenario(
        title="a reboot",
        story=lambda script: script.add(Frame(t=1, boot_id="another", uptime=0.0)),
        chapters=((0, "It begins."), (0.8, "It goes on.")),
        end=2.5,
        ending=ending,
    )


class Clock:
    """The time of a story: it goes on from turn to turn, and only once the daemon has judged the node."""

    def __init__(self):
        self.began, self.at, self.stage = time.monotonic(), 0.0, None

    def monotonic(self):
        return self.began + self.at

    def time(self):
        return time.time()

    def sleep(self, seconds):
        end = time.monotonic() + SECONDS
        while (shown := self.stage.daemon.snapshot) is None or shown.fitness is NodeFitness.UNKNOWN:
            assert time.monotonic() < end
            time.sleep(0.01)
        self.at += seconds
        time.sleep(max(0.0, self.monotonic() - time.monotonic()))  # never ahead of the daemon's own clock


@pytest.fixture
def stories(monkeypatch):
    """Two short stories, one of which cannot end as it claims."""
    clock = Clock()

    class Stage(demo.Stage):
        def advance(self):
            clock.stage = self
            return super().advance()

    monkeypatch.setattr(demo, "time", clock)
    monkeypatch.setattr(demo, "Stage", Stage)
    both = {"good": short(Ending()), "bad": short(Ending(NodeFitness.UNFIT))}
    monkeypatch.setattr(demo, "SCENARIOS", MappingProxyType(both))


def test_a_story_is_played_on_the_real_daemon_through_a_reboot_and_verified(stories, capsys):
    assert demo.main("good") == 0

    out = capsys.readouterr().out
    assert "metrics and page: http://127.0.0.1:" in out
    assert "# It begins." in out
    assert "  node fit\n" in out
    assert "NodeName=gpu0017 State=IDLE Reason=(none)" in out
    assert out.endswith("good ended as it has to: fit, never drained, findings on the way: none\n")


def test_a_story_that_ends_otherwise_says_how_and_fails(stories, capsys):
    assert demo.main("bad") == 1
    assert "the scenario bad did not end as it has to: fitness: fit, not unfit" in capsys.readouterr().err


def test_an_address_that_cannot_be_served_is_one_line_and_exit_code_2(stories, capsys):
    assert demo.main("good", "127.0.0.1:99999") == 2
    assert capsys.readouterr().err.count("\n") == 1


# --------------------------------------------------------------------------------------------------- a card that hangs


def gated(tmp_path) -> GatedTree:
    tree = GatedTree(tmp_path)
    files = {"devices/card/state": "4: ACTIVE\n", "devices/other/state": "4: ACTIVE\n"}
    tree.apply(Frame(t=0, files=files, links={"class/infiniband/mlx5_0": "../../devices/card"}))
    return tree


def test_what_is_blocked_waits_by_whatever_way_it_is_reached_and_the_rest_does_not(tmp_path):
    tree, answers = gated(tmp_path), []
    tree.apply(Frame(t=1, block=("devices/card",)))
    reader = threading.Thread(target=lambda: answers.append(tree.read("class/infiniband/mlx5_0/state")))
    reader.start()

    assert tree.read("devices/other/state") == b"4: ACTIVE\n"
    reader.join(0.05)
    assert answers == []
    tree.apply(Frame(t=2, unblock=("devices/card",), files={"devices/card/state": "1: DOWN\n"}))
    reader.join(SECONDS)
    assert answers[0].strip() == b"1: DOWN"


def test_an_opened_gate_lets_every_read_go_on(tmp_path):
    tree = gated(tmp_path)
    tree.apply(Frame(t=1, block=("devices/card",)))
    reader = threading.Thread(target=tree.listdir, args=("devices/card",))
    reader.start()
    tree.open()
    reader.join(SECONDS)

    assert not reader.is_alive()


def test_what_neither_gate_nor_directory_can_show_is_refused(tmp_path):
    with pytest.raises(RecordingError, match="EIO"):
        gated(tmp_path).apply(Frame(t=1, errnos={"devices/card/state": "EIO"}))
