"""What the controller answers at each path, to whom.

Owns the routes and who may use them. All of it runs on the server's thread; what waits (saving, the audit log) is
awaited, so that reports go on meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qs, unquote

from ibmon.config import ControllerConfig
from ibmon.controller import inbound, operate
from ibmon.controller.brain import World
from ibmon.controller.complaints import Complaints
from ibmon.controller.http import PLAIN, Request, Response, as_json, refusal
from ibmon.controller.reports import NOT_LEADER, Reports
from ibmon.controller.tokens import Holder
from ibmon.controller.values import NodeRow
from ibmon.exporter.address import parse_listen
from ibmon.exporter.text import negotiate
from ibmon.report import PATH

SAVE_PATIENCE: Final = 10.0
"""Seconds that an answer waits for what was asked to be durable."""

KEPT: Final = 1.0
"""Seconds for which a view of the fleet is served again, however many look ..."""

SHARE: Final = 50.0
"""... or so many times as long as looking took, so that those who look cannot keep reports waiting."""

AUDIT_LINES: Final = 100
_MOST_LINES: Final = 10000

_NODES = "/api/v1/nodes"
Answer = Response | Awaitable[Response]
_T = TypeVar("_T")


class Route(NamedTuple):
    """What a path answers: the method it takes, the role that it needs (none: anybody), and who makes the answer."""

    method: str
    role: str | None
    answer: Callable[[Request, Holder], Answer]


def views_are_open(config: ControllerConfig) -> bool:
    """Whether anybody may look: no tokens are configured, and nobody but this machine can ask."""
    if config.tokens_file:
        return False
    host = parse_listen(config.listen, "controller.listen").host
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


class Site:
    """Answers requests; called on the server's thread."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._complaints = Complaints()
        self._reports = Reports(world, self._complaints)
        self._kept: dict[str, tuple[float, asyncio.Task[Response]]] = {}
        self._routes: dict[str, Route] = {
            "/healthz": Route("GET", None, lambda _, __: _line(HTTPStatus.OK, "ok")),
            "/readyz": Route("GET", None, self._readyz),
            "/metrics": Route("GET", None, self._metrics),
            "/api/v1/fleet": Route("GET", "view", self._fleet),
            _NODES: Route("GET", "view", self._nodes),
            "/api/v1/audit": Route("GET", "view", self._audit),
            "/v1/alerts": Route("POST", "alert", self._alerts),
            **{path: Route("POST", "operate", self._ask) for path in operate.FORMS},
        }

    def __call__(self, request: Request) -> Answer:
        """The answer to a request, at once or later."""
        if request.path == PATH:
            return self._reports(request)
        route = self._routes.get(request.path)
        if route is None and request.path.startswith(f"{_NODES}/"):
            route = Route("GET", "view", self._node)
        if route is None:
            return self._page(request)
        method = "GET" if request.method == "HEAD" else request.method
        if method != route.method:
            return _not_allowed(route.method)
        holder = self._holder(request, route.role)
        return holder if isinstance(holder, Response) else route.answer(request, holder)

    # ------------------------------------------------------------------------------------------------- who asks

    def _holder(self, request: Request, role: str | None) -> Holder | Response:
        """Who asks, if they may; else the answer that says so."""
        if role is None or (role == "view" and self._world.open_views):
            return Holder("", "")
        tokens = self._world.tokens
        if tokens is None:
            return refusal(HTTPStatus.FORBIDDEN, "nobody may do this: controller.tokens_file is not configured")
        now = self._world.now()
        header = request.headers.get("authorization")
        holder = tokens.holder(header, now.monotonic)
        if holder is None:
            line = "a bearer token is needed" if header is None else "this token is not known"
            if header is not None:
                self._complaints.say("request-refused", "token", request.peer, line, now.monotonic)
            return refusal(HTTPStatus.UNAUTHORIZED, line, ("WWW-Authenticate", 'Bearer realm="ibmon"'))
        if not holder.may(role):
            line = f"this needs a token of role {role}; {holder.name}'s has role {holder.role}"
            self._complaints.say("request-refused", "role", request.peer, line, now.monotonic)
            return refusal(HTTPStatus.FORBIDDEN, line)
        return holder

    # ------------------------------------------------------------------------------------------------- looking

    def _readyz(self, _: Request, __: Holder) -> Response:
        ready = self._world.leader()
        return _line(HTTPStatus.OK, "ok") if ready else _line(HTTPStatus.SERVICE_UNAVAILABLE, "not the leader")

    def _metrics(self, request: Request, _: Holder) -> Response:
        fmt, now, desk = negotiate(request.headers.get("accept")), self._world.now(), self._world.desk
        body = self._world.metrics.render(desk.counts(now), desk.fleet(now), fmt)
        return Response(HTTPStatus.OK, body, fmt.value, (("Cache-Control", "no-store"), ("Vary", "Accept")))

    def _fleet(self, _: Request, __: Holder) -> Answer:
        return self._keep("fleet", lambda: self._world.desk.fleet(self._world.now()), lambda fleet: fleet)

    def _nodes(self, request: Request, _: Holder) -> Answer:
        def look() -> Sequence[NodeRow]:
            return self._world.desk.nodes(self._world.now())

        if parse_qs(request.query).get("compact") == ["1"]:
            return self._keep("compact", look, _compact)
        return self._keep("nodes", look, lambda rows: rows)

    def _keep(self, key: str, look: Callable[[], _T], form: Callable[[_T], object]) -> Awaitable[Response]:
        """A view as JSON; one that was made just now is served again. Only looking keeps this thread."""
        now = self._world.now().monotonic
        until, task = self._kept.get(key, (now, None))
        if task is None or not now < until:
            began = time.perf_counter()
            seen = look()
            until = now + max(KEPT, SHARE * (time.perf_counter() - began))
            task = asyncio.get_running_loop().create_task(_written(form, seen))
            self._kept[key] = (until, task)
        return asyncio.shield(task)

    def _node(self, request: Request, _: Holder) -> Response:
        name = unquote(request.path.removeprefix(f"{_NODES}/"))
        found = self._world.desk.node(name, self._world.now())
        return as_json(found) if found is not None else refusal(HTTPStatus.NOT_FOUND, "there is no node of this name")

    def _audit(self, request: Request, _: Holder) -> Answer:
        text = parse_qs(request.query).get("limit", [str(AUDIT_LINES)])[-1]
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MOST_LINES):
            return refusal(HTTPStatus.BAD_REQUEST, f"limit is a number from 1 to {_MOST_LINES}")
        return self._audit_lines(int(text))

    async def _audit_lines(self, limit: int) -> Response:
        return as_json(await asyncio.get_running_loop().run_in_executor(None, self._world.audit, limit))

    def _page(self, request: Request) -> Response:
        page = self._world.pages(request.path) if self._world.pages is not None else None
        if page is None:
            return refusal(HTTPStatus.NOT_FOUND, "there is nothing at this path")
        if request.method not in {"GET", "HEAD"}:
            return _not_allowed("GET")
        content_type, body, etag, headers = page
        extra = (("ETag", etag), *headers.items())
        if etag in [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]:
            return Response(HTTPStatus.NOT_MODIFIED, b"", content_type, extra)
        return Response(HTTPStatus.OK, body, content_type, extra)

    # -------------------------------------------------------------------------------------------------- acting

    def _ask(self, request: Request, holder: Holder) -> Answer:
        if not self._world.leader():
            return NOT_LEADER
        try:
            ask = operate.read(request.path, request.body, holder.name, request.headers.get(operate.USER_HEADER))
        except operate.BodyError as error:
            return refusal(HTTPStatus.BAD_REQUEST, str(error))
        told = self._world.desk.ask(ask, self._world.now())
        said = {"done": told.done, "text": told.text, "nodes": told.nodes}
        if not told.done:
            return as_json(said, HTTPStatus.CONFLICT)
        if ask.dry_run:
            return as_json(said)
        self._changed()
        return self._once_saved(said, "it holds now, but a restart would forget it: ask again")

    def _alerts(self, request: Request, _: Holder) -> Answer:
        if not self._world.leader():
            return NOT_LEADER
        now = self._world.now()
        try:
            message = inbound.read(request.body)
        except operate.BodyError as error:
            line = f"this is no webhook of an Alertmanager: {error}"
            self._complaints.say("alerts-refused", "shape", request.peer, line, now.monotonic)
            return refusal(HTTPStatus.BAD_REQUEST, line)
        if message.left_out:
            line = f"{message.left_out} alerts were left out by max_alerts"
            self._complaints.say("alerts-truncated", "truncated", request.peer, line, now.monotonic)
        for item in message.items:
            if item.alert is not None:
                self._world.desk.alert(item.alert, now)
            else:
                self._complaints.say(
                    "alert-refused", f"alert {item.name}", request.peer, item.wrong, now.monotonic, item.node
                )
        said = {"alerts": [_told(item) for item in message.items], "left_out": message.left_out}
        if message.items and all(item.alert is None for item in message.items):
            return as_json({"error": message.items[0].wrong, **said}, HTTPStatus.BAD_REQUEST)
        self._changed()
        return self._once_saved(said, "it is not durable: send it again")

    def _changed(self) -> None:
        self._kept.clear()
        self._world.touched()

    async def _once_saved(self, said: Mapping[str, Any], otherwise: str) -> Response:
        """The answer, once what the desk holds now is durable."""
        try:
            saving = asyncio.wrap_future(self._world.save())
            saving.add_done_callback(lambda done: done.cancelled() or done.exception())  # its error is told below
            await asyncio.wait_for(asyncio.shield(saving), SAVE_PATIENCE)
        except Exception as error:  # noqa: BLE001 - whatever keeps it from being saved, the person must know
            why = " ".join(str(error).split())[:200] or f"no answer within {SAVE_PATIENCE:g} s"
            return as_json({**said, "error": f"not saved ({why}); {otherwise}"}, HTTPStatus.SERVICE_UNAVAILABLE)
        return as_json(said)


async def _written(form: Callable[[_T], object], seen: _T) -> Response:
    """The answer that shows what was seen, written on another thread."""
    return await asyncio.get_running_loop().run_in_executor(None, lambda: as_json(form(seen)))


def _compact(rows: Sequence[NodeRow]) -> dict[str, Any]:
    """All nodes in as few bytes as will do."""
    rails = max((len(row.rails) for row in rows), default=0)
    listed = [
        (row.name, row.fitness, row.group, row.rails, None if row.age is None else round(row.age, 1), row.code)
        for row in rows
    ]
    return {"v": 1, "rails": list(range(rails)), "nodes": listed}


def _told(item: inbound.Item) -> dict[str, object]:
    status = HTTPStatus.OK if item.alert is not None else HTTPStatus.BAD_REQUEST
    return {"alert": item.name, "node": item.node, "status": int(status), "error": item.wrong or None}


def _not_allowed(method: str) -> Response:
    allowed = "GET, HEAD" if method == "GET" else method
    return refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"this path takes {allowed}", ("Allow", allowed))


def _line(status: HTTPStatus, line: str) -> Response:
    return Response(status, f"{line}\n".encode(), PLAIN, (("Cache-Control", "no-store"),))
