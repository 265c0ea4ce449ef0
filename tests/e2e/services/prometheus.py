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
from .processes import LOOPBACK, Process, Service, free_ports, stop_all, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = "prometheus"

FIRST_SAMPLE = 20.0
"""Seconds within which a target must have been scraped: discovery alone takes the server 5 s."""

SCRAPE = 1.0
"""Seconds between two scrapes, and between two evaluations of rules, unless a test wants others."""

Job = dict[str, Any]
"""A scrape configuration; JSON is YAML."""


@final
class Prometheus(Service):
    """A server that scrapes `targets` (host:port, or whole scrape configurations); a context manager.

    Args:
        targets: addresses of the job `ibmon`, or jobs as Prometheus configures them.
        rules: files of rules.
        alertmanagers: addresses (host:port) that are told what fires.
        every: seconds between two scrapes and between two evaluations.
        data: a directory of blocks to serve beside what is scraped; they are taken away from there.
    """

    def __init__(
        self,
        targets: Sequence[str] | Sequence[Job],
        *,
        rules: Sequence[Path] = (),
        alertmanagers: Sequence[str] = (),
        every: float = SCRAPE,
        data: Path | None = None,
    ) -> None:
        self._root = debian.unpacked(PACKAGE)
        self._jobs = [target for target in targets if isinstance(target, dict)] or [
            {"job_name": "ibmon", "static_configs": [{"targets": list(targets)}]}
        ]
        self._targets = sum(len(static["targets"]) for job in self._jobs for static in job["static_configs"])
        self._rules = list(rules)
        self.every = every
        self._data = data
        self._alertmanagers = list(alertmanagers)
        self._directory = Path(tempfile.mkdtemp(prefix="ibmon-prometheus."))
        self._processes: list[Process] = []
        self.url = ""

    def __exit__(self, *_: object) -> None:
        try:
            stop_all(self._processes)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def start(self) -> None:
        configuration = self._directory / "prometheus.yml"
        document = {
            "global": {"scrape_interval": f"{self.every:g}s", "evaluation_interval": f"{self.every:g}s"},
            "rule_files": [str(file) for file in self._rules],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": self._alertmanagers}]}]},
            "scrape_configs": self._jobs,
        }
        configuration.write_text(json.dumps(document))
        if self._data is not None:
            (self._directory / "data").mkdir()
            for block in self._data.iterdir():
                shutil.move(block, self._directory / "data")
        [port] = free_ports(1)
        self.url = f"http://{LOOPBACK}:{port}"
        server = Process(
            [
                self._root / "usr/bin/prometheus",
                f"--config.file={configuration}",
                f"--storage.tsdb.path={self._directory}/data",
                "--storage.tsdb.retention.time=10d",
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
        return {
            _labels(series["metric"]): float(series["value"][1])
            for series in self._ask("query", expression, query=expression)
        }

    def labels(self, expression: str, start: float, end: float) -> list[dict[str, str]]:
        """Returns the labels of all series that a query has somewhere between two times (epoch seconds).

        Raises:
            AssertionError: as `query`.
        """
        asked = {"query": expression, "start": f"{start:f}", "end": f"{end:f}", "step": f"{self.every:g}"}
        return [series["metric"] for series in self._ask("query_range", expression, **asked)]

    def _ask(self, what: str, expression: str, **parameters: str) -> list[dict[str, Any]]:
        question = urllib.parse.urlencode(parameters).encode()  # in the body: some are longer than a line may be
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{what}", data=question, timeout=30) as answer:
                result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{expression}: {error.read().decode()}") from None
        return result

    def wait_scraped(self) -> None:
        """Waits until every target has been scraped without an error; raises `ServiceError` with the scrape's error."""

        def errors() -> list[str]:
            with urllib.request.urlopen(f"{self.url}/api/v1/targets", timeout=10) as answer:
                active = json.load(answer)["data"]["activeTargets"]
            if len(active) < self._targets:
                return ["not discovered yet"]
            return [f"{target['scrapeUrl']}: {target['lastError'] or target['health']}" for target in active]

        def scraped() -> bool:
            last[:] = errors()
            return all(error.endswith(": up") for error in last)

        last: list[str] = []
        wait_for(scraped, within=FIRST_SAMPLE, what=f"a scrape of all {self._targets} targets")


def _labels(metric: dict[str, Any]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in metric.items() if name not in {"__name__", "job", "instance"})


def check_metrics(exposition: str) -> subprocess.CompletedProcess[str]:
    """Runs `promtool check metrics` on an exposition text: exit code 0 and no output when it finds nothing to say."""
    return promtool("check", "metrics", text=exposition)


def promtool(*arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Runs promtool with these arguments and this standard input; the exit code is left to the caller."""
    return subprocess.run(
        [debian.unpacked(PACKAGE) / "usr/bin/promtool", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
