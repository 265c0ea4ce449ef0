"""A receiver of webhooks on the loopback, and the ways in which it can fail."""

from __future__ import annotations

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECONDS = 20.0  # no test waits so long unless it fails


class Receiver:
    """An HTTP server on the loopback that answers by a script: one item a request, the last for all further ones."""

    def __init__(self, *script):
        self.script, self.requests, self.arrived = list(script or [200]), [], threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                outer.serve(self)

            do_GET = do_POST  # noqa: N815 (the base class names it)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *arguments: None  # a client that goes away is what is tested
        self.released = threading.Event()
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}/hook/T0KEN"

    @property
    def name(self):
        return f"127.0.0.1:{self.server.server_port}"

    def serve(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        with self.arrived:
            action = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            self.requests.append((handler.command, handler.path, dict(handler.headers), body, time.monotonic()))
            self.arrived.notify_all()
        if callable(action):
            action(self, handler)
            return
        status, headers = action if isinstance(action, tuple) else (action, {})
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()

    def wait(self, count, seconds=SECONDS):
        """The requests, once there are so many."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.requests) >= count, seconds), self.requests
            return list(self.requests)

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def hang(receiver, handler):
    receiver.released.wait(20)
    handler.close_connection = True


def drip(receiver, handler):
    """Headers that never end, a byte at a time."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    for _ in range(200):
        if receiver.released.wait(0.1):
            break
        handler.wfile.write(b"x")
        handler.wfile.flush()


def close(receiver, handler):
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def garbage(receiver, handler):
    handler.wfile.write(b"\x00\xffnot http at all\r\n\r\n")
    handler.close_connection = True


def large(receiver, handler):
    handler.send_response(200)
    handler.send_header("Content-Length", str(10_000_000))
    handler.end_headers()
    handler.wfile.write(b"x" * 10_000_000)
