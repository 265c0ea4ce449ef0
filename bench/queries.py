"""What a fleet costs a Prometheus: the time of each panel's queries, and series a node by what is switched on."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.figure import Figure, Table, Target, median, quantity
from bench.programs import ROOT
from bench.settings import Settings
from ibmon.configfile import loads
from ibmon.exporter.render import Renderer
from ibmon.exporter.selfmetrics import SelfMetrics
from ibmon.exporter.text import Format
from ibmon.recording import Header
from ibmon.runtime.replay import World
from ibmon.simulate.dgx import dgx
from ibmon.simulate.scenarios import PORTS
from ibmon.simulate.script import Script

# bench.programs has made these findable.
from services.prometheus import Prometheus, promtool  # isort: skip

if TYPE_CHECKING:
    from ibmon.recording import Frame

LIMIT_MS = 300.0
EVERY = 15
"""Seconds between two scrapes."""
SPAN = 3600
"""Seconds that each dashboard shows when it is opened."""
ROUNDS = 5
BAD = 20
"""One node in so many has lost a port."""

TROUBLED = "|".join(f"gpu-{number:03}:19315" for number in range(0, 1000, BAD))
"""What a hidden variable of *Incident* would hold."""

METHOD = """\
A real Prometheus with an hour of {nodes} simulated nodes of 12 ports, scraped every 15 s; one in {bad} has lost a port
and is drained. Every panel of every dashboard is asked as Grafana does when the dashboard is opened: range queries
over the hour in steps of 15 s (some: a minute), or one instant, for all nodes (*Node*: for one). A panel's time is the
sum of its queries, each the median of {rounds}. Of the series of a node those are stored that some dashboard asks for.
*Series a node* counts the lines of its exposition."""


class Panel(NamedTuple):
    """One panel: its dashboard and title, and its queries with their steps in seconds (None: one instant)."""

    board: str
    title: str
    queries: tuple[tuple[str, int | None], ...]


def panels() -> Iterator[Panel]:
    """Every panel with a query, its variables as they are when a dashboard is opened."""
    for file in sorted((ROOT / "dashboards").glob("*.json")):
        document = json.loads(file.read_text())
        for panel in document["panels"]:
            asked = tuple((_placed(t["expr"]), _step(t)) for t in panel.get("targets", ()))
            if asked:
                yield Panel(document["title"].removeprefix("ibmon / "), panel["title"], asked)


def _step(target: dict[str, Any]) -> int | None:
    if target["instant"]:
        return None
    return {"": EVERY, "1m": 60}[target.get("interval", "")]


def _placed(expr: str) -> str:
    values = {
        "__rate_interval": f"{4 * EVERY}s", "__range": f"{SPAN}s", "__range_s": str(SPAN), "node": ".*",
        "instance": "gpu-000:19315", "show": "watch|unfit|unknown", "rail": ".*", "rule": ".*", "role": ".*",
        "troubled": TROUBLED,
    }  # fmt: skip
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)


# -------------------------------------------------------------------------------------------------------- the series


def exposition(config: str = "", *, vfs: int = 0, targets: Iterable[str] = (), down: bool = False) -> list[str]:
    """The sample lines of a node: the engine's own on the simulated tree, two minutes after its begin."""
    script = Script(dgx(vfs=vfs))
    if down:
        script.link_down(5, "mlx5_3/1")
    loaded = loads(
        f'[inventory]\nmode = "declared"\n[action]\nmode = "drain"\nboot_grace = "0s"\n{PORTS}{config}'
    ).config
    world = World(Header(), loaded)
    frames: Iterator[Frame] = script.frames()
    for frame in frames:
        world.time = frame.t
        world.apply(frame)
        world.settle()
    while world.engine.next_due() <= 120.0:
        world.time = max(world.engine.next_due(), world.time)
        world.settle()
    metrics = SelfMetrics(targets)
    metrics.refresh(120.0)
    text = Renderer(node_exporter="node_exporter" in loaded.exporter.compat).render(
        world.engine.snapshot(world.now()), Format.TEXT, monotonic=120.0, self_metrics=metrics.text(Format.TEXT)
    )
    return [line for line in text.decode().splitlines() if not line.startswith("#")]


def added() -> Table:
    """Series a node, and what each option adds."""
    base = len(exposition())
    compat = len(exposition('[exporter]\ncompat = ["node_exporter"]\n')) - base
    target = len(exposition(targets=("one",))) - base
    functions = (len(exposition(vfs=1)) - base) / 8
    rows = [
        ("the simulated node: 12 devices, 12 ports", f"{base}"),
        ('compat = ["node_exporter"]', f"+{compat}"),
        ("each [[alertmanager]] or [[webhook]]", f"+{target}"),
        ("each virtual function that is not excluded", f"+{functions:.0f}"),
        ("a finding", "+1"),
    ]
    return Table(("series a node", ""), rows)


def _named(line: str, node: str) -> tuple[str, str, float]:
    """Name, series and value of a sample line as Prometheus stores it for this node."""
    series, _, value = line.rpartition(" ")
    name, _, labels = series.partition("{")
    labels = labels.removesuffix("}").replace('node="node0001"', f'node="{node}"')
    target = f'job="ibmon",instance="{node}:19315"'
    return name, f"{name}{{{target}{',' if labels else ''}{labels}}}", float(value)


def write(file: Path, nodes: int, end: int, names: set[str]) -> None:
    """An hour of all nodes as OpenMetrics: counters rise, everything else stands."""
    times = range(end - SPAN, end + 1, EVERY)
    good, bad = exposition(), exposition(down=True)
    by_name: dict[str, list[tuple[str, float]]] = {}
    for number in range(nodes):
        node = f"gpu-{number:03}"
        for line in [*(bad if number % BAD == 0 else good), "up 1"]:
            name, series, value = _named(line, node)
            if name in names:
                by_name.setdefault(name, []).append((series, value))
    with file.open("w") as out:
        for name, series in by_name.items():
            counter = name.endswith("_total")
            out.write(f"# TYPE {name.removesuffix('_total')} {'counter' if counter else 'gauge'}\n")
            for one, value in series:
                step = max(1.0, value // 10_000) if counter else 0.0
                out.writelines(f"{one} {value + step * i!r} {at}\n" for i, at in enumerate(times))
        out.write("# EOF\n")


# -------------------------------------------------------------------------------------------------------- the queries


def _asked(url: str, expr: str, end: int, step: int | None) -> float:
    """Milliseconds until the whole answer has come."""
    what: dict[str, object] = {"query": expr, "time": end}
    if step is not None:
        what = {"query": expr, "start": end - SPAN, "end": end, "step": step}
    path = "query" if step is None else "query_range"
    began = time.perf_counter()
    with urllib.request.urlopen(f"{url}/api/v1/{path}", urllib.parse.urlencode(what).encode(), timeout=60) as answer:
        answer.read()
    return (time.perf_counter() - began) * 1e3


def timed(url: str, end: int) -> Mapping[Panel, float]:
    """Milliseconds of each panel."""
    return {
        panel: sum(median(_asked(url, expr, end, step) for _ in range(ROUNDS)) for expr, step in panel.queries)
        for panel in panels()
    }


def measure(settings: Settings) -> Figure:
    """Each dashboard's panels on a fleet, and the series of a node."""
    end = int(time.time()) // 7200 * 7200 - 60  # within one block
    names = {name for panel in panels() for expr, _ in panel.queries for name in re.findall(r"\b[a-z_]+\b", expr)}
    text, data = settings.scratch / "fleet.om", settings.scratch / "blocks"
    write(text, settings.fleet, end, names)
    made = promtool("tsdb", "create-blocks-from", "openmetrics", "--quiet", text, data)
    text.unlink()
    if made.returncode:
        raise RuntimeError(f"promtool: {made.stderr.strip()}")
    with Prometheus([], data=data) as server:
        found = timed(server.url, end)
    rows = []
    for board in dict.fromkeys(panel.board for panel in found):
        of_board = {panel: ms for panel, ms in found.items() if panel.board == board}
        slowest = max(of_board, key=lambda panel: of_board[panel])
        counts = (str(len(of_board)), quantity(median(of_board.values())), quantity(of_board[slowest]))
        rows.append((board, *counts, slowest.title))
    table = Table((f"dashboard, {settings.fleet} nodes", "panels", "median, ms", "slowest, ms", "which"), rows)
    target = Target(f"slowest panel, {settings.fleet} nodes", max(found.values()), LIMIT_MS, "ms")
    method = METHOD.format(nodes=settings.fleet, bad=BAD, rounds=ROUNDS)
    return Figure("Dashboards and a Prometheus", method, (table, added()), (target,))
