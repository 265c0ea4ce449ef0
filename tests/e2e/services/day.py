"""A bad day of the simulated fleet, scraped by a real Prometheus that has ibmon's rules: what dashboards are tried on.

Owns starting the two together, and the questions that dashboards ask. Must not: know what an answer should be.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

from .controllertext import LEADERLESS, TROUBLED
from .processes import wait_for
from .prometheus import SCRAPE, Job, Prometheus
from .simfleet import Fleet
from .stories import COMPATIBLE, STORIES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
DASHBOARDS = sorted((ROOT / "dashboards").glob("*.json"))
RULES = sorted((ROOT / "deploy/prometheus").glob("*.rules.yml"))

LENGTH = 108.0
"""Virtual seconds that a day lasts: every story has reached what it is told for."""
PACE = 3.0
"""Virtual seconds that pass in one of the wall clock, unless somebody has more time."""
_PARTS = ((30.0, TROUBLED), (80.0, LEADERLESS))
_OURS = "ibmon_port_.*_total"

CHOSEN = {"ibmon-node": {"node": "gpu-16"}, "ibmon-incident": {"rail": "3"}}
"""What somebody chooses on the dashboards that are about one thing, by uid."""
_DEFAULTS = {"show": "watch|unfit|unknown"}


class Query(NamedTuple):
    """One query of a dashboard, with its variables in place; `panel` is where it stands."""

    board: str
    panel: str
    expr: str


@final
class Day:
    """A context manager: inside, the day is over and Prometheus can be asked for it."""

    def __init__(self, *, pace: float = PACE, every: float = SCRAPE) -> None:
        self.fleet = Fleet(pace)
        self.prometheus = Prometheus(list(_jobs(self.fleet.address)), rules=RULES, every=every)
        self.start = self.end = 0.0
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Day:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.fleet)
            stack.enter_context(self.prometheus)
            self._pass()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _pass(self) -> None:
        self.start = time.time()
        answering = sum(not story.silent for story in STORIES.values())
        wait_for(
            lambda: self.prometheus.query("count(ibmon_up)").get(frozenset()) == answering,
            within=30,
            what="a first scrape of every node",
        )
        self.fleet.play()
        for at, part in (*_PARTS, (LENGTH, LEADERLESS)):
            wait_for(lambda at=at: self.fleet.trouble or self.fleet.passed >= at, within=600, what="the day to pass")
            self.fleet.part = part
        if self.fleet.trouble:
            raise self.fleet.trouble[0]
        self.end = time.time()

    def placed(self, expr: str) -> str:
        """The expression with the values of Grafana's variables: the whole day, and every node."""
        seconds = int(self.end - self.start)
        values = {
            "__rate_interval": f"{4 * self.prometheus.every:g}s",
            "__range": f"{seconds}s",
            "__range_s": str(seconds),
            **_DEFAULTS,
        }
        return re.sub(r"\$(\w+)", lambda found: values.get(found[1], ".*"), expr)

    def labels(self, expr: str) -> list[dict[str, str]]:
        """The labels of all series that an expression has at some time of the day."""
        return self.prometheus.labels(self.placed(expr), self.start, self.end)


def _jobs(address: str) -> Iterator[Job]:
    def job(name: str, *nodes: str) -> Job:
        statics = [
            {
                "targets": [address],
                "labels": {"__metrics_path__": f"/{node}/metrics", "instance": f"{node}:19315"},
            }
            for node in nodes
        ]
        return {"job_name": name, "static_configs": statics}

    yield job("ibmon", *(name for name in STORIES if name != COMPATIBLE))
    dropped = {"source_labels": ["__name__"], "regex": _OURS, "action": "drop"}
    yield {**job("ibmon-names-of-node-exporter", COMPATIBLE), "metric_relabel_configs": [dropped]}
    yield job("ibmon-controller", "controller")


def queries() -> Iterator[Query]:
    """Every query of every dashboard: of panels, annotations and variables."""
    for file in DASHBOARDS:
        document = json.loads(file.read_text())
        board = file.stem.removeprefix("ibmon-")
        for panel in document["panels"]:
            yield from (Query(board, panel["title"], target["expr"]) for target in panel.get("targets", ()))
        for annotation in document["annotations"]["list"]:
            yield Query(board, f"annotation {annotation['name']}", annotation["expr"])
        yield from _of_variables(board, document["templating"]["list"])


def _of_variables(board: str, variables: list[dict[str, Any]]) -> Iterator[Query]:
    for variable in variables:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), \w+\)|query_result\((.+)\)", variable["query"])
            assert found is not None, variable["query"]
            expr = found[1] or found[2]
            # A variable that stands for one value is asked for with `=`; here for all of them.
            yield Query(board, f"variable {variable['name']}", expr.replace('="$', '=~"$'))
