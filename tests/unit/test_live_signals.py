"""A running daemon: what it publishes, how it ends, and how it takes a new configuration."""

from __future__ import annotations

import signal
import stat
import threading
import time

import pytest
from livenode import DECLARED, FAST, NAME, PATIENCE, QUICK, LiveNode, until

from ibmon.cli import verdictfile
from ibmon.simulate.dgx import dgx
from ibmon.statedir import NODE_LOCK

SPACIOUS = "[rules.port-down]\nalert_hold = '1h'\nhold = '1h'\n"


@pytest.fixture
def node(tmp_path):
    with LiveNode(tmp_path) as live:
        yield live


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """A whole node with its daemon, for tests that only look; and the daemon."""
    with LiveNode(tmp_path_factory.mktemp("calm"), dgx()) as live:
        daemon = live.serving()
        live.wait_fitness("fit")
        yield live, daemon


# ------------------------------------------------------------------------------------------- what it publishes


def test_every_port_of_the_tree_is_published_as_its_files_say(calm):
    node, daemon = calm

    assert daemon.metric("ibmon_up") == 1
    assert daemon.metric("ibmon_devices_present") == 12
    assert daemon.metric("ibmon_actions_enabled") == 1
    assert daemon.metric("ibmon_config_valid") == 1
    assert list(daemon.series("ibmon_port_state").values()) == [4] * 12
    for device, gigabits in (("mlx5_0", 400), ("mlx5_8", 200), ("mlx5_10", 100)):
        rate = daemon.metric("ibmon_port_rate_bytes_per_second", device=device, port="1")
        assert rate == gigabits * 125_000_000
        words = node.tree.devices[device].ports[1].counters["port_xmit_data"]
        sent = daemon.metric("ibmon_port_xmit_data_bytes_total", device=device, port="1")
        assert sent == 4 * int(words)


def test_the_verdict_file_is_for_everyone_and_of_this_moment(calm):
    node, _ = calm
    first = node.verdict()

    assert verdictfile.read(node.runtime).fitness == "fit"
    assert stat.S_IMODE(node.verdict_file.stat().st_mode) == 0o644
    assert (first["v"], first["node"], first["boot_id"]) == (1, NAME, verdictfile.boot_id())
    assert len(first["ports"]) == 12
    assert 0 <= time.monotonic() - first["monotonic"] < first["ttl"]


def test_the_verdict_file_is_replaced_in_one_step(calm):
    node, _ = calm
    inodes = {node.verdict_file.stat().st_ino}
    for number in range(4):
        state = "ACTIVE" if number % 2 else "DOWN"
        (node.goes_down if state == "DOWN" else node.comes_up)("mlx5_7/1")
        while node.verdict()["ports"][7]["state"] != state:  # a half-written one would be no JSON
            inodes.add(node.verdict_file.stat().st_ino)
        inodes.add(node.verdict_file.stat().st_ino)

    assert len(inodes) > 1, "the file was written in place"


def test_a_link_that_goes_and_returns_is_seen_in_metrics_and_verdict(node):
    node.configure(FAST + DECLARED + QUICK + '[action]\nboot_grace = "0s"\n')
    daemon = node.serving()

    node.goes_down()
    node.wait_fitness("unfit")
    daemon.wait_metric("ibmon_port_state", 1, device="mlx5_3", port="1")
    daemon.wait_metric("ibmon_port_health", 1, device="mlx5_3", port="1", health="failed")
    assert daemon.metric("ibmon_finding", rule="port-down", severity="critical", device="mlx5_3", port="1") == 1

    node.comes_up()
    node.wait_fitness("fit")
    daemon.wait_metric("ibmon_finding", None, rule="port-down", severity="critical", device="mlx5_3", port="1")


# -------------------------------------------------------------------------------------------------- how it ends


def ended_in_time(node, number, before=lambda daemon: None):
    """A daemon that a signal has ended within two seconds; a machine with other work gets more than one try."""
    for _ in range(5):
        daemon = node.serving()
        before(daemon)
        began = time.monotonic()
        assert daemon.end(number) == 0
        if time.monotonic() - began < 2:
            return daemon
    pytest.fail(f"it never ended in time; the last one wrote:\n{daemon.text}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_two_seconds_with_exit_code_0(node, number):
    daemon = ended_in_time(node, number)
    assert daemon.lines("event=stop", "clean=true")
    assert {path.name for path in node.runtime.iterdir()} == {"verdict.json", NODE_LOCK}
    assert "Traceback" not in daemon.text


def test_a_signal_ends_it_also_while_somebody_keeps_a_connection_open(node):
    import http.client

    connections = []

    def connect(daemon):
        host = daemon.url("").removeprefix("http://").removesuffix("/")
        connections.append(http.client.HTTPConnection(host, timeout=PATIENCE))
        connections[-1].request("GET", "/metrics")
        connections[-1].getresponse().read()

    ended_in_time(node, signal.SIGTERM, connect)
    for connection in connections:
        connection.close()


def test_a_signal_that_comes_while_it_starts_ends_it_as_later_ones_do(node):
    daemon = node.start()
    until(lambda: daemon.lines("event=start"))

    assert daemon.end() == 0
    assert "Traceback" not in daemon.text


# ------------------------------------------------------------------------------------------------------- SIGHUP


def test_a_reload_takes_an_excluded_device_out_of_metrics_without_a_fault(node):
    daemon = node.serving()
    until(lambda: verdictfile.read(node.runtime).fitness == "fit")
    node.configure(FAST + '[devices]\nexclude = ["mlx5_3"]\n', exporter='listen = "127.0.0.1:1"')
    daemon.reload()

    daemon.wait_line("[exporter] has changed: that takes a restart")
    until(lambda: len(daemon.series("ibmon_port_state")) == 3)
    assert not daemon.series("ibmon_port_xmit_data_bytes_total", device="mlx5_3")
    assert daemon.metric("ibmon_devices_present") == 3
    assert daemon.metric("ibmon_config_valid") == 1
    assert not daemon.series("ibmon_finding")
    assert not any(daemon.series("ibmon_port_missing", device="mlx5_3").values())
    node.wait_fitness("fit")

    node.configure(FAST)
    daemon.reload()
    until(lambda: len(daemon.series("ibmon_port_state")) == 4)
    node.wait_fitness("fit")


def test_an_invalid_file_leaves_the_running_configuration_in_force_and_says_so_once(node):
    daemon = node.serving()
    before = daemon.series("ibmon_config_info")
    good = node.config.read_text()
    node.config.write_text(good + '[sampling2]\nx = 1\n[devices]\nexlude = ["mlx5_3"]\n')
    daemon.reload()

    daemon.wait_metric("ibmon_config_valid", 0)
    assert daemon.series("ibmon_config_info") == before
    assert len(daemon.series("ibmon_port_state")) == 4
    told = daemon.lines("reload failed, the running configuration stays in force")
    assert len(told) == 1
    assert "did you mean devices.exclude?" in daemon.text

    node.config.write_text(good)
    daemon.reload()
    daemon.wait_metric("ibmon_config_valid", 1)


def test_a_reload_brings_other_rules_into_force(node):
    node.configure(FAST + DECLARED + SPACIOUS + '[action]\nboot_grace = "0s"\n')
    daemon = node.serving()
    node.goes_down()
    node.wait_fitness("watch")
    node.configure(FAST + DECLARED + QUICK + '[action]\nboot_grace = "0s"\n')
    daemon.reload()

    node.wait_fitness("unfit")


def test_scrapes_go_on_through_reloads(node):
    daemon = node.serving()
    lost = []
    done = threading.Event()

    def scrape():
        while not done.is_set():
            if "ibmon_up 1" not in daemon.exposition():
                lost.append(time.monotonic())

    scraper = threading.Thread(target=scrape)
    scraper.start()
    for number in range(3):
        node.configure(FAST + f'[devices]\nexclude = ["mlx5_{number}"]\n')
        daemon.reload()
        until(lambda n=number: not daemon.series("ibmon_port_state", device=f"mlx5_{n}"))
    done.set()
    scraper.join()

    assert lost == []
