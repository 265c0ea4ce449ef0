"""The figures by name, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench import controller, daemon, engine, firmware, fresh, hang, load, memory, pages, queries, reaction, scrape
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
    "controller": controller.measure,
    "pages": pages.measure,
    "load": load.measure,
    "reaction": reaction.measure,
    "queries": queries.measure,
}
