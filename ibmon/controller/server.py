"""The fleet server: one thread with an event loop, thousands of kept connections, and bounds on all of them.

Owns the listening socket, the thread, and who has waited too long. It must not know what is served.
The fleet's logic is touched on this thread alone: by the site that answers, and by what `call` brings here.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import socket
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, NamedTuple, TypeVar

from ibmon.config import ControllerConfig
from ibmon.controller.connection import Connection
from ibmon.controller.http import Request, Response, refusal
from ibmon.exporter.address import Address, open_listener, parse_listen
from ibmon.exporter.tls import load_certificate, load_context
from ibmon.report import MAX_BYTES

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

Respond = Callable[[Request], Response | Awaitable[Response]]

_KEY: Final = "controller.listen"
_BACKLOG: Final = 4096  # a fleet that comes back at once; the kernel caps it at net.core.somaxconn
_SPARE: Final = 256  # descriptors for everything that is no connection
_SWEEP: Final = 0.25  # seconds between two looks at who is late
_ROUNDS: Final = 4  # of the loop from an accept to its connection, and one more
_GRACE: Final = 3.0  # seconds that a close gives to answers that are being made


class Limits(NamedTuple):
    """Bounds on clients: a number, bytes, and seconds.

    `held` is what all bodies that are on their way may come to, `request` how long a request may take from its first
    byte, a new connection until its first request, and a peer until it has read its answer.
    """

    connections: int = 65536
    body: int = MAX_BYTES
    held: int = 64 * 1024 * 1024
    idle: float = 120.0
    request: float = 10.0
    linger: float = 2.0


class FleetServer:
    """Serves a site over HTTP/1.1, with TLS where the configuration names a certificate.

    Args:
        config: [controller]; address and certificate files are read here.
        respond: answers a request on the loop's thread: at once, or with an awaitable.
        limits: bounds on clients.

    Raises:
        ExporterError: the address or a file is wrong.
    """

    def __init__(self, config: ControllerConfig, respond: Respond, limits: Limits = Limits()) -> None:  # noqa: B008
        self._config = config
        self._wanted = parse_listen(config.listen, _KEY)
        self._context = load_context(config)
        self._site = respond
        most = max(1, raise_descriptors(limits.connections + _SPARE) - _SPARE)
        self._limits = limits._replace(connections=min(limits.connections, most))
        self.max_body = limits.body
        self.closing = False
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._all: set[Connection] = set()
        self._lists: dict[str, OrderedDict[Connection, float]] = {
            "waiting": OrderedDict(),
            "idle": OrderedDict(),
            "lingering": OrderedDict(),
        }
        self._patience = {"waiting": limits.request, "idle": limits.idle, "lingering": limits.linger}
        self._held = 0
        self._date = (0, "")
        self._failed = ""
        self._stop: asyncio.Event | None = None
        self._empty: asyncio.Event | None = None

    # ---------------------------------------------------------------------------------------------- any thread

    @property
    def address(self) -> Address:
        """Where it listens, with the port that the system chose for port 0."""
        if self._listener is None:
            return self._wanted
        return Address(self._wanted.host, self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """Where a client on this machine finds it."""
        host, port = self.address
        shown = host if host not in {"", "::", "0.0.0.0"} else "localhost"  # noqa: S104
        return f"{'https' if self._context else 'http'}://{Address(shown, port)}"

    @property
    def connections(self) -> int:
        """How many peers are connected."""
        return len(self._all)

    def start(self) -> None:
        """Listen, and answer from now on; ExporterError where the address cannot be had."""
        listener = self._listener = open_listener(self._wanted, _KEY)
        listener.settimeout(0)
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._live, args=(listener, ready), name="ibmon-fleet", daemon=True)
        self._thread.start()
        ready.result()

    def call(self, function: Callable[[], _T]) -> Future[_T]:
        """Run a function on the loop's thread, soon; what it returns or raises is the future's.

        Raises:
            RuntimeError: the server does not run.
        """
        future: Future[_T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:  # noqa: BLE001 - it is the caller's
                    future.set_exception(error)

        if self._loop is None:
            raise RuntimeError("the server does not run")
        self._loop.call_soon_threadsafe(run)
        return future

    def reload(self) -> None:
        """Read certificate and key anew, for the connections from now on.

        Raises:
            ExporterError: a file is wrong; what was in force stays so.
        """
        if self._context is not None:
            load_context(self._config)  # a pair that does not fit must not come to half into the one in use
            load_certificate(self._context, self._config.tls_cert, self._config.tls_key, "controller")

    def close(self) -> None:
        """Give the port back, answer what is being answered, and end."""
        thread, loop, stop = self._thread, self._loop, self._stop
        if thread is None or loop is None or stop is None:
            return
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join()
        self._thread = None

    # ------------------------------------------------------------------------------------------- the loop's thread

    def _live(self, listener: socket.socket, ready: Future[None]) -> None:
        try:
            asyncio.run(self._run(listener, ready))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _run(self, listener: socket.socket, ready: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop, self._empty = asyncio.Event(), asyncio.Event()
        context: ssl.SSLContext | None = self._context
        server = await self._loop.create_server(
            lambda: Connection(self),
            sock=listener,
            ssl=context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=self._limits.request if context else None,
        )
        sweeper = self._loop.create_task(self._sweep_always())
        ready.set_result(None)
        await self._stop.wait()
        self.closing = True
        self._loop.remove_reader(listener)
        for _ in range(_ROUNDS):  # what was accepted just now becomes a connection, and ends as one
            await asyncio.sleep(0)
        server.close()
        for connection in list(self._all):
            connection.finish()
        with contextlib.suppress(asyncio.TimeoutError):
            if self._all:
                await asyncio.wait_for(self._empty.wait(), _GRACE)
        for connection in list(self._all):
            connection.abort()
        sweeper.cancel()

    async def _sweep_always(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            self._sweep(time.monotonic())

    def _sweep(self, now: float) -> None:
        """End whoever took too long. The lists are in the order in which their time began."""
        for state, waiting in self._lists.items():
            due = now - self._patience[state]
            while waiting and (first := next(iter(waiting))) and waiting[first] <= due:
                del waiting[first]
                if state == "waiting":
                    first.late()
                else:
                    first.abort()

    # ------------------------------------------------------------------------------------------- the connections' calls

    def admit(self, connection: Connection) -> None:
        """Take a connection in; where all places are taken, one ends that has the least to lose."""
        self._all.add(connection)
        self._lists["waiting"][connection] = time.monotonic()
        if len(self._all) > self._limits.connections:
            self._victim(connection).abort()

    def _victim(self, newest: Connection) -> Connection:
        """Who has kept us waiting the longest, else who has been silent the longest, else the one that came last."""
        for state in ("lingering", "waiting", "idle"):
            for connection in self._lists[state]:
                if connection is not newest:
                    del self._lists[state][connection]
                    return connection
        return newest

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        self._all.discard(connection)
        if self.closing and not self._all and self._empty is not None:
            self._empty.set()
        for waiting in self._lists.values():
            waiting.pop(connection, None)

    def settle(self, connection: Connection, state: str, *, anew: bool) -> None:
        """Note what a connection waits for."""
        lists = self._lists
        wanted = lists.get(state)
        for waiting in lists.values():
            if waiting is not wanted or anew:
                waiting.pop(connection, None)
        if wanted is not None and connection not in wanted:
            wanted[connection] = time.monotonic()

    def hold(self, size: int) -> bool:
        """Account for a body that is on its way."""
        if self._held + size > self._limits.held:
            return False
        self._held += size
        return True

    def date(self) -> str:
        """The Date header, made once a second."""
        now = int(time.time())
        if now != self._date[0]:
            self._date = (now, formatdate(now, usegmt=True))
        return self._date[1]

    def respond(self, request: Request) -> Response | Awaitable[Response]:
        """The site's answer; one that cannot be made is logged once for each cause."""
        try:
            answer = self._site(request)
        except Exception as error:  # noqa: BLE001 - one wrong value must not end the other answers
            return self._broken(request, error)
        return answer if isinstance(answer, Response) else self._guarded(request, answer)

    async def _guarded(self, request: Request, answer: Awaitable[Response]) -> Response:
        try:
            return await answer
        except Exception as error:  # noqa: BLE001 - as above
            return self._broken(request, error)

    def _broken(self, request: Request, error: Exception) -> Response:
        cause = f"{request.path} {type(error).__name__}"
        if cause != self._failed:
            self._failed = cause
            _log.error("event=request-failed path=%s", request.path, exc_info=error)
        return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "this answer could not be made; the log says why")


def raise_descriptors(wanted: int) -> int:
    """Raise the limit of open files as far as this process may, up to `wanted`; returns what is in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    for most in (wanted, hard):
        if most > soft and (most <= hard or most == wanted):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, max(most, hard)))
            except (ValueError, OSError):
                continue  # above the hard limit, which only root may raise
            return most
    return soft


def calm_collector() -> None:
    """Let Python's collector of cycles look seldom, and not at what is there already.

    A pass over all objects of 20,000 nodes stops every thread for 50 ms, and there are next to no cycles to find.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
