"""A scrape that the running daemon answers from its snapshot: CPU beside node_exporter's, and latency."""

from __future__ import annotations

import time

from bench import tree
from bench.figure import TIMES, Figure, Table, Target, percentile, quantity
from bench.programs import Program, ibmon, node_exporter
from bench.settings import Settings

CPU_LIMIT = 0.15
P99_LIMIT_MS = 5.0

RARELY = 'state_interval = "10m"\ncounter_interval = "10m"\nslow_interval = "10m"'
"""So that the daemon does nothing but answer while its scrapes are counted."""

METHOD = """\
`ibmon run` and node_exporter on one tree, scraped on a kept connection with Prometheus's headers (OpenMetrics,
gzip), in turn in batches of ten; CPU of each process by the kernel's account. The daemon's reading intervals
are long here, so that only answering counts. Latency is the client's, with default intervals."""


def _cpu(program: Program, scrapes: int) -> float:
    before = program.cpu()
    for _ in range(scrapes):
        program.scrape()
    return (program.cpu() - before) / scrapes


def _latency(program: Program, scrapes: int, pause: float) -> list[float]:
    """Seconds of each scrape, spread over many turns of the daemon."""
    found = []
    for _ in range(scrapes):
        began = time.perf_counter()
        program.scrape()
        found.append(time.perf_counter() - began)
        time.sleep(pause)
    return found


def measure(settings: Settings) -> Figure:
    """CPU for each size, latency at the smallest."""
    rows, targets = [], []
    for size in settings.sizes:
        root = tree.write(size, settings.scratch)
        with (
            node_exporter(root, settings.scratch) as other,
            ibmon(root, settings.scratch, sampling=RARELY) as own,
        ):
            _settle(settings, own, other)
            mine, its = [], []
            for _ in range(max(1, settings.rounds // 6)):
                mine.append(_cpu(own, 10))
                its.append(_cpu(other, 10))
            ours, theirs = percentile(mine, 0.5), percentile(its, 0.5)
        rows.append((f"{size} devices", f"{ours * 1e3:.2f}", f"{theirs * 1e3:.2f}", quantity(ours / theirs, TIMES)))
        targets.append(Target(f"scrape from the snapshot, {size} devices", ours / theirs, CPU_LIMIT, TIMES))
    latency, slowest = _latencies(settings)
    targets.append(Target(f"scrape latency p99, {settings.sizes[0]} devices", slowest, P99_LIMIT_MS, "ms"))
    table = Table(("", "ibmon, CPU ms", "node_exporter, CPU ms", "ratio"), rows)
    return Figure("A scrape from the snapshot", METHOD, (table, latency), targets)


def _settle(settings: Settings, *programs: Program) -> None:
    """Let start-up end, and what only the first scrapes cost."""
    time.sleep(min(3.0, settings.watch))
    for program in programs:
        for _ in range(5):
            program.scrape()


def _latencies(settings: Settings) -> tuple[Table, float]:
    size = settings.sizes[0]
    root = tree.write(size, settings.scratch)
    rows, p99 = [], {}
    scrapes = settings.rounds * 20
    with node_exporter(root, settings.scratch) as other, ibmon(root, settings.scratch) as own:
        _settle(settings, own, other)
        for program in (own, other):
            found = [s * 1e3 for s in _latency(program, scrapes, min(0.02, settings.watch / 100))]
            p99[program.name] = percentile(found, 0.99)
            shares = (f"{percentile(found, share):.2f}" for share in (0.5, 0.9, 0.99, 1.0))
            rows.append((f"{program.name}, {size} devices", *shares))
    return Table((f"latency of {scrapes} scrapes, ms", "p50", "p90", "p99", "worst"), rows), p99["ibmon"]
