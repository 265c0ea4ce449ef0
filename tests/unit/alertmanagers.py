"""An Alertmanager on the loopback that keeps alerts as the real one does (types.Alert.Merge), and can be made to fail.

Owns one HTTP server with its thread. What the real one does is held by tests/e2e/test_alertmanager.py.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Script = int | tuple[int, dict[str, str]] | Callable[[Any, Any], None]
Labels = tuple[tuple[str, str], ...]


class Request(NamedTuple):
    """What came: the alerts (or what else it is), the headers, when (monotonic), and the bytes."""

    path: str
    headers: dict[str, str]
    alerts: list[dict[str, Any]]
    at: float
    body: bytes


def seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class FakeAlertmanager:
    """Answers by a script, one item a request, the last for all further ones; 2xx takes the alerts in."""

    def __init__(self, *script: Script, port: int = 0, tls: ssl.SSLContext | None = None, wall: Any = time.time):
        self.script: list[Script] = list(script or [200])
        self.requests: list[Request] = []
        self.held: dict[Labels, tuple[float, float]] = {}
        self.ends: list[tuple[str, ...]] = []
        self.wall = wall
        self.released = threading.Event()
        self._arrived = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                outer._serve(self)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # a client that goes away is what is tested
        self.port = self.server.server_port
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.name = f"am:127.0.0.1:{self.port}"
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        alerts = json.loads(body)
        with self._arrived:
            action = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            status, headers = action if isinstance(action, tuple) else (action, {})
            if isinstance(alerts, list) and not callable(status) and 200 <= status < 300:
                self._take(alerts)
            self.requests.append(Request(handler.path, dict(handler.headers), alerts, time.monotonic(), body))
            self._arrived.notify_all()
        if callable(action):
            action(self, handler)
            return
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()

    def _take(self, alerts: list[dict[str, Any]]) -> None:
        now = self.wall()
        for alert in alerts:
            labels = tuple(sorted(alert["labels"].items()))
            starts, ends = seconds(alert["startsAt"]), seconds(alert["endsAt"])
            before = self.held.get(labels)
            if before is not None and ends > now:
                ends = max(ends, before[1])  # of two promises the longer one holds
            if before is not None and before[1] > now >= ends:
                self.ends.append((alert["labels"]["alertname"], alert["labels"]["severity"]))
            self.held[labels] = (starts, ends)

    def wait(self, count: int, within: float = 10.0) -> list[Request]:
        """The requests, once there are so many."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.requests) >= count, within), self.requests
            return list(self.requests)

    def firing(self) -> list[dict[str, str]]:
        """Labels of what has not ended."""
        with self._arrived:
            return [dict(labels) for labels, (_, ends) in sorted(self.held.items()) if ends > self.wall()]

    def names(self) -> list[str]:
        """Names of what fires."""
        return [labels["alertname"] for labels in self.firing()]

    @property
    def listens(self) -> bool:
        """Whether it can be reached."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Nothing listens any more."""
        self.released.set()
        if self._thread.is_alive():
            self.server.shutdown()
            self._thread.join()
            self.server.server_close()


def says(status: int, text: str) -> Callable[[Any, Any], None]:
    """This status with these words."""

    def answer(_server: FakeAlertmanager, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(text.encode())))
        handler.end_headers()
        handler.wfile.write(text.encode())

    return answer


def hang(server: FakeAlertmanager, handler: BaseHTTPRequestHandler) -> None:
    """No answer."""
    server.released.wait(20)
    handler.close_connection = True


def cut(server: FakeAlertmanager, handler: BaseHTTPRequestHandler) -> None:
    """The connection ends without an answer."""
    handler.close_connection = True


def garbage(server: FakeAlertmanager, handler: BaseHTTPRequestHandler) -> None:
    """What is no HTTP."""
    handler.wfile.write(b"\x00\xffnot http at all\r\n\r\n")
    handler.close_connection = True


def large(server: FakeAlertmanager, handler: BaseHTTPRequestHandler) -> None:
    """Ten megabytes."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(10_000_000))
    handler.end_headers()
    handler.wfile.write(b"x" * 10_000_000)
