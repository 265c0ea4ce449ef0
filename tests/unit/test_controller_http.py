"""The head of a request: what is understood, and what is refused because two readers could differ over it."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from ibmon.controller.http import HttpError, Response, as_json, parse_head, render

HOST = b"Host: fleet\r\n"


def head(first=b"GET / HTTP/1.1", *lines):
    return b"\r\n".join((first, b"Host: fleet", *lines)) + b"\r\n"


def test_a_head_is_method_path_query_and_headers_in_lower_case():
    got = parse_head(head(b"POST /v1/report?a=b&c HTTP/1.1", b"Content-Length: 12", b"WebHook-Id:  x \t", b"Empty:"))

    assert (got.method, got.path, got.query, got.length, got.keep) == ("POST", "/v1/report", "a=b&c", 12, True)
    assert got.headers == {"host": "fleet", "content-length": "12", "webhook-id": "x", "empty": ""}


@pytest.mark.parametrize(
    ("first", "lines", "keep"),
    [
        (b"GET / HTTP/1.1", (), True),
        (b"GET / HTTP/1.1", (b"Connection: close",), False),
        (b"GET / HTTP/1.1", (b"Connection: Keep-Alive, Close",), False),
        (b"GET / HTTP/1.0", (), False),
    ],
)
def test_a_connection_is_kept_unless_the_peer_says_otherwise(first, lines, keep):
    assert parse_head(head(first, *lines)).keep is keep


def test_a_target_with_a_host_in_it_is_its_path():
    assert parse_head(head(b"GET http://fleet:19316/metrics?x HTTP/1.1")).path == "/metrics"
    assert parse_head(head(b"GET http://fleet HTTP/1.1")).path == "/"


def test_headers_that_may_repeat_are_joined():
    assert parse_head(head(b"GET / HTTP/1.1", b"Accept: a", b"accept: b")).headers["accept"] == "a, b"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET / HTTP/1.1\r\n", 400),  # no Host
        (b"GET  / HTTP/1.1\r\n" + HOST, 400),
        (b"GET /\r\n" + HOST, 400),
        (b"GET / HTTP/1.1 \r\n" + HOST, 400),
        (b"G(T / HTTP/1.1\r\n" + HOST, 400),
        (b"GET /\x80 HTTP/1.1\r\n" + HOST, 400),
        (b"GET / HTTP/2.0\r\n" + HOST, 505),
        (b"PRI * HTTP/2.0\r\n", 505),
        (b"GET / HTTP/0.9\r\n", 505),
        (head(b"GET / HTTP/1.1", b"X: a", b" folded"), 400),
        (head(b"GET / HTTP/1.1", b"\tfolded"), 400),
        (head(b"GET / HTTP/1.1", b"Name : value"), 400),
        (head(b"GET / HTTP/1.1", b": nameless"), 400),
        (head(b"GET / HTTP/1.1", b"no colon"), 400),
        (head(b"GET / HTTP/1.1", b"X: a\nY: b"), 400),
        (head(b"GET / HTTP/1.1", b"X: a\rY: b"), 400),
        (head(b"GET / HTTP/1.1", b"X: a\x00b"), 400),
        (head(b"GET / HTTP/1.1", b"N\xc3\xa4me: x"), 400),
        (head(b"GET / HTTP/1.1", b"host: other"), 400),
        (head(b"POST / HTTP/1.1", b"Content-Length: 3", b"Content-Length: 3"), 400),
        (head(b"POST / HTTP/1.1", b"Content-Length: 3, 3"), 400),
        (head(b"POST / HTTP/1.1", b"Content-Length: +3"), 400),
        (head(b"POST / HTTP/1.1", b"Content-Length: -3"), 400),
        (head(b"POST / HTTP/1.1", b"Content-Length: 0x3"), 400),
        (head(b"POST / HTTP/1.1", b"Content-Length: 3_0"), 400),
        (head(b"POST / HTTP/1.1", b"Content-Length: \xb2"), 400),
        (head(b"POST / HTTP/1.1", b"Content-Length:"), 400),
        (head(b"POST / HTTP/1.1", b"Content-Length: " + b"9" * 40), 400),
        (head(b"POST / HTTP/1.1", b"Content-Length: 3", b"Transfer-Encoding: chunked"), 400),
        (head(b"POST / HTTP/1.1", b"Transfer-Encoding: chunked"), 411),
        (head(b"POST / HTTP/1.1", b"Expect: 200-ok"), 417),
        (head(b"POST / HTTP/1.1", b"webhook-signature: v1,a", b"Webhook-Signature: v1,b"), 400),
        (head(b"GET / HTTP/1.1", b"Authorization: Bearer a", b"Authorization: Bearer b"), 400),
    ],
)
def test_what_is_not_clear_is_refused(raw, status):
    with pytest.raises(HttpError) as error:
        parse_head(raw)

    assert error.value.status == status


def test_an_answer_names_its_length_and_head_gets_the_same_without_the_body():
    response = as_json({"a": 1})
    whole, bare = (render(response, "then", keep=True, body=body) for body in (True, False))

    assert whole == bare + b'{"a":1}\n'
    assert b"\r\nContent-Length: 8\r\n" in bare
    assert bare.startswith(b"HTTP/1.1 200 OK\r\nDate: then\r\n")
    assert bare.endswith(b"\r\n\r\n")


def test_an_answer_without_a_body_says_nothing_of_one():
    assert b"Content" not in render(Response(HTTPStatus.NOT_MODIFIED), "then", keep=False)
    assert b"Connection: close" in render(Response(HTTPStatus.NOT_MODIFIED), "then", keep=False)
