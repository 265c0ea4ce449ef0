"""A simulated node in a directory and `ibmon run` on it as a process of its own, as a service manager would run it.

Owns trees, configurations, processes and waiting. It judges nothing, and no process outlives its node.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from ibmon.recording import Frame
from ibmon.simulate.directory import DirectoryTree
from ibmon.simulate.tree import ACTIVE, DOWN, LINK_UP, POLLING, Pci, Port, Tree, device

PATIENCE = 15.0
"""Seconds for what takes one or two; a machine under load gets its time."""

COMMAND = (sys.executable, "-m", "ibmon")
NAME = "node1"

FAST = """
[sampling]
state_interval = "100ms"
counter_interval = "100ms"
slow_interval = "100ms"
"""

DECLARED = """
[inventory]
mode = "declared"
[[port]]
match = "mlx5_[0-3]/1"
rate = 400
"""

QUICK = """
[rules.port-down]
alert_hold = "100ms"
hold = "200ms"
recover = "300ms"
"""


def small() -> Tree:
    """Four compute ports, each on a card of its own: a tree that is quickly written and read."""
    tree = Tree(dirs=("class/infiniband", "class/net"))
    for number in range(4):
        place = Pci(address=f"0000:{number + 1}8:00.0", above=f"pci0000:{number + 1}7/0000:{number + 1}7:01.0")
        tree |= device(f"mlx5_{number}", ports=(Port(),), pci=place, index=number)
    return tree


def until(condition: Callable[[], Any], what: str = "", within: float = PATIENCE) -> Any:
    """The first true answer of a condition; fails when there was none in time."""
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end, f"in vain: {what or condition}"
        time.sleep(0.02)
    return found


def always(condition: Callable[[], Any], seconds: float) -> None:
    """Fails as soon as the condition does not hold, within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition()
        time.sleep(0.02)


def drop_override() -> None:
    """In a child that root starts: give up reading and writing what its mode forbids (prctl(2), capabilities(7))."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH; exec leaves root only what is bounded
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


class Daemon:
    """One process of `ibmon run`; `log` is what it wrote to standard output and error."""

    def __init__(
        self,
        arguments: tuple[str, ...],
        log: Path,
        environment: Mapping[str, str],
        before: Callable[[], None] | None,
    ) -> None:
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(environment),
                preexec_fn=before,  # noqa: PLW1509 - a system call and no lock
            )

    @property
    def text(self) -> str:
        """The log as it is now."""
        return self.log.read_text()

    def lines(self, *words: str) -> list[str]:
        """Lines of the log that hold all these words."""
        return [line for line in self.text.splitlines() if all(word in line for word in words)]

    def url(self, path: str = "metrics") -> str:
        """Where it serves; waits until it does."""

        def served() -> str:
            assert self.process.poll() is None, self.text
            return next((line.split("metrics=")[1].split()[0] for line in self.lines("event=start")), "")

        return str(until(served, "the address")).removesuffix("metrics") + path

    def exposition(self) -> str:
        """`/metrics` as text; empty where nothing answers."""
        try:
            with urllib.request.urlopen(self.url(), timeout=PATIENCE) as answer:
                return str(answer.read().decode())
        except (OSError, urllib.error.URLError):
            return ""

    def series(self, name: str, **labels: str) -> dict[tuple[str, ...], float]:
        """The samples of that name which have these labels, by their other labels' values."""
        found: dict[tuple[str, ...], float] = {}
        # A whole parser would take more of the machine than the daemon does.
        for text, value in re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", self.exposition(), re.MULTILINE):
            own = dict(re.findall(r'(\w+)="([^"]*)"', text))
            if labels.items() <= own.items():
                found[tuple(own[k] for k in sorted(own) if k not in labels)] = float(value)
        return found

    def metric(self, name: str, **labels: str) -> float | None:
        """The one sample of that name and these labels; None where there is none."""
        return self.series(name, **labels).get(())

    def wait_metric(self, name: str, value: float | None, **labels: str) -> None:
        """Waits until a sample has this value, or with None is not there."""
        try:
            until(lambda: self.metric(name, **labels) == value)
        except AssertionError:
            found = self.series(name)
            raise AssertionError(f"{name}{labels} is never {value}, but {found}; log:\n{self.text}") from None

    def wait_line(self, *words: str) -> str:
        """Waits for a line of the log with all these words."""
        try:
            return str(until(lambda: self.lines(*words))[0])
        except AssertionError:
            raise AssertionError(f"no line with {words} in:\n{self.text}") from None

    def sequence(self) -> int:
        """The number of the picture that it serves."""
        with urllib.request.urlopen(self.url("api/v1/status"), timeout=PATIENCE) as answer:
            return int(json.load(answer)["sequence"])

    def judge_again(self, times: int = 5) -> None:
        """Waits until it has judged the node so many times more."""
        first = self.sequence()
        until(lambda: self.sequence() >= first + times, "another look at the node")

    def limit_files(self, size: int | None) -> None:
        """A disk that is full: no file of this process may grow beyond `size` bytes; None ends it."""
        soft = resource.RLIM_INFINITY if size is None else size
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))

    def reload(self) -> None:
        """SIGHUP."""
        self.process.send_signal(signal.SIGHUP)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@final
class LiveNode:
    """A node's tree, directories and configuration below one directory; a context manager that ends its daemons."""

    def __init__(self, directory: Path, tree: Tree | None = None) -> None:
        self.directory = directory
        self.tree = small() if tree is None else tree
        self.sysfs = directory / "sys"
        self.state = directory / "state"
        self.runtime = directory / "run"
        self.config = directory / "ibmon.toml"
        self.verdict_file = self.runtime / "verdict.json"
        for place in (self.state, self.runtime):
            place.mkdir()
        self._disk = DirectoryTree(self.sysfs)
        self._disk.apply(self.tree.frame())
        self._daemons: list[Daemon] = []
        self.configure()

    def __enter__(self) -> LiveNode:
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in self._daemons:
            with contextlib.suppress(ProcessLookupError):
                daemon.process.kill()
            daemon.process.wait()

    def configure(self, text: str = FAST, *, file: Path | None = None, **changed: str) -> Path:
        """Writes a configuration: the node's directories, a free port on the loopback, and `text`.

        `changed` replaces the values of ``state``, ``runtime`` and ``exporter`` (a whole section body).
        """
        exporter = changed.get("exporter", 'listen = "127.0.0.1:0"')
        file = file or self.config
        file.write_text(
            f'[node]\nname = "{NAME}"\n[exporter]\n{exporter}\n'
            f'[state]\ndirectory = "{changed.get("state", self.state)}"\n'
            f'runtime_directory = "{changed.get("runtime", self.runtime)}"\n{text}\n'
        )
        return file

    def start(
        self,
        *,
        config: Path | None = None,
        sysfs: Path | None = None,
        python: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        unprivileged: bool = False,
    ) -> Daemon:
        """Starts a daemon; it need not serve yet. `python` are options of the interpreter."""
        arguments = (
            COMMAND[0], *python, *COMMAND[1:], "--config", str(config or self.config),
            "--sysfs", str(sysfs or self.sysfs), "run",
        )  # fmt: skip
        log = self.directory / f"log-{len(self._daemons)}"
        usual = {k: v for k, v in os.environ.items() if k not in {"NOTIFY_SOCKET", "JOURNAL_STREAM"}}
        before = drop_override if unprivileged else None
        daemon = Daemon(arguments, log, {**usual, **(environment or {})}, before)
        self._daemons.append(daemon)
        return daemon

    def serving(self, **how: Any) -> Daemon:
        """Starts a daemon and waits until it has read every port."""
        daemon = self.start(**how)
        ports = sum(len(placed.ports) for placed in self.tree.devices.values())
        until(lambda: len(daemon.series("ibmon_port_state")) >= ports, "all ports")
        return daemon

    def apply(self, **frame: Any) -> None:
        """Changes the tree, by the keys of a recording's frame."""
        self._disk.apply(Frame(t=0, **frame))

    def goes_down(self, port: str = "mlx5_3/1") -> None:
        """The link of a port goes."""
        self._link(port, DOWN, POLLING, "10 Gb/sec (4X SDR)")

    def comes_up(self, port: str = "mlx5_3/1") -> None:
        """The link of a port is back."""
        self._link(port, ACTIVE, LINK_UP, "400 Gb/sec (4X NDR)")

    def _link(self, port: str, state: str, physical: str, rate: str) -> None:
        base = self.tree.port_path(port)
        self.apply(
            files={f"{base}/{n}": f"{t}\n" for n, t in (("rate", rate), ("phys_state", physical), ("state", state))}
        )

    def verdict(self) -> dict[str, Any]:
        """The verdict file; empty where there is none."""
        try:
            return dict(json.loads(self.verdict_file.read_text()))
        except FileNotFoundError:
            return {}

    def wait_fitness(self, fitness: str) -> dict[str, Any]:
        """Waits until the verdict file says so; the verdict."""
        until(lambda: self.verdict().get("fitness") == fitness, f"fitness {fitness}")
        return self.verdict()
