"""What ibmon says of itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ibmon.exporter.families import SELF_FAMILIES
from ibmon.exporter.selfmetrics import REFRESH_INTERVAL, UNASKED_INTERVAL, SelfMetrics
from ibmon.exporter.text import Format


def values(own, fmt=Format.TEXT):
    families = parse_text(own.text(fmt).decode()) if fmt is Format.TEXT else parse_openmetrics(own.text(fmt).decode())
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def refreshed(own, at=1000.0):
    own.refresh(at)
    return values(own)


def test_every_target_has_its_series_before_anything_was_sent():
    found = refreshed(SelfMetrics(["alertmanager", "webhook"]))
    for target in ("alertmanager", "webhook"):
        assert found["ibmon_outbox_pending", target] == 0
        assert found["ibmon_delivery_attempts_total", target] == 0
        assert found["ibmon_delivery_failures_total", target] == 0


def test_counts_appear_with_the_next_refresh():
    own = SelfMetrics(["webhook"])
    own.tick(0.5)
    own.tick(0.25)
    own.request(200)
    own.request(418)
    own.save_failed()
    own.delivery("webhook", arrived=True)
    own.delivery("webhook", arrived=False)
    own.outbox("webhook", 7)
    found = refreshed(own)
    assert found["ibmon_ticks_total",] == 2
    assert found["ibmon_tick_duration_seconds_sum",] == 0.75
    assert found["ibmon_tick_duration_seconds_count",] == 2
    assert found["ibmon_http_requests_total", "200"] == 1
    assert found["ibmon_http_requests_total", "404"] == 0
    assert found["ibmon_http_requests_total", "418"] == 1
    assert found["ibmon_state_save_errors_total",] == 1
    assert found["ibmon_delivery_attempts_total", "webhook"] == 2
    assert found["ibmon_delivery_failures_total", "webhook"] == 1
    assert found["ibmon_outbox_pending", "webhook"] == 7


def test_text_is_made_at_most_every_five_seconds():
    own = SelfMetrics()
    for at, ticks in ((0.0, 0), (REFRESH_INTERVAL - 0.1, 0), (REFRESH_INTERVAL, 2), (REFRESH_INTERVAL + 1, 2)):
        assert refreshed(own, at)["ibmon_ticks_total",] == ticks
        own.tick(0.1)


@pytest.mark.parametrize("fmt", Format)
def test_text_that_nobody_asks_for_is_made_once_a_minute(fmt):
    own = SelfMetrics()
    own.refresh(0.0)
    first = own._texts[fmt]
    own.tick(0.1)
    own.refresh(UNASKED_INTERVAL - 1)
    assert own._texts[fmt] is first
    own.refresh(UNASKED_INTERVAL)
    assert b"ibmon_ticks_total 1.0" in own._texts[fmt]


def test_asking_for_one_format_does_not_make_the_other():
    own = SelfMetrics()
    own.refresh(0.0)
    other = own._texts[Format.OPENMETRICS]
    own.text(Format.TEXT)
    own.tick(0.1)
    own.refresh(REFRESH_INTERVAL)
    assert own._texts[Format.OPENMETRICS] is other
    assert values(own)["ibmon_ticks_total",] == 1


def test_open_descriptors_are_counted_with_and_without_the_kernels_help(monkeypatch):
    listed = float(len(list(Path("/proc/self/fd").iterdir())))
    assert refreshed(SelfMetrics())["process_open_fds",] == pytest.approx(listed, abs=2)
    real = os.stat
    monkeypatch.setattr(
        os, "stat", lambda path, **more: os.stat_result([0] * 10) if path == "/proc/self/fd" else real(path, **more)
    )
    assert refreshed(SelfMetrics())["process_open_fds",] == pytest.approx(listed, abs=2)


def test_the_process_metrics_are_those_of_the_client_library():
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    theirs = {s.name: s.value for family in registry.collect() for s in family.samples}
    ours = {name: value for (name, *_), value in refreshed(SelfMetrics()).items() if name.startswith("process_")}
    assert ours.keys() == theirs.keys()
    assert ours == pytest.approx(theirs, rel=0.2)


def test_nothing_is_said_before_the_first_refresh():
    own = SelfMetrics()
    own.tick(0.1)
    assert own.text(Format.TEXT) == own.text(Format.OPENMETRICS) == b""


def test_the_process_is_told_of_and_start_times_of_counters_are_not():
    found = refreshed(SelfMetrics(["webhook"]))
    assert found["process_resident_memory_bytes",] > 1_000_000
    assert ("process_cpu_seconds_total",) in found
    assert not [key for key in found if key[0].endswith("_created")]


def test_both_formats_tell_the_same_names_and_the_end_mark_is_left_to_the_caller():
    own = SelfMetrics(["webhook"])
    own.refresh(1000.0)
    assert b"# EOF" not in own.text(Format.OPENMETRICS)
    own_text, own_open = (own.text(fmt).decode() for fmt in Format)
    assert {s.name for f in parse_text(own_text) for s in f.samples} == {
        s.name for f in parse_openmetrics(own_open + "# EOF\n") for s in f.samples
    }


def test_two_of_them_count_apart():
    one, other = SelfMetrics(), SelfMetrics()
    one.tick(0.1)
    assert refreshed(one)["ibmon_ticks_total",] == 1
    assert refreshed(other)["ibmon_ticks_total",] == 0


def test_the_table_of_families_is_what_is_served():
    own = SelfMetrics(["webhook"])
    own.refresh(1000.0)
    text = own.text(Format.TEXT).decode()
    for family in SELF_FAMILIES:
        assert f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind.value}\n" in text
