"""The daemon on a real kernel without udevd: values, hotplug, links, loss, failing and hanging reads.

One daemon with long intervals shows what the kernel's events alone do, one with short intervals all else.
"""

from __future__ import annotations

import errno
import signal
import time

from checklib import check, eventually, limit, run_checks
from daemon import Daemon, daemon, expected_of_counters, one_pass
from exposition import health, parse, scrape
from rdma import INFINIBAND, hung_readers, lose_packets, mock, read, rxe_pair, sh

GIGABIT = 1e9 / 8  # in bytes per second
BY_EVENT = {"state_interval": "60s", "counter_interval": "60s", "slow_interval": "60s"}
BY_EVENT_LIMIT = limit(3, emulated=6)
QUICK = {"state_interval": "1s", "counter_interval": "1s", "slow_interval": "1s", "read_deadline": "2s"}
# Two intervals and a slow guest. What has to be quicker says so.
SOON = 6


def shows(name: str, value: float | None, **labels: str) -> None:
    """Waits until the series has the value (None: is absent)."""

    def now() -> float | None:
        return scrape().value(name, **labels)

    eventually(lambda: now() == value, within=SOON, what=lambda: f"{name}{labels} is {value} (it is {now()})")


running: list[Daemon] = []
undisturbed: list[float] = []  # seconds of a start while nothing hangs: well below 1 on a real processor


def start() -> None:
    """The daemon with short intervals, which the checks after this one share."""
    if not running:
        running.append(Daemon(**QUICK))


def state_of(device: str) -> float | None:
    return scrape().value("ibmon_port_state", device=device, port="1")


@check
def an_added_renamed_and_deleted_device_appears_within_3_s_although_no_rescan_is_due():
    with daemon(**BY_EVENT):
        eventually(lambda: state_of("rxe0") == 4, within=SOON, what="rxe0 is exported")
        mock("add hot0 1")
        added = eventually(lambda: state_of("hot0") == 4, within=BY_EVENT_LIMIT, what="hot0 is exported")
        sh("rdma dev set hot0 name hot1")
        renamed = eventually(
            lambda: (state_of("hot0"), state_of("hot1")) == (None, 4),
            within=BY_EVENT_LIMIT,
            what="hot1 is exported and hot0 is not",
        )
        mock("del hot1")
        deleted = eventually(lambda: state_of("hot1") is None, within=BY_EVENT_LIMIT, what="hot1 is no longer exported")
        assert state_of("rxe0") == 4
    return f"added {added:.2f} s, renamed {renamed:.2f} s, deleted {deleted:.2f} s"


@check
def a_single_pass_exports_what_the_files_say():
    set_every_counter("mlx5_0")
    metrics = parse(one_pass())
    for device in ("mlx5_0", "rxe0"):
        assert {name: metrics.value(name, device=device, port="1") for name in expected_of_counters(device)} == (
            expected_of_counters(device)
        )


@check
def the_daemon_exports_what_the_files_say():
    start()
    for device in ("mlx5_0", "rxe0"):
        port = INFINIBAND / device / "ports/1"
        shows("ibmon_port_state", int(read(port / "state").split(":")[0]), device=device, port="1")
        shows("ibmon_port_physical_state", int(read(port / "phys_state").split(":")[0]), device=device, port="1")
        gigabits = float(read(port / "rate").split()[0])
        shows("ibmon_port_rate_bytes_per_second", gigabits * GIGABIT, device=device, port="1")
        for name, value in expected_of_counters(device).items():
            shows(name, value, device=device, port="1")
    shows("ibmon_devices_present", len(list(INFINIBAND.iterdir())))
    assert health("/readyz") == 200


@check
def a_counter_that_moves_is_exported():
    mock("mlx5_0 1 port_xmit_data 123456789012", "mlx5_0 1 out_of_sequence 77")
    shows("ibmon_port_xmit_data_bytes_total", 123456789012 * 4, device="mlx5_0", port="1")
    shows("ibmon_port_hw_out_of_sequence_total", 77, device="mlx5_0", port="1")


@check
def a_saturated_counter_is_exported_and_flagged():
    mock("mlx5_0 1 symbol_error 70000")
    shows("ibmon_port_symbol_error_total", 2**16 - 1, device="mlx5_0", port="1")
    shows("ibmon_port_counter_saturated", 1, device="mlx5_0", port="1", counter="symbol_error")


@check
def an_infiniband_link_that_goes_down_and_comes_up_through_init_is_exported():
    for state, physical in ((1, 2), (2, 5), (4, 5)):
        mock(f"mlx5_0 1 state {state}", f"mlx5_0 1 phys_state {physical}")
        shows("ibmon_port_state", state, device="mlx5_0", port="1")
        shows("ibmon_port_physical_state", physical, device="mlx5_0", port="1")


@check
def a_link_at_half_width_is_exported_with_its_rate_and_lanes():
    mock("mlx5_0 1 width 16")
    shows("ibmon_port_rate_bytes_per_second", 200 * GIGABIT, device="mlx5_0", port="1")
    shows("ibmon_port_width_lanes", 2, device="mlx5_0", port="1")
    mock("mlx5_0 1 width 2")
    shows("ibmon_port_rate_bytes_per_second", 400 * GIGABIT, device="mlx5_0", port="1")
    shows("ibmon_port_width_lanes", 4, device="mlx5_0", port="1")


@check
def a_soft_roce_link_that_goes_down_and_comes_up_is_exported():
    sh("ip link set va down")
    shows("ibmon_port_state", 1, device="rxe0", port="1")
    shows("ibmon_port_physical_state", 3, device="rxe0", port="1")
    sh("ip link set va up")
    shows("ibmon_port_state", 4, device="rxe0", port="1")
    rxe_pair("fix")


@check
def lost_packets_move_the_exported_retransmission_counters():
    names = ("completer_retry_err", "duplicate_request", "out_of_seq_request", "rcvd_seq_err")

    def retransmissions() -> float:
        metrics = scrape()
        values = (metrics.value(f"ibmon_port_hw_{name}_total", device="rxe0", port="1") for name in names)
        return sum(value for value in values if value is not None)

    before = retransmissions()
    lose_packets(5, lambda: retransmissions() > before)
    eventually(lambda: retransmissions() > before, within=SOON, what=f"more than {before} retransmissions")


@check
def a_port_whose_query_fails_loses_its_state_and_nothing_else():
    mock(f"mlx5_1 1 errno {errno.EIO}")
    shows("ibmon_port_state", None, device="mlx5_1", port="1")
    metrics = scrape()
    assert metrics.value("ibmon_read_errors_total", device="mlx5_1", errno="EIO")
    assert metrics.value("ibmon_port_symbol_error_total", device="mlx5_1", port="1") == 0
    assert metrics.value("ibmon_port_state", device="mlx5_0", port="1") == 4
    mock("mlx5_1 1 errno 0")
    shows("ibmon_port_state", 4, device="mlx5_1", port="1")


@check
def counters_without_a_pma_are_absent_and_come_back():
    mock(f"mlx5_1 1 pma_errno {errno.EIO}")
    shows("ibmon_port_symbol_error_total", None, device="mlx5_1", port="1")
    assert state_of("mlx5_1") == 4
    mock("mlx5_1 1 pma_errno 0")
    shows("ibmon_port_symbol_error_total", 0, device="mlx5_1", port="1")


@check
def devices_that_come_and_go_under_the_daemon_do_not_stop_it():
    for _ in range(10):
        mock("add churn 2", "del churn")
    shows("ibmon_port_state", None, device="churn", port="1")
    mock("mlx5_0 1 out_of_sequence 78")
    shows("ibmon_port_hw_out_of_sequence_total", 78, device="mlx5_0", port="1")


@check
def a_clean_stop_takes_less_than_2_s():
    begin = time.monotonic()
    code = running[0].stop()
    taken = time.monotonic() - begin
    running.clear()
    begin = time.monotonic()
    start()
    undisturbed.append(time.monotonic() - begin)
    assert code == 0
    assert taken < limit(2, emulated=4), taken
    return f"{taken:.2f} s"


@check
def a_read_that_hangs_leaves_scrapes_and_the_other_ports_alone():
    """From here on the device hangs until the guest ends."""
    mock("mlx5_1 1 delay_ms 150000")
    eventually(hung_readers, within=SOON, what="a reader in D state")
    shows("ibmon_device_stalled", 1, device="mlx5_1")
    slowest = 0.0
    for number in range(20):
        mock(f"mlx5_0 1 port_rcv_packets {1000 + number}")
        begin = time.monotonic()
        metrics = scrape()
        slowest = max(slowest, time.monotonic() - begin)
        assert (age := metrics.value("ibmon_sample_age_seconds", device="mlx5_0")) is not None
        assert age < 4, f"mlx5_0 is {age} s old"
        time.sleep(0.2)
    shows("ibmon_port_rcv_packets_total", 1019, device="mlx5_0", port="1")
    assert scrape().value("ibmon_port_state", device="mlx5_1", port="1") is None
    assert hung_readers(), "the read ended too early to show anything"
    assert slowest < 1, f"a scrape took {slowest:.2f} s"
    return f"slowest scrape {slowest * 1000:.0f} ms"


def successor(number: signal.Signals, hung: set[int]) -> str:
    """Seconds from a signal to the daemon until its successor serves; the read that hangs must stay the only one."""
    begin = time.monotonic()
    old = running.pop()
    old.process.send_signal(number)
    old.process.wait(limit(5, emulated=10))  # it can go, as it is not itself in the read
    running.append(Daemon(**QUICK))
    taken = time.monotonic() - begin
    assert taken < limit(10, emulated=10 + undisturbed[0]), (taken, undisturbed)
    shows("ibmon_port_state", 4, device="mlx5_0", port="1")
    shows("ibmon_device_stalled", 1, device="mlx5_1")
    assert hung
    assert (now := hung_readers()) == hung, f"{hung} hung before the restart and {now} after it"
    return f"{taken:.2f} s"


@check
def a_successor_serves_within_10_s_while_the_read_still_hangs():
    return successor(signal.SIGTERM, hung_readers())


@check
def a_successor_of_a_killed_daemon_serves_within_10_s_while_the_read_still_hangs():
    return successor(signal.SIGKILL, hung_readers())


def set_every_counter(device: str) -> None:
    """Another value in each file of counters/ and hw_counters/, none beyond 4 bits' worth."""
    port = INFINIBAND / device / "ports/1"
    names = [path.name for sub in ("counters", "hw_counters") for path in sorted((port / sub).iterdir())]
    lines = [f"{device} 1 {name} {1 + number % 14}" for number, name in enumerate(names) if name != "lifespan"]
    mock(*lines)


if __name__ == "__main__":
    rxe_pair("up")
    mock("add mlx5_0 1", "add mlx5_1 1")
    try:
        run_checks()
    finally:
        for left in running:
            left.process.kill()
