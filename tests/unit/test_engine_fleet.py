"""The engine under a fleet controller: its stop and its mode, the rule it makes stronger, and replays without it."""

from __future__ import annotations

import pytest
from core_world import CONFIG, INIT, Site, goes_down, port, rows, start

from ibmon.configfile import loads
from ibmon.health.rules import RULE_BY_ID
from ibmon.health.settings import settings
from ibmon.messages import FleetWord, Person
from ibmon.model import BlockCode, Mode, PortId, Role
from ibmon.recording import Frame
from ibmon.runtime.replay import play

FLEET = (
    CONFIG.replace("[action]\n", '[action]\nscheduler = "controller"\n')
    + '[controller]\nurl = "https://there"\nkey_file = "/k"\n'
)


def site(word, until=200):
    """A node whose port goes down, and what the controller has said before."""
    made = Site(FLEET)
    made._carry_out(made.engine.step(word, made.now()))
    list(play(made, iter([start(), goes_down(10)]), [], until))
    return made


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.ALERT])
def test_where_the_controller_withholds_draining_the_node_alerts_and_counts_what_it_would_have_done(mode):
    made = site(FleetWord(mode=mode))
    picture = made.engine.snapshot(made.now())

    assert picture.drain.blocked is BlockCode.MODE
    assert not picture.drain.asks
    assert picture.drain.would == 1
    assert picture.mode is Mode.ALERT
    assert [f.rule for f in made.firing] == ["port-down"]
    assert made.scheduler.calls["drain"] == 0


def test_a_mode_above_the_nodes_own_changes_nothing():
    made = Site(FLEET.replace('mode = "drain"', 'mode = "observe"'))
    made._carry_out(made.engine.step(FleetWord(mode=Mode.DRAIN), made.now()))
    assert made.engine.snapshot(made.now()).mode is Mode.OBSERVE


def test_a_stop_of_the_controller_bars_as_the_stop_file_does_and_either_alone_is_enough():
    made = site(FleetWord(stop=True))
    assert made.engine.snapshot(made.now()).drain.blocked is BlockCode.STOP
    assert made.told("fleet") == [(0.0, {"stop": True, "mode": "drain"})]
    made._carry_out(made.engine.step(FleetWord(), made.now()))
    made.settle()
    assert made.engine.snapshot(made.now()).drain.owned.held


@pytest.mark.parametrize("word", [FleetWord(stop=True), FleetWord(mode=Mode.ALERT)])
def test_a_person_is_sent_to_the_controller_for_what_that_forbids(word):
    made = site(word)
    made._carry_out(made.engine.step(Person(1, "release", "alice"), made.now()))
    (answer,) = made.answers
    assert not answer.done
    assert "the fleet controller" in answer.text


def test_the_same_word_is_written_down_once():
    made = site(FleetWord(stop=True))
    made._carry_out(made.engine.step(FleetWord(stop=True), made.now()))
    assert len(made.told("fleet")) == 1


# ------------------------------------------------------------------------------------------ port-init


def action_of(config, rule="port-init"):
    return settings(loads(config).config, RULE_BY_ID[rule], PortId("mlx5_0", 1), Role.COMPUTE).action


def test_port_init_may_drain_through_a_controller_and_only_there_unless_the_site_says_otherwise():
    assert action_of(CONFIG) is Mode.ALERT
    assert action_of(CONFIG.replace("[action]\n", '[action]\nscheduler = "slurm"\n')) is Mode.ALERT
    assert action_of(FLEET) is Mode.DRAIN
    assert action_of(FLEET + '[rules.port-init]\naction = "alert"\n') is Mode.ALERT
    assert action_of(FLEET + '[[override]]\nmatch = "mlx5_0/1"\nrule = "port-init"\naction = "alert"\n') is Mode.ALERT


def test_a_port_in_init_asks_for_a_drain_through_a_controller():
    frames = [start(0, "mlx5_0", "mlx5_1", "mlx5_2"), Frame(t=10, files=port("mlx5_0", INIT))]
    assert rows(frames, [400], FLEET)[400]["drained"]
    assert not rows(frames, [400], CONFIG)[400]["drained"]


def test_all_ports_in_init_drain_through_no_controller():
    frames = [start(), Frame(t=10, files={**port("mlx5_0", INIT), **port("mlx5_1", INIT)})]
    seen = rows(frames, [900], FLEET)[900]
    assert {f["rule"] for f in seen["findings"]} == {"port-init"}
    assert (seen["node"], seen["drained"]) == ("unknown", False)


# ------------------------------------------------------------------------------------------ replay


def test_a_replay_drains_through_its_own_obedient_scheduler_whatever_the_configuration_names():
    seen = rows([start(), goes_down(10)], [69, 70], FLEET)
    assert not seen[69]["drained"]
    assert seen[70]["drained"]
    assert seen[70]["calls"] == {"drain": 1, "release": 0}
