"""A slurmrestd that misbehaves: one line, in time, without the token, and never a state of the node."""

from __future__ import annotations

import socket
import ssl
import threading
import time

import pytest
from fake_slurmrestd import FakeSlurmrestd
from slurmrest_world import REASON, client, errors, failing, server, token
from test_exporter_tls import Authority

from ibmon.config import SlurmConfig
from ibmon.drain import webcall
from ibmon.drain.slurmrest import SlurmRest

__all__ = ["server", "token"]  # fixtures

# ------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("do", ["read_node", "read_pools", "read_fleet", "undrain"])
@pytest.mark.parametrize("texts", [("Unable to contact slurm controller (connect failure)",), ("a", "b"), ("",)])
def test_errors_in_an_answer_of_status_200_areerrors(server, do, texts):
    server.fail("status", status=200, body=errors(*texts), path="/slurm/")
    error = failing(getattr(client(server), do))
    assert (error.forbidden, error.general) == (False, "Unable to contact" in texts[0])
    assert "Slurm says: " in str(error)
    assert "; ".join(texts) in str(error)


def test_warnings_are_noerrors(server):
    body = b'{"nodes":[{"name":"node1","state":["IDLE"]}],"errors":[],"warnings":[{"description":"deprecated"}]}'
    server.fail("status", status=200, body=body, path="/node/")
    assert client(server).read_node().flags == {"IDLE"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        b"null",
        b"[]",
        b"{}",
        b'{"nodes":null}',
        b'{"nodes":[]}',
        b'{"nodes":[null]}',
        b'{"nodes":[{}]}',
        b'{"nodes":[{"name":"node1"}]}',
        b'{"nodes":[{"name":"node1","state":[]}]}',
        b'{"nodes":[{"name":"node1","state":"IDLE"}]}',
        b'{"nodes":[{"name":"node1","state":["IDLE+DRAIN"]}]}',
        b'{"nodes":[{"name":"node1","state":["idle"]}]}',
        b'{"nodes":[{"name":"node1","state":[""]}]}',
        b'{"nodes":[{"name":"node1","state":["IDLE"],"reason":7}]}',
        b'{"nodes":[{"name":"node2","state":["IDLE"]}]}',
        b'{"nodes":[{"name":"node1","state":["IDLE"]},{"name":"node2","state":["IDLE"]}]}',
        b'{"nodes":[{"name":"node1","state":["IDLE"]}',
        b"\xff\xfe",
    ],
)
def test_an_answer_that_is_not_this_node_is_an_error_and_never_a_state(server, body):
    server.fail("status", status=200, body=body, path="/node/")
    assert not failing(client(server).read_node).forbidden


def test_an_unknown_node_is_said_in_slurms_words(server):
    error = failing(client(server, name="node9").read_node)
    assert "asked to read the node node9 Slurm says: Failure to query node node9: Invalid node name" in str(error)
    assert not error.general


@pytest.mark.parametrize("status", [201, 302, 400, 405, 429, 500, 502, 503])
def test_any_other_status_is_an_error_and_a_redirect_is_not_followed(server, token, status):
    with FakeSlurmrestd() as elsewhere:
        elsewhere.add("node1")
        location = (("Location", f"{elsewhere.url}/slurm/v0.0.42/node/node1"),)
        body = b'{"nodes":[{"name":"node1","state":["IDLE"]}]}'
        server.fail("status", status=status, body=body, headers=location, path="/node/")
        error = failing(client(server, rest_token_file=str(token)).read_node)
        assert str(error).endswith(f"asked to read the node node1 it answered {status}")
        assert error.general is (status in {429, 500, 502, 503})
        assert elsewhere.log == []


@pytest.mark.parametrize("path", ["/openapi", "/node/"])
@pytest.mark.parametrize("what", ["hang", "drip"])
def test_a_server_that_does_not_come_to_an_end_is_left_in_time(server, what, path):
    server.fail(what, path=path)
    began = time.monotonic()
    error = failing(client(server, timeout=0.4).read_node)
    assert time.monotonic() - began < 8  # the server would hold it for ten
    assert str(error).endswith("no answer within 0.4 s")
    assert error.general


def test_a_name_that_takes_all_the_time_to_be_found_leaves_none_for_the_call(server, monkeypatch):
    look_up, cut, too_late = socket.getaddrinfo, webcall._Exchange._cut, threading.Event()

    def cut_and_tell(exchange):
        cut(exchange)
        too_late.set()

    def slowly(*arguments, **more):
        assert too_late.wait(20)
        return look_up(*arguments, **more)

    monkeypatch.setattr(webcall._Exchange, "_cut", cut_and_tell)
    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    server.fail("drip", path="/node/")
    slurm = client(server, timeout=0.2, rest_version="v0.0.42")
    assert str(failing(slurm.read_node)).endswith("no answer within 0.2 s")
    assert server.log == []


@pytest.mark.parametrize("what", ["cut", "close"])
@pytest.mark.parametrize("do", ["read_node", "undrain"])
def test_half_an_answer_is_none(server, what, do):
    server.fail(what, path="/node/")
    assert f"slurmrestd at {server.url}: " in str(failing(getattr(client(server), do)))


def test_an_answer_of_ten_megabytes_about_one_node_is_refused(server):
    server.fail("huge", path="/node/")
    assert "an answer of more than 4 MiB" in str(failing(client(server).read_node))


@pytest.mark.parametrize("body", [b"", b"{}", b'{"paths":[]}', b"<html>", b'{"paths":null}'])
def test_a_description_that_is_none_is_an_error(server, body):
    server.fail("status", status=200, body=body, path="/openapi")
    assert "its description (OpenAPI) has not the published form" in str(failing(client(server).read_node))


def test_a_server_that_is_away_is_said_in_words(server):
    with FakeSlurmrestd() as gone:
        slurm = client(gone)
    assert str(failing(slurm.read_node)) == f"slurmrestd at {gone.url}: connection refused"


# ---------------------------------------------------------------------------------------------- sockets and TLS


def test_a_unix_socket_needs_no_token(tmp_path):
    with FakeSlurmrestd(unix=tmp_path / "s") as server:
        server.add("node1")
        client(server).drain(REASON)
        assert client(server).read_node().drained
        server.fail("hang", path="/openapi")
        assert "no answer within 0.3 s" in str(failing(client(server, timeout=0.3).read_node))


@pytest.mark.parametrize(("file", "said"), [(False, "no such file or directory"), (True, "connection refused")])
def test_a_unix_socket_that_nobody_serves_is_said(tmp_path, file, said):
    path = tmp_path / "s"
    if file:
        path.touch()
    slurm = SlurmRest(SlurmConfig(node_name="node1", rest_url=f"unix:{path}"), environ={})
    assert str(failing(slurm.read_node)) == f"slurmrestd at {path}: {said}"


@pytest.fixture
def secure(tmp_path):
    authority = Authority(tmp_path, "cluster")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))
    with FakeSlurmrestd(tls=context) as fake:
        fake.add("node1")
        yield fake, authority.ca


def test_a_server_of_the_configured_authority_is_trusted(secure, token):
    server, authority = secure
    assert client(server, rest_ca=authority, rest_token_file=str(token)).read_node().name == "node1"


@pytest.mark.parametrize("own", [True, False])
def test_a_server_of_another_authority_never_sees_the_token(secure, token, tmp_path, own):
    server, _ = secure
    authority = Authority(tmp_path, "other").ca if own else ""
    error = failing(client(server, rest_ca=authority, rest_token_file=str(token)).read_node)
    assert "its certificate is not trusted" in str(error)
    assert server.log == []


def test_a_server_that_speaks_no_tls_is_said(server, token):
    plain = server.url.replace("http:", "https:")
    slurm = SlurmRest(SlurmConfig(node_name="node1", rest_url=plain, rest_token_file=str(token)), environ={})
    assert "does not speak TLS" in str(failing(slurm.read_node))


@pytest.mark.parametrize(("content", "said"), [(None, "no such file or directory"), ("x", "no PEM certificate")])
def test_an_authority_that_cannot_be_used_is_said(secure, tmp_path, content, said):
    path = tmp_path / "ca"
    if content:
        path.write_text(content)
    error = failing(client(secure[0], rest_ca=str(path)).read_node)
    assert str(error) == f"slurm.rest_ca {path} cannot be used: {said}"
