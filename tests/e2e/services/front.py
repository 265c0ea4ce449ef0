"""What a Kubernetes Service is to nodes: one address, behind which new connections go to the instance that is ready.

Owns: a listener on loopback and the bytes of its connections. Must not: know what is said over them.
"""

from __future__ import annotations

import selectors
import socket
import socketserver
import threading
from typing import TYPE_CHECKING, final

from .processes import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable


class _Handler(socketserver.BaseRequestHandler):
    server: _Listener

    def handle(self) -> None:
        port = self.server.ready()
        if port is None:
            return  # as a Service without endpoints: the client finds the connection closed
        try:
            with socket.create_connection((LOOPBACK, port), timeout=5) as behind:
                behind.settimeout(None)
                _join(self.request, behind)
        except OSError:
            return  # either side is gone, and so is the other one


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    ready: Callable[[], int | None]


def _join(one: socket.socket, other: socket.socket) -> None:
    """Carries bytes both ways until either side ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _ in selector.select():
                data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                if not data:
                    return
                key.data.sendall(data)


@final
class Front:
    """A context manager that listens inside. `ready` names the port of the instance that new connections go to."""

    def __init__(self, ready: Callable[[], int | None]) -> None:
        self._server = _Listener((LOOPBACK, 0), _Handler)
        self._server.ready = ready
        self._thread = threading.Thread(target=self._server.serve_forever, name="front", daemon=True)
        self.url = f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def __enter__(self) -> Front:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
