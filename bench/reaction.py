"""From the change of a file that the daemon has seen to the return of the last scontrol: on a real Slurm."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.slurm import SlurmCluster

from bench import tree
from bench.figure import Figure, Table, Target, median, percentile
from bench.programs import Program, ServiceError, ibmon
from bench.settings import Settings

P99_LIMIT_MS = 1000.0
NODES = 8
DEVICE = "mlx5_3"
DOWN = {"state": "1: DOWN\n", "phys_state": "2: Polling\n"}
UP = {"state": "4: ACTIVE\n", "phys_state": "5: LinkUp\n"}
PATIENCE = 60.0
SETTLE = 1.5
"""Seconds after a change for which Slurm shows the node as not responding, so that nobody would give it back."""

METHOD = """\
A port of the simulated node goes down and comes back {rounds} times, with `hold` and `recover` of a tenth of a second
and defaults for reading but every 200 ms, on a real Slurm ({nodes} slurmd) on this machine. *Drain*: from the event of
the finding (the change was read) to the event of the drain that stands, which comes after five calls of `scontrol`:
read, count, write, read back, count again. *Give back*: from the end of the finding to the event of the release,
three calls."""

CONFIG = """
[[port]]
match = "mlx5_3/1"
role = "compute"
rate = 400
[inventory]
mode = "declared"
[rules.port-down]
alert_hold = "0s"
hold = "100ms"
recover = "100ms"
{off}
[action]
mode = "drain"
scheduler = "slurm"
boot_grace = "0s"
stop_file = "{scratch}/STOP"
[action.limits]
min_nodes = 1
max_unavailable = "100%"
new_per_minute = 100000
[slurm]
node_name = "node1"
directory = "{bin}"
"""
OFF = "".join(
    f"[rules.{rule}]\nenabled = false\n" for rule in ("repeat-offender", "link-flap", "long-outage", "flap-storm")
)
"""Rules that remember for a day: the second round would meet the first."""


class _Events:
    """The daemon's events, as they come."""

    def __init__(self, program: Program) -> None:
        self._url = f"http://127.0.0.1:{program.port}/api/v1/events"
        self._after = 0

    def wait(self, *wanted: tuple[str, str]) -> list[float]:
        """Wall times of the next events (name, value of `outcome` or severity) in this order."""
        left, found = list(wanted), []
        end = time.monotonic() + PATIENCE
        while left:
            if time.monotonic() > end:
                raise ServiceError(f"the daemon never told of {left[0]}")
            with urllib.request.urlopen(f"{self._url}?since={self._after}", timeout=10) as answer:
                document = json.load(answer)
            self._after = document["next"]
            for event in document["events"]:
                fields = event["fields"]
                if left and (event["event"], str(fields.get("outcome", fields.get("severity", "")))) == left[0]:
                    found.append(float(event["at"]))
                    left.pop(0)
            time.sleep(0.02)
        return found


def _rounds(settings: Settings) -> int:
    """A round takes some seconds."""
    return max(1, settings.rounds // 2)


def _set(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / f"class/infiniband/{DEVICE}/ports/1/{name}").write_text(text)


@contextmanager
def _environment(cluster: SlurmCluster) -> Iterator[None]:
    """The daemon inherits this process's environment."""
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = cluster.env["SLURM_CONF"]
    try:
        yield
    finally:
        del os.environ["SLURM_CONF"]
        if before is not None:
            os.environ["SLURM_CONF"] = before


def _play(settings: Settings) -> tuple[list[float], list[float]]:
    """Milliseconds of each drain and of each release."""
    drains, releases = [], []
    scratch = settings.scratch
    with SlurmCluster(nodes=NODES) as cluster, _environment(cluster):
        root = tree.write(tree.NODE, scratch)
        more = CONFIG.format(off=OFF, scratch=scratch, bin=cluster.bin)
        fast = "".join(f'{tier}_interval = "200ms"\n' for tier in ("state", "counter", "slow"))
        with ibmon(root, scratch, sampling=fast, more=more) as program:
            events = _Events(program)
            for _ in range(_rounds(settings)):
                time.sleep(SETTLE)
                _set(root, DOWN)
                _, seen, done = events.wait(("finding", "warning"), ("finding", "critical"), ("drain", "done"))
                drains.append((done - seen) * 1e3)
                time.sleep(SETTLE)
                _set(root, UP)
                cleared, gone = events.wait(("finding-cleared", ""), ("release", "gone"))
                releases.append((gone - cleared) * 1e3)
    return drains, releases


def measure(settings: Settings) -> Figure:
    """Both ways, as a table; nothing where no Slurm can be started."""
    method = METHOD.format(rounds=_rounds(settings), nodes=NODES)
    what = "file change seen to scontrol returned, p99"
    try:
        drains, releases = _play(settings)
    except (ServiceError, OSError) as error:
        return Figure("Reaction", method, (), [Target(what, None, P99_LIMIT_MS, "ms")], f"Not measured: {error}")
    rows = [
        (name, *(f"{value:.0f}" for value in (median(ms), percentile(ms, 0.99), max(ms))))
        for name, ms in (("drain", drains), ("give back", releases))
    ]
    table = Table(("ms", "median", "p99", "longest"), rows)
    return Figure("Reaction", method, (table,), [Target(what, percentile(drains, 0.99), P99_LIMIT_MS, "ms")])
