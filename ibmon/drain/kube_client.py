"""One call to the Kubernetes API within a deadline: no redirect, no retry, no answer without an end.

It knows HTTP and what a refusal means, not nodes. This module brings urllib3; it is imported where Kubernetes is the
scheduler.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple
from urllib.parse import urlencode

import msgspec
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NameResolutionError, NewConnectionError, ReadTimeoutError
from urllib3.exceptions import SSLError as TlsError
from urllib3.response import BaseHTTPResponse

from ibmon import __version__
from ibmon.drain.kube_credentials import Access
from ibmon.ports import SchedulerError

LARGEST: Final = 64 * 1024 * 1024
"""Bytes of an answer; a page of 250 nodes has about 5 MB, 25 MB with very long lists of images."""
_PART: Final = 256 * 1024
_FORBIDDEN: Final = 403
_POLICY: Final = "denied request"  # how admission policies and webhooks answer; RBAC says "is forbidden"
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_PASSING: Final = frozenset({408, _CONFLICT, 425, 429})

STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON: Final = "application/json"


class KubeError(SchedulerError):
    """The API server said no, or nothing. `status` is its HTTP status, None without an answer."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text, forbidden=status == _FORBIDDEN)
        self.status = status

    @property
    def conflict(self) -> bool:
        """Whether the object had changed since it was read."""
        return self.status == _CONFLICT

    @property
    def refused(self) -> bool:
        """Whether asking again is of no use before a person has changed something."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in _PASSING


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

    def send(self, call: Call) -> Answer:
        """Carry the call out; KubeError for every outcome but success."""
        access = self._access()
        attempt = _Attempt(access, self._timeout)
        status, headers, body = attempt.run(call)
        if not 200 <= status < 300:
            raise _refusal(call, status, headers, body)
        return Answer(body, _date(headers.get("Date")))


class _Attempt:
    """One connection with a guard that cuts it when the time is up, whatever it waits for."""

    def __init__(self, access: Access, timeout: float) -> None:
        self._access = access
        self._timeout = timeout
        self._until = time.monotonic() + timeout
        self._late = threading.Event()
        self._connection: HTTPConnection | None = None

    def run(self, call: Call) -> tuple[int, Mapping[str, str], bytes]:
        self._connection = connection = self._connect()
        guard = threading.Timer(self._timeout, self._cut)
        guard.daemon = True
        guard.start()
        try:
            connection.request(
                call.method,
                self._access.prefix + call.path + (f"?{urlencode(call.query)}" if call.query else ""),
                body=None if call.body is None else msgspec.json.encode(call.body),
                headers=self._headers(call),
                preload_content=False,
            )
            answer = connection.getresponse()
            status, headers, body = answer.status, dict(answer.headers), self._read(answer)
            if self._late.is_set():  # cut off, which can look like an end
                raise TimeoutError
        except (HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            raise KubeError(f"Kubernetes at {self._where}: {self._words(error)}") from None
        finally:
            guard.cancel()
            connection.close()
        return status, headers, body

    @property
    def _where(self) -> str:
        return f"{self._access.host}:{self._access.port}"

    def _connect(self) -> HTTPConnection:
        access = self._access
        if access.context is None:
            return HTTPConnection(access.host, access.port, timeout=self._timeout)
        return HTTPSConnection(
            access.host,
            access.port,
            timeout=self._timeout,
            ssl_context=access.context,
            server_hostname=access.server_name or None,
        )

    def _headers(self, call: Call) -> dict[str, str]:
        headers = {"Accept": JSON, "User-Agent": f"ibmon/{__version__}"}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        if self._access.token:
            headers["Authorization"] = f"Bearer {self._access.token}"
        return headers

    def _read(self, answer: BaseHTTPResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        for part in answer.stream(_PART, decode_content=True):
            size += len(part)
            if size > LARGEST:
                raise ValueError(f"an answer of more than {LARGEST >> 20} MiB")
            parts.append(part)
        return b"".join(parts)

    def _cut(self) -> None:
        self._late.set()
        sock = None if self._connection is None else self._connection.sock
        if sock is not None:
            try:
                # The plain socket's own method: a TLS socket's would take its state away under the reading thread.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                return  # it has ended by itself

    def _words(self, error: Exception) -> str:
        """What went wrong in our own words: those of libraries hold objects and whole URLs."""
        if self._late.is_set():
            return f"no answer within {self._timeout:g} s"
        if isinstance(error, NameResolutionError):
            return "the host name is not known"
        if isinstance(error, NewConnectionError):
            cause = error.__cause__
            return (cause.strerror if isinstance(cause, OSError) and cause.strerror else "no connection").lower()
        if isinstance(error, TimeoutError | ConnectTimeoutError | ReadTimeoutError):
            return f"no answer within {self._timeout:g} s"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return f"TLS failed: {error.reason or 'no reason given'}"
        if isinstance(error, TlsError):
            return f"TLS failed: {error}"
        if isinstance(error, OSError) and error.strerror:
            return error.strerror.lower()
        if type(error) is ValueError:
            return str(error)
        return f"broken answer ({type(error).__name__})"


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
