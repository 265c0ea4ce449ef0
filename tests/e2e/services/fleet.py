"""A controller's face without a controller: its page, and its API with a made-up fleet of any size.

Owns: documents in the shape of the controller's API, the same for the same number of nodes. Must not: decide anything.
"""

from __future__ import annotations

import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, final
from urllib.parse import unquote

from ibmon.controller import page

from .processes import LOOPBACK

RAILS = [str(number) for number in range(8)]
LEAF = 32
"""Nodes of one topology group."""
DRAWING = """
new Promise((done) => {
  const stage = document.getElementById("stage");
  const canvas = document.getElementById("matrix");
  const begun = performance.now();
  stage.style.width = `${stage.clientWidth - 20}px`;  // a narrower map: laid out and drawn anew
  requestAnimationFrame(() => setTimeout(() => {
    canvas.getContext("2d").getImageData(0, 0, 1, 1);  // the last pixel is there
    done(performance.now() - begun);
  }));
})"""
"""Milliseconds from a change of the map's width to the frame that shows the new map."""
TOKEN = "a-token-for-viewers-only"


def rows(count: int, seed: int = 7) -> list[list[Any]]:
    """The nodes in compact form: most are well, some have one bad rail, and one leaf lost rail 5 as a whole."""
    chance = random.Random(seed)
    found: list[list[Any]] = []
    for number in range(count):
        letters, fitness, code = ["o"] * len(RAILS), "fit", ""
        draw = chance.random()
        if draw < 0.004:
            letters[chance.randrange(8)], fitness = "f", "unfit"
        elif draw < 0.007:
            letters[chance.randrange(8)], fitness, code = "d", "unfit", "limit_nodes"
        elif draw < 0.012:
            letters[chance.randrange(8)], fitness = "w", "watch"
        elif draw < 0.014:
            letters[chance.randrange(8)], fitness = "r", "unfit"
        elif draw < 0.016:
            letters, fitness = ["u"] * 8, "unknown"
        if number // LEAF == 7 and number % LEAF < 28:
            letters[5], fitness, code = "f", "unfit", "fabric_event"
        found.append(
            [f"gpu{number:05}", fitness, f"leaf{number // LEAF:03}", "".join(letters), chance.randrange(30), code]
        )
    return found


def document(nodes: list[list[Any]], at: float) -> dict[str, Any]:
    """The whole, as the nodes have it."""
    kinds = {kind: sum(row[1] == kind for row in nodes) for kind in ("fit", "watch", "unfit", "unknown")}
    unfit = [row for row in nodes if row[1] == "unfit" and not row[5]]
    fabric = [row[0] for row in nodes if row[5] == "fabric_event"]
    drains = [
        {
            "node": row[0],
            "owner": "alertmanager" if number % 5 == 4 else "node",
            "id": f"7f3a{number:02x}",
            "reason": f"ibmon: port-down mlx5_{number % 8}/1 DOWN/Polling 62s>60s [id 7f3a{number:02x}]",
            "since": at - 400 * (number + 1),
            "state": "pending" if number % 7 == 6 else "held",
            "code": "limit_rate" if number % 7 == 6 else "",
        }
        for number, row in enumerate(unfit)
    ]
    event = {
        "group": "leaf007",
        "rail": "5",
        "rule": "port-down",
        "nodes": fabric,
        "began": at - 240,
        "until": at + 660,
    }
    half = len(nodes) // 2
    return {
        "v": 1,
        "at": at,
        "leader": True,
        "stop": None,
        "quorum": {"seen": len(nodes), "reported": len(nodes), "ratio": 1.0, "open": True},
        "nodes": {**kinds, "missing": 0},
        "pools": [
            {"name": "train", "nodes": half, "allowed": half // 50, "used": len(drains) // 2, "unavailable": 9},
            {"name": "batch", "nodes": half, "allowed": 4, "used": 4, "unavailable": 11},
        ],
        "drains": drains,
        "fabric_events": [event] if fabric else [],
        "maintenance": [{"nodes": ["gpu00012"], "reason": "new optics", "user": "mara", "until": at + 5400}],
    }


@final
class Fleet:
    """Serves page and documents on loopback; a context manager. A test may change `rows`, `stop` and `token`."""

    def __init__(self, count: int, *, token: str = "") -> None:
        self.rows = rows(count)
        self.stop: dict[str, Any] | None = None
        self.token = token
        self.asked: list[str] = []
        self._gone = False
        self._files = page.load()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}/"

    def __enter__(self) -> Fleet:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._gone = True  # for connections that are kept open, too
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        if self._gone:
            request.close_connection = True
            return
        self.asked.append(request.path)
        path = request.path.partition("?")[0]
        if file := self._files.get(path):
            self._send(request, 200, file.body, file.content_type, dict(file.headers))
        elif self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            self._send(request, 401, b"a token please\n", "text/plain")
        elif (found := self._document(path)) is not None:
            self._send(request, 200, json.dumps(found).encode(), "application/json")
        else:
            self._send(request, 404, b"no such node\n", "text/plain")

    def _document(self, path: str) -> dict[str, Any] | None:
        if path == "/api/v1/fleet":
            return {**document(self.rows, time.time()), "stop": self.stop}
        if path == "/api/v1/nodes":
            return {"v": 1, "rails": RAILS, "nodes": self.rows}
        name = unquote(path.removeprefix("/api/v1/nodes/"))
        for row in self.rows:
            if row[0] == name:
                bad = [rail for rail, letter in enumerate(row[3]) if letter == "f"]
                findings = [
                    {
                        "rule": "port-down", "device": f"mlx5_{rail}", "port": 1, "severity": "critical",
                        "observed": "DOWN/Polling", "limit": "ACTIVE",
                    }
                    for rail in bad
                ]  # fmt: skip
                return {"node": name, "fitness": row[1], "findings": findings, "decision": {"code": row[5]}}
        return None

    @staticmethod
    def _send(
        request: BaseHTTPRequestHandler, status: int, body: bytes, kind: str, more: dict[str, str] | None = None
    ) -> None:
        request.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)
