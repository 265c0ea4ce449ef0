"""The line that says why a node is not plainly fit names what made the verdict, not just any finding."""

from __future__ import annotations

import pytest
from core_world import path, port, start, world

from ibmon.recording import Frame
from ibmon.runtime.replay import play

HALF_RATE = port("mlx5_0", rate="200 Gb/sec (4X HDR)\n")
STATE = path("mlx5_1", "state")


def reasons(at, *frames):
    """Fitness and reason at some times."""
    host = world()
    rows = play(host, iter([start(), *frames]), at, at[-1])
    return {t: (row["node"], host.engine.why) for t, row in rows if t in at}


@pytest.mark.parametrize(
    ("trouble", "early", "late"),
    [
        (
            {"errnos": {STATE: "EIO"}},
            "mlx5_1/1 cannot be read",
            "monitor-blind mlx5_1/1 state unreadable EIO 7x 5s",
        ),
        (
            {"block": (STATE,)},
            "device-stalled mlx5_1/1 not answering 3s",
            "device-stalled mlx5_1/1 not answering 25s",
        ),
    ],
)
def test_a_node_that_is_not_seen_says_what_is_not_seen_though_another_port_is_bad(trouble, early, late):
    found = reasons([105, 118, 140], Frame(t=100, files=HALF_RATE), Frame(t=110, **trouble))

    assert found == {105: ("fit", ""), 118: ("unknown", early), 140: ("unknown", late)}


def test_a_node_that_is_unfit_says_so_though_another_port_is_not_seen():
    found = reasons([250], Frame(t=100, files=HALF_RATE), Frame(t=120, errnos={STATE: "EIO"}))

    assert found[250] == ("unfit", "rate-low mlx5_0/1 200<400Gb/s 4X 60s>60s")
