"""One HTTP request within a deadline: no redirect, no retry, no answer without an end, no secret in an error.

It knows HTTP and neither a scheduler nor whom to trust. This module brings urllib3; it is imported where a scheduler
is asked over HTTP.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NameResolutionError, NewConnectionError, ReadTimeoutError
from urllib3.exceptions import SSLError as TlsError
from urllib3.response import BaseHTTPResponse

_PART: Final = 256 * 1024


class CallError(Exception):
    """There was no whole answer; the text says why in our own words: those of libraries hold objects and URLs."""


class Server(NamedTuple):
    """Where a server is and how it is known: by TLS with a context, in clear without, or at a Unix socket."""

    host: str = "localhost"
    port: int = 0
    context: ssl.SSLContext | None = None
    name: str = ""  # what its certificate must be for, if not the host
    unix: str = ""

    @property
    def where(self) -> str:
        """The address as people write it."""
        if self.unix:
            return self.unix
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Request(NamedTuple):
    """What is sent. It shows as its first line only: the headers hold credentials."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.target}>"


class Reply(NamedTuple):
    """What came back, whatever its status says."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def exchange(server: Server, request: Request, *, timeout: float, largest: int) -> Reply:
    """Send one request on a connection of its own; CallError where no whole answer came.

    Args:
        server: whom to ask.
        request: what to ask.
        timeout: seconds for all of it, from the first packet to the last byte.
        largest: bytes that the body of the answer may have.
    """
    return _Exchange(server, timeout, largest).run(request)


class _UnixConnection(HTTPConnection):
    """A connection to a Unix socket; the host stands in the Host header only."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self._seconds = timeout

    def _new_conn(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self._seconds)
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        return sock


class _Exchange:
    """One connection with a guard that cuts it when the time is up, whatever it waits for."""

    def __init__(self, server: Server, timeout: float, largest: int) -> None:
        self._server = server
        self._timeout = timeout
        self._largest = largest
        self._late = threading.Event()
        self._connection = self._made()
        self._sock: socket.socket | None = None

    def run(self, request: Request) -> Reply:
        connection = self._connection
        guard = threading.Timer(self._timeout, self._cut)
        guard.daemon = True
        guard.start()
        try:
            connection.connect()
            self._sock = connection.sock  # an answer without a length takes it away from the connection
            if self._late.is_set():  # looking the name up took all the time, and there was nothing to cut yet
                raise TimeoutError
            connection.request(
                request.method, request.target, body=request.body, headers=request.headers, preload_content=False
            )
            with contextlib.closing(connection.getresponse()) as answer:
                reply = Reply(answer.status, dict(answer.headers), self._read(answer))
            if self._late.is_set():  # cut off, which can look like an end
                raise TimeoutError
        except (HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            raise CallError(self._words(error)) from None
        finally:
            guard.cancel()
            connection.close()
        return reply

    def _made(self) -> HTTPConnection:
        server = self._server
        if server.unix:
            return _UnixConnection(server.unix, self._timeout)
        if server.context is None:
            return HTTPConnection(server.host, server.port, timeout=self._timeout)
        return HTTPSConnection(
            server.host,
            server.port,
            timeout=self._timeout,
            ssl_context=server.context,
            server_hostname=server.name or None,
        )

    def _read(self, answer: BaseHTTPResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        for part in answer.stream(_PART, decode_content=True):
            size += len(part)
            if size > self._largest:
                raise ValueError(f"an answer of more than {self._largest >> 20} MiB")
            parts.append(part)
        return b"".join(parts)

    def _cut(self) -> None:
        self._late.set()
        sock = self._sock or self._connection.sock
        if sock is not None:
            try:
                # The plain socket's own method: a TLS socket's would take its state away under the reading thread.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                return  # it has ended by itself

    def _words(self, error: Exception) -> str:
        return words_of(TimeoutError() if self._late.is_set() else error, self._timeout)


def words_of(error: Exception, timeout: float) -> str:
    """What went wrong in a call of at most `timeout` seconds, in our own words; a ValueError has them already."""
    if isinstance(error, NameResolutionError):
        return "the host name is not known"
    if isinstance(error, NewConnectionError):
        cause = error.__cause__
        return (cause.strerror if isinstance(cause, OSError) and cause.strerror else "no connection").lower()
    if isinstance(error, TimeoutError | ConnectTimeoutError | ReadTimeoutError):
        return f"no answer within {timeout:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "it does not speak TLS; write http:// if that is meant"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or 'no reason given'}"
    if isinstance(error, TlsError):
        return f"TLS failed: {error}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if type(error) is ValueError:
        return str(error)
    return f"broken answer ({type(error).__name__})"
