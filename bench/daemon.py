"""The whole daemon as it runs by default, scraped as often as Prometheus does, beside node_exporter scraped alike."""

from __future__ import annotations

import time

from bench import tree
from bench.figure import TIMES, Figure, Table, Target, quantity
from bench.programs import ibmon, node_exporter
from bench.settings import Settings

TRAFFIC = 4.9
"""Seconds between two moves of the traffic counters, so that every read of them finds another value."""

LIMITS = {tree.NODE: 1.0, tree.LARGE: 0.6}

METHOD = """\
Both programs at the same time on one tree for {watch:.0f} s after a start-up that is not counted, ibmon with
its default intervals, each scraped every {every:.0f} s. The traffic counters of all ports move all the time.
All CPU of both processes by the kernel's account. node_exporter works when it is scraped and not in between;
ibmon reads the state of every port every 5 s whether or not anybody asks."""


def measure(settings: Settings) -> Figure:
    """CPU of both over the same time, for each size."""
    rows, targets = [], []
    for size in settings.sizes:
        root = tree.write(size, settings.scratch)
        with (
            tree.traffic(root, TRAFFIC),
            node_exporter(root, settings.scratch) as other,
            ibmon(root, settings.scratch) as own,
        ):
            programs = (own, other)
            time.sleep(min(settings.every, 12.0))
            for program in programs:
                program.scrape()
            before = [program.cpu() for program in programs]
            began = time.monotonic()
            for scrape in range(1, round(settings.watch / settings.every) + 1):
                time.sleep(max(0.0, began + scrape * settings.every - time.monotonic()))
                for program in programs:
                    program.scrape()
            time.sleep(min(0.5, settings.every))
            elapsed = time.monotonic() - began
            mine, its = (p.cpu() - b for p, b in zip(programs, before, strict=True))
        share = (f"{used / elapsed * 100:.3f} %" for used in (mine, its))
        rows.append((f"{size} devices", *share, quantity(mine / its, TIMES)))
        if size in LIMITS:
            targets.append(Target(f"whole daemon, {size} devices", mine / its, LIMITS[size], TIMES))
    table = Table(("", "ibmon, of one CPU", "node_exporter, of one CPU", "ratio"), rows)
    method = METHOD.format(watch=settings.watch, every=settings.every)
    return Figure("The whole daemon", method, (table,), targets)
