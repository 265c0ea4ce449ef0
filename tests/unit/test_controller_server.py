"""The fleet server under clients that hurry, dawdle, babble and vanish: bounds hold, and the others are served."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import socket
import ssl
import struct
import threading
import time
from concurrent.futures import Future

import pytest
from controller_web import Client, request

from ibmon.config import ControllerConfig
from ibmon.controller import server as server_module
from ibmon.controller.http import as_json
from ibmon.controller.server import FleetServer, Limits, raise_descriptors
from ibmon.exporter.errors import ExporterError

SECONDS = 20  # no test waits so long unless it fails


def echo(asked):
    return as_json({"path": asked.path, "body": asked.body.decode("latin-1")})


@contextlib.contextmanager
def serving(respond=echo, limits=Limits(), **config):  # noqa: B008 - an immutable value
    server = FleetServer(ControllerConfig(**{"listen": "127.0.0.1:0", **config}), respond, limits)
    server.start()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(autouse=True)
def _close_clients():
    yield
    while Client.OPEN:
        Client.OPEN.pop().socket.close()


@pytest.fixture(scope="module")
def shared():
    with serving() as server:
        yield server


@pytest.fixture
def client(shared):
    with Client(shared.address) as client:
        yield client


def until(true, what):
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.005)


# ---------------------------------------------------------------------------------------------------------- speaking


def test_a_connection_is_kept_for_the_next_request(client):
    assert [client.ask("GET", f"/{n}")[2] for n in range(3)] == [
        f'{{"path":"/{n}","body":""}}\n'.encode() for n in range(3)
    ]


def test_a_request_may_come_in_any_pieces(client):
    for byte in request("POST", "/slow", b"body"):
        client.send(bytes([byte]))

    assert client.answer()[2] == b'{"path":"/slow","body":"body"}\n'


def test_requests_may_come_at_once_and_are_answered_in_order(client):
    client.send(b"".join(request("POST", f"/{n}", b"x" * n) for n in range(200)))

    assert [client.answer()[2].decode().count("x") for n in range(200)] == list(range(200))


def test_requests_in_one_piece_wait_for_an_answer_that_takes_its_time():
    order, gate = [], Future()

    def respond(asked):
        order.append(asked.path)

        async def later():
            await asyncio.wrap_future(gate)
            return as_json(asked.path)

        return later() if asked.path == "/later" else as_json(asked.path)

    with serving(respond) as server, Client(server.address) as client:
        client.send(request("POST", "/later") + request("GET", "/next"))
        until(lambda: order, "the first was asked")
        assert Client(server.address).ask("GET", "/other")[2] == b'"/other"\n'
        assert order == ["/later", "/other"]
        gate.set_result(None)

        assert [client.answer()[2] for _ in range(2)] == [b'"/later"\n', b'"/next"\n']


def test_head_is_get_without_the_body(client):
    status, headers, body = client.ask("HEAD", "/x")

    assert (status, headers["content-length"], body) == (200, "24", b"")
    assert client.ask("GET", "/x")[1]["content-length"] == "24"


def test_who_asks_whether_to_go_on_is_told_so(client):
    client.send(b"POST /x HTTP/1.1\r\nHost: f\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    assert client.answer()[0] == 100
    client.send(b"ab")

    assert client.answer()[0] == 200


def test_who_wants_to_close_is_answered_first(client):
    client.send(request("GET", "/x", headers={"Connection": "close"}))

    status, headers, _ = client.answer()
    assert (status, headers["connection"]) == (200, "close")
    assert client.ended()


def test_who_stops_sending_is_answered_still(client):
    client.send(request("GET", "/x"))
    client.socket.shutdown(socket.SHUT_WR)

    assert client.answer()[0] == 200
    assert client.ended()


def test_empty_lines_before_a_request_are_no_harm(client):
    client.send(b"\r\n")
    client.send(b"\r\n\r\n" + request("GET", "/x"))

    assert client.answer()[0] == 200


# -------------------------------------------------------------------------------------------------------- misbehaving


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # the hello of TLS
        (b"garbage\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: f\n\n", 400),
        (b"\x00" * 100, 400),
        (b"GET / HTTP/1.1\r\nHost: f\r\nX: " + b"x" * 20000, 431),
        (b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\nHost: f\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: f\r\n" + b"A: b\r\n" * 5000 + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: f\r\nContent-Length: 262145\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: f\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", 411),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ],
)
def test_who_babbles_is_told_once_and_the_connection_ends(client, data, status):
    client.send(data)

    got, headers, _ = client.answer()
    assert (got, headers["connection"]) == (status, "close")
    client.socket.shutdown(socket.SHUT_WR)
    assert client.ended()


def test_what_follows_garbage_is_not_looked_at():
    asked = []

    def respond(request):
        asked.append(request.path)
        return as_json(None)

    with serving(respond) as server, Client(server.address) as client:
        client.send(b"garbage\r\n\r\n" + request("GET", "/smuggled"))
        assert client.answer()[0] == 400
        assert client.ended()
    assert asked == []


def test_who_is_refused_while_it_sends_can_read_why(client):
    client.send(b"POST / HTTP/1.1\r\nHost: f\r\nContent-Length: 9999999\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        client.send(b"x" * 1_000_000)

    assert client.answer()[0] == 413


class Clock:
    """The time by which peers are late; it stands still until a test lets it go on."""

    def __init__(self):
        self.at = 1000.0
        self.time = time.time

    def monotonic(self):
        return self.at

    def go_on(self, server, seconds):
        """So much time passes once the server has done what it was at, and it looks who is late."""
        server.call(lambda: None).result(SECONDS)
        self.at += seconds
        server.call(lambda: server._sweep(self.at)).result(SECONDS)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(server_module, "time", made)
    return made


def taken(server):
    """How many bytes of unfinished requests the server has."""
    return sum(len(c._buffer) + (c._head is not None) for c in list(server._all))


@pytest.mark.parametrize("begun", [b"G", b"GET / HTTP/1.1\r\nHost: f\r\n", request("POST", "/", b"ab")[:-1]])
def test_a_request_that_never_ends_is_ended(clock, begun):
    with serving() as server, Client(server.address) as client:
        client.send(begun)
        until(lambda: taken(server), "its beginning came")
        clock.go_on(server, Limits().request - 0.1)
        assert taken(server)
        clock.go_on(server, 0.2)

        assert client.answer()[0] == 408
        assert client.ended()


def test_trickling_wins_no_time(clock):
    with serving() as server, Client(server.address) as client:
        for count in range(1, int(Limits().request) + 1):
            client.send(b"X")
            until(lambda count=count: taken(server) == count, "it came")
            clock.go_on(server, 1.0)

        assert client.answer()[0] == 408


@pytest.mark.parametrize(("spoken", "patience"), [(False, Limits().request), (True, Limits().idle)])
def test_a_connection_that_says_nothing_is_ended(clock, spoken, patience):
    with serving() as server, Client(server.address) as client:
        if spoken:
            client.ask("GET", "/")
        until(lambda: server.connections == 1, "it was accepted")
        clock.go_on(server, patience - 0.1)
        assert server.connections == 1
        clock.go_on(server, 0.2)

        assert client.ended()


def test_who_goes_on_asking_is_not_ended(clock):
    with serving() as server, Client(server.address) as client:
        for _ in range(5):
            assert client.ask("GET", "/")[0] == 200
            clock.go_on(server, 0.9 * Limits().idle)


def test_who_does_not_read_its_answers_is_ended_and_holds_no_more_than_a_few(clock):
    answered = []

    def respond(request):
        answered.append(1)
        return as_json("x" * 1_000_000)

    with serving(respond) as server, Client(server.address) as client:
        client.send(b"".join(request("GET", "/") for _ in range(100)))
        until(lambda: any(c._stalled for c in list(server._all)), "it was seen that it does not read")
        until(lambda: clock.go_on(server, 1.0) or server.connections == 0, "it was ended")

        assert len(answered) < 20


def test_who_vanishes_leaves_nothing(shared):
    for _ in range(20):
        client = Client(shared.address)
        client.send(request("POST", "/", b"abc")[:-1])
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        client.socket.close()

    until(lambda: shared.connections == 0, "all were forgotten")


def test_bodies_on_their_way_are_bounded_together():
    with serving(limits=Limits(held=100_000)) as server:
        waiting = [Client(server.address) for _ in range(3)]
        for client in waiting:
            client.send(b"POST / HTTP/1.1\r\nHost: f\r\nContent-Length: 40000\r\n\r\nx")
        assert waiting[2].answer()[0] == 503
        waiting[0].send(b"x" * 39999)
        assert waiting[0].answer()[0] == 200
        waiting[1].send(b"x" * 39999)
        assert waiting[1].answer()[0] == 200

        assert Client(server.address).ask("POST", "/", b"x" * 90_000)[0] == 200, "all were given back"


def test_silent_connections_make_room_for_new_ones():
    with serving(limits=Limits(connections=20)) as server:
        node = Client(server.address)
        assert node.ask("GET", "/")[0] == 200
        silent = [Client(server.address) for _ in range(60)]

        assert Client(server.address).ask("GET", "/")[0] == 200
        assert node.ask("GET", "/")[0] == 200, "who has spoken stays before those who have not"
        assert server.connections <= 20
        assert silent[0].ended()


def test_hundreds_of_connections_are_served_together(shared):
    clients = [Client(shared.address) for _ in range(500)]
    for client in clients:
        client.send(request("GET", "/x"))

    assert {client.answer()[0] for client in clients} == {200}


@pytest.mark.parametrize("later", [False, True])
def test_an_answer_that_fails_is_said_to_have_failed_and_no_more(caplog, later):
    def respond(request):
        async def fail():
            raise RuntimeError("the secret is 42")

        if later:
            return fail()
        raise RuntimeError("the secret is 42")

    with serving(respond) as server, Client(server.address) as client:
        assert [client.ask("GET", "/")[0] for _ in range(3)] == [500, 500, 500]
        assert b"42" not in client.ask("GET", "/")[2]
    assert [record.getMessage() for record in caplog.records] == ["event=request-failed path=/"]


# ------------------------------------------------------------------------------------------------------- the thread


def test_what_is_called_runs_where_requests_are_answered():
    threads = []

    def respond(request):
        threads.append(threading.get_ident())
        return as_json(None)

    def fail():
        raise KeyError("x")

    with serving(respond) as server, Client(server.address) as client:
        client.ask("GET", "/")
        assert server.call(threading.get_ident).result(SECONDS) == threads[0] != threading.get_ident()
        with pytest.raises(KeyError):
            server.call(fail).result(SECONDS)
    with pytest.raises(RuntimeError):
        server.call(fail)


def test_closing_gives_the_port_back_and_answers_what_was_asked():
    gate, asked = Future(), threading.Event()

    def respond(request):
        async def later():
            asked.set()
            await asyncio.wrap_future(gate)
            return as_json("late")

        return later()

    with serving(respond) as server, Client(server.address) as idle, Client(server.address) as client:
        address = server.address
        client.send(request("GET", "/"))
        assert asked.wait(SECONDS)
        closing = threading.Thread(target=server.close)
        closing.start()
        assert idle.ended()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        gate.set_result(None)

        assert client.answer()[2] == b'"late"\n'
        closing.join(SECONDS)
        assert not closing.is_alive()


def test_who_connects_while_it_closes_leaves_no_socket_behind():
    for _ in range(30):
        with serving() as server:
            for _ in range(5):
                Client(server.address).send(request("GET", "/"))
    gc.collect()  # a socket that nobody closed is an error here


def test_it_listens_on_ipv6_and_ipv4_where_no_address_is_named():
    with serving(listen=":0") as server:
        port = server.address.port

        assert server.url == f"http://localhost:{port}"
        for host in ("127.0.0.1", "::1"):
            with Client((host, port)) as client:
                assert client.ask("GET", "/")[0] == 200


def test_an_address_in_use_is_one_line(shared):
    server = FleetServer(ControllerConfig(listen=str(shared.address)), echo)

    with pytest.raises(
        ExporterError, match=r"^controller.listen: cannot listen on 127.0.0.1:\d+: Address already in use$"
    ):
        server.start()


def test_the_limit_of_descriptors_is_raised_as_far_as_allowed():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, before[1]))

        assert raise_descriptors(600) == 600
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 600
        assert raise_descriptors(400) == 400
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 600
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# --------------------------------------------------------------------------------------------------------------- TLS


def certificate(directory, name):
    """A certificate for 127.0.0.1 and its key, as files."""
    import datetime as dt
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(x509.OID_COMMON_NAME, name)])
    now = dt.datetime.now(tz=dt.timezone.utc)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    cert_file, key_file = directory / "tls.crt", directory / "tls.key"
    cert_file.write_bytes(made.public_bytes(pem))
    key_file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return {"tls_cert": str(cert_file), "tls_key": str(key_file)}


class TlsClient(Client):
    """A client that trusts a certificate and tells whose it was shown."""

    def __init__(self, address, cert_file):
        super().__init__(address)
        self.socket = ssl.create_default_context(cafile=cert_file).wrap_socket(self.socket, server_hostname="127.0.0.1")

    @property
    def name(self):
        return dict(field for part in self.socket.getpeercert()["subject"] for field in part)["commonName"]


@pytest.mark.filterwarnings("ignore:unclosed transport")  # Python 3.10 says so of each handshake that fails
def test_with_a_certificate_it_speaks_tls_and_a_new_one_holds_from_now_on(tmp_path):
    files = certificate(tmp_path, "first")
    with serving(**files) as server:
        assert server.url.startswith("https://")
        with TlsClient(server.address, files["tls_cert"]) as client:
            assert (client.name, client.ask("POST", "/", b"x" * 100_000)[0]) == ("first", 200)
            certificate(tmp_path, "second")
            server.reload()
            with TlsClient(server.address, files["tls_cert"]) as other:
                assert (other.name, other.ask("GET", "/", headers={"Connection": "close"})[0]) == ("second", 200)
                assert other.ended()
            (tmp_path / "tls.key").write_text("spoilt")
            with pytest.raises(ExporterError, match=r"^controller.tls_cert: .* is not usable"):
                server.reload()
            with TlsClient(server.address, files["tls_cert"]) as other:
                assert other.name == "second"
            assert client.ask("GET", "/")[0] == 200
        with Client(server.address) as plain:
            plain.send(request("GET", "/"))
            assert plain.ended()
    certificate(tmp_path, "third")
    with serving(limits=Limits(request=0.2), **files) as server, Client(server.address) as silent:
        assert silent.ended(), "a handshake has its time"
    gc.collect()
