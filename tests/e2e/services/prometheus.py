"""A real Prometheus on 127.0.0.1 with its own storage, and promtool, from Debian's package.

Owns: starting and stopping the server and asking it. Must not: know what is scraped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from . import debian
from .processes import LOOPBACK, Process, free_ports, stop_all, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = "prometheus"

FIRST_SAMPLE = 20.0
"""Seconds within which a target must have been scraped: discovery alone takes the server 5 s."""

_CONFIGURATION = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
scrape_configs:
- job_name: ibmon
  static_configs: [{{targets: {targets}}}]
"""


@final
class Prometheus:
    """A server that scrapes `targets` (host:port) every second; a context manager."""

    def __init__(self, targets: Sequence[str]) -> None:
        self._root = debian.unpacked(PACKAGE)
        self._targets = list(targets)
        self._directory = Path(tempfile.mkdtemp(prefix="ibmon-prometheus."))
        self._processes: list[Process] = []
        self.url = ""

    def __enter__(self) -> Prometheus:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            stop_all(self._processes)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self) -> None:
        configuration = self._directory / "prometheus.yml"
        configuration.write_text(_CONFIGURATION.format(targets=json.dumps(self._targets)))
        [port] = free_ports(1)
        self.url = f"http://{LOOPBACK}:{port}"
        server = Process(
            [
                self._root / "usr/bin/prometheus",
                f"--config.file={configuration}",
                f"--storage.tsdb.path={self._directory}/data",
                f"--web.listen-address={LOOPBACK}:{port}",
            ],
            self._directory / "prometheus.log",
            env=os.environ,
        )
        self._processes.append(server)

        def ready() -> bool:
            server.must_run()
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        wait_for(ready, within=30, what="Prometheus ready")

    def query(self, expression: str) -> dict[frozenset[tuple[str, str]], float]:
        """Returns the values of an instant query by label set, without `__name__`, `job` and `instance`.

        Raises:
            AssertionError: when Prometheus calls the expression wrong; the text is its own.
        """
        question = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query?{question}", timeout=10) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{expression}: {error.read().decode()}") from None
        return {_labels(series["metric"]): float(series["value"][1]) for series in document["data"]["result"]}

    def wait_scraped(self) -> None:
        """Waits until every target has been scraped without an error; raises `ServiceError` with the scrape's error."""

        def errors() -> list[str]:
            with urllib.request.urlopen(f"{self.url}/api/v1/targets", timeout=10) as answer:
                active = json.load(answer)["data"]["activeTargets"]
            if len(active) < len(self._targets):
                return ["not discovered yet"]
            return [f"{target['scrapeUrl']}: {target['lastError'] or target['health']}" for target in active]

        def scraped() -> bool:
            last[:] = errors()
            return all(error.endswith(": up") for error in last)

        last: list[str] = []
        wait_for(scraped, within=FIRST_SAMPLE, what=f"a scrape of {self._targets}")


def _labels(metric: dict[str, Any]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in metric.items() if name not in {"__name__", "job", "instance"})


def check_metrics(exposition: str) -> subprocess.CompletedProcess[str]:
    """Runs `promtool check metrics` on an exposition text: exit code 0 and no output when it finds nothing to say."""
    return subprocess.run(
        [debian.unpacked(PACKAGE) / "usr/bin/promtool", "check", "metrics"],
        input=exposition,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
