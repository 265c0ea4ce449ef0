"""The HTTP server: one accepting thread, one thread for each connection, and a bound on them.

Owns sockets and threads. It must not know what is served, nor read hardware: a client that hangs holds one thread.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from ibmon.config import ExporterConfig
from ibmon.exporter.address import Address, open_listener, parse_listen
from ibmon.exporter.auth import load_users
from ibmon.exporter.compat import NODE_EXPORTER
from ibmon.exporter.events import EventRing
from ibmon.exporter.handler import SOCKET_TIMEOUT, Connection, Handler
from ibmon.exporter.render import Renderer
from ibmon.exporter.selfmetrics import SelfMetrics
from ibmon.exporter.site import Site
from ibmon.exporter.tls import load_context
from ibmon.exporter.workers import Workers
from ibmon.snapshot import Snapshot

CONNECTIONS: Final = 32
"""Connections served at a time. One more, and the one that has been silent the longest is closed in its favour, so
that clients who open connections and say nothing cannot keep a scraper out."""

_ACCEPT_PAUSE: Final = 0.1  # seconds after an accept that failed for want of descriptors


class Server:
    """Serves snapshots over HTTP or HTTPS.

    Args:
        config: the address and the files of TLS and passwords; they are read here.
        source: gives the newest snapshot, None before the first.
        self_metrics: what ibmon counts of itself.
        heartbeat: monotonic time of the last turn of the engine's loop; default: the time of the newest snapshot.
        clock: monotonic time.
        events: what has happened, in memory.

    Raises:
        ExporterError: an address or a file is wrong.
    """

    def __init__(
        self,
        config: ExporterConfig,
        source: Callable[[], Snapshot | None],
        *,
        self_metrics: SelfMetrics | None = None,
        heartbeat: Callable[[], float | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        events: EventRing | None = None,
    ) -> None:
        def snapshot_time() -> float | None:
            snapshot = source()
            return None if snapshot is None else snapshot.at.monotonic

        self._config = config
        self._wanted = parse_listen(config.listen)
        self._context = load_context(config)
        self._users = load_users(config.basic_auth_file)
        self._clock = clock
        renderer = Renderer(node_exporter=NODE_EXPORTER in config.compat)
        self._site = Site(source, renderer, self_metrics or SelfMetrics(), heartbeat or snapshot_time, clock, events)
        self._listener: socket.socket | None = None
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._closed = threading.Event()
        self._workers = Workers("ibmon-http")

    @property
    def address(self) -> Address:
        """Where it listens, with the port that the system chose for port 0."""
        if self._listener is None:
            return self._wanted
        host, port = self._listener.getsockname()[:2]
        return Address(self._wanted.host and host, port)

    @property
    def url(self) -> str:
        """Where a browser on this machine finds the page."""
        scheme = "https" if self._context else "http"
        host, port = self.address
        return f"{scheme}://{Address(host if host not in {'', '::', '0.0.0.0'} else 'localhost', port)}/"  # noqa: S104

    def start(self) -> None:
        """Listen, and answer from now on; ExporterError where the address cannot be had."""
        listener = self._listener = open_listener(self._wanted)
        threading.Thread(target=self._accept, args=(listener,), name="ibmon-accept", daemon=True).start()

    def reload(self) -> None:
        """Read certificate and password files anew. Certificates hold for connections from now on.

        Raises:
            ExporterError: a file is wrong; what was in force stays so.
        """
        context, users = load_context(self._config), load_users(self._config.basic_auth_file)
        self._context, self._users = context, users

    def close(self) -> None:
        """Give the port back at once. Idle connections end, one that is being answered gets its answer."""
        self._closed.set()
        if self._listener is not None:
            with contextlib.suppress(OSError):  # it was closed before
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread, which close alone does not
            self._listener.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.last = True
            if not connection.busy:
                connection.shut()

    def _accept(self, listener: socket.socket) -> None:
        while not self._closed.is_set():
            try:
                channel, peer = listener.accept()
            except OSError:  # noqa: PERF203 - one client a round
                self._closed.wait(_ACCEPT_PAUSE)
            else:
                self._admit(channel, peer)

    def _admit(self, channel: socket.socket, peer: object) -> None:
        connection = Connection(channel, self._clock())
        with self._lock:
            refused = len(self._connections) >= 2 * CONNECTIONS  # those that were told to end have not ended yet
            if not refused:
                self._make_room()
                self._connections.add(connection)
        if refused:
            channel.close()
            return
        try:
            self._workers.run(partial(self._serve, connection, peer))
        except RuntimeError:  # no more threads: this client must come again
            self._end(connection)

    def _make_room(self) -> None:
        """Where all places are taken, end the connection that has been silent the longest."""
        staying = [c for c in self._connections if not c.last]
        if len(staying) >= CONNECTIONS:
            min(staying, key=lambda c: c.active).shut()

    def _serve(self, connection: Connection, peer: object) -> None:
        context = self._context
        try:
            connection.channel.settimeout(SOCKET_TIMEOUT)
            if context is not None:
                self._start_tls(context, connection)
            Handler(connection, peer, self._site, lambda: self._users, self._clock)
        except OSError:
            pass  # the client went away, was too slow, or speaks no TLS (SSLError is an OSError)
        finally:
            self._end(connection)

    def _start_tls(self, context: ssl.SSLContext, connection: Connection) -> None:
        """Shake hands here, in the connection's own thread, where a slow client delays nobody."""
        channel = context.wrap_socket(connection.channel, server_side=True, do_handshake_on_connect=False)
        connection.channel = channel
        channel.do_handshake()

    def _end(self, connection: Connection) -> None:
        with self._lock:
            self._connections.discard(connection)
        connection.channel.close()
