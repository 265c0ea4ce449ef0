"""An HTTP server on loopback that many simulated nodes share: a path a node, each with a text that is made when asked.

Owns serving texts. Must not: know what they say.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, final

from .processes import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@final
class Expositions:
    """Serves ``/NAME/metrics`` for each name; None as a text is an answer 503. A context manager."""

    def __init__(self, texts: Mapping[str, Callable[[], bytes | None]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = texts[self.path.split("/")[1]]()
                self.send_response(503 if body is None else 200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.address = f"{LOOPBACK}:{self._server.server_port}"

    def __enter__(self) -> Expositions:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
