"""The node's way to the fleet controller: one signed report out, one signed reply back.

It knows HTTP, signatures and deadlines, and decides nothing. This module brings urllib3; it is imported where
`action.scheduler` is "controller". The key is in no error, no log line and no repr.
"""

from __future__ import annotations

import contextlib
import hmac
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from ibmon import __version__
from ibmon.alert.signature import SecretError, SecretFile, sign
from ibmon.config import ControllerConfig
from ibmon.drain.webcall import words_of
from ibmon.ports import SchedulerError
from ibmon.report import ID_HEADER, MAX_BYTES, PATH, SIGNATURE_HEADER, SKEW, TIME_HEADER, Reply, Report

DEADLINE: Final = 10.0
"""Seconds for a whole call, from the first packet to the last byte."""

LARGEST: Final = 16 * 1024
"""Bytes of an answer that are read at most; a reply has about a hundred."""

_WORDS: Final = 120  # characters of a refusal that are handed on
_UNSIGNED: Final = "the answer of the controller is not signed with this node's key"
_DECODER: Final = msgspec.json.Decoder(Reply)


class NotLeaderError(SchedulerError):
    """This instance does not lead, or cannot serve now: ask again soon."""


class ReplayedError(SchedulerError):
    """The controller has seen this number or a later one: report again with a higher one."""


class _Said(msgspec.Struct):
    """A refusal's body."""

    error: str


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class ControllerClient:
    """Reports to one controller over one kept connection. `send` is for one thread; `abort` may come from another.

    Args:
        config: url, key_file and ca; the files are read again when they change.
        deadline: seconds for one call.
        wall: the wall clock, which signatures carry.
    """

    def __init__(
        self, config: ControllerConfig, *, deadline: float = DEADLINE, wall: Callable[[], float] = time.time
    ) -> None:
        parts = urllib3.util.parse_url(config.url)
        if not parts.host:
            raise ValueError("controller.url has no host")
        self._secure = parts.scheme == "https"
        self._host = parts.host.strip("[]")
        self._port = parts.port or (443 if self._secure else 80)
        self._path = (parts.path or "").rstrip("/") + PATH
        self._ca = config.ca
        self._key_file = config.key_file
        self._key = SecretFile(config.key_file)
        self._deadline = deadline
        self._wall = wall
        self._connection: HTTPConnection | None = None
        self._sock: socket.socket | None = None
        self._late = threading.Event()
        self._aborted = False

    def send(self, report: Report) -> Reply:
        """The controller's signed reply to a report.

        SchedulerError for everything else that can come of it; `NotLeaderError` and `ReplayedError` are worth another
        try at once. A connection that the other side has closed meanwhile is opened anew, once.
        """
        body = msgspec.json.encode(report)
        if len(body) > MAX_BYTES:
            raise SchedulerError(f"the report has {len(body)} bytes, more than the {MAX_BYTES} that are taken")
        mark = f"{report.boot_id}.{report.seq}"
        secrets = self._secrets()
        stamp = int(report.sent)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"ibmon/{__version__}",
            ID_HEADER: mark,
            TIME_HEADER: str(stamp),
            SIGNATURE_HEADER: sign(secrets, mark, stamp, body),
        }
        answer = self._exchange(body, headers)
        if answer.status != HTTPStatus.OK:
            raise self._refusal(answer)
        self._verify(answer, mark, secrets)
        try:
            return _DECODER.decode(answer.body)
        except msgspec.MsgspecError as error:
            raise SchedulerError(f"the answer of the controller cannot be read: {error}") from None

    def abort(self) -> None:
        """End the call that is under way, and every later one, at once."""
        self._aborted = True
        self._cut()

    def close(self) -> None:
        """Give the connection back; the thread that sends does this."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # ------------------------------------------------------------------------------------- one exchange

    def _exchange(self, body: bytes, headers: Mapping[str, str]) -> _Answer:
        self._late.clear()
        guard = threading.Timer(self._deadline, self._overdue)
        guard.daemon = True
        guard.start()
        try:
            kept = self._connection is not None and self._connection.is_connected
            try:
                return self._ask(body, headers)
            except (HTTPError, http.client.HTTPException, OSError) as error:
                if not kept or self._late.is_set() or self._aborted or isinstance(error, TimeoutError):
                    raise
                return self._ask(body, headers)
        except (HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            raise SchedulerError(f"the controller at {self._host}:{self._port}: {self._words(error)}") from None
        finally:
            guard.cancel()
            guard.join()

    def _ask(self, body: bytes, headers: Mapping[str, str]) -> _Answer:
        """One request; a connection on which anything went wrong is not used again."""
        connection = self._connection
        if connection is None or not connection.is_connected:
            self.close()
            connection = self._connection = self._connect()
        kept = False
        try:
            if not (self._aborted or connection.is_connected):
                connection.connect()
            self._sock = connection.sock  # an answer without a length takes it away from the connection
            if self._late.is_set() or self._aborted:  # there was nothing to cut while the name was looked up
                raise TimeoutError
            connection.request("POST", self._path, body=body, headers=headers, preload_content=False)
            with contextlib.closing(connection.getresponse()) as answer:
                said = answer.read(LARGEST + 1, decode_content=False)
            if self._late.is_set() or self._aborted:  # cut off, which can look like an end
                raise TimeoutError
            if len(said) > LARGEST:
                raise ValueError(f"an answer of more than {LARGEST >> 10} KiB")
            kept = answer.status == HTTPStatus.OK  # else another instance may be behind the next one
            return _Answer(answer.status, {k.lower(): v for k, v in answer.headers.items()}, said)
        finally:
            self._sock = None
            if not kept:
                self.close()

    def _connect(self) -> HTTPConnection:
        if not self._secure:
            return HTTPConnection(self._host, self._port, timeout=self._deadline)
        try:
            context = ssl.create_default_context(cafile=self._ca or None)
        except (OSError, ssl.SSLError) as error:
            why = error.strerror if isinstance(error, FileNotFoundError | PermissionError) else "no certificates in it"
            raise ValueError(f"controller.ca: {self._ca} cannot be used: {why}") from None
        return HTTPSConnection(self._host, self._port, timeout=self._deadline, ssl_context=context)

    def _overdue(self) -> None:
        self._late.set()
        self._cut()

    def _cut(self) -> None:
        sock = self._sock or (self._connection.sock if self._connection is not None else None)
        if sock is not None:
            # The plain socket's own method: that of a TLS socket would take its state away under the reading thread.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    # ------------------------------------------------------------------------------------- what it means

    def _secrets(self) -> tuple[bytes, ...]:
        try:
            return self._key.secrets()
        except SecretError as error:
            raise SchedulerError(f"controller.key_file: {error}", forbidden=True) from None

    def _verify(self, answer: _Answer, mark: str, secrets: tuple[bytes, ...]) -> None:
        """SchedulerError unless who holds this node's key answered this very report, now."""
        stamp = answer.headers.get(TIME_HEADER, "")
        if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16):
            raise SchedulerError(_UNSIGNED)
        given = answer.headers.get(SIGNATURE_HEADER, "").encode().split()
        right = [sign((secret,), mark, int(stamp), answer.body).encode() for secret in secrets]
        if not any([hmac.compare_digest(one, other) for one in given for other in right]):  # noqa: C419 - no early end
            raise SchedulerError(_UNSIGNED)
        off = int(stamp) - self._wall()
        if abs(off) > SKEW:
            raise SchedulerError(f"the clocks of the controller and of this node are {abs(off):.0f} s apart")

    def _refusal(self, answer: _Answer) -> SchedulerError:
        said = _plain(answer.body)
        status = answer.status
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            why = f"the controller does not take this node's reports ({status}: {said})"
            return SchedulerError(
                f"{why}; look at the key in {self._key_file}, node.name and the clock", forbidden=True
            )
        if status == HTTPStatus.CONFLICT:
            return ReplayedError(f"the controller has seen this report's number, or a newer boot ({status}: {said})")
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            return NotLeaderError(f"the controller that answered does not serve now ({status}: {said})")
        if 300 <= status < 400:
            return SchedulerError(
                f"the controller answered {status}: redirects are not followed; look at controller.url"
            )
        return SchedulerError(f"the controller answered {status}: {said}")

    def _words(self, error: Exception) -> str:
        if self._aborted:
            return "stopped"
        return words_of(TimeoutError() if self._late.is_set() else error, self._deadline)


def _plain(body: bytes) -> str:
    """What a refusal says, in one line of printable ASCII, shortened: as much as a person needs."""
    try:
        said = msgspec.json.decode(body, type=_Said).error
    except msgspec.MsgspecError:  # not of the controller: something before it
        said = body[: 4 * _WORDS].decode("ascii", "replace")
    text = "".join(c if " " <= c <= "~" else " " for c in said)
    return " ".join(text.split())[:_WORDS] or "it said nothing"
