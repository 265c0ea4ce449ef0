"""The benchmark runs, and its arithmetic is right. What it measures is no matter of tests."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench import controller, engine, firmware, fresh, load, memory, page, queries, tree
from bench.figure import TIMES, Figure, Table, Target, fill, median, percentile, quantity, targets_table
from bench.hangfile import HangingFile, Unavailable
from bench.registry import FIGURES
from bench.settings import tiny
from ibmon.model import Now
from ibmon.sysfs.discover import list_devices
from ibmon.sysfs.files import FileTree

NOW = Now(0.0, 0.0)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_a_percentile_is_a_value_that_was_measured(share, expected):
    assert percentile(range(100, 0, -1), share) == expected


def test_the_percentile_of_one_value_is_that_value():
    assert percentile([7.0], 0.99) == median([7.0]) == 7.0


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [(0.1234, TIMES, f"0.123{TIMES}"), (4.0, "ms", "4 ms"), (139.4, "", "139"), (38.44, "MiB", "38.4 MiB")],
)
def test_a_quantity_has_three_digits_and_its_unit(value, unit, expected):
    assert quantity(value, unit) == expected


@pytest.mark.parametrize(("measured", "met"), [(1.0, True), (1.01, False), (math.inf, False), (None, None)])
def test_a_target_is_met_up_to_its_limit_and_unknown_where_nothing_was_measured(measured, met):
    assert Target("a thing", measured, 1.0).met is met


def test_the_table_of_targets_says_what_is_missed_and_what_was_not_measured():
    figure = Figure("a", "how", (), [Target("x", 2.0, 1.0), Target("y", None, 1.0), Target("z", 1.0, 1.0)])
    assert [row[3] for row in targets_table([figure]).rows] == ["**missed**", "not measured", "met"]


def test_a_table_is_markdown_with_numbers_to_the_right():
    lines = Table(("name", "n"), [("a", "10")]).markdown().splitlines()
    assert lines == ["| name |  n |", "| ---- | -: |", "| a    | 10 |"]


@pytest.mark.parametrize("devices", [tree.NODE, 3, 250])
def test_a_tree_has_as_many_devices_as_were_asked_for(devices, tmp_path):
    root = tree.write(devices, tmp_path)
    assert len(list_devices(FileTree(root), ("*",), (), NOW).names) == devices


def test_traffic_moves_the_counters_of_every_port_and_keeps_their_length(tmp_path):
    root = tree.write(3, tmp_path)
    files = [port / name for port in root.glob("class/infiniband/*/ports/*") for name in tree.MOVING]
    before = [file.read_text() for file in files]
    moving = tree.Traffic(root)
    moving.move()
    moving.close()
    after = [file.read_text() for file in files]
    assert len(files) == 3 * len(tree.MOVING)
    assert all(a != b and len(a) == len(b) and a.strip().isdigit() for a, b in zip(before, after, strict=True))


def test_a_fresh_read_gives_the_series_of_all_devices(tmp_path):
    node = fresh.Node(tree.write(tree.NODE, tmp_path))
    try:
        import gzip

        text = gzip.decompress(node.fresh()).decode()
    finally:
        node.close()
    assert text.count("\nibmon_port_state{") == tree.NODE
    assert text.count("\nibmon_port_xmit_data_bytes_total{") == tree.NODE


IB = "class/infiniband/mlx5_0/ports/1"


@pytest.mark.parametrize(
    ("reads", "infiniband", "ethernet"),
    [
        ([], 0, 0),
        ([(0, f"{IB}/state")], 5, 2),
        ([(0, f"{IB}/state"), (0, f"{IB}/rate")], 10, 4),
        ([(0, f"{IB}/link_layer"), (0, f"{IB}/gids/0"), (0, f"{IB}/hw_counters/lifespan")], 0, 0),
        ([(0, f"{IB}/counters/port_xmit_data")], 1, 1),
        ([(0, f"{IB}/pkeys/0")], 1, 1),
        ([(0, f"{IB}/hw_counters/rx_write_requests"), (0, f"{IB}/hw_counters/out_of_buffer")], 3, 3),
        ([(0, f"{IB}/hw_counters/out_of_buffer"), (0, f"{IB}/hw_counters/rx_write_requests")], 6, 6),
        ([(0, f"{IB}/hw_counters/rx_write_requests"), (1, f"{IB}/hw_counters/out_of_buffer")], 6, 6),
    ],
)
def test_reads_cost_what_the_drivers_code_says(reads, infiniband, ethernet):
    assert firmware.commands(reads, ethernet=False) == infiniband
    assert firmware.commands(reads, ethernet=True) == ethernet


def test_node_exporter_costs_what_its_list_of_files_says():
    assert firmware.theirs("1.12", ethernet=False) == 492
    assert firmware.theirs("1.5", ethernet=False) == 144


def test_the_engine_reads_at_the_price_that_is_computed_and_within_the_limit():
    counted, computed = firmware.ours(600.0)
    assert counted.keys() == computed.keys()
    assert counted == pytest.approx(computed, rel=0.01)
    assert max(counted.values()) <= firmware.LIMIT


def test_a_counting_tree_counts_reads_that_fail_too():
    counting = firmware.CountingTree()
    with pytest.raises(FileNotFoundError):
        counting.read("nothing/here")
    assert counting.reads == [(0.0, "nothing/here")]


@pytest.mark.parametrize("measure", [engine.measure, firmware.measure, load.measure])
def test_a_figure_that_needs_no_other_program_runs(measure, tmp_path):
    figure = measure(tiny(tmp_path))
    assert figure.markdown().startswith(f"## {figure.title}\n")
    assert all(table.rows for table in figure.tables)


def test_a_running_daemon_without_targets_has_loaded_no_table_and_no_client(tmp_path):
    modules = memory.loaded(tree.write(tree.NODE, tmp_path), tmp_path, wait=1.0)
    assert "ibmon" in modules
    assert modules.isdisjoint({"rich", "urllib3", "grafanalib", "cryptography"})


def test_an_import_is_measured_and_one_that_does_not_exist_is_left_out():
    rows = memory.imports("json", "no_such_module")
    assert [row[0] for row in rows] == ["interpreter", "json"]
    assert rows[0][1] > 1


def test_a_hanging_file_holds_its_readers_and_lets_them_go(tmp_path):
    path = tmp_path / "counter"
    path.write_text("12\n")
    try:
        with HangingFile(path) as file:
            assert path.read_text() == "12\n"
            file.hold(30.0)
            found = []
            reader = threading.Thread(target=lambda: found.append(path.read_text()), daemon=True)
            reader.start()
            deadline = time.monotonic() + 10
            while not file.held and time.monotonic() < deadline:
                time.sleep(0.005)
            assert [process for process, _ in file.held] == [os.getpid()]
            assert found == []
            file.release()
            reader.join(10)
            assert found == ["12\n"]
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert path.read_text() == "12\n"


def test_the_machine_is_told_without_its_name(monkeypatch):
    monkeypatch.setattr("platform.node", lambda: "secret-host")
    told = page.machine()
    assert "CPU" in told
    assert "Linux" in told
    assert os.uname().nodename not in told


def test_a_paragraph_is_filled_and_a_word_never_broken():
    assert fill("a " * 200 + "-" * 130).splitlines()[-1] == "-" * 130


def test_the_controller_answers_every_report_of_its_nodes(tmp_path):
    settings = dataclasses.replace(tiny(tmp_path), nodes=20, report_every=0.2, watch=0.4)
    figure = controller.measure(settings)

    [_, unanswered] = figure.targets
    assert unanswered.measured == 0
    assert figure.tables[0].rows[0][:2] == ("a report", "40")


def test_every_figure_has_a_name_of_one_word():
    assert all(name.isidentifier() for name in FIGURES)


def test_every_panel_is_asked_with_all_its_variables_in_place():
    asked = list(queries.panels())
    assert {panel.board for panel in asked} == {"Fleet", "Node", "Incident", "ibmon itself"}
    assert [expr for panel in asked for expr, _ in panel.queries if "$" in expr] == []


@pytest.mark.parametrize(
    ("line", "series"),
    [
        ("ibmon_up 1", 'ibmon_up{job="ibmon",instance="n:19315"}'),
        ('ibmon_node_info{node="node0001"} 1', 'ibmon_node_info{job="ibmon",instance="n:19315",node="n"}'),
    ],
)
def test_a_line_becomes_the_series_of_its_node(line, series):
    assert queries._named(line, "n") == (series.partition("{")[0], series, 1.0)


def test_series_are_counted_for_each_option():
    [*rows] = dict(queries.added().rows).values()
    assert int(rows[0]) > 1000
    assert all(int(row) > 0 for row in rows[1:])
