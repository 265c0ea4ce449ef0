"""Real Alertmanagers on 127.0.0.1, alone or as a cluster, from Debian's package, and the people that they notify.

Owns: starting, asking and stopping them. Must not: know who sends alerts or what they say.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
import urllib.request
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

from . import debian
from .processes import LOOPBACK, Process, Service, free_ports, stop_all, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PACKAGE = "prometheus-alertmanager"

# Debian's build reads its templates at /usr/share/prometheus/alertmanager and cannot be told another place. The
# unpacked files stand there for this process alone.
_SEES = 'mount --bind "$0/usr/share" /usr/share && exec "$0/usr/bin/prometheus-alertmanager" "$@"'

RESOLVE_TIMEOUT = 1.0
"""Seconds after which an alert that came without an end is over (global.resolve_timeout)."""
PEER_TIMEOUT = 2.0
"""Seconds that each member of a cluster waits for the one before it to notify."""

_CONFIGURATION = f"""\
global: {{{{resolve_timeout: {RESOLVE_TIMEOUT:g}s}}}}
route:
  {{{{receiver: people, group_by: [node, device], group_wait: 0s, group_interval: {{group}}s, repeat_interval: 1h}}}}
receivers:
- name: people
  webhook_configs:
  - url: "{{people}}"
    send_resolved: true
    {{access}}
"""


class Notice(NamedTuple):
    """One notification: when it came (monotonic), and each alert's labels and status."""

    at: float
    alerts: tuple[tuple[Mapping[str, str], str], ...]


class Hearer(Protocol):
    """Whom Alertmanagers notify: where, and with which bearer token (empty: none)."""

    url: str
    credentials: str


@final
class People:
    """Whom the Alertmanagers notify: keeps every notification. A context manager."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                alerts = tuple((alert["labels"], alert["status"]) for alert in told["alerts"])
                outer.notices.append(Notice(time.monotonic(), alerts))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer((LOOPBACK, 0), Handler)
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/"
        self.credentials = ""
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> People:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def told(self, status: str, **labels: str) -> list[Notice]:
        """Returns the notifications in which an alert with these labels has that status."""
        return [
            notice
            for notice in self.notices
            if any(found == status and labels.items() <= of.items() for of, found in notice.alerts)
        ]


@final
class Alertmanagers(Service):
    """`count` Alertmanagers that know each other and notify `people`; a context manager."""

    def __init__(self, people: Hearer, count: int = 1) -> None:
        self._root = debian.unpacked(PACKAGE)
        self._people = people
        self._directory = Path(tempfile.mkdtemp(prefix="ibmon-alertmanager."))
        self._processes: list[Process] = []
        self._ports = free_ports(2 * count)
        self.urls = [f"http://{LOOPBACK}:{port}" for port in self._ports[:count]]

    def __exit__(self, *_: object) -> None:
        try:
            stop_all(self._processes)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def start(self) -> None:
        configuration = self._directory / "alertmanager.yml"
        # In a cluster longer than a member waits: else it tells what the one before it has corrected meanwhile.
        group = 1 if len(self.urls) == 1 else 2 * PEER_TIMEOUT
        token = self._people.credentials
        access = f"http_config: {{authorization: {{credentials: {token}}}}}" if token else ""
        configuration.write_text(_CONFIGURATION.format(people=self._people.url, access=access, group=f"{group:g}"))
        members = [f"{LOOPBACK}:{port}" for port in self._ports[len(self.urls) :]]
        for number, (url, member) in enumerate(zip(self.urls, members, strict=True)):
            server = Process(
                [
                    *("unshare", "--mount", "sh", "-c", _SEES, self._root),
                    f"--config.file={configuration}",
                    f"--storage.path={self._directory}/data-{number}",
                    f"--web.listen-address={url.removeprefix('http://')}",
                    f"--web.external-url={url}",
                    *self._cluster(member, [other for other in members if other != member]),
                ],
                self._directory / f"alertmanager-{number}.log",
                env=os.environ,
            )
            self._processes.append(server)
        for server, url in zip(self._processes, self.urls, strict=True):
            wait_for(lambda server=server, url=url: _ready(server, url), within=30, what=f"Alertmanager at {url}")

    @staticmethod
    def _cluster(member: str, others: Sequence[str]) -> list[str]:
        if not others:
            return ["--cluster.listen-address="]  # else it listens on every address of the machine
        return [
            f"--cluster.listen-address={member}",
            f"--cluster.advertise-address={member}",
            f"--cluster.peer-timeout={PEER_TIMEOUT:g}s",
            "--cluster.settle-timeout=5s",
            *(f"--cluster.peer={other}" for other in others),
        ]

    def settled(self) -> bool:
        """Returns whether each of them sees all others and has stopped waiting for more."""
        seen = [self._get(number, "status")["cluster"] for number in range(len(self.urls))]
        return all(one["status"] == "ready" and len(one["peers"]) == len(self.urls) for one in seen)

    def alerts(self, number: int = 0) -> dict[tuple[str, str], dict[str, Any]]:
        """Returns what fires at one of them, silenced or not, by name and severity."""
        return {
            (alert["labels"]["alertname"], alert["labels"]["severity"]): alert for alert in self._get(number, "alerts")
        }

    def fire(self, seconds: float, **labels: str) -> None:
        """Tells the first one that an alert with these labels holds for so many seconds; 0: that it is over now."""
        now = datetime.now(timezone.utc)
        began = now - timedelta(seconds=1)
        alert = {
            "labels": labels,
            "startsAt": began.isoformat(),
            "endsAt": (now + timedelta(seconds=seconds)).isoformat(),
        }
        request = urllib.request.Request(
            f"{self.urls[0]}/api/v2/alerts",
            data=json.dumps([alert]).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10):
            pass

    def silence(self, seconds: float, **labels: str) -> None:
        """Silences alerts with these labels at the first one."""
        now = datetime.now(timezone.utc)
        matchers = [{"name": n, "value": v, "isRegex": False, "isEqual": True} for n, v in labels.items()]
        times = {"startsAt": now.isoformat(), "endsAt": (now + timedelta(seconds=seconds)).isoformat()}
        body = json.dumps({"matchers": matchers, **times, "createdBy": "test", "comment": "test"}).encode()
        request = urllib.request.Request(
            f"{self.urls[0]}/api/v2/silences", data=body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10):
            pass

    def _get(self, number: int, what: str) -> Any:
        with urllib.request.urlopen(f"{self.urls[number]}/api/v2/{what}", timeout=10) as answer:
            return json.load(answer)


def _ready(server: Process, url: str) -> bool:
    server.must_run()
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
