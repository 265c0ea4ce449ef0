"""The daemon under test: `ibmon run` as a process of its own, with a configuration, a tree and a port on loopback.

Owns: starting it as a user does, and reading what it serves. Must not: import ibmon.
"""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, final

from prometheus_client.parser import text_string_to_metric_families

from .processes import LOOPBACK, Process, Service, ServiceError, free_ports, tail, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .node import NodeTree

COMMAND = Path(sys.executable).with_name("ibmon")

INTERVAL = 1.0
"""Seconds between two reads of a port's state."""
HOLD = 2.0
"""Seconds a port must be down until the node is unfit."""
RECOVER = 3.0
"""Seconds a port must be up again until the node is given back."""

_CONFIGURATION = f"""\
[node]
name = "{{node}}"
[sampling]
state_interval = "{INTERVAL:g}s"
counter_interval = "{INTERVAL:g}s"
slow_interval = "{INTERVAL:g}s"
[[port]]
match = "mlx5_[0-3]/1"
role = "compute"
rate = 400
[inventory]
mode = "declared"
[rules.port-down]
alert_hold = "1s"
hold = "{HOLD:g}s"
recover = "{RECOVER:g}s"
[action]
mode = "{{mode}}"
scheduler = "{{scheduler}}"
boot_grace = "0s"
stop_file = "{{directory}}/STOP"
[action.limits]
min_nodes = 1
max_drained = "50%"
max_unavailable = "100%"
new_per_minute = 60
[exporter]
listen = "{LOOPBACK}:{{port}}"
[state]
directory = "{{directory}}/state"
runtime_directory = "{{directory}}/run"
"""


@final
class Daemon(Service):
    """`ibmon run` on `tree`; a context manager that has it running inside.

    `env` is its whole environment, `more` further sections of its configuration.
    """

    def __init__(
        self,
        tree: NodeTree,
        directory: Path,
        *,
        env: Mapping[str, str],
        mode: str = "observe",
        scheduler: str = "none",
        node: str = "node1",
        more: str = "",
    ) -> None:
        self.directory = directory
        self.env = dict(env)
        [port] = free_ports(1)
        self.address = f"{LOOPBACK}:{port}"
        for name in ("state", "run"):
            (directory / name).mkdir(parents=True)
        self._configuration = directory / "ibmon.toml"
        self._configuration.write_text(
            _CONFIGURATION.format(directory=directory, port=port, mode=mode, scheduler=scheduler, node=node) + more
        )
        self._global = ("--config", str(self._configuration), "--sysfs", str(tree.root))
        self._process: Process | None = None

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.stop()

    @property
    def log(self) -> Path:
        """What the daemon wrote to standard output and error, over all its starts."""
        return self.directory / "ibmon.log"

    @property
    def process(self) -> Process:
        """The process started last."""
        if self._process is None:
            raise ServiceError("ibmon was not started")
        return self._process

    @property
    def stop_file(self) -> Path:
        """Where an operator's stop would lie; it does not exist until a test creates it."""
        return self.directory / "STOP"

    def start(self, env: Mapping[str, str] | None = None) -> None:
        """Starts the daemon, again after an end too, and waits for its first metrics of a port."""
        self._process = process = Process([COMMAND, *self._global, "run"], self.log, env=env or self.env)

        def serves() -> bool:
            process.must_run()
            try:
                return self.metric("ibmon_port_state", device="mlx5_0") is not None
            except OSError:
                return False

        wait_for(serves, within=15, what=f"metrics of ibmon at {self.address}")

    def exposition(self) -> str:
        """Returns `/metrics` in the text format, as promtool reads it."""
        request = urllib.request.Request(f"http://{self.address}/metrics", headers={"Accept": "text/plain"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            return str(answer.read().decode())

    def metric(self, name: str, **labels: str) -> float | None:
        """Returns the value of the one series of that name that has these labels; None when there is none."""
        found = [
            sample.value
            for family in text_string_to_metric_families(self.exposition())
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        if len(found) > 1:
            raise ServiceError(f"{name}{labels}: {len(found)} series; name more labels")
        return found[0] if found else None

    def wait_metric(self, name: str, value: float, *, within: float = 20.0, **labels: str) -> None:
        """Waits until a series has this value; raises `ServiceError` with the end of the daemon's log."""

        def reached() -> bool:
            self.process.must_run()
            return self.metric(name, **labels) == value

        try:
            wait_for(reached, within=within, what=f"{name}{labels} = {value:g}", every=0.1)
        except ServiceError as error:
            raise ServiceError(f"{error}; ibmon's log ends:\n{tail(self.log)}") from error

    def argv(self, *arguments: str) -> list[str | Path]:
        """Returns the command line of another ibmon command with the same configuration and tree."""
        return [COMMAND, *self._global, *arguments]

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs another ibmon command with the same configuration and tree."""
        return subprocess.run(
            self.argv(*arguments), capture_output=True, text=True, timeout=60, check=False, env=self.env
        )

    def gate(self) -> int:
        """Returns what `check --gate` answers a prolog: 1 where our own drain of the node is in force."""
        words = [COMMAND, "--config", str(self._configuration), "check", "--gate"]
        return subprocess.run(words, capture_output=True, timeout=60, check=False, env=self.env).returncode
