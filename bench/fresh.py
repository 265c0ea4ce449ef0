"""One fresh read of every file of a tree and its exposition, beside one scrape of node_exporter."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench import tree
from bench.figure import TIMES, Figure, Table, Target, median, quantity
from bench.programs import Program, node_exporter
from bench.settings import Settings
from ibmon.config import Config
from ibmon.devices import Devices
from ibmon.engine import Engine, Identity
from ibmon.exporter.render import Renderer
from ibmon.exporter.text import Format
from ibmon.model import Tier
from ibmon.runtime.host import HostClock
from ibmon.snapshot import Snapshot
from ibmon.sysfs import columns
from ibmon.sysfs.files import FileTree
from ibmon.sysfs.reader import FileReader

LIMIT = 0.25
WARM_UP = 4
"""Rounds that are not counted."""

METHOD = """\
Every file that ibmon reads at all (state, rate, `counters/`, `hw_counters/`, network interface, PCIe link) is read
anew on kept descriptors, merged into a snapshot and rendered to compressed text; no judging. The traffic counters
of all ports move in between. The files are taken for those of a sysfs, which nobody replaces. node_exporter reads
about half of these files for its scrape; its own process's metrics are off. CPU by the kernel's account, in turn
and each as often first, median. *Bare reads*: the same files read by `os.pread` in one comprehension and thrown
away, which no program in Python can do without, beside node_exporter's whole scrape. *Ratio a value*: what one
value costs."""


class Node:
    """A tree as the daemon holds it after discovery, read and rendered on demand."""

    def __init__(self, root: Path) -> None:
        self._clock = HostClock()
        files = self._files = FileTree(root)
        self._descriptors: list[int] = []
        self.devices = tree.discovered(files)
        self._reader = FileReader(files, self._clock, plain=False)
        self._known = Devices()
        for device in self.devices:
            self._known.add(device)
        self._renderer = Renderer()
        now = self._clock.now()
        self._empty: Snapshot = Engine(Config(), Identity("bench", "boot", 0.0), now).snapshot(now)

    @property
    def columns(self) -> int:
        """How many values one pass reads."""
        return sum(len(device.layout.columns) for device in self.devices)

    def fresh(self) -> bytes:
        """Read everything, and the text of it."""
        for device in self.devices:
            reading = self._reader.read(device, tuple(range(len(device.layout.columns))))
            self._known.read(reading, tuple(Tier))
        snapshot = msgspec.structs.replace(self._empty, at=self._clock.now(), devices=self._known.views())
        return self._renderer.render(snapshot, Format.OPENMETRICS, monotonic=snapshot.at.monotonic, gzip=True)

    def bare(self) -> None:
        """Read all files and do nothing with them."""
        pread = os.pread
        [pread(descriptor, 64, 0) for descriptor in self._descriptors]

    def open(self) -> None:
        """Open all files anew for `bare`; nothing else reads from here on."""
        self._reader.close()
        paths = (columns.paths(self._files, device) for device in self.devices)
        names = sorted({path for found in paths for path in found if path is not None})
        self._descriptors = [os.open(self._files.path(name), os.O_RDONLY | os.O_CLOEXEC) for name in names]

    def close(self) -> None:
        """Close the kept files."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._reader.close()


def own_cost(work: Callable[[], object]) -> float:
    """CPU seconds of this process for one call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def _both(node: Node, other: Program, *, first: int, traffic: tree.Traffic) -> tuple[float, float]:
    """CPU seconds of each, ibmon's first. Who comes `first` finds the caches as other work has left them."""
    traffic.move()
    cost = [0.0, 0.0]
    for who in (first, 1 - first):
        if who == 0:
            cost[0] = own_cost(node.fresh)
        else:
            before = other.cpu()
            other.scrape()
            cost[1] = other.cpu() - before
    return cost[0], cost[1]


def _bare(node: Node, traffic: tree.Traffic) -> float:
    traffic.move()
    return own_cost(node.bare)


def measure(settings: Settings) -> Figure:
    """Both, in turn, on trees of each size."""
    rows, floor, targets = [], [], []
    for size in settings.sizes:
        root = tree.write(size, settings.scratch)
        node, traffic = Node(root), tree.Traffic(root)
        with node_exporter(root, settings.scratch, own_metrics=False) as other:
            costs = [_both(node, other, first=turn % 2, traffic=traffic) for turn in range(settings.rounds + WARM_UP)]
            theirs = sum(line.startswith("node_infiniband_") for line in other.scrape(plain=True).decode().splitlines())
        node.open()
        bare = median(_bare(node, traffic) for _ in range(settings.rounds))
        node.close()
        traffic.close()
        mine, its = (median(cost[who] for cost in costs[WARM_UP:]) for who in (0, 1))
        what, ratio = f"{size} devices", mine / its
        values = (str(node.columns), str(theirs))
        each = quantity(ratio * theirs / node.columns, TIMES)
        rows.append((what, *values, f"{mine * 1e3:.2f}", f"{its * 1e3:.2f}", quantity(ratio, TIMES), each))
        floor.append((what, f"{bare * 1e3:.2f}", quantity(bare / its, TIMES)))
        targets.append(Target(f"fresh read and exposition, {size} devices", mine / its, LIMIT, TIMES))
    head = ("", "values, ibmon", "node_exporter", "CPU ms, ibmon", "node_exporter", "ratio", "ratio a value")
    both = Table(head, rows)
    bare_reads = Table(("bare reads of the same files", "CPU ms", "to node_exporter"), floor)
    return Figure("One fresh read of every file", METHOD, (both, bare_reads), targets)
