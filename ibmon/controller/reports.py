"""POST /v1/report: a node's report in, the signed answer out; and what a report that counts for nothing leaves."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Final

import msgspec

from ibmon.controller.auth import Forbidden, Signed, check, signed_headers
from ibmon.controller.brain import World
from ibmon.controller.complaints import Complaints
from ibmon.controller.http import JSON, Request, Response, refusal
from ibmon.model import Now
from ibmon.report import Reply

NOT_LEADER: Final = refusal(HTTPStatus.SERVICE_UNAVAILABLE, "not the leader", ("Retry-After", "2"))

_STATUS: Final = {
    "replay": HTTPStatus.CONFLICT,
    "skew": HTTPStatus.BAD_REQUEST,
}
_encode = msgspec.json.Encoder().encode


class Reports:
    """Answers reports. A refused one leaves one log line a minute and a count, and changes nothing."""

    def __init__(self, world: World, complaints: Complaints) -> None:
        self._world = world
        self._complaints = complaints

    def __call__(self, request: Request) -> Response:
        """The answer to a report."""
        if request.method != "POST":
            return refusal(HTTPStatus.METHOD_NOT_ALLOWED, "reports are sent by POST", ("Allow", "POST"))
        if not self._world.leader():
            return NOT_LEADER
        began, now = time.perf_counter(), self._world.now()
        try:
            signed = check(request.headers, request.body, self._world.keys.at(now.monotonic), now)
            response = self._taken(signed, now)
        except Forbidden as error:
            self._world.metrics.refused(error.kind)
            self._complaints.say("report-refused", error.kind, request.peer, error.line, now.monotonic, error.node)
            return refusal(error.status, error.line)
        self._world.touched()
        self._world.metrics.report(time.perf_counter() - began)
        return response

    def _taken(self, signed: Signed, now: Now) -> Response:
        answer = self._world.desk.report(signed.report, now)
        if not isinstance(answer, Reply):
            status = _STATUS.get(answer.code, HTTPStatus.FORBIDDEN)
            raise Forbidden(answer.code, status, answer.text, signed.report.node)
        body = _encode(answer)
        return Response(HTTPStatus.OK, body, JSON, signed_headers(signed, body, now))
