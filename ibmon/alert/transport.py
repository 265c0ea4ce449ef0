"""One POST to one address, within limits: no redirect, no waiting for ever, of the answer's body no more than asked.

It knows neither messages nor retries. This module brings urllib3; it is imported where a target is configured.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NameResolutionError, NewConnectionError

from ibmon.alert.delivery import Answer


class Limits(NamedTuple):
    """Seconds for the connection, for each part of the answer, and for all of it."""

    connect: float = 5.0
    read: float = 10.0
    total: float = 15.0


class DeliveryError(Exception):
    """The message did not get through; the text names no more of the address than its host."""


class Transport:
    """The way to one URL. `post` is for one thread; `abort` may come from another.

    `context` makes the TLS context of each attempt, by default one that trusts the system's store. What it raises
    comes out of `post`.
    """

    def __init__(
        self, url: str, limits: Limits, context: Callable[[], ssl.SSLContext] = ssl.create_default_context
    ) -> None:
        parts = urllib3.util.parse_url(url)
        if not parts.host:
            raise ValueError("the url of a webhook has no host")
        self._secure = parts.scheme == "https"
        self._host = parts.host.strip("[]")
        self._port = parts.port or (443 if self._secure else 80)
        self._path = parts.request_uri
        self._limits = limits
        self._context = context
        self._connection: HTTPConnection | None = None
        self._sock: socket.socket | None = None
        self._late = threading.Event()
        self._aborted = False

    def post(self, body: bytes, headers: Mapping[str, str], *, words: int = 0) -> Answer:
        """Send and wait for the status; DeliveryError where there is none within the limits.

        Of the answer's body at most `words` bytes are read: what the receiver says to a person who asks.
        """
        self._late.clear()
        self._connection = connection = self._connect()
        guard = threading.Timer(self._limits.total, self._overdue)
        guard.daemon = True
        guard.start()
        try:
            if self._aborted:
                raise DeliveryError("stopped")
            connection.connect()
            self._sock = connection.sock  # an answer without a length takes it away from the connection
            if self._late.is_set() or self._aborted:  # there was nothing to cut while the name was looked up
                raise TimeoutError
            connection.timeout = self._limits.read  # for each wait from here on
            connection.request("POST", self._path, body=body, headers=headers, preload_content=False)
            with contextlib.closing(connection.getresponse()) as answer:
                if self._late.is_set() or self._aborted:  # cut off in its headers, which looks like their end
                    raise TimeoutError
                said = b""
                if words:
                    with contextlib.suppress(HTTPError, http.client.HTTPException, OSError):
                        # The status is the answer: a reset in the words behind it does not make the message unsent.
                        said = answer.read(words)
                # No more of the body is read: whatever the receiver still sends is its own affair.
                return Answer(answer.status, answer.headers.get("Retry-After"), said.decode("utf-8", "replace"))
        except (HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            raise DeliveryError(self._words(error)) from None
        finally:
            guard.cancel()
            guard.join()
            self._connection = self._sock = None
            connection.close()

    def abort(self) -> None:
        """End the attempt that is under way, and every later one, at once."""
        self._aborted = True
        self._cut()

    def _connect(self) -> HTTPConnection:
        if self._secure:
            context = self._context()
            return HTTPSConnection(self._host, self._port, timeout=self._limits.connect, ssl_context=context)
        return HTTPConnection(self._host, self._port, timeout=self._limits.connect)

    def _overdue(self) -> None:
        self._late.set()
        self._cut()

    def _cut(self) -> None:
        connection = self._connection
        sock = self._sock or (None if connection is None else connection.sock)
        if sock is not None:
            # The plain socket's own method: that of a TLS socket would take its state away under the reading thread.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _words(self, error: Exception) -> str:
        """What went wrong in our own words: those of libraries hold the whole URL."""
        if self._aborted:
            return "stopped"
        if self._late.is_set():
            return f"not done within {self._limits.total:g} s"
        if isinstance(error, NameResolutionError):
            return "the host name is not known"
        if isinstance(error, NewConnectionError):
            cause = error.__cause__
            return (cause.strerror if isinstance(cause, OSError) and cause.strerror else "no connection").lower()
        if isinstance(error, ConnectTimeoutError):
            return f"no connection within {self._limits.connect:g} s"
        if isinstance(error, ssl.SSLError):
            return f"TLS: {error.reason or 'failed'}"
        if isinstance(error, TimeoutError):
            return f"no answer within {self._limits.read:g} s"
        if isinstance(error, OSError) and error.strerror:
            return error.strerror.lower()
        return f"broken answer ({type(error).__name__})"
