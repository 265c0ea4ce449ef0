"""Whole outputs: read back by parsers in both formats, and looked over as a linter does."""

from __future__ import annotations

import gzip
import re

import msgspec
import pytest
from exporter_snapshots import snapshot, typical
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from ibmon.exporter.render import Renderer
from ibmon.exporter.selfmetrics import SelfMetrics
from ibmon.exporter.text import Format
from ibmon.model import (
    Finding,
    Intent,
    Severity,
)
from ibmon.snapshot import DrainView

PARSERS = {Format.TEXT: parse_text, Format.OPENMETRICS: parse_openmetrics}


@pytest.mark.parametrize("fmt", list(Format))
@pytest.mark.parametrize("shot", [None, snapshot(), typical()], ids=["nothing", "no-rdma", "typical"])
def test_gzip_gives_the_same_text_as_plain(shot, fmt):
    renderer = Renderer()
    for monotonic in (1000.0, 1001.0):
        plain = renderer.render(shot, fmt, monotonic=monotonic, self_metrics=b"x 1\n")
        packed = renderer.render(shot, fmt, monotonic=monotonic, self_metrics=b"x 1\n", gzip=True)
        assert gzip.decompress(packed) == plain


def whole(fmt, *, node_exporter=True):
    own = SelfMetrics(["webhook"])
    own.tick(0.001)
    own.refresh(1.0)
    full = msgspec.structs.replace(
        typical(),
        findings=(Finding("port-down", "a", 1, "", Severity.CRITICAL, 1.0, "DOWN", None, "DOWN"),),
        rules_available={"port-down": True},
        drain=DrainView(Intent(drain=True, since=1.5e9), action_errors={"timeout": 1}),
    )
    renderer = Renderer(node_exporter=node_exporter)
    return renderer.render(full, fmt, monotonic=1000.0, self_metrics=own.text(fmt)).decode()


def test_both_formats_hold_the_same_samples():
    texts = {fmt: list(parse(whole(fmt))) for fmt, parse in PARSERS.items()}
    both = [
        {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}
        for families in texts.values()
    ]
    stable = [{k: v for k, v in values.items() if not k[0].startswith("process_")} for values in both]
    assert stable[0] == stable[1]
    assert len(stable[0]) > 100


def test_openmetrics_ends_with_its_end_mark():
    assert whole(Format.OPENMETRICS).endswith("\n# EOF\n")
    assert whole(Format.OPENMETRICS).count("# EOF") == 1
    assert "# EOF" not in whole(Format.TEXT)


def problems(text):
    """What `promtool check metrics` would say: its rules on names, help, types and units, and double series."""
    units = {"bits", "minutes", "hours", "days", "weeks", "fahrenheit", "miles", "inches"}
    short = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "m", "h", "d"}
    helps, kinds, series, blocks = {}, {}, set(), []
    for line in text.splitlines():
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            table = helps if word == "HELP" else kinds
            if name in table or not rest:
                yield f"{word} of {name} is empty or there twice"
            table[name] = rest
            continue
        label_free = re.match(r"[a-zA-Z_:][a-zA-Z0-9_:]*", line).group()
        key = line.rpartition(" ")[0]
        if key in series:
            yield f"two series {key}"
        series.add(key)
        family = label_free if label_free in kinds else re.sub(r"_(sum|count)$", "", label_free)
        if not blocks or blocks[-1] != family:
            blocks.append(family)
        if re.search(r'[{,](type|le|quantile)="', key):
            yield f"reserved label in {key}"
    for name in {*helps, *kinds, *blocks}:
        if name not in helps or name not in kinds or blocks.count(name) != 1:
            yield f"{name} lacks HELP or TYPE, or is in {blocks.count(name)} blocks"
        words = name.split("_")
        if (kinds.get(name) == "counter") != name.endswith("_total"):
            yield f"{name} is a {kinds.get(name)}"
        if units & set(words) or short & set(words) or re.search("[a-z][A-Z]|:", name):
            yield f"unit or letters of {name}"
        # Two contract names hold the word "counter"; both exist on occurrence only.
        if re.search(r"_(counter|gauge|histogram|summary)(_|$)", name) and "port_counter_" not in name:
            yield f"type in the name of {name}"
        if re.search(r"_(sum|count|bucket)$", name):
            yield f"reserved suffix of {name}"


@pytest.mark.parametrize("node_exporter", [False, True])
def test_a_linter_has_nothing_to_say(node_exporter):
    assert list(problems(whole(Format.TEXT, node_exporter=node_exporter))) == []


@pytest.mark.parametrize(
    "text",
    [
        "x 1\n",
        "# HELP x_total a\n# TYPE x_total gauge\nx_total 1\n",
        "# HELP x a\n# TYPE x gauge\nx 1\nx 2\n",
        '# HELP x a\n# TYPE x gauge\nx{type="a"} 1\n',
        "# HELP x_bits a\n# TYPE x_bits gauge\nx_bits 1\n",
    ],
)
def test_the_linter_finds_what_is_wrong(text):
    assert list(problems(text))


def test_every_name_is_ours_or_the_processes():
    text = whole(Format.TEXT, node_exporter=False)
    assert {line.split("_")[0] + "_" for line in text.splitlines() if line[0] != "#"} == {"ibmon_", "process_"}
