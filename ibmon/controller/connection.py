"""One connection of the fleet server: bytes in, whole requests to the site, answers in order out.

Owns the state of one connection. Whom it may keep waiting, and for how long, is its host's business.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Final, Protocol, cast

from ibmon.controller.http import CONTINUE, MAX_HEAD, Head, HttpError, Request, Response, parse_head, refusal, render

_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_NO_START: Final = re.compile(rb"[^!-~]")  # such as the hello of TLS
_END: Final = b"\r\n\r\n"


class Host(Protocol):
    """What a connection needs of its server. All of it is called on the loop's thread."""

    closing: bool
    max_body: int

    def admit(self, connection: Connection) -> None:
        """There is a new connection."""

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""

    def settle(self, connection: Connection, state: str, *, anew: bool) -> None:
        """What a connection waits for now: `waiting` for the peer, `idle`, `busy`, `lingering`; anew: since now."""

    def hold(self, size: int) -> bool:
        """Whether so many bytes may be waited for; a negative size gives them back."""

    def respond(self, request: Request) -> Response | Awaitable[Response]:
        """The answer, at once or later; it does not raise."""

    def date(self) -> str:
        """The Date header."""


class Connection(asyncio.Protocol):
    """HTTP/1.1 with kept connections and pipelining: the next request is looked at when the last one is answered."""

    __slots__ = (
        "__weakref__", "_buffer", "_ending", "_half", "_head", "_held", "_host", "_scanned", "_stalled", "_task",
        "_transport", "peer",
    )  # fmt: skip

    def __init__(self, host: Host) -> None:
        self._host = host
        self._buffer = bytearray()
        self._scanned = 0  # of the buffer, in which no end of a head is
        self._head: Head | None = None  # of a request whose body is not here yet
        self._held = 0
        self._task: asyncio.Task[None] | None = None  # an answer that is being made
        self._stalled = False  # the peer does not read what it asked for
        self._half = False  # the peer sends no more
        self._ending = False  # the last answer was sent; what comes is thrown away
        self.peer = ""

    # -------------------------------------------------------------------------------------------- asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer is there."""
        self._transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        self.peer = str(name[0]) if name else ""
        self._host.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """The peer is gone. An answer that is being made is made to its end, and nobody hears it."""
        self._ending = True
        self._release()
        self._host.forget(self)

    def data_received(self, data: bytes) -> None:
        """Some bytes came."""
        if not self._ending:
            self._buffer += data
            self._work()

    def eof_received(self) -> bool:
        """The peer sends no more: what is being answered is answered, then it ends."""
        self._half = True
        return self._task is not None

    def pause_writing(self) -> None:
        """The peer reads too slowly: nothing more is read from it, and its time runs."""
        self._stalled = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._stalled = False
        if self._task is None and not self._ending:
            self._transport.resume_reading()
            self._work(anew=True)

    # --------------------------------------------------------------------------------------------- the host's calls

    def abort(self) -> None:
        """End it now."""
        self._transport.abort()

    def late(self) -> None:
        """The peer's time is up."""
        if self._stalled or not (self._buffer or self._head):
            self.abort()
        else:
            self._refuse(HttpError(HTTPStatus.REQUEST_TIMEOUT, "the request did not come to its end in time"))

    def finish(self) -> None:
        """End it now, or once what is being answered is answered."""
        if self._task is None:
            self.abort()

    # ---------------------------------------------------------------------------------------------------- requests

    def _work(self, *, anew: bool = False) -> None:
        """Answer what is whole."""
        try:
            while self._task is None and not self._stalled and not self._ending:
                request, head = self._take()
                if request is None or head is None:
                    break
                self._answer(request, head)
                anew = True
        except HttpError as error:
            self._refuse(error)
        if self._ending:
            return
        if self._task is not None:
            state = "busy"
        elif self._stalled or self._buffer or self._head is not None:
            state = "waiting"
        else:
            state = "idle" if anew else "waiting"
        self._host.settle(self, state, anew=anew)

    def _take(self) -> tuple[Request | None, Head | None]:
        """The next request, once it is whole; HttpError where it will never be."""
        head = self._head or self._take_head()
        buffer = self._buffer
        if head is None or len(buffer) < head.length:
            return None, None
        body = bytes(buffer[: head.length])
        del buffer[: head.length]
        self._head = None
        self._release()
        return Request(head.method, head.path, head.query, head.headers, body, self.peer), head

    def _take_head(self) -> Head | None:
        buffer = self._buffer
        while not self._scanned and buffer.startswith(b"\r\n"):
            del buffer[:2]  # RFC 9112 §2.2: empty lines before a request are no harm
        end = buffer.find(_END, max(0, self._scanned - 3))
        if end > MAX_HEAD or (end < 0 and len(buffer) > MAX_HEAD):
            raise HttpError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has at most {MAX_HEAD} bytes")
        if end < 0:
            if buffer != b"\r" and (_NO_START.match(buffer) or _BARE_LF.search(buffer, max(0, self._scanned - 1))):
                raise HttpError(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request")
            self._scanned = len(buffer)
            return None
        self._scanned = 0
        head = parse_head(bytes(buffer[: end + 2]))
        del buffer[: end + 4]
        if head.length > self._host.max_body:
            raise HttpError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"a body has at most {self._host.max_body} bytes, not {head.length}",
            )
        if len(buffer) < head.length:
            self._await_body(head)
        return head

    def _await_body(self, head: Head) -> None:
        if not self._host.hold(head.length):
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests are on their way; come again")
        self._held = head.length
        self._head = head
        if head.expects and not self._buffer:
            self._transport.write(CONTINUE)

    def _release(self) -> None:
        if self._held:
            self._host.hold(-self._held)
            self._held = 0

    # ----------------------------------------------------------------------------------------------------- answers

    def _answer(self, request: Request, head: Head) -> None:
        answer = self._host.respond(request)
        if isinstance(answer, Response):
            self._send(answer, head)
            return
        self._transport.pause_reading()
        self._task = asyncio.ensure_future(self._later(answer, head))

    async def _later(self, answer: Awaitable[Response], head: Head) -> None:
        response = await answer
        self._task = None
        if self._transport.is_closing():
            return
        self._send(response, head)
        if not self._ending and not self._stalled:
            self._transport.resume_reading()
        if not self._ending:
            self._work(anew=True)

    def _send(self, response: Response, head: Head) -> None:
        keep = head.keep and not self._half and not self._host.closing
        self._transport.write(render(response, self._host.date(), keep=keep, body=head.method != "HEAD"))
        if not keep:
            self._end()

    def _refuse(self, error: HttpError) -> None:
        self._transport.write(render(refusal(error.status, error.line), self._host.date(), keep=False))
        self._end()

    def _end(self) -> None:
        """Say that this was all, and let the peer read it: closing at once would reset what it still sends."""
        self._ending = True
        self._buffer.clear()
        self._head = None
        self._release()
        if self._half or self._host.closing or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()
            self._transport.resume_reading()
        self._host.settle(self, "lingering", anew=True)
