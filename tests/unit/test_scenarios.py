"""Every story of the demo, played in virtual time, ends as its data says. No daemon, no sleep."""

from __future__ import annotations

import itertools

import pytest

from ibmon.configfile import loads
from ibmon.model import NodeFitness
from ibmon.recording import Header
from ibmon.runtime.replay import World, play
from ibmon.simulate.scenarios import SCENARIOS, Ending, Scenario, Witness


def played(scenario: Scenario) -> tuple[Witness, list]:
    """The story in virtual time: what a witness saw, and every row."""
    frames = itertools.takewhile(lambda frame: frame.t <= scenario.end, scenario.frames())
    world = World(Header(), loads(scenario.toml(), "scenario").config)
    witness, rows = Witness(scenario.ending), []
    for t, row in play(world, frames, (), scenario.end):
        rules = frozenset(finding["rule"] for finding in row["findings"])
        witness.see(NodeFitness(row["node"]), rules, drained=row["drained"])
        rows.append((t, row))
    return witness, rows


def at(name: str, t: float) -> World:
    """The world of a story at this time."""
    scenario = SCENARIOS[name]
    frames = itertools.takewhile(lambda frame: frame.t <= scenario.end, scenario.frames())
    world = World(Header(), loads(scenario.toml(), "scenario").config)
    for _ in play(world, frames, (), t):
        pass
    return world


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_story_ends_as_it_says(name):
    witness, _ = played(SCENARIOS[name])

    assert witness.complaints() == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_chapters_are_in_order_within_the_story_and_fit_a_line_of_a_terminal_twice(name):
    scenario = SCENARIOS[name]
    times = [t for t, _ in scenario.chapters]

    assert times[0] == 0
    assert times == sorted(times)
    assert times[-1] < scenario.end
    assert [text for _, text in scenario.chapters if len(text) > 110] == []


def test_the_chapter_is_the_last_one_that_has_begun():
    assert SCENARIOS["cable"].chapter(33.9).startswith("10 s: the node is unfit")
    assert SCENARIOS["cable"].chapter(34.0).startswith("mlx5_3/1 is back")


def test_the_first_scenario_is_todays_story():
    assert next(iter(SCENARIOS)) == "cable"


def test_without_a_subnet_manager_no_port_is_called_ok_and_one_line_says_why():
    world = at("subnet-manager-restart", 20)
    ports = world.row()["ports"]

    assert {ports[f"mlx5_{n}/1"] for n in range(10)} == {"degraded"}
    assert world.engine.why.startswith("port-init all 8 ports INIT")


def test_a_subnet_manager_that_restarts_again_and_again_is_no_flapping_cable():
    """The carrier of IPoIB goes with it, the link does not."""
    assert at("subnet-manager-restart", 44).row()["flaps"] == {}


WANTED = Ending(NodeFitness.FIT, drained=False, shown=frozenset({"port-down"}), drains=1)


@pytest.mark.parametrize(
    ("looks", "complaints"),
    [
        ([("unfit", "port-down", True), ("fit", "", False)], []),
        ([("fit", "", False)], ["findings on the way: none, not port-down", "drains: 0, not 1"]),
        ([("unfit", "port-down", True), ("unfit", "port-down", True)],
         ["fitness: unfit, not fit", "drained: True, not False", "findings: port-down, not none"]),
        ([("unfit", "port-down", True), ("fit", "", False), ("unfit", "port-down", True), ("fit", "", False)],
         ["drains: 2, not 1"]),
        ([("unfit", "port-down", True), ("unfit", "rate-low", True), ("fit", "", False)],
         ["findings on the way: port-down, rate-low, not port-down"]),
    ],
)  # fmt: skip
def test_a_witness_says_what_is_not_as_it_has_to_be(looks, complaints):
    witness = Witness(WANTED)
    for fitness, rule, drained in looks:
        witness.see(NodeFitness(fitness), frozenset({rule} - {""}), drained=drained)

    assert witness.complaints() == complaints


def test_an_earlier_layer_of_the_configuration_gives_way_to_a_later_one():
    config = loads(SCENARIOS["reboot"].toml({"action": {"mode": "observe"}}), "scenario").config

    assert (config.action.mode.value, config.action.boot_grace) == ("observe", 12.0)
