"""What each alert is tried with by promtool: series on which it fires and what it then says, and series on which not.

Owns the table, and the files for `promtool test rules` made of it. Must not: know how an alert is computed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ibmon.config import Config
from ibmon.health.rules import RULE_BY_ID
from ibmon.promrules import findings, fleet
from ibmon.promrules.table import RUNBOOK_URL, Alert

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

Series = dict[str, str]
"""Values by series, one a minute, in promtool's notation."""

MINUTES = 1500
FINDINGS = {alert.slug: alert for alert in findings.group(Config()).alerts}
FLEET = {alert.slug: alert for alert in fleet.group().alerts}

_AT = 'job="ibmon",instance="gpu-17:19315"'
_PORT = f'{_AT},device="mlx5_3",port="1"'
_DEVICE = f'{_AT},device="mlx5_3"'
_INFO: Series = {
    f'ibmon_node_info{{{_AT},node="gpu-17",boot_id="b"}}': f"1x{MINUTES}",
    f'ibmon_port_info{{{_PORT},role="compute",rail="3"}}': f"1x{MINUTES}",
}


class Trial(NamedTuple):
    """One alert, tried: at `at` it fires once on `firing`, with these labels and this summary, and not on `quiet`."""

    firing: Series
    quiet: Series
    at: str
    labels: Mapping[str, str]
    summary: str


def _rising(counter: str) -> Series:
    return {f"ibmon_port_{counter}_total{{{_PORT}}}": "0+20x10"}


_READ: Mapping[str, tuple[Series, str]] = {
    "port-down": ({f"ibmon_port_state{{{_PORT}}}": "1x10"}, "DOWN, limit ACTIVE"),
    "port-init": ({f"ibmon_port_state{{{_PORT}}}": "2x10"}, "INIT, limit ACTIVE"),
    "rate-low": (
        {
            f"ibmon_port_rate_bytes_per_second{{{_PORT}}}": "25e9x10",
            f"ibmon_port_expected_rate_bytes_per_second{{{_PORT}}}": "50e9x10",
        },
        "50 % of its rate, limit 100 %",
    ),
    "device-missing": (
        {f"ibmon_devices_expected{{{_AT}}}": "12x10", f"ibmon_devices_present{{{_AT}}}": "11x10"},
        "1 missing, limit none",
    ),
    "all-devices-missing": ({f"ibmon_devices_present{{{_AT}}}": "0x10"}, "0 of all are there, limit all"),
    "link-flap": (
        {f"ibmon_flap_episodes_total{{{_PORT}}}": "0x3 1 2 3 3 3 3 3"},
        "3 in 24h, limit 3 episodes",
    ),
    "flap-storm": (
        {f"ibmon_port_state{{{_PORT}}}": "4 1 4 1 4 1 4 1 4 1 4"},
        "10 changes in 15min, limit 10 times",
    ),
    "long-outage": ({}, "outages of 30 s or more in 24h, limit 3 times"),
    "symbol-errors": (_rising("symbol_error"), "200 in 125min, limit BER 1e-14"),
    "gross-errors": (_rising("symbol_error"), "200 in 10min, limit BER 1e-12"),
    "link-recovery": (_rising("link_error_recovery"), "200 in 60min, limit 3/h"),
    "receive-errors": (_rising("rcv_errors"), "200 in 60min, limit 100/h"),
    "link-integrity": (_rising("local_link_integrity_errors"), "200 in 60min, limit 5/h"),
    "roce-crc": (_rising("phy_rx_crc_errors_phy"), "200 in 60min, limit 100/h"),
    "pause-storm": (_rising("phy_tx_pause_storm_error_events"), "200 in 60min, limit 1/h"),
    "gid-missing": ({}, "GID 0 is all zero, limit an address"),
    "pcie-degraded": (
        {
            f"ibmon_pcie_link_speed_transfers_per_second{{{_DEVICE}}}": "32e9x10",
            f"ibmon_pcie_link_speed_transfers_per_second_max{{{_DEVICE}}}": "32e9x10",
            f"ibmon_pcie_link_width_lanes{{{_DEVICE}}}": "8x10",
            f"ibmon_pcie_link_width_lanes_max{{{_DEVICE}}}": "16x10",
        },
        "50 % of the link, limit 100 %",
    ),
    "driver-fault": ({}, "called broken by its driver or the kernel log, limit a device that answers"),
    "module-temperature": (
        {f'ibmon_module_temperature_celsius{{{_DEVICE},sensor="module0"}}': "83x10"},
        "83 degrees Celsius, limit 80 celsius",
    ),
    "chardev-missing": ({}, "no uverbs device, limit one"),
    "repeat-offender": ({}, "drained again and again in 720h, limit 3 times"),
    "device-stalled": ({f"ibmon_sample_age_seconds{{{_DEVICE}}}": "130x10"}, "silent for 2m 10s, limit an answer"),
    "monitor-blind": ({}, "state cannot be read, limit an answer"),
}
"""What is read beside each finding, and how its alert ends."""


def of_findings() -> Iterator[tuple[Alert, Trial]]:
    """A trial of each alert of a finding, critical; it is quiet where the same is only information."""
    for slug, (series, words) in _READ.items():
        scope = RULE_BY_ID[slug].scope
        device = "" if scope == "node" else "mlx5_3"
        port = "1" if scope == "port" else ""
        found = f'ibmon_finding{{{_AT},rule="{slug}",severity="%s",device="{device}",port="{port}"}}'
        subject = {"port": " mlx5_3/1", "device": " mlx5_3", "node": ""}[scope]
        labels = {"device": device, "port": port, "rail": "3" if port else ""}
        yield (
            FINDINGS[slug],
            Trial(
                firing={**_INFO, **series, found % "critical": "1x10"},
                quiet={**_INFO, **series, found % "info": "1x10"},
                at="10m",
                labels={
                    **{name: value for name, value in labels.items() if value},
                    "job": "ibmon",
                    "instance": "gpu-17:19315",
                    "node": "gpu-17",
                    "rule": slug,
                    "severity": "critical",
                },
                summary=f"gpu-17: {slug}{subject} {words}",
            ),
        )


def _fleet(fitness: str, bad: int) -> Series:
    """Forty nodes of which so many have this verdict."""
    nodes: Series = {}
    for number in range(40):
        at = f'job="ibmon",instance="gpu-{number:02}:19315"'
        nodes[f"ibmon_up{{{at}}}"] = "1x30"
        nodes[f'ibmon_node_fitness{{{at},fitness="{fitness}"}}'] = f"{int(number < bad)}x30"
    return nodes


def _rail(down: int) -> Series:
    """Twelve ports of rail 3, so many of which have gone down half an hour ago."""
    ports: Series = {}
    for number in range(12):
        at = f'job="ibmon",instance="gpu-{number:02}:19315",device="mlx5_3",port="1"'
        ports[f'ibmon_port_info{{{at},role="compute",rail="3"}}'] = "1x60"
        ports[f"ibmon_port_state{{{at}}}"] = "4x10 1x50" if number < down else "4x60"
    return ports


def _one(metric: str, firing: str, quiet: str, labels: str = "") -> tuple[Series, Series]:
    series = f"{metric}{{{_AT}{',' if labels else ''}{labels}}}"
    return {**_INFO, series: firing}, {**_INFO, series: quiet}


def _controller(metric: str, firing: str, quiet: str, labels: str = "") -> tuple[Series, Series]:
    at = f'job="ibmon-controller",instance="c:19316"{"," if labels else ""}{labels}'
    leads = {'ibmon_controller_leader{job="ibmon-controller",instance="c:19316"}': "1x60"}
    return {**leads, f"{metric}{{{at}}}": firing}, {**leads, f"{metric}{{{at}}}": quiet}


_NODE = {"job": "ibmon", "instance": "gpu-17:19315", "node": "gpu-17"}
_JOB = {"job": "ibmon-controller"}
_LEADER = {**_JOB, "instance": "c:19316"}
_OTHER = 'ibmon_build_info{job="ibmon",instance="gpu-18:19315",version="1"}'
_UP = 'up{job="ibmon",instance="gpu-%d:19315"}'
_DELIVERED = f'{_AT},target="am:a:9093"'

_FLEET: Mapping[str, Trial] = {
    "daemon-down": Trial(
        {_OTHER: "1x20", _UP % 17: "1x5 0x15", _UP % 18: "1x20"}, {_OTHER: "1x20", _UP % 17: "1x20", _UP % 18: "1x20"},
        "15m", {"job": "ibmon", "instance": "gpu-17:19315"},
        "gpu-17:19315: ibmon has not answered a scrape for 5 min, limit one missed scrape",
    ),
    "daemon-gone": Trial(
        {f'ibmon_node_info{{{_AT},node="gpu-17",boot_id="b"}}': "1x10 stale", _UP % 17: "1x10 stale"},
        {f'ibmon_node_info{{{_AT},node="gpu-17",boot_id="b"}}': "1x10 stale", _UP % 17: "1x10 0x60"},
        "50m", {"node": "gpu-17"},
        "gpu-17: no target of Prometheus has told of this node for 25 min, limit 10 min",
    ),
    "nothing-scraped": Trial(
        {f"ibmon_up{{{_AT}}}": "1x5 stale"}, {f"ibmon_up{{{_AT}}}": "1x30"}, "25m", {},
        "no node of the fleet tells of its ports, limit one",
    ),
    "scrape-stale": Trial(
        *_one("ibmon_sample_age_seconds", "90x20", "5x20", 'device="mlx5_3"'), "10m", {**_NODE, "device": "mlx5_3"},
        "gpu-17: mlx5_3 was read 1m 30s ago, limit 60 s",
    ),
    "loop-stalled": Trial(
        *_one("ibmon_ticks_total", "700x30", "0+12x30"), "20m", _NODE,
        "gpu-17: the daemon's loop made 0 turns in 5 min, limit 1",
    ),
    "fleet-unfit": Trial(
        _fleet("unfit", 4), _fleet("unfit", 2), "10m", {}, "10% of the fleet is unfit, limit 5 %",
    ),
    "fleet-unknown": Trial(
        _fleet("unknown", 4), _fleet("unknown", 2), "20m", {},
        "of 10% of the fleet nobody knows whether it is fit, limit 5 %",
    ),
    "rail-lost": Trial(
        _rail(4), _rail(2), "30m", {"rail": "3"}, "rail 3: 4 nodes have lost their port within the hour, limit 3",
    ),
    "drain-old": Trial(
        {**_INFO, f"ibmon_drain_since_timestamp_seconds{{{_AT}}}": f"0x{MINUTES}",
         f"ibmon_drain_active{{{_AT}}}": f"1x{MINUTES}"},
        {**_INFO, f"ibmon_drain_since_timestamp_seconds{{{_AT}}}": f"0x{MINUTES}",
         f"ibmon_drain_active{{{_AT}}}": f"0x{MINUTES}"},
        "1460m", _NODE, "gpu-17: drained by ibmon for 1d 0h 20m 0s, limit 24 h",
    ),
    "drain-blocked": Trial(
        *_one("ibmon_drain_blocked", "1x60", "0x60", 'code="limit_nodes"'), "40m", {**_NODE, "code": "limit_nodes"},
        "gpu-17: a drain that is due is blocked by limit_nodes for 30 min, limit 30 min",
    ),
    "drain-orphaned": Trial(
        *_one("ibmon_drain_orphaned", "1x20", "0x20"), "10m", _NODE,
        "gpu-17: 1 drain in ibmon's words without a record of it, limit 0",
    ),
    "drain-overridden": Trial(
        *_one("ibmon_drain_overridden", "1x90", "1x50 0x40"), "70m", _NODE,
        "gpu-17: resumed by hand while still bad, for 1 h and more, limit 1 h",
    ),
    "actions-disabled": Trial(
        *_one("ibmon_actions_enabled", "0x20", "1x20"), "10m", _NODE,
        "gpu-17: this daemon only exports (actions 0), limit 1",
    ),
    "config-invalid": Trial(
        *_one("ibmon_config_valid", "0x20", "1x20"), "10m", _NODE,
        "gpu-17: the configuration file is invalid (valid 0), limit 1",
    ),
    "state-unsaved": Trial(
        *_one("ibmon_state_save_errors_total", "0+2x30", "3x30"), "20m", _NODE,
        "gpu-17: 20 saves of the state failed in 10 min, limit 0",
    ),
    "deliveries-failing": Trial(
        {f"ibmon_delivery_attempts_total{{{_DELIVERED}}}": "0+4x40",
         f"ibmon_delivery_failures_total{{{_DELIVERED}}}": "0+4x40"},
        {f"ibmon_delivery_attempts_total{{{_DELIVERED}}}": "0+4x40",
         f"ibmon_delivery_failures_total{{{_DELIVERED}}}": "0+2x40"},
        "30m", {"job": "ibmon", "instance": "gpu-17:19315", "target": "am:a:9093"},
        "gpu-17:19315: 100% of what was sent to am:a:9093 failed, limit 99 %",
    ),
    "controller-leader": Trial(
        {'ibmon_controller_leader{job="ibmon-controller",instance="c:19316"}': "0x20",
         'ibmon_controller_leader{job="ibmon-controller",instance="d:19316"}': "0x20"},
        {'ibmon_controller_leader{job="ibmon-controller",instance="c:19316"}': "1x20",
         'ibmon_controller_leader{job="ibmon-controller",instance="d:19316"}': "0x20"},
        "10m", _JOB, "0 controllers lead, limit 1",
    ),
    "controller-stop": Trial(
        *_controller("ibmon_controller_stop", "1x90", "1x50 0x40"), "70m", _JOB,
        "all writes to the scheduler have been stopped by hand for 1 h and more, limit 1 h",
    ),
    "controller-quorum": Trial(
        *_controller("ibmon_controller_quorum_ratio", "0.75x30", "0.97x30"), "20m", _LEADER,
        "75% of the nodes report to the controller, limit 90 %",
    ),
    "controller-scheduler": Trial(
        *_controller("ibmon_controller_scheduler_age_seconds", "600x20", "20x20"), "10m", _LEADER,
        "the controller last read the scheduler 10m 0s ago, limit 5 min",
    ),
    "controller-refused": Trial(
        *_controller("ibmon_controller_reports_total", "0+2x60", "7x60", 'outcome="refused_skew"'), "40m",
        {**_JOB, "outcome": "refused_skew"}, "30 reports in 15 min were refused (refused_skew), limit 0",
    ),
    "controller-orphans": Trial(
        *_controller("ibmon_controller_drains", "0x5 2x20", "0x25", 'state="orphaned"'), "15m",
        {**_LEADER, "state": "orphaned"},
        "2 drains in ibmon's words that no node and no ledger has a record of, limit 0",
    ),
    "fabric-event": Trial(
        *_controller("ibmon_controller_fabric_event", "3x20", "0x20", 'group="leaf-3",rail="3",rule="port-down"'),
        "10m", {"group": "leaf-3", "rail": "3", "rule": "port-down"},
        "port-down on rail 3 of leaf-3: 3 nodes at once, limit 2",
    ),
}  # fmt: skip


def of_fleet() -> Iterator[tuple[Alert, Trial]]:
    """A trial of each alert about the fleet, and of what nodes say of ibmon itself."""
    for slug, trial in _FLEET.items():
        alert = (FLEET | FINDINGS)[slug]
        yield alert, trial._replace(labels={**trial.labels, **alert.labels})


def document(rules: Sequence[Path], alert: Alert, trial: Trial) -> str:
    """The file for `promtool test rules` of one alert: JSON, which is YAML."""
    expected = {
        "exp_labels": dict(trial.labels),
        "exp_annotations": {**alert.annotations(RUNBOOK_URL), "summary": trial.summary},
    }
    return json.dumps(
        {
            "rule_files": [str(file) for file in rules],
            "evaluation_interval": "1m",
            "tests": [_test(trial.firing, alert, trial, [expected]), _test(trial.quiet, alert, trial, [])],
        }
    )


def _test(series: Series, alert: Alert, trial: Trial, expected: list[Any]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": trial.at, "alertname": alert.name, "exp_alerts": expected}],
    }
