"""What is kept from one scrape to the next, and what depends on the moment."""

from __future__ import annotations

import platform

import msgspec
from exporter_snapshots import device_view, next_of, port_values, snapshot, typical
from exporter_text import lines_of, render, samples
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ibmon import __version__
from ibmon.exporter.render import Renderer
from ibmon.exporter.text import Format
from ibmon.model import Level, NodeFitness

PARSERS = {Format.TEXT: parse_text, Format.OPENMETRICS: parse_openmetrics}


def test_ages_grow_between_two_snapshots():
    renderer, shot = Renderer(), snapshot([device_view("a", port_values())])
    texts = [renderer.render(shot, Format.TEXT, monotonic=t).decode() for t in (1000.0, 1030.25, 990.0)]
    assert [lines_of(text, "ibmon_sample_age_seconds") for text in texts] == [
        ['ibmon_sample_age_seconds{device="a"} 1.500'],
        ['ibmon_sample_age_seconds{device="a"} 31.750'],
        ['ibmon_sample_age_seconds{device="a"} 0.000'],
    ]


def test_a_device_that_was_never_read_has_no_age():
    text = render(snapshot([device_view("a", {(1, Level.ATTR, "state"): None}, sampled=None)]))
    assert "ibmon_sample_age_seconds" not in text
    assert 'ibmon_device_stalled{device="a"} 0' in text


def test_a_snapshot_is_walked_once_however_often_it_is_scraped(monkeypatch):
    renderer, shot, walks = Renderer(), typical(), []
    walk = renderer._samples.lines
    monkeypatch.setattr(renderer._samples, "lines", lambda *a: walks.append(1) or walk(*a))
    for packed in (False, True, False, True):
        renderer.render(shot, Format.TEXT, monotonic=1000.0, gzip=packed)
    assert len(walks) == 1
    renderer.render(msgspec.structs.replace(shot, fitness=NodeFitness.UNFIT), Format.TEXT, monotonic=1000.0)
    assert len(walks) == 2


def test_the_plan_is_made_anew_only_when_layouts_change(monkeypatch):
    renderer, shot, plans = Renderer(), typical(), []
    plan = renderer._planner.plan
    monkeypatch.setattr(renderer._planner, "plan", lambda devices: plans.append(len(devices)) or plan(devices))
    for later in (shot, next_of(shot), msgspec.structs.replace(shot, sequence=5, devices=shot.devices[1:])):
        renderer.render(later, Format.TEXT, monotonic=1000.0)
    assert plans == [2, 1]


def test_texts_of_devices_that_left_are_forgotten():
    renderer = Renderer()
    renderer.render(typical(), Format.TEXT, monotonic=1000.0)
    renderer.render(snapshot(), Format.TEXT, monotonic=1000.0)
    assert not renderer._samples._devices._known
    assert not renderer._samples._ports._known


def test_without_a_snapshot_only_the_build_is_told():
    assert samples(None) == {("ibmon_build_info", f"version={__version__}", f"python={platform.python_version()}"): 1.0}
