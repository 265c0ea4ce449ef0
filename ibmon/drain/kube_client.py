"""One call to the Kubernetes API: with what credentials, and what a refusal means. It knows no nodes.

This module brings urllib3; it is imported where Kubernetes is the scheduler.
"""

from __future__ import annotations

import http
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from ibmon import __version__
from ibmon.config import KubernetesConfig
from ibmon.drain import kube_credentials, webcall
from ibmon.drain.kube_credentials import Access
from ibmon.ports import SchedulerError

LARGEST: Final = 64 * 1024 * 1024
"""Bytes of an answer; a page of 250 nodes has about 5 MB, 25 MB with very long lists of images."""
_FORBIDDEN: Final = 403
_POLICY: Final = "denied request"  # how admission policies and webhooks answer; RBAC says "is forbidden"
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_GENERAL: Final = frozenset({401, 408, 425, 429})
_PASSING: Final = frozenset({408, _CONFLICT, 425, 429})

STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON: Final = "application/json"
_T = TypeVar("_T")


class KubeError(SchedulerError):
    """The API server said no, or nothing. `status` is its HTTP status, None without an answer."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text, forbidden=status == _FORBIDDEN, general=_is_general(status))
        self.status = status

    @property
    def conflict(self) -> bool:
        """Whether the object had changed since it was read."""
        return self.status == _CONFLICT

    @property
    def missing(self) -> bool:
        """Whether the server answered that there is no such object."""
        return self.status == _NOT_FOUND

    @property
    def refused(self) -> bool:
        """Whether asking again is of no use before a person has changed something."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in _PASSING


def _is_general(status: int | None) -> bool:
    """Whether the answer is about the server or who asks, and not about the object."""
    return status is None or status >= 500 or status in _GENERAL


class Call(NamedTuple):
    """One request. `verb` and `resource` are RBAC's words for it, `about` the object as people call it."""

    method: str
    path: str
    verb: str
    resource: str
    about: str
    query: Mapping[str, str] = {}
    body: object = None
    content_type: str = JSON


class Answer(NamedTuple):
    """What came back: the body, and the server's clock (wall time, None where it does not tell)."""

    body: bytes
    date: float | None


class _Status(msgspec.Struct):
    message: str | None = None


class KubeClient:
    """Calls to one API server, each with its own connection and freshly read credentials.

    Calls are minutes apart, and credentials, authorities and addresses change in between.

    Args:
        access: reads the credentials; it may raise SchedulerError.
        timeout: seconds for a whole call, from the first packet to the last byte.
    """

    def __init__(self, access: Callable[[], Access], timeout: float) -> None:
        self._access = access
        self._timeout = timeout

    @classmethod
    def configured(cls, config: KubernetesConfig, environ: Mapping[str, str]) -> KubeClient:
        """A client with the credentials that [kubernetes] names, or those of the pod, and its timeout."""
        return cls(lambda: kube_credentials.find(config.kubeconfig, config.context, environ), config.timeout)

    def send(self, call: Call) -> Answer:
        """Carry the call out; KubeError for every outcome but success."""
        access = self._access()
        server = webcall.Server(access.host, access.port, access.context, access.server_name)
        try:
            reply = webcall.exchange(server, _request(access, call), timeout=self._timeout, largest=LARGEST)
        except webcall.CallError as error:
            raise KubeError(f"Kubernetes at {access.host}:{access.port}: {error}") from None
        if not 200 <= reply.status < 300:
            raise _refusal(call, reply.status, reply.headers, reply.body)
        return Answer(reply.body, _date(reply.headers.get("Date")))


def _request(access: Access, call: Call) -> webcall.Request:
    headers = {"Accept": JSON, "User-Agent": f"ibmon/{__version__}"}
    if call.body is not None:
        headers["Content-Type"] = call.content_type
    if access.token:
        headers["Authorization"] = f"Bearer {access.token}"
    target = access.prefix + call.path + (f"?{urlencode(call.query)}" if call.query else "")
    return webcall.Request(call.method, target, headers, None if call.body is None else msgspec.json.encode(call.body))


def decode(body: bytes, kind: type[_T], what: str) -> _T:
    """An answer as a value; SchedulerError where it is not what was asked for."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise SchedulerError(f"Kubernetes answered with something that is no {what}: {error}") from None


def _refusal(call: Call, status: int, headers: Mapping[str, str], body: bytes) -> KubeError:
    said = _said(body)
    if status == _FORBIDDEN:
        if _POLICY in said:
            return KubeError(f"an admission policy forbids ibmon to {call.verb} {call.about}: {said}", status)
        needs = f"its service account needs the verb {call.verb} on {call.resource}"
        return KubeError(f"Kubernetes forbids ibmon to {call.verb} {call.about}: {needs} ({said})", status)
    if status == http.HTTPStatus.UNAUTHORIZED:
        return KubeError("Kubernetes does not accept the credentials (401): expired, or of another cluster", status)
    if status == _NOT_FOUND:
        return KubeError(f"Kubernetes knows no {call.about} (404)", status)
    if status == _CONFLICT:
        return KubeError(f"{call.about} was changed by somebody else in the same moment (409)", status)
    if status == http.HTTPStatus.TOO_MANY_REQUESTS:
        wait = headers.get("Retry-After", "")
        after = f" for {wait} s" if wait.isdigit() else ""
        return KubeError(f"Kubernetes asks to be left alone{after} (429)", status)
    return KubeError(f"Kubernetes answered {status} to {call.verb} {call.about}: {said}", status)


def _said(body: bytes) -> str:
    """The message of a Status in one line, shortened: as much as a person needs."""
    try:
        message = msgspec.json.decode(body, type=_Status).message
    except msgspec.MsgspecError:
        message = None
    return " ".join((message or "it said nothing").split())[:200]


def _date(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except ValueError:
        return None
