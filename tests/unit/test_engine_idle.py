"""A node on which nothing happens is not judged anew every few seconds, and loses nothing by it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ibmon.config import Config
from ibmon.recording import Frame, Header
from ibmon.runtime.replay import World, play
from ibmon.simulate.dgx import dgx

NODE = dgx()
PORT = NODE.port_path("mlx5_0/1")


@dataclass
class Played:
    """What came of a replay, and at which times every port was judged."""

    rows: list
    judged: list


def played(*frames, until, always=False):
    world = World(Header(), Config())
    judged = []
    evaluate = world.engine._evaluate_all
    world.engine._evaluate_all = lambda now: (judged.append(now.monotonic), evaluate(now))
    if always:
        world.engine._idle = lambda now: False
    rows = list(play(world, iter([NODE.frame(), *frames]), (), until))
    return Played(rows, judged)


def test_an_idle_node_is_judged_once_a_minute():
    late = [t for t in played(until=1200.0).judged if t > 600]
    assert 10 <= len(set(late)) <= 11


@pytest.mark.parametrize(
    "frame",
    [
        Frame(t=703.0, files={f"{PORT}/state": "1: DOWN\n", f"{PORT}/phys_state": "2: Polling\n"}),
        Frame(t=703.0, files={f"{PORT}/rate": "200 Gb/sec (2X NDR)\n"}),
        Frame(t=703.0, files={f"{PORT}/counters/link_downed": "9\n"}),
        Frame(t=703.0, files={f"{PORT}/counters/symbol_error": "60000\n"}),
        Frame(t=703.0, errnos={f"{PORT}/state": "EIO"}),
        Frame(t=703.0, block=(f"{PORT}/state",)),
        Frame(t=703.0, remove=("class/infiniband/mlx5_0",)),
    ],
)
def test_what_happens_is_judged_as_if_the_node_were_judged_all_the_time(frame):
    frames = (frame, Frame(t=1500.0))
    assert played(*frames, until=2400.0).rows == played(*frames, until=2400.0, always=True).rows


def test_a_sample_that_stays_the_same_still_gets_younger():
    world = World(Header(), Config())
    for _ in play(world, iter([NODE.frame()]), (), 300.0):
        pass
    assert all(v.sampled.monotonic == 300.0 for v in world.engine.snapshot(world.now()).devices)
