"""All-Ethernet nodes: which ports are rails by guess, and which counters are no measure of such a link."""

import pytest
from core_world import DOWN, path, port, rows

from ibmon.recording import Frame

LEARNED = '[action]\nmode = "drain"\nboot_grace = "0s"\n[inventory]\ntrust = "learned"\n'
FAST, SLOW = "400 Gb/sec (4X NDR)\n", "100 Gb/sec (4X EDR)\n"


def ethernet(device, rate=FAST, state="4: ACTIVE\n", **counters):
    return {**port(device, state, rate=rate, **counters), path(device, "link_layer"): "Ethernet\n"}


def node(*devices):
    return {file: text for device, rate in devices for file, text in ethernet(device, rate).items()}


RAILS = [(f"mlx5_{n}", FAST) for n in range(4)]


@pytest.mark.parametrize(
    ("devices", "drained"),
    [
        (RAILS, True),
        (RAILS[:3], False),
        ([*RAILS[:3], ("mlx5_bond_0", FAST)], False),
        ([*RAILS, ("mlx5_4", SLOW), ("mlx5_bond_0", SLOW)], True),
    ],
)
def test_four_ports_of_one_board_are_rails_and_fewer_are_not(devices, drained):
    frames = [Frame(t=0, files=node(*devices)), Frame(t=100, files=ethernet("mlx5_0", state=DOWN))]

    assert rows(frames, [300], LEARNED)[300]["drained"] is drained


def test_a_rail_that_was_never_up_leaves_the_others_rails():
    files = node(*RAILS[:3]) | ethernet("mlx5_3", state=DOWN)
    frames = [Frame(t=0, files=files), Frame(t=100, files=ethernet("mlx5_0", state=DOWN))]

    assert rows(frames, [300], LEARNED)[300]["drained"] is True


def test_error_counters_of_infiniband_accuse_no_ethernet_port():
    names = ("symbol_error", "link_error_recovery", "port_rcv_errors", "local_link_integrity_errors")
    begin = Frame(t=0, files=node(*RAILS) | ethernet("mlx5_0", **dict.fromkeys(names, 0)))
    risen = Frame(t=100, files=ethernet("mlx5_0", **dict.fromkeys(names, 14)))

    assert rows([begin, risen], [300], LEARNED)[300]["findings"] == []
