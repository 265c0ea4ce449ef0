"""Health, fitness, findings, holds and the drain as exposition text."""

from __future__ import annotations

import pytest
from exporter_snapshots import port_view, snapshot
from exporter_text import lines_of, render, samples
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ibmon.exporter.text import Format
from ibmon.model import (
    BlockCode,
    Finding,
    Intent,
    NodeFitness,
    Ownership,
    PortHealth,
    Severity,
)
from ibmon.snapshot import DrainView

PARSERS = {Format.TEXT: parse_text, Format.OPENMETRICS: parse_openmetrics}


def finding(rule="port-down", port=1, counter="", severity=Severity.CRITICAL):
    return Finding(rule, "a", port, counter, severity, 1.0, "DOWN", None, "DOWN 62s>60s")


@pytest.mark.parametrize("health", list(PortHealth))
def test_one_health_holds_and_the_others_are_zero(health):
    found = samples(snapshot(ports=[port_view("a", health=health)]))
    held = {key[-1]: value for key, value in found.items() if key[0] == "ibmon_port_health"}
    assert held == {f"health={h.value}": float(h is health) for h in PortHealth}


@pytest.mark.parametrize("fitness", list(NodeFitness))
def test_one_fitness_holds_and_the_others_are_zero(fitness):
    found = samples(snapshot(fitness=fitness))
    held = {key[-1]: value for key, value in found.items() if key[0] == "ibmon_node_fitness"}
    assert held == {f"fitness={x.value}": float(x is fitness) for x in NodeFitness}


def test_a_rule_that_holds_for_two_counters_of_a_port_is_one_series():
    shot = snapshot(findings=(finding(counter="x"), finding(counter="y"), finding("device-missing", port=0)))
    assert lines_of(render(shot), "ibmon_finding") == [
        'ibmon_finding{rule="port-down",severity="critical",device="a",port="1"} 1',
        'ibmon_finding{rule="device-missing",severity="critical",device="a",port=""} 1',
    ]


def test_holds_and_rules_are_listed_by_rule():
    shot = snapshot(
        ports=[port_view("a", hold={"rate-low": 30.5, "port-down": 12})],
        rules_available={"rate-low": False, "port-down": True},
    )
    text = render(shot)
    assert lines_of(text, "ibmon_port_hold_seconds") == [
        'ibmon_port_hold_seconds{rule="port-down",device="a",port="1"} 12',
        'ibmon_port_hold_seconds{rule="rate-low",device="a",port="1"} 30.5',
    ]
    assert lines_of(text, "ibmon_rule_available") == [
        'ibmon_rule_available{rule="port-down"} 1',
        'ibmon_rule_available{rule="rate-low"} 0',
    ]


@pytest.mark.parametrize(
    ("drain", "wanted", "active", "since"),
    [
        (DrainView(Intent(drain=False)), 0, 0, None),
        (DrainView(Intent(drain=True, since=1.5e9)), 1, 0, 1.5e9),
        (DrainView(Intent(drain=True, since=1.5e9), Ownership("7f", "r", 1.6e9)), 1, 0, 1.6e9),
        (DrainView(Intent(drain=True, since=1.5e9), Ownership("7f", "r", 1.6e9, held=True)), 1, 1, 1.6e9),
        (DrainView(Intent(drain=False), Ownership("7f", "r", 1.6e9, held=True)), 0, 1, 1.6e9),
    ],
)
def test_a_drain_is_active_once_it_was_read_back(drain, wanted, active, since):
    found = samples(snapshot(drain=drain))
    assert (found["ibmon_drain_wanted",], found["ibmon_drain_active",]) == (wanted, active)
    assert found.get(("ibmon_drain_since_timestamp_seconds",)) == since


def test_what_stands_in_the_way_of_a_drain_is_one_code():
    drain = DrainView(
        Intent(drain=True),
        blocked=BlockCode.LIMIT_NODES,
        would=2,
        overridden=True,
        orphaned=True,
        action_errors={"forbidden": 3},
    )
    found = samples(snapshot(drain=drain, actions_enabled=False, config_valid=False))
    codes = {key[1]: value for key, value in found.items() if key[0] == "ibmon_drain_blocked"}
    assert codes == {f"code={code.value}": float(code is BlockCode.LIMIT_NODES) for code in BlockCode}
    assert found["ibmon_drain_would_total",] == 2
    assert found["ibmon_drain_overridden",] == found["ibmon_drain_orphaned",] == 1
    assert found["ibmon_action_errors_total", "code=forbidden"] == 3
    errors = {key[1] for key in found if key[0] == "ibmon_action_errors_total"}
    assert errors == {f"code={code.value}" for code in BlockCode}, "a counter that begins at 1 has no increase"
    assert found["ibmon_actions_enabled",] == found["ibmon_config_valid",] == 0
