"""The names of node_exporter beside ours."""

from __future__ import annotations

import pytest
from exporter_snapshots import device_view, port_values, snapshot
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from ibmon.exporter import compat
from ibmon.exporter.render import Renderer
from ibmon.exporter.text import Format
from ibmon.model import Level

DEVICE = device_view(
    "mlx5_0",
    {
        **port_values(
            VL15_dropped=1,
            symbol_error=2,
            link_downed=3,
            link_error_recovery=4,
            local_link_integrity_errors=5,
            excessive_buffer_overrun_errors=6,
            port_rcv_errors=7,
            port_rcv_discards=8,
            port_xmit_discards=9,
            port_xmit_wait=10,
            port_rcv_constraint_errors=11,
            port_xmit_constraint_errors=12,
            port_rcv_remote_physical_errors=13,
            port_rcv_switch_relay_errors=14,
            port_rcv_data=15,
            port_xmit_data=16,
            port_rcv_packets=17,
            port_xmit_packets=18,
            unicast_rcv_packets=19,
            unicast_xmit_packets=20,
            multicast_rcv_packets=21,
            multicast_xmit_packets=22,
        ),
        **{
            (1, Level.COUNTERS_EXT, f"port_{name}"): value
            for name, value in {
                "multicast_rcv_packets": 31,
                "multicast_xmit_packets": 32,
                "unicast_rcv_packets": 33,
                "unicast_xmit_packets": 34,
                "rcv_data_64": 35,
                "xmit_data_64": 36,
                "rcv_packets_64": 37,
                "xmit_packets_64": 38,
            }.items()
        },
        (1, Level.HW, "lifespan"): 10,
        (1, Level.HW, "duplicate_request"): 41,
        (1, Level.HW, "roce_slow_restart"): 42,
        (1, Level.HW, "roce_slow_restart_trans"): 43,
        (1, Level.HW, "rx_icrc_encapsulated"): 44,
        (1, Level.HW, "not_known_to_node_exporter"): 45,
    },
    board_id="MT_0000000838",
    hca_type="MT4129",
    firmware_version="28.41.1000",
)

EXPECTED = {
    "state_id": "4",
    "physical_state_id": "5",
    "rate_bytes_per_second": "50000000000",
    "vl15_dropped_total": "1",
    "symbol_error_total": "2",
    "link_downed_total": "3",
    "link_error_recovery_total": "4",
    "local_link_integrity_errors_total": "5",
    "excessive_buffer_overrun_errors_total": "6",
    "port_errors_received_total": "7",
    "port_discards_received_total": "8",
    "port_discards_transmitted_total": "9",
    "port_transmit_wait_total": "10",
    "port_constraint_errors_received_total": "11",
    "port_constraint_errors_transmitted_total": "12",
    "port_receive_remote_physical_errors_total": "13",
    "port_receive_switch_relay_errors_total": "14",
    "port_data_received_bytes_total": "60",
    "port_data_transmitted_bytes_total": "64",
    "port_packets_received_total": "17",
    "port_packets_transmitted_total": "18",
    "unicast_packets_received_total": "19",
    "unicast_packets_transmitted_total": "20",
    "multicast_packets_received_total": "21",
    "multicast_packets_transmitted_total": "22",
    "legacy_multicast_packets_received_total": "31",
    "legacy_multicast_packets_transmitted_total": "32",
    "legacy_unicast_packets_received_total": "33",
    "legacy_unicast_packets_transmitted_total": "34",
    "legacy_data_received_bytes_total": "140",
    "legacy_data_transmitted_bytes_total": "144",
    "legacy_packets_received_total": "37",
    "legacy_packets_transmitted_total": "38",
    "lifespan_seconds": "0.01",
    "duplicate_requests_packets_total": "41",
    "roce_slow_restart_used_total": "42",
    "roce_slow_restart_total": "43",
    "rx_icrc_encapsulated_errors_total": "44",
}

HW_COUNTERS_OF_NODE_EXPORTER = 30  # reference: node_exporter 1.12, class_infiniband of procfs


def lines(text):
    return {line for line in text.splitlines() if line.startswith("node_infiniband_")}


def test_every_file_that_node_exporter_reads_has_its_name_and_value():
    text = Renderer(node_exporter=True).render(snapshot([DEVICE]), Format.TEXT, monotonic=1000.0).decode()
    expected = {f'node_infiniband_{name}{{device="mlx5_0",port="1"}} {value}' for name, value in EXPECTED.items()}
    info = (
        'node_infiniband_info{board_id="MT_0000000838",device="mlx5_0",'
        'firmware_version="28.41.1000",hca_type="MT4129"} 1'
    )
    assert lines(text) == expected | {info}


def test_our_names_are_served_all_the_same():
    shot = snapshot([DEVICE])
    ours, both = (
        set(Renderer(node_exporter=option).render(shot, Format.TEXT, monotonic=1000.0).decode().splitlines())
        for option in (False, True)
    )
    assert ours < both
    assert not lines("\n".join(ours))


def test_both_legacy_and_plain_packets_are_served_although_our_name_is_one():
    text = Renderer(node_exporter=True).render(snapshot([DEVICE]), Format.TEXT, monotonic=1000.0).decode()
    assert 'node_infiniband_legacy_unicast_packets_received_total{device="mlx5_0",port="1"} 33\n' in text
    assert 'ibmon_port_unicast_rcv_packets_total{device="mlx5_0",port="1"} 19\n' in text


def test_what_is_absent_for_us_is_absent_there():
    odd = device_view("a", {**port_values(symbol_error=None), (1, Level.ATTR, "rate"): None})
    text = Renderer(node_exporter=True).render(snapshot([odd]), Format.TEXT, monotonic=1000.0).decode()
    assert lines(text) == {
        'node_infiniband_info{board_id="",device="a",firmware_version="",hca_type=""} 1',
        'node_infiniband_state_id{device="a",port="1"} 4',
        'node_infiniband_physical_state_id{device="a",port="1"} 5',
    }


def test_openmetrics_takes_them_too():
    text = Renderer(node_exporter=True).render(snapshot([DEVICE]), Format.OPENMETRICS, monotonic=1000.0).decode()
    values = {s.name: s.value for family in parse_openmetrics(text) for s in family.samples}
    assert values["node_infiniband_port_data_received_bytes_total"] == 60


@pytest.mark.parametrize(("theirs", "ours"), compat.names())
def test_names_are_whole_and_types_agree(theirs, ours):
    assert theirs.startswith("node_infiniband_")
    assert ours.startswith("ibmon_port_")
    assert theirs.endswith("_total") == ours.endswith("_total")


def test_no_name_of_node_exporter_is_forgotten():
    names = [theirs for theirs, _ in compat.names()]
    assert len(names) == len(set(names))
    hw = [ours for _, ours in compat.names() if ours.startswith("ibmon_port_hw_")]
    assert len(hw) == HW_COUNTERS_OF_NODE_EXPORTER
    assert {f"node_infiniband_{name}" for name in EXPECTED} <= set(names)
