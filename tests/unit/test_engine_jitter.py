"""Daemons that ask one scheduler, each for itself: the first call waits a part of the hold, and nothing else does."""

from __future__ import annotations

import pytest
from core_world import CONFIG, goes_down, start

from ibmon.configfile import loads
from ibmon.recording import Frame, Header
from ibmon.runtime.replay import World, play


def drained_at(node: str, *, direct: bool, hold: str = "60s") -> float:
    """Seconds after the fault at which the drain is made."""
    text = f'{CONFIG}[rules.port-down]\nalert_hold = "0s"\nhold = "{hold}"\n[node]\nname = "{node}"\n'
    world = World(Header(), loads(text, "jitter").config)
    world.engine.direct = direct
    world.engine.desk.node = node
    frames = iter([start(), goes_down(10.0), Frame(t=300.0)])
    return next(t for t, row in play(world, frames, (), 300.0) if row["drained"]) - 10.0


def test_nodes_that_share_a_fault_drain_one_after_the_other():
    alone = drained_at("node1", direct=False)
    waits = [drained_at(f"node{n}", direct=True) - alone for n in range(8)]
    assert 60 <= alone <= 70
    assert all(0 <= wait <= 31 for wait in waits)
    assert max(waits) - min(waits) > 5
    assert len(set(waits)) > 4


@pytest.mark.parametrize(("hold", "most"), [("0s", 0.0), ("4s", 2.0)])
def test_a_short_hold_has_a_short_wait(hold, most):
    alone = drained_at("node1", direct=False, hold=hold)
    assert all(drained_at(f"node{n}", direct=True, hold=hold) - alone <= most + 1 for n in range(4))
