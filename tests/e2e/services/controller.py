"""The fleet controller under test: `ibmon controller` as a process of its own, with keys and tokens, on loopback.

Owns: starting it as an operator does, and asking it. Must not: import ibmon.
"""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, final

from prometheus_client.parser import text_string_to_metric_families

from .daemon import COMMAND
from .processes import LOOPBACK, Process, Service, ServiceError, free_ports, tail, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

REPORT_INTERVAL = 30.0
"""Seconds between two reports of a node about which nothing changes."""
QUORUM_WAIT = 2 * REPORT_INTERVAL
"""Seconds after its start in which a controller drains nothing."""

_CONFIGURATION = """\
[action]
mode = "{mode}"
scheduler = "{scheduler}"
stop_file = "{directory}/STOP"
[action.limits]
min_nodes = {min_nodes}
max_drained = "50%"
max_unavailable = "100%"
new_per_minute = 60
[controller]
listen = "{loopback}:{port}"
master_key_file = "{directory}/master.key"
tokens_file = "{directory}/tokens"
{more}
[state]
directory = "{directory}/state"
"""


@final
class Controller(Service):
    """`ibmon controller`; a context manager that has it running inside.

    `env` is its whole environment, `more` further keys of [controller], and sections after them. A `twin` of another
    one has its keys and tokens. Nodes report to `front`, where that is not the instance itself.
    """

    def __init__(
        self,
        directory: Path,
        *,
        env: Mapping[str, str],
        scheduler: str = "slurm",
        mode: str = "drain",
        min_nodes: int = 3,
        more: str = "",
        twin: Controller | None = None,
    ) -> None:
        self.directory = directory
        self.env = dict(env)
        [self.port] = free_ports(1)
        self.url = self.front = f"http://{LOOPBACK}:{self.port}"
        (directory / "state").mkdir(parents=True)
        roles = ("view", "operate", "alert")
        self.tokens = twin.tokens if twin else {role: secrets.token_urlsafe(24) for role in roles}
        self.master = twin.master if twin else f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}\n"
        self._write("master.key", self.master)
        self._write("tokens", "".join(f"{role}er {role} {token}\n" for role, token in self.tokens.items()))
        self._write("operator.token", self.tokens["operate"])
        self._configuration = directory / "controller.toml"
        self._configuration.write_text(
            _CONFIGURATION.format(
                directory=directory,
                loopback=LOOPBACK,
                port=self.port,
                mode=mode,
                scheduler=scheduler,
                min_nodes=min_nodes,
                more=more,
            )
        )
        self._process: Process | None = None

    def _write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_text(text)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.stop()

    @property
    def process(self) -> Process:
        """The process started last."""
        if self._process is None:
            raise ServiceError("the controller was not started")
        return self._process

    @property
    def log(self) -> Path:
        """What it wrote to standard output and error, over all its starts."""
        return self.directory / "controller.log"

    def start(self, *, leads: bool = True) -> None:
        """Starts it, again after an end too, and waits until it leads, or only until it answers."""
        arguments = [COMMAND, "--config", str(self._configuration), "controller"]
        self._process = process = Process(arguments, self.log, env=self.env)
        path = "/readyz" if leads else "/healthz"

        def serves() -> bool:
            process.must_run()
            return self.status(path) == 200

        wait_for(serves, within=20, what=f"a controller at {self.url}{path}")

    def status(self, path: str, body: bytes | None = None) -> int | None:
        """Returns the status that a path answers, to a POST where there is a body; None where nobody answers."""
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, body), timeout=2) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return None

    def of_node(self, node: str, directory: Path) -> str:
        """Makes a node's key with the controller's own command; the lines of the node's configuration."""
        made = self.command("controller", "key", node)
        if made.returncode != 0:
            raise ServiceError(f"ibmon controller key: {made.stderr}")
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "node.key"
        path.touch(mode=0o600)
        path.write_text(made.stdout)
        return f'[controller]\nurl = "{self.front}"\nkey_file = "{path}"\n'

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs an ibmon command as an operator of this controller."""
        env = {**self.env, "IBMON_TOKEN_FILE": str(self.directory / "operator.token")}
        words = [COMMAND, "--config", str(self._configuration), *arguments]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=env)

    def get(self, path: str) -> Any:
        """Returns a JSON answer of the API."""
        headers = {"Authorization": f"Bearer {self.tokens['view']}"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=5) as answer:
            return json.load(answer)

    def metric(self, name: str, **labels: str) -> float | None:
        """Returns the value of the one series of that name that has these labels; None when there is none."""
        request = urllib.request.Request(f"{self.url}/metrics", headers={"Accept": "text/plain"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            text = answer.read().decode()
        found = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        if len(found) > 1:
            raise ServiceError(f"{name}{labels}: {len(found)} series; name more labels")
        return found[0] if found else None

    def wait_quorum(self) -> None:
        """Waits until it may drain: two report intervals, and enough of the nodes have reported."""

        def is_open() -> bool:
            self.process.must_run()
            return bool(self.get("/api/v1/fleet")["quorum"]["open"])

        try:
            wait_for(is_open, within=QUORUM_WAIT + 20, what="a quorum", every=0.2)
        except ServiceError as error:
            raise ServiceError(f"{error}; the controller's log ends:\n{tail(self.log)}") from error
