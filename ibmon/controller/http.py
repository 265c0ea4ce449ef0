"""HTTP/1.1 as values: the head of a request in, the bytes of a response out. No sockets, no waiting.

Owns what is refused: whatever two readers could understand differently (RFC 9112 and its security notes) is 400.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

MAX_HEAD: Final = 16 * 1024
"""Bytes of the request line and all headers."""

JSON: Final = "application/json"
PLAIN: Final = "text/plain; charset=utf-8"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_HEAD: Final = re.compile(
    rb"(" + _TOKEN + rb") ([!-~]+) HTTP/1\.([01])\r\n((?:" + _TOKEN + rb":[^\x00-\x08\x0a-\x1f\x7f]*\r\n)*)"
)
_OTHER_VERSION: Final = re.compile(_TOKEN + rb" [!-~]+ HTTP/\d(\.\d)?\r\n")
_ORIGIN: Final = re.compile(r"https?://[^/?#]+", re.IGNORECASE)
_SINGLE: Final = frozenset(
    {
        "host", "content-length", "transfer-encoding", "authorization", "expect", "webhook-id", "webhook-timestamp",
        "webhook-signature",
    }
)  # fmt: skip
"""Headers of which a second one would leave open which of them counts."""


class HttpError(Exception):
    """A request that is answered with a status and one line, after which the connection ends."""

    def __init__(self, status: HTTPStatus, line: str) -> None:
        super().__init__(line)
        self.status = status
        self.line = line


class Head(msgspec.Struct, frozen=True, gc=False):
    """A request before its body. Names of headers are in lower case; `length` is the body's."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    length: int
    keep: bool
    expects: bool


class Request(NamedTuple):
    """A whole request, and the address that it came from."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    peer: str


class Response(NamedTuple):
    """An answer. Its length and date are added when it is sent."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


def parse_head(raw: bytes) -> Head:
    """The head of a request, from its first byte to the line end of its last header; HttpError where it is not one."""
    match = _HEAD.fullmatch(raw)
    if match is None:
        if _OTHER_VERSION.match(raw) and b" HTTP/1." not in raw.partition(b"\r\n")[0]:
            raise HttpError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 is spoken here")
        raise HttpError(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request")
    method, target, minor, block = match.groups()
    headers = _headers(block)
    if minor == b"1" and "host" not in headers:
        raise HttpError(HTTPStatus.BAD_REQUEST, "there is no Host header")
    expect = headers.get("expect")
    if expect is not None and expect.lower() != "100-continue":
        raise HttpError(HTTPStatus.EXPECTATION_FAILED, "the only expectation known here is 100-continue")
    path, _, query = _ORIGIN.sub("", target.decode("ascii"), count=1).partition("?")
    keep = minor == b"1" and "close" not in headers.get("connection", "").lower()
    return Head(
        method.decode("ascii"),
        path or "/",
        query,
        headers,
        _length(headers),
        keep,
        expect is not None and minor == b"1",
    )


def _headers(block: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in block.decode("latin-1").split("\r\n")[:-1]:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if name in found:
            if name in _SINGLE:
                raise HttpError(HTTPStatus.BAD_REQUEST, f"there is more than one {name} header")
            value = f"{found[name]}, {value}"
        found[name] = value
    return found


def _length(headers: Mapping[str, str]) -> int:
    text = headers.get("content-length")
    if "transfer-encoding" in headers:
        if text is not None:
            raise HttpError(HTTPStatus.BAD_REQUEST, "Content-Length and Transfer-Encoding exclude each other")
        raise HttpError(HTTPStatus.LENGTH_REQUIRED, "a body needs a Content-Length here")
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise HttpError(HTTPStatus.BAD_REQUEST, "Content-Length is no number")
    return int(text)


def render(response: Response, date: str, *, keep: bool, body: bool = True) -> bytes:
    """The bytes of a response. Without `body` they are those that HEAD gets: the same, less the body."""
    lines = [
        f"HTTP/1.1 {response.status.value} {response.status.phrase}",
        f"Date: {date}",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    if response.status is not HTTPStatus.NOT_MODIFIED:
        lines += [f"Content-Type: {response.content_type}", f"Content-Length: {len(response.body)}"]
    if not keep:
        lines.append("Connection: close")
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head + response.body if body else head


def as_json(value: object, status: HTTPStatus = HTTPStatus.OK, *headers: tuple[str, str]) -> Response:
    """An answer in JSON that nobody keeps."""
    return Response(status, msgspec.json.encode(value) + b"\n", JSON, (("Cache-Control", "no-store"), *headers))


def refusal(status: HTTPStatus, line: str, *headers: tuple[str, str]) -> Response:
    """An answer that says in one line what is wrong."""
    return as_json({"error": line}, status, *headers)
