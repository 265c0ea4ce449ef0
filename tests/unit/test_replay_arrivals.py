"""Replay: a declared device that is not there at first, drains the node for it, and comes."""

from __future__ import annotations

import pytest
from core_world import ACTIVE, CONFIG, DOWN, rows

from ibmon.recording import Frame

PORTS = '[[port]]\nmatch = "mlx5_[0-1]/1"\nrate = 400\n'
BY_NAME, BY_GUID, BY_PLACE = (
    PORTS,
    *(
        f'[[port]]\nmatch = "mlx5_0/1"\n[[port]]\nmatch = "{match}"\n'
        for match in ("guid:0011:2233:4455:6601", "pci:0000:3b:00.0")
    ),
)
GONE = ("class/infiniband/mlx5_1", "devices/pci0000:00/0000:3b:00.0")


def card(t: float, number: int, state: str = ACTIVE, **more) -> Frame:
    """A card in its slot, as a driver shows it."""
    name, address = f"mlx5_{number}", ("0000:1a:00.0", "0000:3b:00.0")[number]
    top = f"devices/pci0000:00/{address}/infiniband/{name}"
    texts = {"ports/1/state": state, "ports/1/rate": "400 Gb/sec (4X NDR)\n", "ports/1/link_layer": "InfiniBand\n"}
    texts |= {"ports/1/phys_state": "5: LinkUp\n" if state == ACTIVE else "2: Polling\n"}
    texts |= {"node_guid": f"0011:2233:4455:660{number}\n"}
    links = {f"class/infiniband/{name}": f"../../{top}", f"{top}/device": f"../../../{address}"}
    return Frame(t=t, files={f"{top}/{file}": text for file, text in texts.items()}, links=links, **more)


@pytest.mark.parametrize("more", [{}, {"restart": True}, {"boot_id": "b", "uptime": 7200}], ids=["", "restart", "boot"])
@pytest.mark.parametrize("declared", [BY_NAME, BY_GUID, BY_PLACE], ids=["name", "guid", "pci"])
def test_it_must_be_well_for_the_recover_time_before_the_node_is_given_back(declared, more):
    config = CONFIG.replace(PORTS, declared)
    seen = rows([card(0, 0), card(1000, 1, **more)], [999, 1010, 1590, 1620], config)

    assert [seen[t]["drained"] for t in seen] == [True, True, True, False]
    assert seen[1010]["ports"]["mlx5_1/1"] == "recovering"
    assert seen[1620]["ports"] == {"mlx5_0/1": "ok", "mlx5_1/1": "ok"}


def test_one_that_comes_without_a_link_does_not_recover():
    seen = rows([card(0, 0), card(1000, 1, DOWN)], [999, 3000])

    assert [seen[t]["drained"] for t in seen] == [True, True]
    assert seen[3000]["ports"]["mlx5_1/1"] == "failed"


def test_one_that_comes_goes_and_comes_within_a_day_waits_for_a_person():
    frames = [card(0, 0), card(1000, 1), Frame(t=3000, remove=GONE), card(4000, 1)]
    seen = rows(frames, [2999, 3999, 9000])

    assert [seen[t]["drained"] for t in seen] == [False, True, True]
    assert seen[9000]["ports"] == {"mlx5_0/1": "ok", "mlx5_1/1": "recovering"}


@pytest.mark.parametrize("match", ["mlx5_?/1", "*/1"])
def test_one_that_was_only_counted_on_recovers_under_whatever_name_it_comes(match):
    config = CONFIG.replace(PORTS, f'[[port]]\nmatch = "{match}"\ncount = 2\n')
    seen = rows([card(0, 1), card(1000, 0)], [999, 1010, 1590, 1620], config)

    assert [seen[t]["drained"] for t in seen] == [True, True, True, False]
    assert seen[1010]["ports"] == {"mlx5_0/1": "recovering", "mlx5_1/1": "ok"}
