"""Helpers of the exporter's tests: rendered text and what the client library reads in it."""

from __future__ import annotations

import re

from exporter_snapshots import AT
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ibmon.exporter.render import Renderer
from ibmon.exporter.text import Format


def render(shot, fmt=Format.TEXT, **options):
    return Renderer().render(shot, fmt, monotonic=AT.monotonic, **options).decode()


def samples(shot, **options):
    """Samples by name and labels (as text), read back with the client library's parser."""
    found = {}
    for family in parse_text(render(shot, **options)):
        for sample in family.samples:
            key = (sample.name, *(f"{k}={v}" for k, v in sample.labels.items()))
            assert key not in found, f"two series {key}"
            found[key] = sample.value
    return found


def lines_of(text, name):
    return [line for line in text.splitlines() if re.match(rf"{name}[ {{]", line)]
