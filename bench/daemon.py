"""The whole daemon as it runs by default, scraped as often as Prometheus does, beside node_exporter."""

from __future__ import annotations

import time

from bench import tree
from bench.figure import TIMES, Figure, Table, Target, quantity
from bench.programs import bare_loop, ibmon, node_exporter
from bench.settings import Settings

TRAFFIC = 4.9
"""Seconds between two moves of the traffic counters, so that every read of them finds another value."""

LIMITS = {tree.NODE: 1.0, tree.LARGE: 0.6}
CORE_LIMIT = 0.5
"""Percent of one CPU that the daemon may use at the size of a node."""
OFTEN = 3
"""How many times as often the second node_exporter is scraped: every 5 s, as often as ibmon reads states."""

METHOD = """\
The programs at the same time on one tree for {watch:.0f} s after a start-up that is not counted, ibmon with
its default intervals, each scraped every {every:.0f} s, and a second node_exporter every {often:.0f} s. The traffic
counters of all ports move all the time. All CPU of the processes by the kernel's account. node_exporter works when it
is scraped and not in between; ibmon reads the state of every port every 5 s whether or not anybody asks. *Bare loop*:
a program in Python of the same two processes that reads the same files as often, writes a file as large as the verdict,
answers scrapes with bytes that stand still, and understands nothing (`bench/bareloop.py`)."""


def measure(settings: Settings) -> Figure:
    """CPU of all over the same time, for each size."""
    rows, targets = [], []
    for size in settings.sizes:
        root = tree.write(size, settings.scratch)
        with (
            tree.traffic(root, TRAFFIC),
            node_exporter(root, settings.scratch) as other,
            node_exporter(root, settings.scratch) as busy,
            bare_loop(root, settings.scratch) as bare,
            ibmon(root, settings.scratch) as own,
        ):
            programs = (own, other, busy, bare)
            time.sleep(min(settings.every, 12.0))
            for program in programs:
                program.scrape()
            before = [program.cpu() for program in programs]
            began = time.monotonic()
            for turn in range(1, OFTEN * round(settings.watch / settings.every) + 1):
                time.sleep(max(0.0, began + turn * settings.every / OFTEN - time.monotonic()))
                for program in programs if turn % OFTEN == 0 else (busy,):
                    program.scrape()
            time.sleep(min(0.5, settings.every))
            elapsed = time.monotonic() - began
            mine, its, often, least = (p.cpu() - b for p, b in zip(programs, before, strict=True))
        share = (f"{used / elapsed * 100:.3f} %" for used in (mine, its, often, least))
        ratios = (quantity(ratio, TIMES) for ratio in (mine / its, mine / often, least / its))
        rows.append((f"{size} devices", *share, *ratios))
        what = f"whole daemon, {size} devices"
        if size in LIMITS:
            targets.append(Target(what, mine / its, LIMITS[size], TIMES))
        if size == tree.NODE:
            targets.append(Target(f"{what}, of one CPU", mine / elapsed * 100, CORE_LIMIT, "%"))
            targets.append(Target(f"{what}, node_exporter 5 s", mine / often, 1.0, TIMES))
    head = (
        "of one CPU", "ibmon", "node_exporter", "and every 5 s", "bare loop",
        "ratio", "ratio to the second", "bare loop's ratio",
    )  # fmt: skip
    table = Table(head, rows)
    method = METHOD.format(watch=settings.watch, every=settings.every, often=settings.every / OFTEN)
    return Figure("The whole daemon", method, (table,), targets)
