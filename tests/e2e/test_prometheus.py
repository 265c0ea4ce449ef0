"""A real Prometheus scrapes the daemon: its answers are what the tree's files hold. Promtool is content."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from services.daemon import Daemon
from services.node import DEVICES, NodeTree
from services.processes import wait_for
from services.prometheus import Prometheus, check_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> NodeTree:
    return NodeTree(tmp_path_factory.mktemp("node") / "sys")


@pytest.fixture(scope="module")
def daemon(tree: NodeTree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tree, tmp_path_factory.mktemp("daemon") / "ibmon", env=os.environ) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(daemon: Daemon) -> Iterator[Prometheus]:
    with Prometheus([daemon.address]) as server:
        server.wait_scraped()
        yield server


def leading_number(text: str) -> float:
    return float(text.partition(":")[0])


def gigabits(text: str) -> float:
    return float(text.split(maxsplit=1)[0]) * 1e9 / 8


def words(text: str) -> float:
    return int(text) * 4


@pytest.mark.parametrize(
    ("metric", "file", "value"),
    [
        ("ibmon_port_state", "state", leading_number),
        ("ibmon_port_physical_state", "phys_state", leading_number),
        ("ibmon_port_rate_bytes_per_second", "rate", gigabits),
        ("ibmon_port_xmit_data_bytes_total", "counters/port_xmit_data", words),
        ("ibmon_port_rcv_data_bytes_total", "counters/port_rcv_data", words),
        ("ibmon_port_unicast_rcv_packets_total", "counters/unicast_rcv_packets", float),
        ("ibmon_port_symbol_error_total", "counters/symbol_error", float),
        ("ibmon_port_hw_out_of_sequence_total", "hw_counters/out_of_sequence", float),
    ],
)
def test_a_query_returns_the_files_values(
    prometheus: Prometheus, tree: NodeTree, metric: str, file: str, value: Callable[[str], float]
) -> None:
    expected = {frozenset({("device", device), ("port", "1")}): value(tree.text(device, file)) for device in DEVICES}
    # A target counts as scraped a moment before its samples can be asked for.
    wait_for(lambda: prometheus.query(metric).keys() == expected.keys(), within=10, what=f"{metric} of every device")
    assert prometheus.query(metric) == expected


def test_prometheus_and_the_daemon_both_call_it_up(prometheus: Prometheus) -> None:
    assert prometheus.query("up") == {frozenset(): 1}
    assert prometheus.query("ibmon_up") == {frozenset(): 1}


def test_a_link_that_goes_down_is_seen_in_prometheus(prometheus: Prometheus, tree: NodeTree) -> None:
    down = frozenset({("device", "mlx5_2"), ("port", "1")})
    tree.link_down("mlx5_2")
    try:
        wait_for(lambda: prometheus.query("ibmon_port_state == 1").keys() == {down}, within=10, what="the link down")
    finally:
        tree.link_up("mlx5_2")
    wait_for(lambda: not prometheus.query("ibmon_port_state == 1"), within=10, what="the link up")


# promtool takes the word for a type. The names are a promise to dashboards, and the word is what they are about.
NAMED_AFTER_COUNTERS = {
    f"ibmon_port_counter_{name} metric name should not include type 'counter'" for name in ("saturated", "resets_total")
}


def remarks(exposition: str) -> set[str]:
    checked = check_metrics(exposition)
    assert checked.stdout == ""
    assert checked.returncode == (3 if checked.stderr else 0)
    return set(checked.stderr.splitlines()) - NAMED_AFTER_COUNTERS


def test_promtool_has_nothing_to_say_about_a_scrape(daemon: Daemon) -> None:
    assert remarks(daemon.exposition()) == set()


@pytest.mark.parametrize("options", [(), ("--compat", "node_exporter")], ids=["own-names", "with-node-exporters-names"])
def test_promtool_has_nothing_to_say_about_the_metrics_command(daemon: Daemon, options: tuple[str, ...]) -> None:
    printed = daemon.command("metrics", *options)
    assert printed.returncode == 0, printed.stderr

    assert remarks(printed.stdout) == set()
