"""Syntax of the two exposition formats, and the choice between them."""

from __future__ import annotations

import pytest

from ibmon.exporter.text import Family, Format, Kind, accepts_gzip, escape_label, negotiate, number

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, Format.TEXT),
        ("", Format.TEXT),
        ("*/*", Format.TEXT),
        ("text/html", Format.TEXT),
        (PROMETHEUS, Format.OPENMETRICS),
        ("application/openmetrics-text", Format.OPENMETRICS),
        ("application/openmetrics-text; version=1.0.0", Format.OPENMETRICS),
        ("Application/OpenMetrics-Text; Version=1.0.0", Format.OPENMETRICS),
        ("application/openmetrics-text; version=0.0.1", Format.TEXT),
        ("application/openmetrics-text; version=2.0.0", Format.TEXT),
        ("text/plain;q=0.9, application/openmetrics-text;q=0.5", Format.TEXT),
        ("text/plain;q=0.5, application/openmetrics-text;q=0.9", Format.OPENMETRICS),
        ("application/openmetrics-text;q=0", Format.TEXT),
        ("application/openmetrics-text;q=high", Format.TEXT),
        (";;,=,q=", Format.TEXT),
    ],
)
def test_openmetrics_is_served_only_where_it_ranks_highest(accept, wanted):
    assert negotiate(accept) is wanted


@pytest.mark.parametrize(
    ("header", "may"),
    [
        (None, False),
        ("", False),
        ("identity", False),
        ("br, deflate", False),
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.0", False),
        ("x-gzip", True),
    ],
)
def test_gzip_is_used_only_where_it_is_asked_for(header, may):
    assert accepts_gzip(header) is may


@pytest.mark.parametrize(
    ("raw", "written"),
    [
        ("mlx5_0", "mlx5_0"),
        ('say "hi"', r"say \"hi\""),
        ("back\\slash", r"back\\slash"),
        ("two\nlines", r"two\nlines"),
        ("M\u00fcnchen", "M\u00fcnchen"),
        ("no utf-8 \udcff", "no utf-8 \ufffd"),
    ],
)
def test_label_values_are_escaped(raw, written):
    assert escape_label(raw) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"),
        (True, "1"),
        (2**64, "18446744073709551616"),
        (0.01, "0.01"),
        (1_700_000_000.25, "1700000000.25"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_keep_their_exact_value(value, written):
    assert number(value) == written


def test_openmetrics_calls_a_family_by_its_name_without_the_suffix():
    counter = Family("x_errors_total", Kind.COUNTER, 'a "b" \\ c', ("device",))
    assert counter.header(Format.TEXT) == '# HELP x_errors_total a "b" \\\\ c\n# TYPE x_errors_total counter\n'
    assert counter.header(Format.OPENMETRICS) == '# HELP x_errors a \\"b\\" \\\\ c\n# TYPE x_errors counter\n'


def test_info_is_a_gauge_in_the_text_format():
    info = Family("x_info", Kind.INFO, "what it is")
    assert info.header(Format.TEXT).endswith("# TYPE x_info gauge\n")
    assert info.header(Format.OPENMETRICS).endswith("# TYPE x info\n")


def test_a_series_has_its_labels_in_the_familys_order():
    family = Family("x", Kind.GAUGE, "", ("device", "port"))
    assert family.series('a"b', "1") == 'x{device="a\\"b",port="1"} '
    assert Family("y", Kind.GAUGE, "").series() == "y "
