"""A fleet controller on the loopback: real HTTP, keys and signatures by the standard's own library."""

from __future__ import annotations

import base64
import datetime as dt
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
from standardwebhooks import Webhook, WebhookVerificationError

from ibmon.model import Mode
from ibmon.report import Reply, Report, node_key

MASTER = b"m" * 32
PATIENCE = 10.0


def secret(node, master=MASTER):
    """The key of a node as its key file holds it."""
    return "whsec_" + base64.b64encode(node_key(master, node)).decode()


def signed(reply, mark, key, *, off=0.0):
    """Headers and body of a reply, by a clock that is `off` seconds."""
    body = reply if isinstance(reply, bytes) else msgspec.json.encode(reply)
    at = dt.datetime.fromtimestamp(int(time.time() + off), tz=dt.timezone.utc)
    headers = {
        "webhook-id": mark,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(key).sign(mark, at, body.decode()),
    }
    return headers, body


class ControllerServer:
    """Answers reports by `answer` (a report to a Reply), unless `script` still holds something else to do.

    An item of the script is a status, a Reply, bytes to sign, or a function that gets the server, the handler and the
    report. `context` makes it speak TLS.
    """

    def __init__(self, answer=None, *, context=None) -> None:
        self.answer = answer or (lambda _: Reply("none", "", stop=False, mode=Mode.DRAIN))
        self.script = []
        self.reports, self.paths, self.refused = [], [], []
        self.connections = 0
        self.released = threading.Event()
        self._arrived = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                outer.connections += 1

            def do_POST(self):
                outer.serve(self)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.server.daemon_threads = True
        self.server.handle_error = lambda *arguments: None  # a client that goes away is what is tested
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.released.set()
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()

    def wait(self, count):
        """The reports, once there are so many."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.reports) >= count, PATIENCE), self.refused
            return list(self.reports)

    def serve(self, handler):
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        headers = {k.lower(): v for k, v in handler.headers.items()}
        try:
            # As the standard has it: whoever has the library can check a report.
            Webhook(secret(json.loads(body)["node"])).verify(body, headers)
        except WebhookVerificationError as error:
            self.refused.append(str(error))
            self.send(handler, 401, {}, b"bad signature")
            return
        report = msgspec.json.decode(body, type=Report)
        with self._arrived:
            self.paths.append(handler.path)
            self.reports.append(report)
            self._arrived.notify_all()
        action = self.script.pop(0) if self.script else self.answer(report)
        if callable(action):
            action(self, handler, report)
        elif isinstance(action, int):
            self.send(handler, action, {"Location": "/elsewhere"} if 300 <= action < 400 else {}, b"because")
        else:
            self.send(handler, 200, *signed(action, headers["webhook-id"], secret(report.node)))

    def send(self, handler, status, headers, body):
        """One answer."""
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


def hang(server, handler, report):
    """No answer at all."""
    server.released.wait(20)
    handler.close_connection = True


def drip(server, handler, report):
    """An answer that never ends, a byte at a time."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
    while not server.released.wait(0.05):
        handler.wfile.write(b"x")
        handler.wfile.flush()


def drip_without_length(server, handler, report):
    """The same, of an answer that ends with its connection."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not server.released.wait(0.05):
        handler.wfile.write(b"x")
        handler.wfile.flush()
    handler.close_connection = True


def close(server, handler, report):
    """The connection ends in the middle."""
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def garbage(server, handler, report):
    """No HTTP."""
    handler.wfile.write(b"\x00\xffnot http at all\r\n\r\n")
    handler.close_connection = True


def large(server, handler, report):
    """Ten megabytes."""
    server.send(handler, 200, {}, b"x" * 10_000_000)


def endless(server, handler, report):
    """As much as anybody takes, with no length."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not server.released.is_set():
        handler.wfile.write(b"x" * 65536)
    handler.close_connection = True
