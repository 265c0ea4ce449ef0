"""What the controller's own metrics say, and that every family is there before anything has happened."""

from __future__ import annotations

import pytest
from controller_web import FleetWorld
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ibmon.controller.families import CONTROLLER_FAMILIES
from ibmon.exporter.text import Format


@pytest.fixture
def world(tmp_path):
    world = FleetWorld(tmp_path).start()
    yield world
    world.close()


def samples(world, fmt):
    _, headers, body = world.ask("GET", "/metrics", Accept=fmt.value)
    assert headers["content-type"] == fmt.value
    parse = parse_text if fmt is Format.TEXT else parse_openmetrics
    return {family.name: family for family in parse(body.decode())}


@pytest.mark.parametrize("fmt", Format)
def test_every_family_is_there_from_the_first_scrape(world, fmt):
    families = samples(world, fmt)

    for family in CONTROLLER_FAMILIES:
        assert families[family.base].type == family.kind.value, family.name
        if family.labels:
            assert set(families[family.base].samples[0].labels) == set(family.labels), family.name
    assert set(families) - {family.base for family in CONTROLLER_FAMILIES} == {
        "process_cpu_seconds", "process_start_time_seconds", "process_virtual_memory_bytes",
        "process_resident_memory_bytes", "process_open_fds", "process_max_fds",
    }  # fmt: skip


def test_metrics_say_what_the_desk_says(world):
    families = samples(world, Format.OPENMETRICS)
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }

    def of(name):
        return {key[1]: value for key, value in values.items() if key[0] == f"ibmon_controller_{name}"}

    assert of("nodes") == {"fit": 1, "watch": 0, "unfit": 0, "unknown": 1}
    assert of("drains") == {"held": 1, "pending": 0, "withheld": 3, "foreign": 1, "orphaned": 0}
    assert values["ibmon_controller_fabric_event", "leaf1", "3", "port-down"] == 2
    assert values["ibmon_controller_decisions_total", "limit_nodes", "blocked"] == 7
    assert values["ibmon_controller_decisions_total", "stop", "blocked"] == 0
    assert values["ibmon_controller_limit_allowed", "batch"] == 2
    assert values["ibmon_controller_scheduler_age_seconds",] == 12.5
    assert values["ibmon_controller_oldest_drain_timestamp_seconds",] == 1000
    assert set(of("reports_total")) == {
        "accepted", "refused_signature", "refused_replay", "refused_skew", "refused_shape", "refused_name",
    }  # fmt: skip


def test_what_happens_is_counted(world):
    world.server.call(lambda: world.metrics.fabric_event("port-down")).result(20)
    world.server.call(lambda: world.metrics.scheduler_error("forbidden")).result(20)
    text = world.ask("GET", "/metrics")[2].decode()

    assert 'ibmon_controller_fabric_events_total{rule="port-down"} 1.0' in text
    assert 'ibmon_controller_scheduler_errors_total{code="forbidden"} 1.0' in text
    assert 'ibmon_controller_scheduler_errors_total{code="scheduler_unreachable"} 0.0' in text
