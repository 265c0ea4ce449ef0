"""The counter catalog: widths, names, help texts and the page made from it."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibmon.sysfs import catalog, catalog_docs

ENTRIES = list(catalog.entries())
BY_KEY = {(e.level, e.name): e for e in ENTRIES}
METRIC = re.compile(r"[a-z_][a-z0-9_]*")

# The PMA files, with the width of their field in IBTA PortCounters; None: 32 or 64 by what the device supports.
PMA_BITS = {
    "symbol_error": 16,
    "link_error_recovery": 8,
    "link_downed": 8,
    "port_rcv_errors": 16,
    "port_rcv_remote_physical_errors": 16,
    "port_rcv_switch_relay_errors": 16,
    "port_xmit_discards": 16,
    "port_xmit_constraint_errors": 8,
    "port_rcv_constraint_errors": 8,
    "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4,
    "VL15_dropped": 16,
    "port_xmit_wait": 32,
    "port_xmit_data": None,
    "port_rcv_data": None,
    "port_xmit_packets": None,
    "port_rcv_packets": None,
    "unicast_xmit_packets": 64,
    "unicast_rcv_packets": 64,
    "multicast_xmit_packets": 64,
    "multicast_rcv_packets": 64,
}
NARROW = {name: bits for name, bits in PMA_BITS.items() if bits and bits <= 32}
WIDENED = [name for name, bits in PMA_BITS.items() if bits is None]


def concrete(name: str) -> str:
    """A file name as a kernel would write it, with a number for the placeholder."""
    return re.sub(r"\{[a-z]+\}", "3", name)


def drivers_of(entry: catalog.Entry) -> set[str]:
    return {re.split(r"[( ]", driver)[0] for driver in entry.drivers.split(";")}


class TestTable:
    def test_every_known_counter_has_an_entry(self):
        assert Counter(e.level for e in ENTRIES) == {"counters": 29, "hw": 402, "device_hw": 430, "net": 3, "phy": 23}

    def test_no_counter_stands_twice(self):
        assert len(BY_KEY) == len(ENTRIES)

    def test_entries_are_sorted_so_that_a_new_one_has_one_place(self):
        for level in ("counters", "hw", "device_hw", "net"):
            names = [e.name for e in ENTRIES if e.level == level]
            assert names == sorted(names)

    def test_one_entry_is_one_line_of_the_file(self):
        text = Path(catalog.__file__).with_name("catalog.json").read_text(encoding="ascii")
        assert sum(line.startswith('  ["') for line in text.splitlines()) == len(ENTRIES)

    @pytest.mark.parametrize(
        ("driver", "number"),
        [
            ("mlx5", 116),
            ("mlx4", 69),
            ("bnxt_re", 132),
            ("irdma", 70),
            ("efa", 34),
            ("hfi1", 407),
            ("rxe", 15),
            ("qib", 37),
        ],
    )
    def test_the_drivers_keep_their_counters(self, driver, number):
        assert sum(driver in drivers_of(e) for e in ENTRIES if e.level not in {"net", "phy"}) == number

    @pytest.mark.parametrize(
        ("level", "name"),
        [
            ("hw", "active_qps"),
            ("hw", "watermark_mrs"),
            ("hw", "db_fifo_register"),
            ("hw", "current_rate"),
            ("hw", "lifespan"),
            ("device_hw", "lifespan"),
            ("device_hw", "DRIVER_CtxtsOpen"),
        ],
    )
    def test_levels_that_go_up_and_down_are_gauges(self, level, name):
        assert catalog.lookup(level, name).kind == "gauge"

    def test_the_gauges_are_few(self):
        assert sum(e.kind == "gauge" for e in ENTRIES) == 23

    @pytest.mark.parametrize(
        ("name", "group"),
        [
            ("link_downed", "link"),
            ("symbol_error", "physical"),
            ("port_rcv_remote_physical_errors", "physical"),
            ("port_xmit_discards", "loss"),
            ("VL15_dropped", "loss"),
            ("port_xmit_wait", "congestion"),
            ("port_rcv_switch_relay_errors", "config"),
            ("port_xmit_data", "throughput"),
        ],
    )
    def test_pma_counters_have_their_class(self, name, group):
        assert catalog.lookup("counters", name).health_class == group

    @pytest.mark.parametrize(
        ("name", "group"),
        [
            ("local_ack_timeout_err", "retransmit"),
            ("out_of_buffer", "loss"),
            ("rx_icrc_encapsulated", "physical"),
            ("np_cnp_sent", "congestion"),
            ("req_transport_retries_exceeded", "loss"),
            ("resp_cqe_flush_error", "other"),
            ("req_remote_access_errors", "config"),
        ],
    )
    def test_mlx5_counters_have_their_class(self, name, group):
        assert catalog.lookup("hw", name).health_class == group


class TestLookup:
    def test_every_name_is_found_as_the_kernel_writes_it(self):
        assert [e for e in ENTRIES if catalog.lookup(e.level, concrete(e.name)) is not e] == []

    @pytest.mark.parametrize(
        ("level", "name", "found"),
        [
            ("hw", "TxFlitVL0", "TxFlitVL{vl}"),
            ("hw", "TxFlitVL15", "TxFlitVL{vl}"),
            ("hw", "XmitDscdVl7,32", "XmitDscdVl{vl},32"),
            ("hw", "RcvHdrOvr159", "RcvHdrOvr{ctx}"),
            ("device_hw", "SDMAInt12,32", "SDMAInt{engine},32"),
            ("device_hw", "DcRxPktVl15", "DcRxPktVl{vl}"),
            ("phy", "rx_prio3_pause_duration", "rx_prio{prio}_pause_duration"),
            ("phy", "rx_err_lane_2_phy", "rx_err_lane_{lane}_phy"),
        ],
    )
    def test_a_number_stands_for_the_placeholder(self, level, name, found):
        assert catalog.lookup(level, name).name == found

    @pytest.mark.parametrize("name", ["XmitDscd,32", "SwLinkDown,32", "Nak Sequence Error Implied", "CRC errors"])
    def test_commas_and_spaces_belong_to_the_name(self, name):
        assert catalog.lookup("hw", name).name == name

    @pytest.mark.parametrize("name", ["TxFlitVL", "TxFlitVLx", "SDMAInt1", "Pio Reserved 29", "", "32", "vl15_dropped"])
    def test_other_names_are_not_known(self, name):
        assert all(catalog.lookup(level, name) is None for level in catalog.LEVELS)

    def test_one_name_means_different_things_at_two_levels(self):
        pma, rxe = catalog.lookup("counters", "link_downed"), catalog.lookup("hw", "link_downed")
        assert (pma.bits, rxe.bits) == (8, 64)
        assert rxe.drivers == "rxe"

    def test_only_ionic_names_its_counters_in_firmware(self):
        assert catalog.lookup("hw", "rx_rdma_ucast_pkts", "ionic").drivers == "ionic(>=6.18)"
        assert catalog.lookup("hw", "rx_rdma_ucast_pkts", "mlx5") is None
        assert catalog.lookup("hw", "rx_rdma_ucast_pkts") is None
        assert catalog.lookup("counters", "rx_rdma_ucast_pkts", "ionic") is None

    def test_ionic_says_unreadable_by_all_ones(self):
        assert catalog.unreadable("hw", "ionic") == 18446744073709551615
        assert catalog.unreadable("hw", "mlx5_core") is None
        assert catalog.unreadable("counters", "ionic") is None


class TestMaximum:
    @pytest.mark.parametrize(("name", "bits"), PMA_BITS.items())
    def test_pma_widths_are_those_of_the_standard(self, name, bits):
        assert catalog.lookup("counters", name).bits == bits

    @pytest.mark.parametrize("driver", ["mlx5", "mlx5_core", "mlx4_core", "qib", None])
    @pytest.mark.parametrize(("name", "bits"), NARROW.items())
    def test_narrow_pma_counters_stick_at_all_ones(self, name, bits, driver):
        assert catalog.maximum("counters", name, driver) == {4: 15, 8: 255, 16: 65535, 32: 4294967295}[bits]
        assert catalog.wraps("counters", name, driver) is None

    @pytest.mark.parametrize("driver", ["bnxt_re", "bnxt_en"])
    @pytest.mark.parametrize(("name", "bits"), NARROW.items())
    def test_bnxt_wraps_where_others_stick(self, name, bits, driver):
        assert catalog.maximum("counters", name, driver) is None
        assert catalog.wraps("counters", name, driver) == {4: 16, 8: 256, 16: 65536, 32: 4294967296}[bits]

    def test_hfi1_wraps_one_of_them(self):
        wrapping = [name for name in PMA_BITS if catalog.wraps("counters", name, "hfi1") is not None]
        assert wrapping == ["port_rcv_switch_relay_errors"]
        assert catalog.maximum("counters", "port_rcv_switch_relay_errors", "hfi1") is None
        assert catalog.maximum("counters", "symbol_error", "hfi1") == 65535

    @pytest.mark.parametrize("name", WIDENED)
    def test_data_and_packets_stick_only_without_the_extended_set(self, name):
        assert catalog.maximum("counters", name, "mthca", extended=False) == 4294967295
        assert catalog.maximum("counters", name, "mlx5", extended=True) is None
        assert catalog.maximum("counters", name, "mlx5") is None
        assert catalog.wraps("counters", name, "bnxt_re") is None

    @pytest.mark.parametrize("extended", [True, False, None])
    @pytest.mark.parametrize("name", ["unicast_xmit_packets", "port_xmit_data_64", "port_rcv_packets_64"])
    def test_wide_pma_counters_have_no_maximum(self, name, extended):
        assert catalog.maximum("counters", name, "mlx5", extended=extended) is None

    def test_hardware_counters_that_may_wrap_or_stick_have_no_maximum(self):
        unsure = [e for e in ENTRIES if e.level in {"hw", "device_hw"} and e.saturates == "depends"]
        assert len(unsure) == 154
        assert all(catalog.maximum(e.level, concrete(e.name), None, extended=False) is None for e in unsure)

    def test_only_synthesised_counters_of_hfi1_stick_at_all_ones(self):
        sticking = [e for e in ENTRIES if e.level in {"hw", "device_hw"} and e.saturates == "yes"]
        assert {e.drivers for e in sticking} == {"hfi1"}
        assert {catalog.maximum(e.level, concrete(e.name), "hfi1") for e in sticking} == {18446744073709551615}

    def test_link_downed_of_soft_roce_is_a_count_without_end(self):
        assert catalog.maximum("hw", "link_downed", "rxe") is None

    @pytest.mark.parametrize("level", catalog.LEVELS)
    def test_unknown_counters_have_neither_maximum_nor_modulus(self, level):
        assert catalog.maximum(level, "new_thing", "bnxt_re") is None
        assert catalog.wraps(level, "new_thing", "bnxt_re") is None


class TestScale:
    def test_only_data_words_are_multiplied(self):
        scaled = {(e.level, e.name) for e in ENTRIES if catalog.scale(e.level, e.name) != 1}
        assert scaled == {
            ("counters", name) for name in ("port_xmit_data", "port_rcv_data", "port_xmit_data_64", "port_rcv_data_64")
        }
        assert {catalog.scale(*key) for key in scaled} == {4}

    def test_a_word_is_four_bytes_whatever_the_name_elsewhere(self):
        assert catalog.scale("hw", "port_xmit_data") == 1
        assert catalog.scale("hw", "TxWords") == 1

    def test_only_lifespan_is_divided(self):
        divided = {(e.level, e.name): d for e in ENTRIES if (d := catalog.divisor(e.level, e.name)) != 1}
        assert divided == {("hw", "lifespan"): 1000, ("device_hw", "lifespan"): 1000}
        assert catalog.divisor("counters", "lifespan") == 1


class TestMetricName:
    @pytest.mark.parametrize(
        ("level", "name", "metric"),
        [
            ("counters", "symbol_error", "ibmon_port_symbol_error_total"),
            ("counters", "VL15_dropped", "ibmon_port_vl15_dropped_total"),
            ("counters", "port_rcv_errors", "ibmon_port_rcv_errors_total"),
            ("counters", "port_xmit_data", "ibmon_port_xmit_data_bytes_total"),
            ("counters", "port_rcv_data", "ibmon_port_rcv_data_bytes_total"),
            ("counters", "port_rcv_data_64", "ibmon_port_rcv_data_64_bytes_total"),
            ("counters", "port_xmit_data_64", "ibmon_port_xmit_data_64_bytes_total"),
            ("counters", "port_rcv_packets_64", "ibmon_port_rcv_packets_64_total"),
            ("hw", "out_of_sequence", "ibmon_port_hw_out_of_sequence_total"),
            ("hw", "tx_bytes", "ibmon_port_hw_tx_bytes_total"),
            ("hw", "ip4InOctets", "ibmon_port_hw_ip4inoctets_total"),
            ("hw", "Nak Sequence Error", "ibmon_port_hw_nak_sequence_error_total"),
            ("hw", "SwLinkUp,32", "ibmon_port_hw_swlinkup_32_total"),
            ("hw", "TxFlitVL15", "ibmon_port_hw_txflitvl15_total"),
            ("hw", "active_qps", "ibmon_port_hw_active_qps"),
            ("hw", "current_rate", "ibmon_port_hw_current_rate"),
            ("hw", "lifespan", "ibmon_port_hw_lifespan_seconds"),
            ("device_hw", "lifespan", "ibmon_device_hw_lifespan_seconds"),
            ("device_hw", "keep_alive_rcvd", "ibmon_device_hw_keep_alive_rcvd_total"),
            ("device_hw", "DRIVER_CtxtsOpen", "ibmon_device_hw_driver_ctxtsopen"),
            ("net", "carrier_down_count", "ibmon_port_net_carrier_down_count_total"),
            ("phy", "rx_pcs_symbol_err_phy", "ibmon_port_phy_rx_pcs_symbol_err_phy_total"),
            ("phy", "rx_prio3_pause", "ibmon_port_phy_rx_prio3_pause_total"),
            ("counters", "port_new thing-2", "ibmon_port_new_thing_2_total"),
            ("hw", "port_port_x", "ibmon_port_hw_port_x_total"),
            ("hw", "Zähler", "ibmon_port_hw_z_hler_total"),
        ],
    )
    def test_names_follow_the_rule(self, level, name, metric):
        assert catalog.metric_name(level, name) == metric

    @given(st.sampled_from(catalog.LEVELS), st.text(min_size=1))
    def test_any_file_name_gives_a_valid_metric_and_help(self, level, name):
        assert METRIC.fullmatch(catalog.metric_name(level, name))
        assert not set(catalog.help_for(level, name)) & {"\n", "\r", "\\"}

    def test_two_counters_of_one_driver_never_share_a_metric(self):
        names = Counter(
            (driver, catalog.metric_name(e.level, concrete(e.name)))
            for e in ENTRIES
            if e.name != "*"
            for driver in drivers_of(e)
        )
        assert [key for key, number in names.items() if number > 1] == []

    def test_metrics_of_different_levels_never_meet(self):
        levels = {}
        for e in ENTRIES:
            levels.setdefault(catalog.metric_name(e.level, concrete(e.name)), set()).add(e.level)
        assert [name for name, found in levels.items() if len(found) > 1] == []

    def test_counters_end_in_total_and_gauges_do_not(self):
        for e in ENTRIES:
            assert catalog.metric_name(e.level, concrete(e.name)).endswith("_total") == (e.kind == "counter")


class TestAlias:
    def test_byte_counters_of_adapters_without_pma_feed_the_data_metrics(self):
        assert catalog.alias("hw", "tx_bytes") == catalog.metric_name("counters", "port_xmit_data")
        assert catalog.alias("hw", "rx_bytes") == catalog.metric_name("counters", "port_rcv_data")

    def test_nothing_else_does(self):
        assert [e.name for e in ENTRIES if catalog.alias(e.level, e.name)] == ["rx_bytes", "tx_bytes"]
        assert catalog.alias("device_hw", "tx_bytes") is None


class TestHelp:
    def test_it_is_one_plain_line_of_moderate_length(self):
        # Printable ASCII without the backslash, which would need escaping in HELP.
        plain = re.compile(r"[A-Za-z0-9][ -\[\]-~]{18,198}\.")
        assert [e.help for e in ENTRIES if not plain.fullmatch(e.help)] == []

    def test_no_two_counters_share_it(self):
        texts = Counter(e.help for e in ENTRIES)
        assert [text for text, number in texts.items() if number > 1] == []

    @pytest.mark.parametrize(
        ("level", "name", "start"),
        [
            ("counters", "symbol_error", "ports/N/counters/symbol_error: "),
            ("counters", "port_rcv_data_64", "ports/N/counters_ext/port_rcv_data_64: "),
            ("hw", "TxFlitVL3", "ports/N/hw_counters/TxFlitVL3: "),
            ("hw", "rc_timeouts", "ports/N/diag_counters/rc_timeouts: "),
            ("hw", "cc_rx_ce_pkts", "rdma statistic cc_rx_ce_pkts: "),
            ("device_hw", "cmds_err", "hw_counters/cmds_err: "),
            ("net", "carrier_changes", "class/net/DEV/carrier_changes: "),
            ("phy", "link_down_events_phy", "ethtool -S DEV link_down_events_phy: "),
        ],
    )
    def test_it_names_the_kernel_file(self, level, name, start):
        text = catalog.help_for(level, name)
        assert text.startswith(start)
        assert text.removeprefix(start) == catalog.lookup(level, name).help

    @pytest.mark.parametrize("level", catalog.LEVELS)
    def test_an_unknown_counter_says_that_it_is_unknown(self, level):
        assert "new_thing: not in the catalog" in catalog.help_for(level, "new_thing")

    @pytest.mark.parametrize(("name", "bits"), NARROW.items())
    def test_a_narrow_counter_tells_where_it_goes_blind(self, name, bits):
        text = catalog.lookup("counters", name).help
        assert f"{bits} bits" in text
        assert f"sticks at {2**bits - 1}" in text

    @pytest.mark.parametrize("name", ["active_qps", "current_rate", "db_fifo_register"])
    def test_a_gauge_says_that_it_is_a_level(self, name):
        assert re.search(r"level|up and down", catalog.lookup("hw", name).help)

    @pytest.mark.parametrize("entry", [e for e in ENTRIES if "netlink only" in e.drivers], ids=lambda e: e.name)
    def test_counters_that_are_no_files_say_so(self, entry):
        assert "netlink" in entry.help

    @pytest.mark.parametrize("entry", [e for e in ENTRIES if e.name.startswith("DRIVER_")], ids=lambda e: e.name)
    def test_host_wide_sums_of_hfi1_say_so(self, entry):
        assert "all its devices of the host" in entry.help


class TestNodeExporter:
    @pytest.mark.parametrize(
        ("level", "name", "metric"),
        [
            ("counters", "VL15_dropped", "node_infiniband_vl15_dropped_total"),
            ("counters", "port_rcv_discards", "node_infiniband_port_discards_received_total"),
            ("counters", "port_xmit_wait", "node_infiniband_port_transmit_wait_total"),
            ("counters", "port_xmit_data", "node_infiniband_port_data_transmitted_bytes_total"),
            ("counters", "port_rcv_data_64", "node_infiniband_legacy_data_received_bytes_total"),
            ("counters", "port_unicast_xmit_packets", "node_infiniband_legacy_unicast_packets_transmitted_total"),
            ("hw", "lifespan", "node_infiniband_lifespan_seconds"),
            ("hw", "roce_slow_restart", "node_infiniband_roce_slow_restart_used_total"),
            ("hw", "roce_slow_restart_trans", "node_infiniband_roce_slow_restart_total"),
            ("hw", "np_ecn_marked_roce_packets", "node_infiniband_np_ecn_marked_roce_packets_received_total"),
        ],
    )
    def test_names_are_those_of_node_exporter(self, level, name, metric):
        assert catalog.node_exporter_name(level, name) == metric

    def test_all_its_counters_are_there(self):
        listed = list(catalog.node_exporter_names())
        assert Counter(level for level, _, _ in listed) == {"counters": 30, "hw": 30}
        assert len({metric for _, _, metric in listed}) == 60
        assert all(catalog.node_exporter_name(level, name) == metric for level, name, metric in listed)

    def test_what_it_publishes_the_catalog_knows(self):
        # Only port_rcv_discards is not a kernel file of our time; node_exporter still asks for it.
        unknown = [name for level, name, _ in catalog.node_exporter_names() if catalog.lookup(level, name) is None]
        assert unknown == ["port_rcv_discards"]

    @pytest.mark.parametrize(
        ("level", "name"),
        [("hw", "symbol_error"), ("device_hw", "lifespan"), ("hw", "tx_bytes"), ("net", "carrier_changes")],
    )
    def test_what_it_does_not_publish_has_no_name(self, level, name):
        assert catalog.node_exporter_name(level, name) is None


class TestPackage:
    def test_loading_it_costs_little(self):
        # By what is imported and how much is read, since a clock would measure the machine.
        code = (
            "import msgspec, pathlib, sys; before = set(sys.modules); import ibmon.sysfs.catalog;"
            "print(*set(sys.modules) - before)"
        )
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert set(done.stdout.split()) <= {"__future__", "ibmon", "ibmon.sysfs", "ibmon.sysfs.catalog"}
        assert Path(catalog.__file__).with_name("catalog.json").stat().st_size < 200_000

    def test_the_page_of_counters_is_up_to_date(self):
        page = Path(__file__).parents[2] / "docs" / "counters.md"
        assert page.read_text(encoding="utf-8") == catalog_docs.page(), (
            "run: python -m ibmon.sysfs.catalog_docs > docs/counters.md"
        )

    def test_the_page_has_a_row_for_every_entry(self):
        rows = [line for line in catalog_docs.page().splitlines() if line.startswith("| `")]
        assert len(rows) == len(ENTRIES) + 60
        assert {row.count(" | ") for row in rows[: len(ENTRIES)]} == {7}

    def test_the_command_prints_the_page(self):
        done = subprocess.run(
            [sys.executable, "-m", "ibmon.sysfs.catalog_docs"], check=True, capture_output=True, text=True
        )
        assert done.stdout == catalog_docs.page()
