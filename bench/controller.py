"""The fleet controller: latency, CPU and memory with every node of a large fleet reporting."""

from __future__ import annotations

import asyncio
import base64
import http.client
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure, Table, Target, percentile
from bench.fleetload import Load
from bench.programs import ROOT, memory_of
from bench.settings import Settings
from ibmon.controller.server import raise_descriptors

P99_LIMIT_MS = 100.0
LOOK = 5.0
"""Seconds between two looks of an open page at all nodes."""

SCRAPE = 15.0
SPARE = 500
"""Descriptors for what is no connection of a node."""


METHOD = """\
`ibmon controller` as it runs, over a scheduler in memory; {nodes} simulated nodes in another process, each on a kept
connection, each with a signed report every {every:g} s for {watch:g} s after a first round that is not counted. One
node in a hundred wants to be drained. Meanwhile the whole scheduler is read every {every:g} s, Prometheus scrapes every
{scrape:g} s, and a page asks for all nodes every {look:g} s. Every report's signature is checked and every answer
signed. Latency is the client's, on the loopback, both on this machine's CPUs. Memory is what the controller's resident
size grows by with all nodes, their connections and reports and the view of the scheduler."""


REMARK = """\
This machine allows a process no more open files than that {links:,} of the nodes have a connection of their own; the
others share one with another node."""


@contextmanager
def _server(directory: Path, settings: Settings) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    argv = (sys.executable, "-m", "bench.fleetserver", directory, str(settings.nodes), str(settings.report_every))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stderr=log, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
    try:
        end = time.monotonic() + 60
        while not (directory / "port").exists():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the controller did not start: {(directory / 'log').read_text()[-500:]}")
            time.sleep(0.05)
        yield process, int((directory / "port").read_text())
    finally:
        process.communicate(b"", timeout=30)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _waited(pid: int) -> float:
    """Seconds that its threads were ready to run and did not (Documentation/scheduler/sched-stats.rst)."""
    return sum(int(task.read_text().split()[1]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _look(port: int, path: str, every: float, ended: threading.Event, found: list[float]) -> None:
    """Ask for a path again and again; seconds of each answer."""
    while not ended.wait(every):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        began = time.perf_counter()
        connection.request("GET", path)
        connection.getresponse().read()
        found.append(time.perf_counter() - began)
        connection.close()


def measure(settings: Settings) -> Figure:
    """One fleet, a round to warm up, then as many as fit into the watch."""
    directory = settings.scratch / "fleet"
    directory.mkdir()
    master = secrets.token_bytes(32)
    (directory / "master.key").write_text(f"whsec_{base64.b64encode(master).decode()}\n")
    links = min(settings.nodes, raise_descriptors(settings.nodes + SPARE) - SPARE)
    with _server(directory, settings) as (process, port):
        before = memory_of(process.pid)["Rss"]
        load = Load(port, master, settings.nodes, links, settings.report_every)
        return asyncio.run(_measured(settings, load, process.pid, before))


async def _measured(settings: Settings, load: Load, pid: int, before: float) -> Figure:
    rounds = max(1, round(settings.watch / settings.report_every))
    nodes = await load.begin()
    missed = load.seen.wrong + load.seen.lost
    load.seen.seconds.clear()
    ended, scrapes, looks = threading.Event(), [], []
    watchers = [
        threading.Thread(target=_look, args=(load.port, path, every, ended, found))
        for path, every, found in (
            ("/metrics", min(SCRAPE, settings.report_every / 2), scrapes),
            ("/api/v1/nodes?compact=1", min(LOOK, settings.report_every / 2), looks),
        )
    ]
    for watcher in watchers:
        watcher.start()
    began, used, waited = time.monotonic(), _cpu(pid), _waited(pid)
    await load.run(nodes, rounds)
    elapsed = time.monotonic() - began
    share, wait = (_cpu(pid) - used) / elapsed, (_waited(pid) - waited) / elapsed
    grown = (memory_of(pid)["Rss"] - before) * 1024 / settings.nodes
    ended.set()
    for watcher in watchers:
        watcher.join()
    load.seen.wrong += missed
    await load.close(nodes)
    return _figure(settings, load, share, wait, grown, scrapes, looks)


def _figure(
    settings: Settings, load: Load, share: float, wait: float, grown: float, scrapes: list[float], looks: list[float]
) -> Figure:
    seen = load.seen
    answers = (("a report", seen.seconds), ("a scrape", scrapes), ("all nodes, in short", looks))
    rows = [
        (what, str(len(found)), *(f"{percentile(found, p) * 1e3:.2f}" for p in (0.5, 0.9, 0.99, 1.0)))
        for what, found in answers
        if found
    ]
    latency = Table(("latency of, ms", "answers", "p50", "p90", "p99", "worst"), rows)
    per = share * settings.report_every / settings.nodes
    cost = Table(
        ("the controller", ""),
        (
            ("CPU, of one", f"{share * 100:.1f} %"),
            ("CPU a report, all else included", f"{per * 1e6:.0f} µs"),
            ("time in which it wanted a CPU and had none", f"{wait * 100:.1f} %"),
            ("memory a node", f"{grown:.1f} KiB"),
            ("reports that were not answered well", str(seen.wrong + seen.lost)),
        ),
    )
    p99 = percentile(seen.seconds, 0.99) * 1e3
    return Figure(
        "The fleet controller",
        METHOD.format(
            nodes=f"{settings.nodes:,}", every=settings.report_every, watch=settings.watch, scrape=SCRAPE, look=LOOK
        ),
        (latency, cost),
        (
            Target(f"controller, {settings.nodes:,} nodes, p99 of a report", p99, P99_LIMIT_MS, "ms"),
            Target("reports not answered well", float(seen.wrong + seen.lost), 0.0),
        ),
        "" if load.links == settings.nodes else REMARK.format(links=load.links),
    )
