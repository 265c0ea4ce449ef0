"""What is left alone where reading it endangers the host."""

import pytest
from sysfs_trees import found, port_files

from ibmon.model import Level
from ibmon.recording import Frame
from ibmon.sysfs import danger


def counted(platform, name="bnxt_re0"):
    files = {**port_files(name, hw_counters__rx_pkts="1\n"), f"class/infiniband/{name}/hw_counters/x": "1\n"}
    device = found(Frame(t=0, files=files), name=name, platform=platform)
    return {c.level for c in device.layout.columns} - {Level.ATTR}


@pytest.mark.parametrize("release", ["6.18.0", "6.18.3-arch1", "6.18-custom"])
def test_bnxt_hw_counters_are_left_alone_on_kernels_that_write_out_of_bounds(release):
    assert counted(danger.Platform(release)) == set()
    assert counted(danger.Platform(release), "mlx5_0") == {Level.HW, Level.DEVICE_HW}


@pytest.mark.parametrize("release", ["6.18.4", "6.19.0", "6.17.9", "", "unknown"])
def test_bnxt_hw_counters_are_read_on_other_kernels(release):
    assert counted(danger.Platform(release)) == {Level.HW, Level.DEVICE_HW}


def test_a_renamed_bnxt_device_is_told_by_its_driver():
    assert danger.skips(danger.Platform("6.18.2"), "rocep65s0", "bnxt_en").port_hw
    assert not danger.skips(danger.Platform("6.18.2"), "rocep65s0", "mlx5_core").port_hw


@pytest.mark.parametrize(
    ("release", "init_netns", "expected"),
    [
        ("5.14.0-427.el9", False, {Level.HW}),
        ("6.14.11", False, {Level.HW}),
        ("6.1.192", None, {Level.HW}),
        ("6.1.192", True, {Level.HW, Level.DEVICE_HW}),
        ("6.15.0", False, {Level.HW, Level.DEVICE_HW}),
        ("5.13.19", False, {Level.HW, Level.DEVICE_HW}),
    ],
)
def test_device_counters_are_left_alone_in_other_namespaces_of_kernels_that_crash(release, init_netns, expected):
    assert counted(danger.Platform(release, init_netns), "mlx5_0") == expected


def test_the_reason_is_one_line_that_says_what_ends_it():
    (reason,) = danger.skips(danger.Platform("6.18.2"), "bnxt_re0", None).reasons
    assert "CVE-2025-71092" in reason
    assert "6.18.4" in reason
    assert "\n" not in reason


def test_the_hosts_platform_is_known():
    platform = danger.Platform.host()
    assert platform.version is not None
    assert platform.init_netns in {True, False, None}


def test_the_network_namespace_is_compared_with_that_of_process_1_or_not_known(tmp_path):
    for name in ("self/ns/net", "self/ns/pid", "1/ns/net"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert danger.in_init_netns(tmp_path) is None  # the PID namespace is not the host's, and the number is any
    assert danger.in_init_netns(tmp_path / "absent") is None
