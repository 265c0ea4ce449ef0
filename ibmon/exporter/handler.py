"""HTTP/1.1 on one connection: requests in, the site's responses out.

Owns the protocol on top of the standard library's parser. It must not know what is served.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import Final, cast

from ibmon.exporter.auth import Users
from ibmon.exporter.site import OPEN_PATHS, PLAIN, Response, Site, text

SOCKET_TIMEOUT: Final = 30.0
"""Seconds that one read or write on a connection may take, and that a connection may be idle."""


class Connection:
    """One accepted connection as the server keeps account of it."""

    def __init__(self, channel: socket.socket, accepted: float) -> None:
        self.channel = channel
        self.active = accepted  # monotonic time of accept or of the last whole request
        self.busy = False  # an answer is being made or sent
        self.last = False  # after this answer the connection ends

    def shut(self) -> None:
        """End the connection from another thread; its own thread notices and cleans up."""
        self.last = True
        with contextlib.suppress(OSError):  # it has ended by itself
            # Not the channel's own method: that of a TLS socket would let its thread go on in plain text.
            socket.socket.shutdown(self.channel, socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    """Serves one connection in its constructor, as the standard library wants it.

    `users` gives who may ask now (a connection can outlive a password), `clock` monotonic time.
    """

    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"  # so that what is no HTTP gets an answer with headers too
    server_version = "ibmon"
    sys_version = ""
    timeout = SOCKET_TIMEOUT
    disable_nagle_algorithm = True  # header and body are two writes; the second must not wait for an ACK
    error_content_type = PLAIN
    error_message_format = "%(code)d %(message)s\n"

    def __init__(
        self,
        connection: Connection,
        peer: object,
        site: Site,
        users: Callable[[], Users | None],
        clock: Callable[[], float],
    ) -> None:
        self._connection = connection
        self._site = site
        self._users = users
        self._clock = clock
        # There is no socketserver behind this one, and nothing in the base asks for it.
        super().__init__(connection.channel, peer, cast("BaseServer", None))

    def do_GET(self) -> None:
        """Answer with a body."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Answer with the headers that GET would have."""
        self._answer(body=False)

    def _refuse(self) -> None:
        self.close_connection = True  # a body may follow that nobody reads
        self._send(text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD", ("Allow", "GET, HEAD")), body=True)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = _refuse  # noqa: N815 - the base's names

    def _answer(self, *, body: bool) -> None:
        self._connection.busy = True
        self._connection.active = self._clock()
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # the body is not read, and must not be taken for the next request
        self._send(self._respond(), body=body)
        self._connection.busy = False
        if self._connection.last:  # read after busy was cleared: whoever set it either saw that, or is seen here
            self.close_connection = True

    def _respond(self) -> Response:
        path, _, query = self.path.partition("?")
        get = self.headers.get
        users = self._users()
        if users and path not in OPEN_PATHS and not users.admit(get("Authorization")):
            challenge = ("WWW-Authenticate", 'Basic realm="ibmon", charset="UTF-8"')
            return text(HTTPStatus.UNAUTHORIZED, "user and password please", challenge)
        return self._site.respond(path, get("Accept"), get("Accept-Encoding"), query)

    def _send(self, response: Response, *, body: bool) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in response.headers:
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if body:
            self.wfile.write(response.body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:  # noqa: ARG002 - the base's signature
        """Count the answer; requests are not logged."""
        if isinstance(code, int):
            self._site.count(int(code))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's signature
        """Log nothing: what a client does wrong is answered, and counted."""
