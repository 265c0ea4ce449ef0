"""What each path answers, from the newest snapshot.

Owns the routes, health and readiness. It must not know sockets: a path and two headers in, a response out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

from ibmon.exporter import page
from ibmon.exporter.events import EventRing, page_of
from ibmon.exporter.render import Renderer
from ibmon.exporter.selfmetrics import SelfMetrics
from ibmon.exporter.status import status_document
from ibmon.exporter.text import accepts_gzip, negotiate
from ibmon.snapshot import DeviceView, Snapshot

_log = logging.getLogger(__name__)

PLAIN: Final = "text/plain; charset=utf-8"
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Answered without a password: a probe has none."""

PATHS: Final = ("/", "/metrics", "/api/v1/status", "/api/v1/events", "/healthz", "/readyz")
"""What people and programs ask for; beside them there is only what the page loads."""

TURN_LIMIT: Final = 30.0
"""Seconds after which a loop that did not turn counts as stopped; systemd's watchdog has a limit of its own."""


class Response(NamedTuple):
    """An answer; its length is added by whoever sends it."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Request(NamedTuple):
    """What a client says beside the path."""

    accept: str | None
    accept_encoding: str | None
    query: str


class Site:
    """Answers requests. Every method may be called from any thread.

    Args:
        source: gives the newest snapshot, None before the first.
        renderer: makes exposition text.
        self_metrics: what ibmon says of itself; rendered elsewhere.
        heartbeat: monotonic time at which the engine's loop turned last, None if it did not yet.
        clock: monotonic time.
        events: what has happened, in memory; none by default.
    """

    def __init__(
        self,
        source: Callable[[], Snapshot | None],
        renderer: Renderer,
        self_metrics: SelfMetrics,
        heartbeat: Callable[[], float | None],
        clock: Callable[[], float],
        events: EventRing | None = None,
    ) -> None:
        self._source = source
        self._renderer = renderer
        self._self_metrics = self_metrics
        self._heartbeat = heartbeat
        self._clock = clock
        self._ring = events or EventRing()
        self._was_ready = False
        self._failed: str | None = None
        self._routes: dict[str, Callable[[Request], Response]] = {
            "/": self._page,
            "/icon.svg": self._icon,
            **{path: partial(_file, page.FILES[path], body) for path, body in page.load().items()},
            "/metrics": self._metrics,
            "/api/v1/status": self._status,
            "/api/v1/events": self._events,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
        }

    def respond(self, path: str, accept: str | None, accept_encoding: str | None, query: str = "") -> Response:
        """The answer to GET `path`. One that cannot be made is logged once for each cause."""
        route = self._routes.get(path)
        if route is None:
            return text(HTTPStatus.NOT_FOUND, f"nothing here; there is {' '.join(PATHS)}")
        try:
            return route(Request(accept, accept_encoding, query))
        except Exception as error:  # noqa: BLE001 - one wrong value must not end the other paths
            cause = f"{path} {error!r}"
            if cause != self._failed:
                self._failed = cause
                _log.exception("event=request-failed path=%s", path)
            return text(HTTPStatus.INTERNAL_SERVER_ERROR, "this answer could not be made; the log says why")

    def count(self, code: int) -> None:
        """An answer with this status code was sent."""
        self._self_metrics.request(code)

    def _metrics(self, request: Request) -> Response:
        fmt = negotiate(request.accept)
        packed = accepts_gzip(request.accept_encoding)
        body = self._renderer.render(
            self._source(),
            fmt,
            monotonic=self._clock(),
            self_metrics=self._self_metrics.text(fmt),
            gzip=packed,
        )
        encoding = (("Content-Encoding", "gzip"),) if packed else ()
        return Response(HTTPStatus.OK, fmt.value, body, (("Vary", "Accept, Accept-Encoding"), *encoding))

    def _page(self, _: Request) -> Response:
        body = page.render_page(self._source()).encode("utf-8", "replace")
        return Response(HTTPStatus.OK, page.HTML, body, tuple(page.HEADERS.items()))

    def _icon(self, request: Request) -> Response:
        return Response(HTTPStatus.OK, page.ICON, page.icon(request.query))

    def _status(self, _: Request) -> Response:
        snapshot = self._source()
        if snapshot is None:
            return text(HTTPStatus.SERVICE_UNAVAILABLE, "nothing was read yet")
        return Response(HTTPStatus.OK, "application/json", msgspec.json.encode(status_document(snapshot)) + b"\n")

    def _events(self, request: Request) -> Response:
        try:
            return Response(HTTPStatus.OK, "application/json", page_of(self._ring, request.query))
        except ValueError as error:
            return text(HTTPStatus.BAD_REQUEST, str(error))

    def _healthz(self, _: Request) -> Response:
        turned = self._heartbeat()
        if turned is None:
            return text(HTTPStatus.SERVICE_UNAVAILABLE, "the loop did not turn yet")
        age = self._clock() - turned
        if age > TURN_LIMIT:
            return text(
                HTTPStatus.SERVICE_UNAVAILABLE, f"the loop turned {age:.0f} s ago, the limit is {TURN_LIMIT:g} s"
            )
        return text(HTTPStatus.OK, "ok")

    def _readyz(self, _: Request) -> Response:
        """Ready once everything was read or has failed once; a device that comes later changes nothing."""
        reason = None if self._was_ready else _not_ready(self._source())
        if reason is not None:
            return text(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        self._was_ready = True
        return text(HTTPStatus.OK, "ok")


def _file(content_type: str, body: bytes, _: Request) -> Response:
    return Response(HTTPStatus.OK, content_type, body)


def text(status: HTTPStatus, line: str, *headers: tuple[str, str]) -> Response:
    """An answer of one line."""
    return Response(status, PLAIN, f"{line}\n".encode(), headers)


def _not_ready(snapshot: Snapshot | None) -> str | None:
    """Why the first pass is not complete, or None when it is. A directory that cannot be read is a complete answer."""
    if snapshot is None or (not snapshot.up and snapshot.listing_errno is None):
        return "class/infiniband was not listed yet"
    waiting = [view.device.name for view in snapshot.devices if not _was_read(view)]
    return f"not read yet: {', '.join(waiting)}" if waiting else None


def _was_read(view: DeviceView) -> bool:
    tiers = zip(view.device.layout.tiers, view.sample.read_at, strict=True)
    return view.stalled or all(at is not None for columns, at in tiers if columns)
