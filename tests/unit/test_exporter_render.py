"""Snapshots as exposition text: columns, identity, and odd devices."""

from __future__ import annotations

import errno
import platform
import re

import msgspec
import pytest
from exporter_snapshots import NDR, device_view, port_values, port_view, snapshot, typical
from exporter_text import lines_of, render, samples
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ibmon import __version__
from ibmon.exporter.render import Renderer
from ibmon.exporter.text import Format
from ibmon.model import (
    BlockCode,
    Finding,
    Level,
    PortHealth,
    Severity,
)

PARSERS = {Format.TEXT: parse_text, Format.OPENMETRICS: parse_openmetrics}


def test_the_text_of_a_node_without_rdma_is_exactly_this():
    assert render(snapshot()) == (
        "# HELP ibmon_up 1 if the last listing of class/infiniband could be read, else 0.\n"
        "# TYPE ibmon_up gauge\n"
        "ibmon_up 1\n"
        "# HELP ibmon_build_info Version of ibmon and of its Python.\n"
        "# TYPE ibmon_build_info gauge\n"
        f'ibmon_build_info{{version="{__version__}",python="{platform.python_version()}"}} 1\n'
        "# HELP ibmon_node_info Name of the node and its boot, proc/sys/kernel/random/boot_id.\n"
        "# TYPE ibmon_node_info gauge\n"
        'ibmon_node_info{node="node1",boot_id="0b1d"} 1\n'
        "# HELP ibmon_config_info Hash of the configuration in force.\n"
        "# TYPE ibmon_config_info gauge\n"
        'ibmon_config_info{hash="c0ffee"} 1\n'
        "# HELP ibmon_config_valid 0 while the configuration file is invalid and an older one stays in force, else 1.\n"
        "# TYPE ibmon_config_valid gauge\n"
        "ibmon_config_valid 1\n"
        "# HELP ibmon_node_fitness Verdict on the node for multi-node jobs: 1 for the one that holds.\n"
        "# TYPE ibmon_node_fitness gauge\n"
        'ibmon_node_fitness{fitness="fit"} 1\n'
        'ibmon_node_fitness{fitness="watch"} 0\n'
        'ibmon_node_fitness{fitness="unfit"} 0\n'
        'ibmon_node_fitness{fitness="unknown"} 0\n'
        "# HELP ibmon_devices_present Devices in class/infiniband that the configuration includes.\n"
        "# TYPE ibmon_devices_present gauge\n"
        "ibmon_devices_present 0\n"
        "# HELP ibmon_devices_expected Devices that the inventory expects on this node.\n"
        "# TYPE ibmon_devices_expected gauge\n"
        "ibmon_devices_expected 0\n"
        "# HELP ibmon_drain_wanted 1 while ibmon wants the node to get no new jobs, else 0.\n"
        "# TYPE ibmon_drain_wanted gauge\n"
        "ibmon_drain_wanted 0\n"
        "# HELP ibmon_drain_active 1 while a drain of ours is in force and was read back, else 0.\n"
        "# TYPE ibmon_drain_active gauge\n"
        "ibmon_drain_active 0\n"
        "# HELP ibmon_drain_would_total Drains that were due and that the mode (observe or alert) did not allow.\n"
        "# TYPE ibmon_drain_would_total counter\n"
        "ibmon_drain_would_total 0\n"
        "# HELP ibmon_drain_overridden 1 while somebody's resume of a node that is still bad is respected, else 0.\n"
        "# TYPE ibmon_drain_overridden gauge\n"
        "ibmon_drain_overridden 0\n"
        "# HELP ibmon_maintenance 1 while somebody works on this node or on some of its ports by 'ibmon maintenance'.\n"
        "# TYPE ibmon_maintenance gauge\n"
        "ibmon_maintenance 0\n"
        "# HELP ibmon_drain_orphaned 1 if the scheduler shows a drain in our words that we have no record of, else 0.\n"
        "# TYPE ibmon_drain_orphaned gauge\n"
        "ibmon_drain_orphaned 0\n"
        "# HELP ibmon_drain_blocked Why a drain that is due is not made: 1 for what holds.\n"
        "# TYPE ibmon_drain_blocked gauge\n"
        + "".join(f'ibmon_drain_blocked{{code="{code.value}"}} 0\n' for code in BlockCode)
        + "# HELP ibmon_actions_enabled 0 if this daemon only exports: another one acts, or the scheduler does not let "
        "it; else 1.\n"
        "# TYPE ibmon_actions_enabled gauge\n"
        "ibmon_actions_enabled 1\n"
        "# HELP ibmon_action_errors_total Calls to the scheduler that failed.\n"
        "# TYPE ibmon_action_errors_total counter\n"
        + "".join(f'ibmon_action_errors_total{{code="{code}"}} 0\n' for code in sorted(c.value for c in BlockCode))
    )


def test_all_ports_and_devices_of_a_family_stand_in_one_block():
    text = render(typical())
    start = text.index("# HELP ibmon_port_symbol_error_total")
    assert text[start:].splitlines()[1:6] == [
        "# TYPE ibmon_port_symbol_error_total counter",
        'ibmon_port_symbol_error_total{device="mlx4_0",port="1"} 1',
        'ibmon_port_symbol_error_total{device="mlx4_0",port="2"} 2',
        'ibmon_port_symbol_error_total{device="mlx5_0",port="1"} 3',
        next(line for line in text[start:].splitlines()[5:] if line.startswith("#")),
    ]


def test_columns_become_their_metrics():
    found = samples(typical())
    assert found["ibmon_port_state", "device=mlx5_0", "port=1"] == 4
    assert found["ibmon_port_physical_state", "device=mlx5_0", "port=1"] == 5
    assert found["ibmon_port_rate_bytes_per_second", "device=mlx5_0", "port=1"] == NDR
    assert found["ibmon_port_width_lanes", "device=mlx5_0", "port=1"] == 4
    assert found["ibmon_port_hw_lifespan_seconds", "device=mlx5_0", "port=1"] == 0.01
    assert found["ibmon_port_hw_out_of_sequence_total", "device=mlx5_0", "port=1"] == 12
    assert found["ibmon_device_hw_vhca_id_errors_total", "device=mlx5_0"] == 1
    assert found["ibmon_pcie_link_speed_transfers_per_second", "device=mlx5_0"] == 32e9
    assert found["ibmon_pcie_link_width_lanes", "device=mlx5_0"] == 8
    assert found["ibmon_pcie_link_width_lanes_max", "device=mlx5_0"] == 16
    assert found["ibmon_pcie_link_speed_transfers_per_second_max", "device=mlx5_0"] == 32e9


def test_data_words_become_bytes_exactly_beyond_64_bits():
    text = render(typical())
    assert lines_of(text, "ibmon_port_xmit_data_bytes_total") == [
        f'ibmon_port_xmit_data_bytes_total{{device="mlx5_0",port="1"}} {2**64}'
    ]


@pytest.mark.parametrize("milliseconds", [0, 1, 3, 7, 9, 10, 10000])
def test_lifespan_is_in_seconds_without_rounding_noise(milliseconds):
    text = render(snapshot([device_view("a", {(1, Level.HW, "lifespan"): milliseconds})]))
    [line] = lines_of(text, "ibmon_port_hw_lifespan_seconds")
    assert line.split()[-1] == repr(milliseconds / 1000)


def test_what_is_not_known_has_no_series():
    text = render(typical())
    assert "vl15_dropped" not in text
    assert "ibmon_drain_since" not in text
    assert 'ibmon_pcie_link_speed_transfers_per_second{device="mlx4_0"}' not in text
    assert 'ibmon_port_expected_rate_bytes_per_second{device="mlx4_0"' not in text


def test_identity_labels_are_empty_where_not_known():
    text = render(typical())
    assert (
        'ibmon_device_info{device="mlx4_0",node_guid="",sys_image_guid="",board_id="",hca_type="",'
        'firmware_version="",driver="",pci_address="",function="pf"} 1\n'
    ) in text
    assert (
        'ibmon_port_info{device="mlx5_0",port="1",link_layer="InfiniBand",netdev="ib0",role="compute",rail="0"} 1\n'
        'ibmon_port_info{device="mlx5_1",port="1",link_layer="",netdev="",role="compute",rail=""} 1\n'
    ) in text


def test_an_expected_port_that_is_not_there_is_missing_and_keeps_its_health():
    found = samples(typical())
    assert found["ibmon_port_missing", "device=mlx5_0", "port=1"] == 0
    assert found["ibmon_port_missing", "device=mlx5_1", "port=1"] == 1
    assert ("ibmon_port_missing", "device=mlx4_0", "port=1") not in found
    assert found["ibmon_port_health", "device=mlx5_1", "port=1", "health=failed"] == 1


def test_read_errors_carry_the_name_of_the_error():
    found = samples(typical())
    assert found["ibmon_read_errors_total", "device=mlx5_0", "errno=EINVAL"] == 4
    assert found["ibmon_read_errors_total", "device=mlx5_0", "errno=ENODEV"] == 1


def test_an_error_number_without_a_name_is_written_as_a_number():
    found = samples(snapshot([device_view("a", {}, errors={524: 1})]))
    assert found["ibmon_read_errors_total", "device=a", "errno=524"] == 1


def test_every_counter_that_can_stick_says_whether_it_does():
    found = samples(typical())
    flags = {key: value for key, value in found.items() if key[0] == "ibmon_port_counter_saturated"}
    port = ("ibmon_port_counter_saturated", "device=mlx5_0", "port=1")
    assert flags == {(*port, "counter=link_downed"): 1, (*port, "counter=symbol_error"): 0}


def test_resets_name_the_file_and_the_directory_other_than_counters():
    found = samples(typical())
    assert found["ibmon_port_counter_resets_total", "device=mlx5_0", "port=1", "counter=symbol_error"] == 1
    assert found["ibmon_port_counter_resets_total", "device=mlx5_0", "port=1", "counter=hw_out_of_sequence"] == 2


def test_modules_are_told_in_degrees_by_their_sensor_and_tables_of_a_port_not_at_all():
    warm = {(0, Level.HWMON, "module0"): 41_125, (0, Level.HWMON, "module1"): -1_000, (0, Level.HWMON, "module2"): None}
    tables = {(1, Level.ATTR, "gid0"): 1, (1, Level.ATTR, "pkey0"): 0xFFFF}
    found = samples(snapshot([device_view("a", {**port_values(), **warm, **tables})]))
    told = {key[1:]: value for key, value in found.items() if key[0] == "ibmon_module_temperature_celsius"}
    assert told == {("device=a", "sensor=module0"): 41.125, ("device=a", "sensor=module1"): -1.0}
    assert not [key for key in found if "gid" in key[0] or "pkey" in key[0]]


# ---------------------------------------------------------------------------------------------- odd devices


def test_a_stalled_device_keeps_age_health_and_findings_only():
    finding = Finding("device-stalled", "a", 0, "", Severity.WARNING, 1.0, None, None, "hangs")
    values = {**port_values(symbol_error=15), (0, Level.PCI, "current_link_width"): 16}
    key = (1, Level.COUNTERS, "symbol_error")
    view = device_view("a", values, stalled=True, saturated={key: True}, resets={key: 3}, errors={5: 1})
    other = device_view("b", port_values(symbol_error=0))
    port = port_view("a", health=PortHealth.UNKNOWN, expected=True, expected_rate=NDR)
    text = render(snapshot([view, other], [port], findings=(finding,)))
    of_a = {re.split(r"[ {]", line)[0] for line in text.splitlines() if 'device="a"' in line}
    assert of_a == {
        "ibmon_device_info",
        "ibmon_device_stalled",
        "ibmon_sample_age_seconds",
        "ibmon_read_errors_total",
        "ibmon_port_info",
        "ibmon_port_missing",
        "ibmon_port_health",
        "ibmon_port_expected_rate_bytes_per_second",
        "ibmon_port_counter_resets_total",
        "ibmon_flap_episodes_total",
        "ibmon_finding",
    }
    assert 'ibmon_device_stalled{device="a"} 1\nibmon_device_stalled{device="b"} 0\n' in text
    assert 'ibmon_port_symbol_error_total{device="b",port="1"} 0\n' in text


def test_series_come_back_when_a_device_answers_again():
    renderer = Renderer()
    well = device_view("a", port_values())
    hangs = msgspec.structs.replace(well, stalled=True)
    texts = [
        renderer.render(snapshot([view], sequence=i), Format.TEXT, monotonic=1000.0)
        for i, view in enumerate((well, hangs, well))
    ]
    assert [b"\nibmon_port_state{" in text for text in texts] == [True, False, True]


def test_of_two_files_with_one_name_the_first_in_byte_order_stays():
    values = {(1, Level.HW, "unaligned"): 2, (1, Level.HW, "Unaligned"): 1, (1, Level.HW, "other"): 3}
    found = samples(snapshot([device_view("a", values)]))
    assert found["ibmon_port_hw_unaligned_total", "device=a", "port=1"] == 1
    assert found["ibmon_port_hw_other_total", "device=a", "port=1"] == 3
    assert found["ibmon_read_errors_total", "device=a", "errno=EEXIST"] == 1


def test_a_clash_adds_to_read_errors_of_the_same_number():
    values = {(1, Level.HW, "a"): 1, (1, Level.HW, "A"): 1}
    found = samples(snapshot([device_view("a", values, errors={errno.EEXIST: 2})]))
    assert found["ibmon_read_errors_total", "device=a", "errno=EEXIST"] == 3


def test_a_file_in_counters_wins_over_the_same_name_in_counters_ext():
    values = {(1, Level.COUNTERS_EXT, "port_unicast_rcv_packets"): 9, (1, Level.COUNTERS, "unicast_rcv_packets"): 8}
    found = samples(snapshot([device_view("a", values)]))
    assert found["ibmon_port_unicast_rcv_packets_total", "device=a", "port=1"] == 8


def test_a_counter_cannot_take_the_name_of_another_family():
    values = {(1, Level.COUNTERS, "state"): 77, (1, Level.ATTR, "state"): 4}
    found = samples(snapshot([device_view("a", values)]))
    assert found["ibmon_port_state", "device=a", "port=1"] == 4
    assert found["ibmon_read_errors_total", "device=a", "errno=EEXIST"] == 1
    assert 77 not in found.values()


def test_the_same_name_on_two_ports_is_no_clash():
    found = samples(typical())
    assert not [key for key in found if "errno=EEXIST" in key]


@pytest.mark.parametrize("name", ["SwLinkUp,32", "Pio Reserved 30", 'qu"ote', "back\\slash", "new\nline", "\udcff"])
def test_odd_file_names_become_valid_metrics(name):
    shot = snapshot([device_view("a", {(1, Level.HW, name): 5}, resets={(1, Level.HW, name): 1})])
    for fmt, parse in PARSERS.items():
        text = Renderer().render(shot, fmt, monotonic=1000.0).decode()
        values = [s.value for family in parse(text) for s in family.samples if "_hw_" in s.name]
        assert values == [5]


def test_byte_counters_of_adapters_without_pma_feed_the_data_metrics():
    efa = device_view("efa_0", {(1, Level.HW, "tx_bytes"): 100, (1, Level.HW, "rx_bytes"): 200})
    found = samples(snapshot([efa, device_view("mlx5_0", port_values(port_xmit_data=1))]))
    assert found["ibmon_port_xmit_data_bytes_total", "device=efa_0", "port=1"] == 100
    assert found["ibmon_port_rcv_data_bytes_total", "device=efa_0", "port=1"] == 200
    assert found["ibmon_port_hw_tx_bytes_total", "device=efa_0", "port=1"] == 100
    assert found["ibmon_port_xmit_data_bytes_total", "device=mlx5_0", "port=1"] == 4


def test_byte_counters_beside_pma_counters_do_not_count_twice():
    values = {**port_values(port_xmit_data=1), (1, Level.HW, "tx_bytes"): 4}
    found = samples(snapshot([device_view("a", values)]))
    assert found["ibmon_port_xmit_data_bytes_total", "device=a", "port=1"] == 4
    assert ("ibmon_read_errors_total", "device=a", "errno=EEXIST") not in found


def test_a_directory_that_cannot_be_read_leaves_the_number_of_devices_unknown():
    found = samples(snapshot(up=False, listing_errno=errno.EACCES))
    assert found["ibmon_up",] == 0
    assert ("ibmon_devices_present",) not in found


def test_label_values_survive_a_round_trip():
    name = 'a\\b"c\nd'
    found = samples(snapshot([device_view(name, port_values())], [port_view(name)]))
    assert found["ibmon_port_state", f"device={name}", "port=1"] == 4
