"""A drain that is over for one reason while another is about to begin is one drain."""

import pytest
from core_world import CONFIG, changes, comes_up, goes_down, port, rows, start

from ibmon.recording import Frame

THREE = CONFIG.replace("mlx5_[0-1]", "mlx5_[0-2]")
GONE = Frame(t=100, remove=tuple(f"class/infiniband/mlx5_{n}" for n in range(3)))


def test_devices_that_come_back_one_by_one_are_no_new_drain():
    frames = [start(0, "mlx5_0", "mlx5_1", "mlx5_2"), GONE, start(900, "mlx5_0"), start(2000, "mlx5_1", "mlx5_2")]
    told = changes(frames, 4000, THREE)

    assert told[-1][1]["calls"] == {"drain": 1, "release": 1}
    assert not any(f["rule"] == "repeat-offender" for _, row in told for f in row["findings"])


@pytest.mark.parametrize("second", [960, 990, 999])
def test_a_node_is_not_given_back_while_another_port_is_about_to_drain_it(second):
    frames = [start(), goes_down(100), comes_up(400), goes_down(second, "mlx5_1"), comes_up(2000, "mlx5_1")]
    told = rows(frames, [1001, 1500, 2700])

    assert [told[t]["drained"] for t in (1001, 1500, 2700)] == [True, True, False]
    assert told[2700]["calls"] == {"drain": 1, "release": 1}


def test_a_node_is_given_back_when_what_was_about_to_drain_it_has_passed():
    frames = [start(), goes_down(100), comes_up(400), goes_down(990, "mlx5_1"), comes_up(1010, "mlx5_1")]
    told = rows(frames, [1005, 1020])

    assert [told[t]["drained"] for t in (1005, 1020)] == [True, False]


def test_a_fault_that_never_drains_keeps_no_node():
    slow = Frame(t=990, files=port("mlx5_1", "2: INIT\n"))
    told = rows([start(), goes_down(100), comes_up(400), slow], [1010])

    assert told[1010]["drained"] is False
