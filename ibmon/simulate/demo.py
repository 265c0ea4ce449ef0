"""Plays a scenario on the real daemon: a directory stands for /sys, a scheduler in memory for the cluster's.

Owns the stage and how a story is shown, live or line by line; the stories are data (`ibmon.simulate.scenarios`).
Nothing of this host is touched.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ibmon.configfile import ConfigError, Loaded, loads
from ibmon.drain.cluster import Cluster
from ibmon.exporter.errors import ExporterError
from ibmon.exporter.status import status_document
from ibmon.model import NodeView
from ibmon.recording import DEFAULT_BOOT_ID, DEFAULT_UPTIME, Frame
from ibmon.runtime.live import Daemon
from ibmon.simulate.gated import GatedTree
from ibmon.simulate.scenarios import SCENARIOS, Scenario, Witness
from ibmon.simulate.script import Player
from ibmon.snapshot import Snapshot

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

NODE = "gpu0017"
FLEET = [f"gpu{n:04d}" for n in range(1, 65)]
TURN = 0.25  # seconds between two pictures


class Stage:
    """The simulated surroundings and the daemon on them; the daemon starts anew where the story reboots the node."""

    def __init__(self, scenario: Scenario, directory: Path, listen: str) -> None:
        self.scenario = scenario
        self.cluster = Cluster(FLEET, wall=time.time)
        self.tree = GatedTree(directory / "sys")
        self._directory = directory
        self._listen = listen
        self._boot = (DEFAULT_BOOT_ID, time.monotonic() - DEFAULT_UPTIME)
        frames = scenario.frames()
        self.tree.apply(next(frames))
        self._begin()
        self.start = time.monotonic()
        self._player = Player(frames, self.tree, self.start)

    def _begin(self) -> None:
        """Start a daemon on the directory as it is. Raises ExporterError or ConfigError."""
        self.daemon = Daemon(
            self._config(),
            self._directory / "sys",
            scheduler=self.cluster.client(NODE),
            tree=self.tree,
            boot=self._boot,
        )
        self.daemon.start()
        self._listen = self.daemon.server.url.removeprefix("http://").rstrip("/")  # a successor keeps the address
        self._thread = threading.Thread(target=self.daemon.loop, name="ibmon-engine")
        self._thread.start()

    def _config(self) -> Loaded:
        own = {
            "node": {"name": NODE},
            "action": {"stop_file": f"{self._directory}/STOP"},
            "exporter": {"listen": self._listen},
            "state": {
                "directory": f"{self._directory}/state",
                "runtime_directory": f"{self._directory}/run",
            },
        }
        return loads(self.scenario.toml(own), "demo")

    def end(self) -> None:
        """Stop the daemon."""
        self.daemon.stop()
        self._thread.join()
        self.daemon.close()

    @property
    def at(self) -> float:
        """Seconds into the story."""
        return time.monotonic() - self.start

    def advance(self) -> Snapshot | None:
        """Let the world go on until now; the newest picture of it."""
        for frame in self._player.advance(time.monotonic()):
            if frame.boot_id is not None or frame.restart:
                self._restart(frame)
        return self.daemon.snapshot

    def _restart(self, frame: Frame) -> None:
        self.end()
        if frame.boot_id is not None:
            self._boot = (frame.boot_id, time.monotonic() - (frame.uptime or 0.0))
        self._begin()

    def node(self) -> NodeView:
        """The node at the scheduler, as `sinfo` would show it."""
        return self.cluster.view(NODE)


def slurm_line(view: NodeView) -> str:
    """The node as `scontrol show node` words it."""
    state = "IDLE+DRAIN" if view.drained else "IDLE"
    return f"NodeName={view.name} State={state} Reason={view.reason or '(none)'}"


def listing() -> str:
    """All scenarios, a line each."""
    width = max(map(len, SCENARIOS))
    return "".join(f"{name:<{width}}  {scenario.title}\n" for name, scenario in SCENARIOS.items())


def main(name: str, listen: str = "127.0.0.1:0") -> int:
    """Play a scenario, live on a terminal, else line by line; 0 when it ended as it has to, 1 when not."""
    logging.getLogger("ibmon").addHandler(logging.NullHandler())
    logging.getLogger("ibmon").propagate = False
    scenario = SCENARIOS[name]
    witness = Witness(scenario.ending)
    with tempfile.TemporaryDirectory(prefix="ibmon-demo-") as directory:
        for below in ("state", "run"):
            (Path(directory) / below).mkdir()
        try:
            stage = Stage(scenario, Path(directory), listen)
        except (ExporterError, ConfigError) as error:
            sys.stderr.write(f"ibmon: {error}\n")
            return 2
        try:
            (_live if sys.stdout.isatty() else _lines)(stage, name, witness)
        except KeyboardInterrupt:
            if stage.at < scenario.end:
                return 0  # left before the end: there is nothing to verify
        finally:
            stage.tree.open()
            stage.end()
    for complaint in witness.complaints():
        sys.stderr.write(f"ibmon: the scenario {name} did not end as it has to: {complaint}\n")
    if witness.complaints():
        return 1
    print(f"{name} ended as it has to: {scenario.ending.text()}")
    return 0


def _turns(stage: Stage, witness: Witness) -> Iterator[Snapshot]:
    """A picture a turn until the story ends; the witness sees each."""
    while stage.at < stage.scenario.end:
        snapshot = stage.advance()
        if snapshot is not None:
            rules = frozenset(finding.rule for finding in snapshot.findings)
            witness.see(snapshot.fitness, rules, drained=stage.node().drained)
            yield snapshot
        time.sleep(TURN)


def _lines(stage: Stage, name: str, witness: Witness) -> None:
    """The story as lines: chapters, and each change of fitness, of findings and at the scheduler."""
    print(f"{name}: {stage.scenario.title}\nmetrics and page: {stage.daemon.server.url}", flush=True)
    told: dict[str, str] = {}
    for snapshot in _turns(stage, witness):
        at = stage.at
        why = f": {snapshot.why}" if snapshot.why else ""
        now = {
            "chapter": (text := stage.scenario.chapter(at), f"# {text}"),
            "node": (snapshot.fitness.value, f"node {snapshot.fitness.value}{why}"),
            "slurm": (line := slurm_line(stage.node()), line),
        }
        for finding in snapshot.findings:
            line = f"{finding.severity.value} {finding.rule} {finding.subject}"
            now[f"finding {finding.rule} {finding.subject}"] = (line, f"{line}: {finding.text}".strip())
        for what, (key, shown) in now.items():
            if told.get(what) != key:
                print(f"{at:5.1f} s  {shown}", flush=True)
        told = {what: key for what, (key, _) in now.items()}


def _live(stage: Stage, name: str, witness: Witness) -> None:
    """The story on a terminal: the chapter and the scheduler's view above the live table."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for snapshot in _turns(stage, witness):
            live.update(_picture(stage, name, snapshot, console, stage.scenario.chapter(stage.at)), refresh=True)
        foot = "; ".join(witness.complaints()) or "The end, as it has to be. The page stays up until Ctrl-C."
        while True:
            last = stage.advance()
            if last is not None:
                live.update(_picture(stage, name, last, console, foot), refresh=True)
            time.sleep(TURN)


def _picture(stage: Stage, name: str, snapshot: Snapshot, console: Console, foot: str) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from ibmon.cli.table import render

    view = stage.node()
    return Group(
        Text(f"{name}: {stage.scenario.title}", style="dim"),
        Text(f"Page and metrics: {stage.daemon.server.url}   Ctrl-C ends the demo.", style="dim"),
        Text(f"{min(stage.at, stage.scenario.end):5.1f} s  {foot}", style="bold"),
        Text(slurm_line(view), style="bold red" if view.drained else "green", no_wrap=True, overflow="ellipsis"),
        Text(),
        render(status_document(snapshot), console.width),
    )
