"""The figures by name, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench import daemon, engine, firmware, fresh, hang, memory, pages, scrape
from bench.figure import Figure
from bench.settings import Settings

FIGURES: Mapping[str, Callable[[Settings], Figure]] = {
    "fresh": fresh.measure,
    "scrape": scrape.measure,
    "daemon": daemon.measure,
    "memory": memory.measure,
    "hang": hang.measure,
    "firmware": firmware.measure,
    "engine": engine.measure,
    "pages": pages.measure,
}
