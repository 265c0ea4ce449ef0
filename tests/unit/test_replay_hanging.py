"""Replay: what was asked of a device while a read of it hangs is done when that read returns."""

from __future__ import annotations

from core_world import ACTIVE, node, path, rows, start

from ibmon.recording import Frame

BLOCKED = (path("mlx5_0", "counters/link_downed"),)


def test_a_device_that_is_discovered_anew_while_it_hangs_answers_again():
    files = {**node("mlx5_1"), "class/infiniband/mlx5_0/fw_ver": "2\n", path("mlx5_9", "state"): ACTIVE}
    frames = [start(), Frame(t=10, block=BLOCKED), Frame(t=12, files=files), Frame(t=100, unblock=BLOCKED)]
    seen = rows(frames, [99, 100])

    assert [seen[t]["ports"]["mlx5_0/1"] for t in seen] == ["unknown", "ok"]


def test_a_device_that_loses_a_port_while_it_hangs_is_read_by_its_new_columns():
    frames = [
        Frame(t=0, files={**node("mlx5_0", "mlx5_1"), path("mlx5_0", "state", 2): ACTIVE}),
        Frame(t=10, block=BLOCKED),
        Frame(t=12, remove=("class/infiniband/mlx5_0/ports/2",), files={path("mlx5_9", "state"): ACTIVE}),
        Frame(t=100, unblock=BLOCKED),
    ]

    assert rows(frames, [110])[110]["ports"]["mlx5_0/1"] == "ok"


def test_a_listing_that_hangs_over_a_restart_is_made_when_it_returns():
    blocked = ("class/infiniband",)
    frames = [start(), Frame(t=10, block=blocked), Frame(t=50, restart=True), Frame(t=100, unblock=blocked)]
    seen = rows(frames, [99, 105])

    assert [seen[t]["ports"]["mlx5_0/1"] for t in seen] == ["unknown", "ok"]
