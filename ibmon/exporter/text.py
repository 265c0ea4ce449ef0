"""The two exposition formats: choosing one, and the text of headers, labels and numbers in it.

Owns the syntax. It must not know any metric.
Sources: the text format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats) and OpenMetrics 1.0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import NamedTuple


class Format(Enum):
    """An exposition format; the value is its Content-Type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

    __hash__ = object.__hash__  # it is asked for with each family, and that of Enum is not written in C


class Kind(str, Enum):
    """The type of a family. The text format knows no `info`: there it is a gauge that is always 1."""

    COUNTER = "counter"
    GAUGE = "gauge"
    INFO = "info"
    SUMMARY = "summary"
    HISTOGRAM = "histogram"


OPENMETRICS_END = b"# EOF\n"

_SUFFIX = {Kind.COUNTER: "_total", Kind.INFO: "_info"}
_LABEL_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_HELP_ESCAPES = {
    Format.TEXT: str.maketrans({"\\": "\\\\", "\n": "\\n"}),
    Format.OPENMETRICS: _LABEL_ESCAPES,
}


class Family(NamedTuple):
    """A metric: its name as the samples carry it, its type, its help and its label names."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def base(self) -> str:
        """The name by which OpenMetrics calls the family: without the suffix that its type adds."""
        return self.name.removesuffix(_SUFFIX.get(self.kind, ""))

    def header(self, fmt: Format) -> str:
        """The HELP and TYPE lines."""
        text = self.help.translate(_HELP_ESCAPES[fmt])
        if fmt is Format.OPENMETRICS:
            return f"# HELP {self.base} {text}\n# TYPE {self.base} {self.kind.value}\n"
        kind = Kind.GAUGE if self.kind is Kind.INFO else self.kind
        return f"# HELP {self.name} {text}\n# TYPE {self.name} {kind.value}\n"

    def series(self, *values: str) -> str:
        """Name and labels of one series with a space behind them, so that only the value is missing."""
        if not self.labels:
            return f"{self.name} "
        pairs = ",".join(f'{k}="{escape_label(v)}"' for k, v in zip(self.labels, values, strict=True))
        return f"{self.name}{{{pairs}}} "


@lru_cache(maxsize=512)
def kept_series(family: Family, *values: str) -> str:
    """`Family.series` for what is written again and again: the few series of fixed families that every scrape has."""
    return family.series(*values)


@lru_cache(maxsize=256)
def kept_header(family: Family, fmt: Format) -> str:
    """`Family.header`, made once."""
    return family.header(fmt)


def escape_label(value: str) -> str:
    """A label value as it stands between the quotes. Bytes of a file that are no UTF-8 become U+FFFD."""
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return value
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace").translate(_LABEL_ESCAPES)


def number(value: float) -> str:
    """A sample value: integers exactly, whatever their size, and floats in their shortest exact form."""
    if isinstance(value, int):
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


@lru_cache(maxsize=64)  # a scraper says the same each time
def negotiate(accept: str | None) -> Format:
    """The format that an Accept header asks for: OpenMetrics 1.x where it ranks highest, else text.

    Any other wish is answered in text too: a scraper that names nothing we have can still read that.
    """
    ranked = [(quality, fmt) for fmt, quality in _offers(accept or "")]
    best = max((quality for quality, _ in ranked), default=0.0)
    return next((fmt for quality, fmt in ranked if quality == best and quality > 0), Format.TEXT)


def _offers(accept: str) -> Iterable[tuple[Format, float]]:
    for offer in accept.split(","):
        media, *parameters = (part.strip().lower() for part in offer.split(";"))
        values = dict(p.split("=", 1) for p in parameters if "=" in p)
        quality = _quality(values.get("q", "1"))
        if media == "application/openmetrics-text":
            if values.get("version", "1.0.0").startswith("1."):
                yield Format.OPENMETRICS, quality
        elif media in {"text/plain", "text/*", "*/*"}:
            yield Format.TEXT, quality


@lru_cache(maxsize=64)
def accepts_gzip(header: str | None) -> bool:
    """Whether an Accept-Encoding header lets us compress."""
    for offer in (header or "").lower().split(","):
        coding, *parameters = (part.strip() for part in offer.split(";"))
        if coding in {"gzip", "x-gzip"}:
            return all(_quality(p[2:]) > 0 for p in parameters if p.startswith("q="))
    return False


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
