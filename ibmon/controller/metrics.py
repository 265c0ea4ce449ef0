"""What the controller says of itself and of the fleet.

Owns a prometheus_client registry. Counters are counted where things happen; the fleet's gauges are made from one view
of it when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from ibmon.controller import families as f
from ibmon.controller.values import Counts, FabricEvent, Fleet
from ibmon.exporter.selfmetrics import ProcessMetrics
from ibmon.exporter.text import Family, Format
from ibmon.health.rules import RULES
from ibmon.model import BlockCode, NodeFitness
from ibmon.report import Decision

ACCEPTED: Final = "accepted"
REFUSALS: Final = ("signature", "replay", "skew", "shape", "name")
"""Why a report may be refused; the outcome is the word with `refused_` in front."""

DRAIN_STATES: Final = ("held", "pending", "withheld", "foreign", "orphaned")

_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
_OF_IBMON: Final = ("node", "alertmanager")


class FleetMetrics:
    """Counts for the controller. Everything but the constructor is called on the server's thread."""

    def __init__(self) -> None:
        # Else a gauge of its start time beside each counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._registry.register(ProcessMetrics())
        self._view = _View()
        self._registry.register(self._view)
        self._reports = self._counter(f.REPORTS)
        self._events = self._counter(f.FABRIC_EVENTS)
        self._errors = self._counter(f.SCHEDULER_ERRORS)
        self._seconds = Histogram(
            f.REPORT_SECONDS.name, f.REPORT_SECONDS.help, buckets=_BUCKETS, registry=self._registry
        )
        self._accepted = self._reports.labels(ACCEPTED)
        for kind in REFUSALS:
            self._reports.labels(f"refused_{kind}")
        for rule in RULES:
            self._events.labels(rule.id)
        for code in BlockCode:
            self._errors.labels(code.value)

    def _counter(self, family: Family) -> Counter:
        return Counter(family.name, family.help, family.labels, registry=self._registry)

    def report(self, seconds: float) -> None:
        """A report was taken; it took that long."""
        self._accepted.inc()
        self._seconds.observe(seconds)

    def refused(self, kind: str) -> None:
        """A report was refused; a kind that is not of REFUSALS counts as `shape`."""
        self._reports.labels(f"refused_{kind if kind in REFUSALS else 'shape'}").inc()

    def fabric_event(self, rule: str) -> None:
        """A fabric event has begun."""
        self._events.labels(rule).inc()

    def scheduler_error(self, code: str) -> None:
        """A call to the scheduler has failed."""
        self._errors.labels(code).inc()

    def render(self, counts: Counts, fleet: Fleet, fmt: Format) -> bytes:
        """The exposition text."""
        self._view.counts, self._view.fleet = counts, fleet
        if fmt is Format.TEXT:
            return generate_latest(self._registry)
        text: bytes = openmetrics.generate_latest(self._registry)  # type: ignore[no-untyped-call]
        return text


class _View(Collector):
    """What is true of the fleet now, from one look at it."""

    def __init__(self) -> None:
        self.counts: Counts | None = None
        self.fleet: Fleet | None = None

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Everything that is known."""
        counts, fleet = self.counts, self.fleet
        if counts is None or fleet is None:
            return
        yield _gauge(f.LEADER, [((), counts.leader)])
        yield _gauge(f.STOP, [((), counts.stop)])
        yield _gauge(f.NODES, [((fitness.value,), counts.nodes.get(fitness.value, 0)) for fitness in NodeFitness])
        yield _gauge(f.NODES_MISSING, [((), counts.missing)])
        yield _gauge(f.QUORUM_RATIO, [((), counts.quorum.ratio)])
        yield _gauge(f.DRAINS, [((state,), count) for state, count in _states(counts.drains).items()])
        yield _gauge(f.LIMIT_ALLOWED, [((pool.name,), pool.allowed) for pool in counts.pools])
        yield _gauge(f.LIMIT_USED, [((pool.name,), pool.used) for pool in counts.pools])
        yield _gauge(f.FABRIC_EVENT, [(_labels(event), len(event.nodes)) for event in fleet.fabric_events])
        yield _decisions(counts.decisions)
        yield _gauge(f.SCHEDULER_AGE, [] if counts.view_age is None else [((), counts.view_age)])
        held = (drain.since for drain in fleet.drains if drain.state == "held" and drain.owner in _OF_IBMON)
        oldest = min((since for since in held if since is not None), default=None)
        yield _gauge(f.OLDEST_DRAIN, [] if oldest is None else [((), oldest)])


def _states(drains: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Drains by state; of those that are not ours, by whose they are."""
    counts = dict.fromkeys(DRAIN_STATES, 0)
    for (owner, state), count in drains.items():
        counts[{"orphan": "orphaned", "foreign": "foreign"}.get(owner, state)] += count
    return counts


def _labels(event: FabricEvent) -> tuple[str, ...]:
    return event.group, "" if event.rail is None else str(event.rail), event.rule


def _decisions(counted: Mapping[tuple[str, str], int]) -> CounterMetricFamily:
    """All that may be decided, with 0 where it never was."""
    known = [(decision, "") for decision in get_args(Decision)] + [("blocked", code.value) for code in BlockCode]
    metric = CounterMetricFamily(f.DECISIONS.name, f.DECISIONS.help, labels=f.DECISIONS.labels)
    for labels, count in {**dict.fromkeys(known, 0), **counted}.items():
        metric.add_metric(labels, count)
    return metric


def _gauge(family: Family, samples: Iterable[tuple[tuple[str, ...], float]]) -> GaugeMetricFamily:
    metric = GaugeMetricFamily(family.name, family.help, labels=family.labels)
    for labels, value in samples:
        metric.add_metric(labels, float(value))
    return metric
