"""What ibmon says of itself: its loop, its server, its deliveries, and its process.

Owns a prometheus_client registry. Text is made in `refresh`, which the engine's loop calls, never in a request. As
that happens all day on a node that computes, what nobody has asked for is not made.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Summary,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from ibmon.exporter import families as f
from ibmon.exporter.text import OPENMETRICS_END, Family, Format

REFRESH_INTERVAL: Final = 5.0
"""Seconds for which a rendered text is kept, however often it is asked for ..."""

UNASKED_INTERVAL: Final = 60.0
"""... and for which one is kept that nobody has asked for since."""

_CODES: Final = (200, 400, 401, 404, 405, 500, 503)
"""Answers of the server that have a series from the first scrape."""


class ProcessMetrics(Collector):
    """The process metrics that all client libraries have, by their names.

    prometheus_client's own collector lists /proc/self/fd to count it. ibmon keeps a descriptor for each file that it
    reads, 15,000 at 256 devices, and the listing would cost more than the reading.
    """

    def __init__(self) -> None:
        self._page = resource.getpagesize()
        self._started = time.time() - _age()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """What /proc says now; memory is left out where it cannot be read."""
        yield CounterMetricFamily("process_cpu_seconds", "User and system CPU time used.", value=time.process_time())
        yield GaugeMetricFamily("process_start_time_seconds", "Unix time of the start.", value=self._started)
        try:
            with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - no Path object for each refresh
                virtual, resident = (int(pages) * self._page for pages in statm.read().split()[:2])
        except (OSError, ValueError):
            return
        yield GaugeMetricFamily("process_virtual_memory_bytes", "Virtual memory size.", value=virtual)
        yield GaugeMetricFamily("process_resident_memory_bytes", "Resident memory size.", value=resident)
        yield GaugeMetricFamily("process_open_fds", "Open file descriptors.", value=_open_descriptors())
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limit = float("inf") if most == resource.RLIM_INFINITY else most
        yield GaugeMetricFamily("process_max_fds", "Most file descriptors that may be open.", value=limit)


def _age() -> float:
    """Seconds since this process started; since now where /proc does not tell."""
    try:
        with open("/proc/self/stat", "rb") as stat, open("/proc/uptime", "rb") as uptime:  # noqa: PTH123 - as above
            ticks = int(stat.read().rpartition(b")")[2].split()[19])
            return float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def _open_descriptors() -> int:
    """How many descriptors are open: the size of /proc/self/fd since Linux 6.2 (fs/proc/fd.c), else by listing it."""
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))  # noqa: PTH116, PTH208 - as above


class SelfMetrics:
    """Counts for itself; every method may be called from any thread.

    `targets` are the names of everything that messages go to: each has its series from the start.
    """

    def __init__(self, targets: Iterable[str] = ()) -> None:
        # Else a gauge of its start time beside each counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._registry.register(ProcessMetrics())
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
        self._rendered: dict[Format, float] = {}
        self._asked: set[Format] = set(Format)
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
        """Render anew what was asked for since it was rendered, or is old; nothing younger than REFRESH_INTERVAL."""
        for fmt in Format:
            age = monotonic - self._rendered.get(fmt, float("-inf"))
            if age >= UNASKED_INTERVAL or (age >= REFRESH_INTERVAL and fmt in self._asked):
                self._asked.discard(fmt)
                self._rendered[fmt] = monotonic
                self._texts[fmt] = self._render(fmt)

    def _render(self, fmt: Format) -> bytes:
        if fmt is Format.TEXT:
            return generate_latest(self._registry)
        text: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
        return text.removesuffix(OPENMETRICS_END)

    def text(self, fmt: Format) -> bytes:
        """The text of the last refresh (before the first: nothing), without an end mark."""
        self._asked.add(fmt)
        return self._texts[fmt]
