"""A running daemon where things are not as they should be: no RDMA, no sysfs, a state directory that cannot keep."""

from __future__ import annotations

import shutil

import pytest
from livenode import DECLARED, FAST, LiveNode, always, until

from ibmon.simulate.tree import Tree

NOTHING = Tree(dirs=("class/net", "bus/pci/devices"))
BAD = "[rules.port-down]\nalert_hold = '100ms'\nhold = '200ms'\nrecover = '10m'\n"


@pytest.fixture
def node(tmp_path):
    with LiveNode(tmp_path) as live:
        yield live


@pytest.fixture
def bare(tmp_path):
    """A node without RDMA."""
    with LiveNode(tmp_path, NOTHING) as live:
        yield live


# -------------------------------------------------------------------------------------------------- no RDMA at all


def test_a_node_without_rdma_is_a_healthy_exporter_with_one_line_about_it(bare):
    daemon = bare.start()
    daemon.wait_metric("ibmon_devices_present", 0)
    bare.wait_fitness("fit")
    daemon.judge_again()

    assert daemon.metric("ibmon_up") == 1
    assert daemon.metric("ibmon_devices_expected") == 0
    assert not daemon.series("ibmon_finding")
    assert len(daemon.lines("no-rdma-devices")) == 1
    assert not daemon.lines("WARNING")
    assert not daemon.lines("ERROR")


def test_devices_that_appear_later_are_published(node):
    entries = [f"class/infiniband/{name}" for name in node.tree.devices]
    kept = {path: (node.sysfs / path).readlink() for path in entries}
    node.apply(remove=tuple(entries))
    daemon = node.start()
    daemon.wait_metric("ibmon_devices_present", 0)

    node.apply(links={path: str(target) for path, target in kept.items()})
    daemon.wait_metric("ibmon_devices_present", 4)
    until(lambda: len(daemon.series("ibmon_port_state")) == 4)
    assert node.wait_fitness("fit")


# ------------------------------------------------------------------------------------------------ no sysfs to see


@pytest.mark.parametrize("how", ["empty", "file"])
def test_a_root_that_is_no_sysfs_is_an_error_with_a_line_and_recovers(node, how):
    real = node.directory / "real"
    node.sysfs.rename(real)
    if how == "empty":
        node.sysfs.mkdir()
    else:
        node.sysfs.touch()
    node.configure(FAST + DECLARED + "[rules.monitor-blind]\nrecover = '100ms'")
    daemon = node.start()

    daemon.wait_metric("ibmon_up", 0)
    daemon.wait_line("ERROR", "class-unreadable")
    assert node.wait_fitness("unknown")["up"] is False
    assert daemon.metric("ibmon_devices_present") is None
    daemon.wait_line("monitor-blind")
    daemon.judge_again()
    assert len(daemon.lines("class-unreadable")) == 1  # although something else was said in between
    assert not daemon.series("ibmon_finding", rule="device-missing")

    node.sysfs.rmdir() if how == "empty" else node.sysfs.unlink()
    real.rename(node.sysfs)
    daemon.wait_metric("ibmon_up", 1)
    node.wait_fitness("fit")


def test_a_class_directory_that_may_not_be_read_makes_no_device_missing(node):
    node.configure(
        FAST + DECLARED + "[rules.all-devices-missing]\nhold = '200ms'\n[rules.monitor-blind]\nrecover = '100ms'"
    )
    daemon = node.serving(unprivileged=True)  # no capability is needed to read and serve
    node.wait_fitness("fit")
    assert len(daemon.series("ibmon_port_xmit_data_bytes_total")) == 4
    assert not daemon.series("ibmon_read_errors_total")
    place = node.sysfs / "class/infiniband"
    place.chmod(0)
    try:
        daemon.wait_metric("ibmon_up", 0)
        daemon.wait_line("ERROR", "class-unreadable", "errno=13")
        node.wait_fitness("unknown")
        daemon.judge_again()
        assert not daemon.series("ibmon_finding", rule="device-missing")
        assert not daemon.series("ibmon_finding", rule="all-devices-missing")
        assert daemon.metric("ibmon_drain_wanted") == 0
    finally:
        place.chmod(0o755)
    daemon.wait_metric("ibmon_up", 1)
    node.wait_fitness("fit")


# ------------------------------------------------------------------------------- a state directory that cannot keep


def judges(node: LiveNode, daemon) -> None:
    """A port that goes down is judged and told whatever the state directory does."""
    until(lambda: len(daemon.series("ibmon_port_state")) == 4)
    node.goes_down()
    node.wait_fitness("unfit")
    daemon.wait_metric("ibmon_drain_wanted", 1)


def test_a_missing_state_directory_is_told_once_and_ibmon_judges_without_acting(node):
    node.configure(FAST + DECLARED + BAD, state=str(node.directory / "nowhere"))
    daemon = node.start()
    judges(node, daemon)

    assert daemon.metric("ibmon_actions_enabled") == 0
    told = daemon.lines("nothing is saved, and nothing is asked of the scheduler")
    assert len(told) == 1
    assert str(node.directory / "nowhere") in told[0]


def test_a_state_directory_that_may_not_be_written_is_told_once_and_ibmon_judges(node):
    node.state.chmod(0o555)
    node.configure(FAST + DECLARED + BAD)
    try:
        daemon = node.start(unprivileged=True)
        judges(node, daemon)
        assert daemon.metric("ibmon_actions_enabled") == 0
        assert len(daemon.lines("nothing is saved")) == 1
        assert list(node.state.iterdir()) == []
    finally:
        node.state.chmod(0o755)


def test_a_database_that_may_not_be_written_leaves_ibmon_judging_from_memory(node):
    node.configure(FAST + DECLARED + BAD)
    node.serving().end()
    (node.state / "ibmon.db").chmod(0o444)
    node.state.chmod(0o555)
    try:
        daemon = node.start(unprivileged=True)
        judges(node, daemon)
        until(lambda: (daemon.metric("ibmon_state_save_errors_total") or 0) >= 1)
        assert len(daemon.lines("going on from memory")) == 1
    finally:
        node.state.chmod(0o755)


def test_a_full_disk_is_told_once_and_what_is_judged_meanwhile_is_saved_when_there_is_room(node):
    node.configure(FAST + DECLARED + BAD)
    daemon = node.serving()
    node.wait_fitness("fit")
    daemon.limit_files(16384)
    judges(node, daemon)
    daemon.wait_line("ERROR", "cannot be saved", "going on from memory")
    daemon.judge_again()
    assert len(daemon.lines("going on from memory")) == 1

    daemon.limit_files(None)
    daemon.wait_line("saving-again")
    assert daemon.end() == 0
    again = node.serving()
    assert again.metric("ibmon_finding", rule="port-down", severity="critical", device="mlx5_3", port="1") == 1


@pytest.mark.parametrize(("content", "why"), [(b"", "empty"), (b'{"ports": [', "not")])
def test_a_state_file_that_is_empty_or_broken_is_kept_aside_and_history_starts_anew(node, content, why):
    (node.state / "ibmon.db").write_bytes(content)
    node.configure(FAST + DECLARED + BAD)
    daemon = node.serving()
    told = daemon.wait_line("ERROR", "ibmon.db.aside-")
    assert why in told
    aside = [path for path in node.state.iterdir() if ".aside-" in path.name]
    assert content in {path.read_bytes() for path in aside}

    assert daemon.metric("ibmon_actions_enabled") == 1
    assert daemon.metric("ibmon_state_save_errors_total") == 0
    judges(node, daemon)


def test_a_state_directory_that_goes_while_ibmon_runs_stops_no_verdict(node):
    node.configure(FAST + DECLARED + BAD)
    daemon = node.serving()
    node.wait_fitness("fit")
    shutil.rmtree(node.state)
    judges(node, daemon)
    assert "Traceback" not in daemon.text


def test_a_runtime_directory_that_is_missing_is_told_once_and_metrics_are_served(node):
    node.runtime.rmdir()
    daemon = node.serving()
    begin = daemon.metric("ibmon_port_xmit_data_bytes_total", device="mlx5_0", port="1")
    always(lambda: daemon.process.poll() is None, 0.5)

    assert begin is not None
    assert len(daemon.lines("verdict.json cannot be written")) == 1
