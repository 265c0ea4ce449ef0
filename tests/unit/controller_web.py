"""A fleet server with a small brain behind it, nodes that sign, and a raw client on the loopback.

The brain keeps what it is told and refuses a repeated `seq`, so that what reached it can be looked at.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import socket
from concurrent.futures import Future
from typing import ClassVar

import msgspec
from standardwebhooks import Webhook

from ibmon import report as wire
from ibmon.config import ControllerConfig
from ibmon.controller import values
from ibmon.controller.api import Site, views_are_open
from ibmon.controller.auth import MasterKeys
from ibmon.controller.brain import World
from ibmon.controller.metrics import FleetMetrics
from ibmon.controller.server import FleetServer, Limits
from ibmon.controller.tokens import TokenFile
from ibmon.model import Mode, Now

MASTER = bytes(range(32))
OLD_MASTER = bytes(range(100, 132))
VIEW, OPERATE, ALERT = "view-0123456789abcdef", "operate-0123456789abcdef", "alert-0123456789abcdef"
TOKENS = f"""# who may look and act
grafana view    {VIEW}
alice   operate {OPERATE}
prometheus alert {ALERT}
"""
WALL = 1_890_000_000.25


def secret(raw: bytes) -> str:
    return f"whsec_{base64.b64encode(raw).decode()}"


def key_of(node: str, master: bytes = MASTER) -> bytes:
    return wire.node_key(master, node)


class Desk:
    """Takes everything in. `told` is what the next request of a person is answered."""

    def __init__(self):
        self.reports, self.alerts, self.asks, self.seq = [], [], [], {}
        self.told = values.Told(done=True, text="done", nodes=("gpu-1",))
        self.reply = wire.Reply("blocked", "limit_nodes", stop=False, mode=Mode.DRAIN)
        self.looks = 0
        self.rows = [
            values.NodeRow("gpu-1", "fit", "leaf1", "oooo", 3.14159, "", missing=False),
            values.NodeRow("gpu-2", "unknown", "", "", None, "", missing=True),
        ]

    def report(self, report, now):
        if self.seq.get((report.node, report.boot_id), -1) >= report.seq:
            return values.Refused("replay", f"seq {report.seq} came before")
        self.seq[report.node, report.boot_id] = report.seq
        self.reports.append(report)
        return self.reply

    def alert(self, seen, now):
        self.alerts.append(seen)

    def ask(self, ask, now):
        self.asks.append(ask)
        return self.told

    def fleet(self, now):
        self.looks += 1
        return values.Fleet(
            1, now.wall, leader=True, stop=values.Stop("alice", now.wall - 60, "bad optics [day 2]"),
            quorum=values.Quorum(2, 1, 0.5, open=False), nodes={"fit": 1, "watch": 0, "unfit": 0, "unknown": 1},
            pools=(values.PoolRow("batch", 100, 2, 1, 5),),
            drains=(
                values.DrainRow("gpu-7", "node", "held", "7f3a9c", "ibmon: port-down mlx5_3/1 [id 7f3a9c]", 1000.0),
                values.DrainRow("gpu-8", "foreign", "held", "", "disk\x1b[2J", 900.0),
            ),
            fabric_events=(values.FabricEvent("leaf1", 3, "port-down", ("gpu-1", "gpu-2"), 1.0, 900.0),),
            maintenance=(values.MaintenanceRow("m1", ("gpu-9*",), "new optics", "alice", 2000.0),),
        )  # fmt: skip

    def counts(self, now):
        return values.Counts(
            leader=True, stop=True, quorum=values.Quorum(2, 1, 0.5, open=False), nodes={"fit": 1, "unknown": 1},
            missing=1, unknown_names=0, drains={("node", "held"): 1, ("node", "withheld"): 3, ("foreign", "held"): 1},
            pools=(values.PoolRow("batch", 100, 2, 1, 5),), fabric_events=1, fabric_events_total=4,
            decisions={("blocked", "limit_nodes"): 7}, view_age=12.5,
        )  # fmt: skip

    def nodes(self, now):
        return self.rows

    def node(self, name, now):
        return {"name": name, "fitness": "fit"} if name == "gpu-1" else None


def saved() -> Future:
    future: Future = Future()
    future.set_result(None)
    return future


class FleetWorld:
    """A running server and everything around it; `configure` before `start`."""

    def __init__(self, directory):
        self.directory = directory
        self.desk, self.metrics = Desk(), FleetMetrics()
        self.at = Now(1000.0, WALL)
        self.leads, self.saves, self.save = True, 0, saved
        self.audit_rows = [{"at": 1.0, "level": "info", "event": "stop", "user": "alice", "nodes": ["gpu-1", "gpu-2"]}]
        self.limits = Limits()
        self.pages = None
        self.listen, self.tls = "127.0.0.1:0", {}
        self.keys_file, self.tokens_file = directory / "master.key", directory / "tokens"
        self.write_keys(MASTER)
        self.write_tokens(TOKENS)
        self.server = None

    def write_keys(self, *masters):
        self.keys_file.write_text("".join(f"{secret(master)}\n" for master in masters))

    def write_tokens(self, text):
        self.tokens_file.write_text(text)
        self.tokens_file.chmod(0o600)

    def start(self):
        tokens = str(self.tokens_file) if self.tokens_file else ""
        config = ControllerConfig(listen=self.listen, tokens_file=tokens, **self.tls)
        world = World(
            desk=self.desk, now=lambda: self.at, keys=MasterKeys(str(self.keys_file)),
            tokens=TokenFile(tokens) if tokens else None, metrics=self.metrics, leader=lambda: self.leads,
            save=self._save, audit=lambda limit: self.audit_rows[:limit], pages=self.pages,
            open_views=views_are_open(config),
        )  # fmt: skip
        self.server = FleetServer(config, Site(world), self.limits)
        self.server.start()
        return self

    def _save(self):
        self.saves += 1
        return self.save()

    def close(self):
        if self.server is not None:
            self.server.close()

    def connect(self) -> Client:
        return Client(self.server.address)

    def ask(self, method, path, body=b"", **headers):
        """One request on a connection of its own: status, headers, body."""
        with self.connect() as client:
            return client.ask(method, path, body, headers)

    def json(self, method, path, body=None, token=None, **headers):
        """Status and document of one request with JSON both ways."""
        if token:
            headers["Authorization"] = f"Bearer {token}"
        status, _, answer = self.ask(method, path, json.dumps(body).encode() if body is not None else b"", **headers)
        return status, json.loads(answer)

    def send(self, message: Message):
        """A report's status, headers and document."""
        status, headers, answer = self.ask("POST", wire.PATH, message.body, **message.headers)
        return status, headers, json.loads(answer)

    def counted(self, outcome):
        """How many reports had this outcome, as /metrics tells."""
        _, _, text = self.ask("GET", "/metrics")
        sign = f'ibmon_controller_reports_total{{outcome="{outcome}"}} '
        return next(float(line.removeprefix(sign)) for line in text.decode().splitlines() if line.startswith(sign))


class Message:
    """A report as a node signs it, by the library of Standard Webhooks; what is wrong with it is changed after."""

    def __init__(self, node="gpu-1", *, key=None, sent=WALL, identity="msg_1.2", body=None, **fields):
        report = {
            "v": 1, "node": node, "boot_id": "b1", "seq": 1, "sent": sent, "version": "1.0", "config_hash": "c0ffee",
            "mode": "drain", "fitness": "unfit", **fields,
        }  # fmt: skip
        self.body = msgspec.json.encode(report) if body is None else body
        self.key = key or key_of(node)
        self.headers = {"webhook-id": identity, "webhook-timestamp": str(int(sent))}
        self.sign()

    def sign(self):
        moment = dt.datetime.fromtimestamp(int(self.headers["webhook-timestamp"]), tz=dt.timezone.utc)
        self.headers["webhook-signature"] = Webhook(secret(self.key)).sign(
            self.headers["webhook-id"], moment, self.body.decode()
        )


class Client:
    """A connection that is spoken to in bytes. All that were made are in `OPEN`, so that a test can end them."""

    OPEN: ClassVar[list[Client]] = []

    def __init__(self, address):
        self.OPEN.append(self)
        self.socket = socket.create_connection(tuple(address), timeout=20)
        self.data = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data: bytes):
        self.socket.sendall(data)

    def ask(self, method, path, body=b"", headers=()):
        self.send(request(method, path, body, headers))
        return self.answer(head=method == "HEAD")

    def answer(self, *, head=False):
        """Status, headers and body of the next answer."""
        while b"\r\n\r\n" not in self.data:
            self._more()
        raw, _, self.data = self.data.partition(b"\r\n\r\n")
        first, *lines = raw.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = 0 if head else int(headers.get("content-length", 0))
        while len(self.data) < length:
            self._more()
        body, self.data = self.data[:length], self.data[length:]
        return int(first.split()[1]), headers, body

    def _more(self):
        piece = self.socket.recv(65536)
        if not piece:
            raise EOFError(self.data)
        self.data += piece

    def ended(self) -> bool:
        """Whether the server has ended the connection, having said nothing more."""
        try:
            return self.data == b"" and self.socket.recv(1) == b""
        except ConnectionError:
            return True


def request(method, path, body=b"", headers=()) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: fleet", *(f"{k}: {v}" for k, v in dict(headers).items())]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
