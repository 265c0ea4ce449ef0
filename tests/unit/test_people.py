"""What a person may say of a node's ports, where the configuration has already said what belongs there."""

from __future__ import annotations

import pytest
from core_world import DOWN, Site, node, port, start

from ibmon.messages import Answer, Person
from ibmon.people import no_such
from ibmon.recording import Frame
from ibmon.runtime.replay import play


def asked(action, *ports):
    site = Site()
    site.people = {60.0: Person(1, action, "ada", ports)}
    frames = [start(), start(60.0)]
    list(play(site, iter(frames), [120.0], 120.0))
    return site.answers


def test_a_declared_port_is_forgotten_in_the_configuration_only():
    text = "mlx5_0/1, mlx5_1/1: declared in the configuration, so remove it there"
    assert asked("forget", "mlx5_1", "mlx5_0") == [Answer(1, done=False, text=text)]


@pytest.mark.parametrize("action", ["accept", "forget"])
def test_a_port_that_is_not_there_is_named(action):
    assert asked(action, "mlx5_9/1") == [Answer(1, done=False, text=no_such(["mlx5_9/1"]))]


def test_accepted_ports_are_named_in_order():
    assert asked("accept", "mlx5_1", "mlx5_0") == [Answer(1, done=True, text="accepted mlx5_0/1, mlx5_1/1")]


def test_where_one_of_the_ports_cannot_be_accepted_nothing_changes():
    site = Site('[inventory]\nmode = "learn"\n')
    site.people = {160.0: Person(1, "accept", "ada", ("mlx5_0", "mlx5_1"))}
    files = {**node("mlx5_0"), **port("mlx5_1", DOWN)}
    slow = port("mlx5_0", rate="200 Gb/sec (4X HDR)\n")
    list(play(site, iter([Frame(t=0, files=files), Frame(t=60, files=slow), Frame(t=160)]), [], 162))

    text = "mlx5_1/1 was never ACTIVE here, so there is nothing to accept"
    assert site.answers == [Answer(1, done=False, text=text)]
    assert [finding.rule for finding in site.engine.snapshot(site.now()).findings] == ["rate-low"]
