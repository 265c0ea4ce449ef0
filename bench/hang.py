"""One file whose read hangs: what it does to scrapes, to the other devices, and to node_exporter beside it."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from bench import tree
from bench.figure import Figure, Table, Target, percentile
from bench.hangfile import HangingFile, Unavailable
from bench.programs import Program, ibmon, node_exporter
from bench.settings import Settings

DEVICE = "mlx5_3"
FILE = f"class/infiniband/{DEVICE}/ports/1/counters/port_rcv_data"
P99_LIMIT_MS = 10.0
STALLED_LIMIT = 6.0
FRESH_LIMIT = 15.0
"""Three intervals of `state`: beyond it a sample counts as stale."""

SCRAPE_TIMEOUT = 10.0
"""Prometheus's default."""
PAUSE = 0.05

METHOD = """\
`{file}` is covered by a file (FUSE) whose reads hang for {hang:.0f} s, while ibmon with default intervals is
scraped every 50 ms and node_exporter every {every:.0f} s with a timeout of 10 s. *Marked after*: from when the
daemon's read began to hang to the first scrape that shows `ibmon_device_stalled`. *Oldest*: the largest
`ibmon_sample_age_seconds` of another device meanwhile. *Back after*: from the end of the hang to the first
scrape without the mark."""


@dataclass
class Watched:
    """What the scrapes of ibmon showed."""

    latencies: list[float] = field(default_factory=list)
    failed: int = 0
    marked: float | None = None
    cleared: float | None = None
    oldest: float = 0.0


def _watch(own: Program, until: float) -> Watched:
    """Scrape until this time, or until the mark has come and gone."""
    seen = Watched()
    while time.monotonic() < until and seen.cleared is None:
        began = time.monotonic()
        try:
            text = own.scrape(plain=True, timeout=SCRAPE_TIMEOUT).decode()
        except OSError:
            seen.failed += 1
            continue
        ended = time.monotonic()
        seen.latencies.append(ended - began)
        _note(seen, text, ended)
        time.sleep(PAUSE)
    return seen


def _note(seen: Watched, text: str, at: float) -> None:
    wanted = [
        line for line in text.splitlines() if line.startswith(("ibmon_device_stalled{", "ibmon_sample_age_seconds{"))
    ]
    for family in text_string_to_metric_families("\n".join(wanted) + "\n"):
        for sample in family.samples:
            hangs = sample.labels["device"] == DEVICE
            if sample.name == "ibmon_device_stalled" and hangs:
                if sample.value and seen.marked is None:
                    seen.marked = at
                elif not sample.value and seen.marked is not None and seen.cleared is None:
                    seen.cleared = at
            elif sample.name == "ibmon_sample_age_seconds" and not hangs:
                seen.oldest = max(seen.oldest, sample.value)


class _Other(threading.Thread):
    """Scrapes node_exporter as Prometheus would, beside everything else."""

    def __init__(self, program: Program, every: float) -> None:
        super().__init__(daemon=True)
        self.answered = self.asked = 0
        self._program = program
        self._every = every
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            began = time.monotonic()
            self.asked += 1
            try:
                self._program.scrape(plain=True, timeout=SCRAPE_TIMEOUT)
            except OSError:
                pass
            else:
                self.answered += 1
            self._end.wait(max(0.0, began + self._every - time.monotonic()))

    def end(self) -> None:
        """Ask no more."""
        self._end.set()
        self.join(SCRAPE_TIMEOUT + 1)


def run(settings: Settings) -> Figure:
    """The measurement; raises Unavailable."""
    size = settings.sizes[0]
    root = tree.write(size, settings.scratch / "hang")
    with (
        HangingFile((root / FILE).resolve()) as file,
        node_exporter(root, settings.scratch) as other,
        ibmon(root, settings.scratch) as own,
    ):
        time.sleep(min(12.0, settings.watch))
        other.disconnect()
        file.hold(settings.hang)
        ends = time.monotonic() + settings.hang
        scraper = _Other(other, settings.every)
        scraper.start()
        seen = _watch(own, ends + 30.0 * settings.hang / 60)
        scraper.end()
        file.release()
        # The daemon reads in processes of its own, whose numbers nobody tells.
        began = next((at for process, at in file.held if process != other.pid), None)
    return _figure(settings, seen, scraper, began, ends)


def _figure(settings: Settings, seen: Watched, other: _Other, began: float | None, ends: float) -> Figure:
    marked = seen.marked - began if seen.marked is not None and began is not None else math.inf
    p99 = percentile(seen.latencies, 0.99) * 1e3
    rows = [
        ("scrapes answered", f"{len(seen.latencies)} of {len(seen.latencies) + seen.failed}",
         f"{other.answered} of {other.asked}"),
        ("latency p99, ms", f"{p99:.2f}", "-"),
        ("latency worst, ms", f"{max(seen.latencies) * 1e3:.2f}", "-"),
        ("marked after, s", _seconds(marked), "-"),
        ("oldest of the others, s", f"{seen.oldest:.1f}", "-"),
        ("back after, s", _seconds(math.inf if seen.cleared is None else seen.cleared - ends), "-"),
    ]  # fmt: skip
    targets = (
        Target("scrapes unanswered while a file hangs", seen.failed, 0),
        Target("scrape latency p99 while a file hangs", p99, P99_LIMIT_MS, "ms"),
        Target("hanging device is marked after", marked, STALLED_LIMIT, "s"),
        Target("oldest sample of the other devices", seen.oldest, FRESH_LIMIT, "s"),
    )
    method = METHOD.format(file=FILE, hang=settings.hang, every=settings.every)
    return Figure("A read that hangs", method, (Table(("", "ibmon", "node_exporter"), rows),), targets)


def _seconds(value: float) -> str:
    return "never" if value == math.inf else f"{value:.1f}"


def measure(settings: Settings) -> Figure:
    """The measurement, or a note that it cannot be made here."""
    try:
        return run(settings)
    except Unavailable as reason:
        target = Target("hanging device is marked after", None, STALLED_LIMIT, "s")
        return Figure("A read that hangs", f"Not measured: {reason}; run it as root.", (), (target,))
