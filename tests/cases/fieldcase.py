"""Field cases as files: what a case is, how it is read, and how it is played through the replay runtime.

A case is a recording, a configuration, and what must be seen at which time (README.md has the format). It decides
nothing: `test_cases.py` holds the two against each other.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from ibmon.config import Config
from ibmon.configfile import loads
from ibmon.exporter.render import Renderer
from ibmon.exporter.text import Format
from ibmon.health.rules import RULE_BY_ID
from ibmon.recording import Frame, Header
from ibmon.runtime.replay import World, play
from ibmon.virtualtree import VirtualTree

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
_TREES = {"set", "link", "errno"}  # tables of directories in a case, flat paths in a recording


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What must be seen at second `t`; what is not named may be anything.

    Attributes:
        needs: rules without which this cannot be expected; it is left out while one of them is not in the table.
        alert: whether any alert fires; `alerts` says how many, `severity` the worst of them.
        flaps: bounces counted at the port that has most of them.
        reason: words that the drain's reason contains; `reason_lacks` those that it must not.
        calls: writes to the scheduler since the start.
        metrics: series to value, ``">0"`` for any positive one. A series names the labels that it must have.
        absent: series that must not be there at all: neither 0 nor NaN.
        reads: files to the number of times they may have been read since the start.
    """

    t: float
    needs: tuple[str, ...] = ()
    ports: Mapping[str, str] = {}
    node: str | None = None
    alert: bool | None = None
    alerts: int | None = None
    severity: str | None = None
    drained: bool | None = None
    flaps: int | None = None
    reason: tuple[str, ...] = ()
    reason_lacks: tuple[str, ...] = ()
    calls: Mapping[str, int] | None = None
    metrics: Mapping[str, float | str] = {}
    absent: tuple[str, ...] = ()
    reads: Mapping[str, int] = {}

    @property
    def missing(self) -> tuple[str, ...]:
        """The rules that this waits for."""
        return tuple(rule for rule in self.needs if rule not in RULE_BY_ID)

    def unmet(self, row: Mapping[str, Any]) -> list[str]:
        """What of the verdicts does not hold in a row of the replay's output."""
        severities = [alert["severity"] for alert in row["alerts"]]
        reason = row["reason"] or ""
        found: dict[str, tuple[Any, Any]] = {
            "node": (self.node, row["node"]),
            "alert": (self.alert, bool(severities)),
            "alerts": (self.alerts, len(severities)),
            "severity": (self.severity, min(severities, default=None)),  # critical comes before warning
            "drained": (self.drained, row["drained"]),
            "flaps": (self.flaps, max(row["flaps"].values(), default=0)),
            "calls": (self.calls, row["calls"]),
            **{port: (health, row["ports"].get(port)) for port, health in self.ports.items()},
        }
        bad = [f"{what} is {is_!r}, not {want!r}" for what, (want, is_) in found.items() if want not in (None, is_)]
        bad += [f"the reason {reason!r} lacks {word!r}" for word in self.reason if word not in reason]
        bad += [f"the reason {reason!r} says {word!r}" for word in self.reason_lacks if word in reason]
        return bad


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """One case file."""

    title: str
    why: str
    source: tuple[str, ...]
    basis: str
    config: str
    frame: tuple[dict[str, Any], ...]
    expect: tuple[Expect, ...]
    header: Header = Header()

    @cached_property
    def settings(self) -> Config:
        """The configuration."""
        return loads(self.config).config

    @property
    def slack(self) -> float:
        """A verdict may come one reading of the state later than it is expected (seconds)."""
        return self.settings.sampling.state_interval

    def frames(self) -> Iterator[Frame]:
        """The recording's frames."""
        for table in self.frame:
            yield msgspec.convert({k: _flat(k, v) if k in _TREES else v for k, v in table.items()}, Frame)

    @property
    def active(self) -> tuple[Expect, ...]:
        """What can be expected of this version."""
        return tuple(e for e in self.expect if not e.missing)


def _flat(key: str, directories: Mapping[str, Mapping[str, str]]) -> dict[str, str | None]:
    """Paths from tables of directories. A text gets the newline that the kernel writes; an empty errno ends one."""
    out: dict[str, str | None] = {}
    for directory, entries in directories.items():
        for name, text in entries.items():
            whole = text + "\n" if key == "set" and not text.endswith("\n") else text
            out[f"{directory}/{name}"] = None if key == "errno" and not text else whole
    return out


def names() -> list[str]:
    """All cases, by the names of their files."""
    return sorted(path.stem for path in HERE.glob("*.toml"))


def load(name: str) -> Case:
    """Read a case. An unknown key is an error that names it."""
    return msgspec.convert(tomllib.loads((HERE / f"{name}.toml").read_text()), Case)


def _count_reads(tree: VirtualTree) -> Counter[str]:
    """How often each file of a tree is read from now on."""
    reads: Counter[str] = Counter()
    plain = tree.read

    def read(path: str) -> bytes:
        reads[path] += 1
        return plain(path)

    tree.read = read  # type: ignore[method-assign]
    return reads


class Seen(msgspec.Struct, dict=True):
    """The node at one time: its last row of output, its exposition, and how often each file was read."""

    row: Mapping[str, Any]
    text: str
    reads: Mapping[str, int]

    @cached_property
    def series(self) -> list[tuple[str, dict[str, str], float]]:
        """Every sample of the exposition: name, labels, value."""
        return _samples(self.text)

    def values(self, series: str) -> list[float]:
        """Values of the samples that have a series' name and at least its labels."""
        [(name, labels, _)] = _samples(f"{series} 0\n")
        return [v for n, found, v in self.series if n == name and labels.items() <= found.items()]

    def unmet(self, expect: Expect) -> list[str]:
        """What of metrics, absences and reads does not hold."""
        bad = []
        for series, want in expect.metrics.items():
            values = self.values(series)
            good = len(values) == 1 and (values[0] > 0 if want == ">0" else values[0] == want)
            bad += [] if good else [f"{series} is {values}, not {want}"]
        bad += [f"{series} is there" for series in expect.absent if self.values(series)]
        for path, most in expect.reads.items():
            bad += [f"{path} was read {self.reads[path]} times"] if not 0 < self.reads[path] <= most else []
        return bad


def _samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    return [(s.name, s.labels, s.value) for family in text_string_to_metric_families(text) for s in family.samples]


def watch(case: Case) -> dict[float, Seen]:
    """Play a case; the node at each time at which something is expected of it, and one slack later."""
    world = World(case.header, case.settings)
    reads = _count_reads(world.tree)
    times = sorted({e.t for e in case.expect} | {e.t + case.slack for e in case.expect})
    seen = {}
    for time, row in play(world, case.frames(), times, times[-1]):
        if time in times:
            text = Renderer(node_exporter=False).render(world.engine.snapshot(world.now()), Format.TEXT, monotonic=time)
            seen[time] = Seen(row, text.decode(), Counter(reads))
    return seen
