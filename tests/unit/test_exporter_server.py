"""The server on loopback: addresses, HTTP, and clients that behave badly."""

from __future__ import annotations

import contextlib
import errno
import gzip
import http.client
import os
import socket

import pytest
from exporter_snapshots import AT, snapshot, typical
from exporter_waiting import PATIENCE, until

from ibmon.config import ExporterConfig
from ibmon.exporter import server as server_module
from ibmon.exporter.address import Address, parse_listen
from ibmon.exporter.errors import ExporterError
from ibmon.exporter.selfmetrics import SelfMetrics
from ibmon.exporter.server import CONNECTIONS, Server
from ibmon.exporter.text import Format


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


@contextlib.contextmanager
def serving(listen="127.0.0.1:0", source=typical, **options):
    server = Server(
        ExporterConfig(listen=listen, **options.pop("config", {})), source, clock=lambda: AT.monotonic, **options
    )
    server.start()
    try:
        yield server
    finally:
        server.close()
        until(lambda: not server._connections)


@contextlib.contextmanager
def connected(server, host="127.0.0.1"):
    client = http.client.HTTPConnection(host, server.address.port, timeout=PATIENCE)
    try:
        yield client
    finally:
        client.close()


def ask(client, path, method="GET", **headers):
    client.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    answer = client.getresponse()
    return answer, answer.read()


def raw(server, request, *, shut=False):
    """Everything that the server answers to these bytes until it closes."""
    with socket.create_connection(("127.0.0.1", server.address.port), PATIENCE) as client:
        client.sendall(request)
        if shut:
            client.shutdown(socket.SHUT_WR)
        parts = []
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(65536):
                parts.append(part)
    return b"".join(parts)


# ---------------------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":19315", ("", 19315)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9", ("::1", 9)),
        ("localhost:65535", ("localhost", 65535)),
        (" :80 ", ("", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(text, address):
    assert parse_listen(text) == Address(*address)


@pytest.mark.parametrize(
    "text", ["", "19315", "host", "host:", "host:http", ":65536", ":-1", "::1:9", "[]:9", ":\u0661", ":+1", ": 1"]
)
def test_any_other_address_is_one_clear_line(text):
    with pytest.raises(
        ExporterError, match=r"^exporter\.listen: .*; write :PORT, HOST:PORT or \[IPV6\]:PORT"
    ) as caught:
        parse_listen(text)
    assert "\n" not in str(caught.value)


def test_a_port_in_use_is_one_clear_line():
    with serving() as first:
        port = first.address.port
        for listen in (f"127.0.0.1:{port}", f":{port}"):
            with pytest.raises(ExporterError, match=rf"cannot listen on .*:{port}: Address already in use"):
                Server(ExporterConfig(listen=listen), typical).start()


@pytest.mark.parametrize("listen", ["192.0.2.1:0", "no-such-host.invalid:0", "a..b:0"])
def test_a_host_that_is_not_this_one_is_one_clear_line(listen):
    with pytest.raises(ExporterError, match=r"^exporter\.listen: [^\n]*$"):
        Server(ExporterConfig(listen=listen), typical).start()


def test_without_a_host_ipv4_is_served():
    with serving(":0") as server, connected(server) as client:
        assert ask(client, "/healthz")[0].status == 200
        assert server.url == f"http://localhost:{server.address.port}/"


@needs_ipv6
def test_without_a_host_ipv6_is_served_on_the_same_port():
    with serving(":0") as server, connected(server, "::1") as client:
        assert ask(client, "/healthz")[0].status == 200


@needs_ipv6
def test_an_ipv6_address_can_be_named():
    with serving("[::1]:0") as server:
        assert server.url == f"http://[::1]:{server.address.port}/"
        with connected(server, "::1") as client:
            assert ask(client, "/healthz")[0].status == 200


@pytest.mark.parametrize("error", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_a_machine_without_ipv6_serves_ipv4(monkeypatch, error):
    def bind(self, target):
        if self.family is socket.AF_INET6:
            raise OSError(error, os.strerror(error))
        real(self, target)

    real = socket.socket.bind
    monkeypatch.setattr(socket.socket, "bind", bind)
    with serving(":0") as server, connected(server) as client:
        assert ask(client, "/healthz")[0].status == 200


# ---------------------------------------------------------------------------------------------- HTTP


@pytest.mark.parametrize("path", ["/", "/metrics", "/metrics?x=1", "/healthz", "/readyz", "/api/v1/status"])
def test_head_gives_the_headers_of_get_and_no_body(path):
    with serving() as server, connected(server) as client:
        got, body = ask(client, path)
        head, nothing = ask(client, path, "HEAD")
        assert (got.status, head.status, nothing) == (200, 200, b"")
        assert len(body) == int(got.headers["Content-Length"]) > 0
        usual = {k: v for k, v in got.headers.items() if k != "Date"}
        assert {k: v for k, v in head.headers.items() if k != "Date"} == usual


def test_metrics_come_in_the_format_and_packing_that_is_asked_for():
    with serving() as server, connected(server) as client:
        answer, body = ask(client, "/metrics", Accept="application/openmetrics-text", Accept_Encoding="gzip")
        assert answer.headers["Content-Type"] == Format.OPENMETRICS.value
        assert answer.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(body).endswith(b"# EOF\n")
        answer, body = ask(client, "/metrics")
        assert answer.headers["Content-Type"] == Format.TEXT.value
        assert b'\nibmon_port_state{device="mlx5_0",port="1"} 4\n' in body


def test_names_of_node_exporter_are_served_where_configured():
    with serving(config={"compat": ("node_exporter",)}) as server, connected(server) as client:
        assert b'\nnode_infiniband_state_id{device="mlx5_0",port="1"} 4\n' in ask(client, "/metrics")[1]


def test_the_page_has_a_strict_policy():
    with serving() as server, connected(server) as client:
        headers = ask(client, "/")[0].headers
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused_and_their_body_is_never_a_request(method):
    request = f"{method} / HTTP/1.1\r\nContent-Length: 28\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n   ".encode()
    with serving() as server:
        answer = raw(server, request)
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: GET, HEAD\r\n" in answer
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("header", ["Content-Length: 25", "Transfer-Encoding: chunked"])
def test_the_body_of_a_get_is_never_a_request(header):
    with serving() as server:
        answer = raw(server, f"GET /healthz HTTP/1.1\r\n{header}\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"NONSENSE\r\n\r\n", b"400"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"FROBNICATE / HTTP/1.1\r\n\r\n", b"501"),
        (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * 70000 + b"\r\n\r\n", b"431"),
        (b"GET /<script> HTTP/1.1\r\nConnection: close\r\n\r\n", b"404"),
    ],
    ids=["nonsense", "version", "method", "path", "headers", "header", "unknown"],
)
def test_a_bad_request_is_answered_in_plain_text(request_bytes, status):
    with serving() as server:
        answer = raw(server, request_bytes, shut=True)
        assert answer.split(b"\r\n")[0].split()[1] == status
        assert b"\r\nContent-Type: text/plain; charset=utf-8\r\n" in answer
        assert b"<script>" not in answer
        with connected(server) as client:
            assert ask(client, "/healthz")[0].status == 200


def test_a_connection_serves_many_requests_and_http_1_0_one():
    with serving() as server, connected(server) as client:
        client.connect()
        port = client.sock.getsockname()
        for _ in range(3):
            assert ask(client, "/healthz")[0].status == 200
            assert client.sock.getsockname() == port
        assert raw(server, b"GET /healthz HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\nok\n")


def test_answers_are_counted_by_code():
    own = SelfMetrics()
    with serving(self_metrics=own) as server, connected(server) as client:
        for path in ("/healthz", "/metrics", "/none"):
            ask(client, path)
        raw(server, b"POST / HTTP/1.1\r\n\r\n")
    own.refresh(1.0)
    text = own.text(Format.TEXT).decode()
    for code, count in ((200, 2), (404, 1), (405, 1), (500, 0)):
        assert f'ibmon_http_requests_total{{code="{code}"}} {count}.0\n' in text


def test_one_answer_that_cannot_be_made_does_not_end_the_connection(caplog):
    def source():
        raise ValueError("no such value")

    with serving(source=source, heartbeat=lambda: AT.monotonic) as server, connected(server) as client:
        answer, body = ask(client, "/metrics")
        assert (answer.status, b"the log says why" in body) == (500, True)
        assert b"no such value" not in body
        assert ask(client, "/healthz")[0].status == 200
        ask(client, "/metrics")
    assert caplog.text.count("event=request-failed path=/metrics") == 1


def test_self_metrics_are_served_as_they_were_rendered_last():
    own = SelfMetrics()
    own.tick(0.5)
    own.refresh(1.0)
    own.tick(0.5)
    with serving(self_metrics=own) as server, connected(server) as client:
        assert b"\nibmon_ticks_total 1.0\n" in ask(client, "/metrics")[1]


# ---------------------------------------------------------------------------------------------- bad clients


def test_clients_that_say_nothing_do_not_keep_a_scraper_out():
    with serving() as server, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", server.address.port)
        for i in range(CONNECTIONS + 8):
            silent = stack.enter_context(socket.create_connection(address, PATIENCE))
            silent.sendall(b"GET /metrics HTTP/1.1\r\nSlow: " if i % 2 else b"")
        with connected(server) as client:
            assert ask(client, "/metrics")[0].status == 200
        until(lambda: len(server._connections) <= CONNECTIONS)


def test_a_client_that_reads_nothing_does_not_block_others():
    big = b"# " + b"x" * (1 << 24) + b"\n"
    own = SelfMetrics()
    own.text = lambda _fmt: big
    with serving(self_metrics=own) as server, socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", server.address.port))
        lazy.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        until(lambda: any(c.busy for c in server._connections))
        with connected(server) as client:
            assert ask(client, "/healthz")[0].status == 200
            assert len(ask(client, "/metrics")[1]) > len(big)
        lazy.close()


def test_the_connection_that_was_used_last_is_not_the_one_that_is_closed(monkeypatch):
    monkeypatch.setattr(server_module, "CONNECTIONS", 2)
    now = iter(range(1000))
    server = Server(ExporterConfig(listen="127.0.0.1:0"), snapshot, heartbeat=lambda: None, clock=lambda: next(now))
    server.start()
    try:
        with connected(server) as used, connected(server) as idle, connected(server) as fresh:
            for client in (used, idle, used, fresh, used):
                client.auto_open = client.sock is None
                ask(client, "/readyz")
            with pytest.raises((http.client.HTTPException, OSError)):
                ask(idle, "/readyz")
    finally:
        server.close()
        until(lambda: not server._connections)


def test_closing_gives_the_port_back_at_once_and_ends_idle_connections():
    with serving() as server, connected(server) as client:
        ask(client, "/healthz")
        port = server.address.port
        server.close()
        with serving(f"127.0.0.1:{port}") as successor, connected(successor) as other:
            assert ask(other, "/healthz")[0].status == 200
        assert client.sock.recv(1) == b""
        server.close()  # twice is no harm


def test_an_answer_on_its_way_is_finished_after_the_close():
    big = b"# " + b"x" * (1 << 22) + b"\n"
    own = SelfMetrics()
    own.text = lambda _fmt: big
    with serving(self_metrics=own) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", server.address.port))
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        until(lambda: any(c.busy for c in server._connections))
        server.close()
        total = 0
        while part := client.recv(1 << 20):
            total += len(part)
        assert total > len(big)
