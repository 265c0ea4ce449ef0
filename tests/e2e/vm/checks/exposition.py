"""Reads what a metrics endpoint says, independently of ibmon: one request, text format, plain numbers.

Standard library only, for the guest's own Python.
"""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from dataclasses import dataclass

URL = "http://127.0.0.1:19315"
_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Metrics:
    """The samples of one answer."""

    samples: tuple[tuple[str, dict[str, str], float], ...]

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the one series with that name and, among its labels, these; None when there is none."""
        found = [value for series, has, value in self.samples if series == name and labels.items() <= has.items()]
        if len(found) > 1:
            raise ValueError(f"{name} {labels}: {len(found)} series")
        return found[0] if found else None

    def devices(self, name: str) -> set[str]:
        """The devices that have a series of that name."""
        return {labels["device"] for series, labels, _ in self.samples if series == name}


def parse(text: str) -> Metrics:
    """The samples of an exposition in the text format."""
    samples = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            match = _SAMPLE.fullmatch(line)
            if match is None:
                raise ValueError(f"not a sample: {line!r}")
            samples.append((match["name"], dict(_LABEL.findall(match["labels"] or "")), float(match["value"])))
    return Metrics(tuple(samples))


def scrape(timeout: float = 5) -> Metrics:
    """One scrape; raises OSError when nothing answers in time."""
    with urllib.request.urlopen(f"{URL}/metrics", timeout=timeout) as answer:
        return parse(answer.read().decode())


def serves() -> bool:
    """True when a scrape is answered now."""
    try:
        scrape(timeout=2)
    except OSError:
        return False
    return True


def health(path: str) -> int:
    """The HTTP status of a page such as /readyz."""
    try:
        with urllib.request.urlopen(URL + path, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
