"""What ibmon concludes on a real kernel, and when: links, lost packets, devices that go and come back.

Holds are seconds here. That nothing comes before its hold is strict; how long after is generous, as an emulated guest
is slow.
"""

from __future__ import annotations

import time

from checklib import check, eventually, run_checks
from daemon import Daemon
from exposition import scrape
from rdma import lose_packets, mock, rxe_pair

READS = {"state_interval": "1s", "counter_interval": "1s", "slow_interval": "1s"}
ALERT_HOLD, HOLD, RECOVER = 3, 6, 5  # seconds
READ_LATE = 1.1  # a condition may have begun this much before the read that saw it
LATE = 12  # an emulated processor
JUDGING = f"""
[inventory]
mode = "declared"
[[port]]
match = "mlx5_[01]/1"
rate = 400
[[port]]
match = "rxe[01]/1"
role = "storage"
[action]
boot_grace = "0s"
stop_file = "/run/ibmon-e2e/STOP"
[rules.port-down]
alert_hold = "{ALERT_HOLD}s"
hold = "{HOLD}s"
recover = "{RECOVER}s"
[rules.device-missing]
alert_hold = "{ALERT_HOLD}s"
hold = "{HOLD}s"
recover = "{RECOVER}s"
[rules.port-init]
alert_hold = "{ALERT_HOLD}s"
hold = "{HOLD}s"
recover = "1s"
[rules.chardev-missing]
enabled = false  # the test driver has no verbs, so no character device
[rules.link-flap]
enabled = false
[rules.flap-storm]
enabled = false
"""


def health(port: str) -> str:
    device, number = port.split("/")
    words = ("ok", "warning", "degraded", "failed", "recovering", "unknown", "ignored")
    metrics = scrape()
    shown = [w for w in words if metrics.value("ibmon_port_health", device=device, port=number, health=w) == 1]
    return shown[0] if len(shown) == 1 else f"{shown}"


def fitness() -> str:
    metrics = scrape()
    words = ("fit", "watch", "unfit", "unknown")
    return next((w for w in words if metrics.value("ibmon_node_fitness", fitness=w) == 1), "not said yet")


def finding(rule: str, severity: str) -> bool:
    return any(
        name == "ibmon_finding" and value == 1 and (labels["rule"], labels["severity"]) == (rule, severity)
        for name, labels, value in scrape().samples
    )


def follow(rule: str, port: str) -> str:
    """From the fault, which just happened, to an unfit node: each step after its hold and not before."""
    begin = time.monotonic()
    eventually(lambda: health(port) == "failed", within=LATE, what="the port shows it at once")
    assert not finding(rule, "warning"), "no alert before its hold"
    eventually(lambda: finding(rule, "warning"), within=ALERT_HOLD + LATE, what="the alert")
    alert = time.monotonic() - begin
    assert fitness() == "watch"
    eventually(lambda: fitness() == "unfit", within=HOLD + LATE, what="the node is unfit")
    unfit = time.monotonic() - begin
    assert alert >= ALERT_HOLD - READ_LATE, alert
    assert unfit >= HOLD - READ_LATE, unfit
    assert finding(rule, "critical")
    return f"alert after {alert:.1f} s, unfit after {unfit:.1f} s"


def recovers(port: str) -> str:
    """From the return, which just happened, to a fit node: not before it was well for the recover time."""
    begin = time.monotonic()
    eventually(lambda: health(port) == "recovering", within=LATE, what="it recovers")
    assert fitness() == "unfit", "what recovers is not relied on"
    eventually(lambda: fitness() == "fit", within=RECOVER + LATE, what="the node is fit")
    fit = time.monotonic() - begin
    assert fit >= RECOVER - READ_LATE, fit
    return f"fit after {fit:.1f} s"


@check
def a_node_whose_ports_are_all_up_is_fit():
    eventually(lambda: fitness() == "fit", within=LATE, what="the node is fit")
    assert health("mlx5_0/1") == health("rxe0/1") == "ok"


@check
def a_link_that_goes_down_makes_the_node_unfit_after_its_hold():
    mock("mlx5_0 1 state 1", "mlx5_0 1 phys_state 2")
    return follow("port-down", "mlx5_0/1")


@check
def a_link_that_comes_up_makes_it_fit_after_the_recover_time():
    mock("mlx5_0 1 phys_state 5", "mlx5_0 1 state 4")
    return recovers("mlx5_0/1")


@check
def a_port_without_a_subnet_manager_alerts_and_leaves_the_node_in_service():
    mock("mlx5_0 1 state 2")
    eventually(lambda: finding("port-init", "critical"), within=HOLD + LATE, what="the finding")
    assert fitness() == "watch"
    mock("mlx5_0 1 state 4")
    eventually(lambda: fitness() == "fit", within=LATE, what="the node is fit")


@check
def lost_packets_are_counted_and_accuse_nobody():
    def retransmissions() -> float:
        return scrape().value("ibmon_port_hw_completer_retry_err_total", device="rxe0", port="1") or 0

    before = retransmissions()
    lose_packets(5, lambda: retransmissions() > before)
    eventually(lambda: retransmissions() > before, within=LATE, what="retransmissions are exported")
    assert fitness() == "fit"


@check
def a_device_that_is_gone_makes_the_node_unfit_after_its_hold():
    mock("del mlx5_1")
    return follow("device-missing", "mlx5_1/1")


@check
def a_device_that_is_back_makes_it_fit_after_the_recover_time():
    mock("add mlx5_1 1")
    return recovers("mlx5_1/1")


if __name__ == "__main__":
    rxe_pair("up")
    mock("add mlx5_0 1", "add mlx5_1 1")
    running = Daemon(JUDGING, **READS)
    try:
        run_checks()
    finally:
        running.process.kill()
