"""What ibmon says of itself: its loop, its server, its deliveries, and its process.

Owns a prometheus_client registry. Text is made in `refresh`, which the engine's loop calls, never in a request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    Summary,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.openmetrics import exposition as openmetrics

from ibmon.exporter import families as f
from ibmon.exporter.text import OPENMETRICS_END, Family, Format

REFRESH_INTERVAL: Final = 5.0
"""Seconds for which a rendered text is kept: /proc/self has six files to read."""

_CODES: Final = (200, 400, 401, 404, 405, 500, 503)
"""Answers of the server that have a series from the first scrape."""


class SelfMetrics:
    """Counts for itself; every method may be called from any thread.

    `targets` are the names of everything that messages go to: each has its series from the start.
    """

    def __init__(self, targets: Iterable[str] = ()) -> None:
        # Else a gauge of its start time beside each counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._ticks = self._counter(f.TICKS)
        self._tick_duration = Summary(f.TICK_DURATION.name, f.TICK_DURATION.help, registry=self._registry)
        self._save_errors = self._counter(f.SAVE_ERRORS)
        self._requests = self._counter(f.HTTP_REQUESTS)
        self._attempts = self._counter(f.DELIVERY_ATTEMPTS)
        self._failures = self._counter(f.DELIVERY_FAILURES)
        self._pending = Gauge(
            f.OUTBOX_PENDING.name, f.OUTBOX_PENDING.help, f.OUTBOX_PENDING.labels, registry=self._registry
        )
        for code in _CODES:
            self._requests.labels(str(code))
        for target in targets:
            for metric in (self._attempts, self._failures, self._pending):
                metric.labels(target)
        self._rendered: float | None = None
        self._texts: dict[Format, bytes] = dict.fromkeys(Format, b"")

    def _counter(self, family: Family) -> Counter:
        return Counter(family.name, family.help, family.labels, registry=self._registry)

    def tick(self, seconds: float) -> None:
        """The engine's loop turned once and took that long."""
        self._ticks.inc()
        self._tick_duration.observe(seconds)

    def request(self, code: int) -> None:
        """The server answered with this status code."""
        self._requests.labels(str(code)).inc()

    def save_failed(self) -> None:
        """The state could not be saved."""
        self._save_errors.inc()

    def delivery(self, target: str, *, arrived: bool) -> None:
        """One attempt to deliver a message to a target ended."""
        self._attempts.labels(target).inc()
        if not arrived:
            self._failures.labels(target).inc()

    def outbox(self, target: str, pending: int) -> None:
        """So many messages wait for this target."""
        self._pending.labels(target).set(pending)

    def refresh(self, monotonic: float) -> None:
        """Render anew, unless the last text is younger than REFRESH_INTERVAL."""
        if self._rendered is not None and monotonic - self._rendered < REFRESH_INTERVAL:
            return
        self._rendered = monotonic
        text = generate_latest(self._registry)
        other: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
        self._texts = {Format.TEXT: text, Format.OPENMETRICS: other.removesuffix(OPENMETRICS_END)}

    def text(self, fmt: Format) -> bytes:
        """The text of the last refresh (before the first: nothing), without an end mark."""
        return self._texts[fmt]
