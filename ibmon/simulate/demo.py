"""The whole job on a simulated node: a port fails, the node is drained, the port returns, the node is given back.

Runs the real daemon on a directory that stands for /sys and on a scheduler in memory. Nothing of this host is touched.
"""

from __future__ import annotations

import logging
import math
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ibmon.configfile import ConfigError, loads
from ibmon.drain.cluster import Cluster
from ibmon.exporter.errors import ExporterError
from ibmon.exporter.status import status_document
from ibmon.model import NodeView
from ibmon.runtime.live import Daemon
from ibmon.simulate.dgx import dgx
from ibmon.simulate.directory import DirectoryTree
from ibmon.simulate.script import Player, Script
from ibmon.snapshot import Snapshot

NODE = "gpu0017"
PORT = "mlx5_3/1"
FLEET = [f"gpu{n:04d}" for n in range(1, 65)]
DOWN_AT, UP_AT, END_AT = 8.0, 34.0, 62.0

# Holds of seconds instead of minutes, so that the story fits into one; everything else is as on a real node.
CONFIG = """
[node]
name = "{node}"
[sampling]
state_interval = "1s"
counter_interval = "1s"
slow_interval = "2s"
[inventory]
mode = "declared"
[[port]]
match = "mlx5_[0-7]/1"
role = "compute"
rate = 400
[[port]]
match = "mlx5_[89]/1"
role = "storage"
rate = 200
[[port]]
match = "mlx5_1[01]/1"
role = "management"
[rules.port-down]
alert_hold = "4s"
hold = "10s"
recover = "15s"
[action]
mode = "drain"
scheduler = "none"
boot_grace = "0s"
stop_file = "{directory}/STOP"
[action.limits]
max_drained = "2%"
[exporter]
listen = "{listen}"
[state]
directory = "{directory}/state"
runtime_directory = "{directory}/run"
"""

CHAPTERS = (
    (0.0, "All twelve ports are up; traffic flows."),
    (DOWN_AT, f"The cable of {PORT} fails. The port is shown at once; the hold of 10 s begins."),
    (DOWN_AT + 4.5, "4 s: alert. The node stays in service: a short dip is no reason to drain."),
    (DOWN_AT + 10.5, "10 s: the node is unfit and drained. Running jobs go on, new ones go elsewhere."),
    (UP_AT, f"{PORT} is back. It must stay so for 15 s before anybody relies on it."),
    (UP_AT + 16.0, "15 s without a break: the drain was ours, so it is taken back. The node is fit."),
)


class Stage:
    """The simulated surroundings and the daemon on them."""

    def __init__(self, directory: Path, listen: str) -> None:
        self.sysfs = directory / "sys"
        for name in ("sys", "state", "run"):
            (directory / name).mkdir()
        self.cluster = Cluster(FLEET, wall=time.time)
        script = Script(dgx())
        script.traffic(0.5, math.inf, load=0.6)
        script.link_down(DOWN_AT, PORT)
        script.link_up(UP_AT, PORT)
        self.start = time.monotonic()
        self.player = Player(script.frames(), DirectoryTree(self.sysfs), self.start)
        self.player.advance(self.start)
        text = CONFIG.format(node=NODE, directory=directory, listen=listen)
        self.daemon = Daemon(loads(text, "demo"), self.sysfs, scheduler=self.cluster.client(NODE))

    @property
    def at(self) -> float:
        """Seconds into the story."""
        return time.monotonic() - self.start

    def advance(self) -> Snapshot | None:
        """Let the world go on until now; the newest picture of it."""
        self.player.advance(time.monotonic())
        return self.daemon.snapshot

    def node(self) -> NodeView:
        """The node at the scheduler, as `sinfo` would show it."""
        return self.cluster.view(NODE)


def chapter(at: float) -> str:
    """What happens at this point of the story."""
    return [text for begins, text in CHAPTERS if begins <= at][-1]


def slurm_line(view: NodeView) -> str:
    """The node as `scontrol show node` words it."""
    state = "IDLE+DRAIN" if view.drained else "IDLE"
    return f"NodeName={view.name} State={state} Reason={view.reason or '(none)'}"


def main(listen: str = "127.0.0.1:0") -> int:
    """Play the story, live on a terminal, else line by line; 0 when the node was drained and given back."""
    logging.getLogger("ibmon").addHandler(logging.NullHandler())
    logging.getLogger("ibmon").propagate = False
    with tempfile.TemporaryDirectory(prefix="ibmon-demo-") as name:
        stage = Stage(Path(name), listen)
        try:
            stage.daemon.start()
        except (ExporterError, ConfigError) as error:
            sys.stderr.write(f"ibmon: {error}\n")
            return 2
        thread = threading.Thread(target=stage.daemon.loop, name="ibmon-engine")
        thread.start()
        try:
            drained = _live(stage) if sys.stdout.isatty() else _lines(stage)
        except KeyboardInterrupt:
            drained = True
        finally:
            stage.daemon.stop()
            thread.join()
            stage.daemon.close()
    return 0 if drained else 1


def _turns(stage: Stage, seconds: float) -> Iterator[Snapshot]:
    """A picture four times a second until the story ends."""
    while stage.at < seconds:
        snapshot = stage.advance()
        if snapshot is not None:
            yield snapshot
        time.sleep(0.25)


def _lines(stage: Stage) -> bool:
    """The story as lines: chapters, and each change of fitness and at the scheduler."""
    print(f"metrics and page: {stage.daemon.server.url}", flush=True)
    told, was_drained = {"chapter": "", "node": "", "slurm": ""}, False
    for snapshot in _turns(stage, END_AT):
        at, view = stage.at, stage.node()
        now = {"chapter": chapter(at), "node": snapshot.fitness.value, "slurm": slurm_line(view)}
        why = f": {snapshot.why}" if snapshot.why else ""
        shown = {"chapter": f"# {now['chapter']}", "node": f"node {now['node']}{why}", "slurm": now["slurm"]}
        for key, text in now.items():
            if told[key] != text:
                print(f"{at:5.1f} s  {shown[key]}", flush=True)
        told, was_drained = now, was_drained or view.drained
    return was_drained and not stage.node().drained


def _live(stage: Stage) -> bool:
    """The story on a terminal: the live table, with the scheduler's view and the chapter below."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from ibmon.cli.table import render

    console, was_drained = Console(), False
    with Live(console=console, auto_refresh=False, screen=False) as live:
        for snapshot in _turns(stage, float("inf")):
            at, view = stage.at, stage.node()
            was_drained = was_drained or view.drained
            over = at >= END_AT
            foot = "The end. The page stays up until Ctrl-C." if over else chapter(at)
            live.update(
                Group(
                    render(status_document(snapshot), console.width),
                    Text(),
                    Text(slurm_line(view), style="bold red" if view.drained else "green"),
                    Text(f"{at:5.1f} s  {foot}", style="bold"),
                    Text(f"Page and metrics: {stage.daemon.server.url}   Ctrl-C ends the demo.", style="dim"),
                ),
                refresh=True,
            )
    return was_drained
