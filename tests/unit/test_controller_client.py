"""The call to the fleet controller: what is believed, what a bad answer is called, that every call ends."""

from __future__ import annotations

import base64
import socket
import time

import pytest
from authorities import Authority
from fleet_http import (
    MASTER,
    ControllerServer,
    close,
    drip,
    drip_without_length,
    endless,
    garbage,
    hang,
    large,
    secret,
    signed,
)

from ibmon.config import ControllerConfig
from ibmon.drain.controller import ControllerClient, NotLeaderError, ReplayedError
from ibmon.model import Mode, NodeFitness
from ibmon.ports import SchedulerError
from ibmon.report import Reply, Report, node_key

NODE = "node1"
DRAINED = Reply("drained", "", stop=False, mode=Mode.DRAIN)


def report(seq=1, node=NODE, **more):
    usual = {"v": 1, "boot_id": "b007-1d", "sent": time.time(), "version": "1", "config_hash": "c0ffee"}
    return Report(node=node, seq=seq, mode=Mode.DRAIN, fitness=NodeFitness.FIT, **{**usual, **more})


@pytest.fixture
def server():
    with ControllerServer() as there:
        yield there


@pytest.fixture
def client(tmp_path, server):
    made = []

    def make(**more):
        key = tmp_path / "node.key"
        if not key.exists():
            key.write_text(secret(NODE) + "\n")
        config = {"url": server.url, "key_file": str(key), **more.pop("config", {})}
        made.append(ControllerClient(ControllerConfig(**config), **{"deadline": 30.0, **more}))
        return made[-1]

    yield make
    for way in made:
        way.close()


def error_of(client, told=None):
    with pytest.raises(SchedulerError) as caught:
        client.send(told or report())
    key = base64.b64encode(node_key(MASTER, NODE)).decode()
    assert key not in str(caught.value)
    return caught.value


def test_a_report_is_signed_as_the_standard_says_and_a_signed_reply_is_believed(server, client):
    server.script = [DRAINED]
    sent = report(seq=7)
    assert client().send(sent) == DRAINED
    assert server.reports == [sent]
    assert server.paths == ["/v1/report"]
    assert server.refused == []


def test_reports_share_one_connection(server, client):
    way = client()
    for seq in range(4):
        way.send(report(seq))
    assert server.connections == 1


def test_a_connection_that_the_controller_has_closed_meanwhile_is_opened_anew(server, client):
    way = client()
    way.send(report(1))
    server.script = [close]  # it goes in the very moment of the next report
    assert way.send(report(2)).decision == "none"
    assert [r.seq for r in server.reports] == [1, 2, 2]


def test_a_path_before_ours_stays_in_the_address(server, client):
    client(config={"url": server.url + "/fleet/"}).send(report())
    assert server.paths == ["/fleet/v1/report"]


# ------------------------------------------------------------------------------------------ what is not believed


def other_key(server, handler, told):
    server.send(handler, 200, *signed(DRAINED, handler.headers["webhook-id"], secret("node2")))


def of_another_report(server, handler, told):
    server.send(handler, 200, *signed(DRAINED, f"{told.boot_id}.{told.seq - 1}", secret(NODE)))


def changed(server, handler, told):
    headers, body = signed(DRAINED, handler.headers["webhook-id"], secret(NODE))
    server.send(handler, 200, headers, body.replace(b"drained", b"blocked"))


def unsigned(server, handler, told):
    server.send(handler, 200, {}, b'{"decision":"drained"}')


def odd(server, handler, told):
    headers, body = signed(DRAINED, handler.headers["webhook-id"], secret(NODE))
    server.send(handler, 200, {**headers, "webhook-timestamp": "-7"}, body)


@pytest.mark.parametrize("forger", [other_key, of_another_report, changed, unsigned, odd])
def test_an_answer_that_is_not_signed_for_this_report_is_not_believed(server, client, forger):
    server.script = [forger]
    error = error_of(client())
    assert str(error) == "the answer of the controller is not signed with this node's key"
    assert not error.forbidden


@pytest.mark.parametrize("off", [-400.0, 400.0])
def test_an_answer_from_another_time_is_not_believed(server, client, off):
    def late(server, handler, told):
        server.send(handler, 200, *signed(DRAINED, handler.headers["webhook-id"], secret(NODE), off=off))

    server.script = [late]
    assert "the clocks of the controller and of this node are" in str(error_of(client()))


@pytest.mark.parametrize("body", [b"[]", b'{"decision":"maybe"}', b"nothing", b"{"])
def test_a_signed_answer_that_is_no_reply_is_an_error(server, client, body):
    server.script = [body]
    assert "cannot be read" in str(error_of(client()))


# ------------------------------------------------------------------------------------------ what goes wrong


def test_a_key_that_the_controller_does_not_take_is_forbidden_and_names_the_file(server, client, tmp_path):
    (tmp_path / "node.key").write_text(secret("node2"))
    error = error_of(client())
    assert error.forbidden
    assert str(tmp_path / "node.key") in str(error)
    assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize("text", [None, "", "whsec_AAAA", "not a key"])
def test_a_key_file_that_is_none_is_forbidden_and_says_what_to_write(client, tmp_path, text):
    way = client()
    path = tmp_path / "node.key"
    path.unlink() if text is None else path.write_text(text)
    error = error_of(way)
    assert error.forbidden
    assert str(error).startswith(f"controller.key_file: {path}")


def test_a_new_key_is_used_without_a_restart(server, client, tmp_path):
    path = tmp_path / "node.key"
    path.write_text(secret("node2"))
    way = client()
    error_of(way)
    path.write_text(f"{secret(NODE)}\n{secret('node2')}\n")
    assert way.send(report(2)).decision == "none"


def test_an_instance_that_does_not_lead_and_a_number_seen_before_have_names_of_their_own(server, client):
    server.script = [503, 409]
    assert isinstance(error_of(client()), NotLeaderError)
    assert isinstance(error_of(client()), ReplayedError)


def said(server, handler, told):
    server.send(handler, 400, {}, b'{"error":"the clock is\\n400 s off","more":1}')


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (500, "the controller answered 500: because"),
        (400, "the controller answered 400: because"),
        (said, "the controller answered 400: the clock is 400 s off"),
        (302, "the controller answered 302: redirects are not followed; look at controller.url"),
        (307, "redirects are not followed"),
        (hang, "no answer within 1 s"),
        (drip, "no answer within 1 s"),
        (drip_without_length, "no answer within 1 s"),
        (garbage, "broken answer"),
        (large, "an answer of more than 16 KiB"),
        (endless, "an answer of more than 16 KiB"),
    ],
)
def test_a_bad_answer_is_one_line_in_time_and_the_next_report_is_none_the_worse(server, client, action, words):
    server.script = [action]
    way = client()
    if "no answer within" in words:
        way._deadline = 1.0
    began = time.monotonic()
    error = error_of(way)
    assert time.monotonic() - began < 15
    assert words in str(error)
    assert len(str(error).splitlines()) == 1
    way._deadline = 30.0  # a busy machine answers late, too
    assert way.send(report(2)).decision == "none"


def test_a_controller_that_is_not_there_is_one_line(client):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = error_of(client(config={"url": f"http://127.0.0.1:{port}"}))
    assert str(error) == f"the controller at 127.0.0.1:{port}: connection refused"


def test_a_call_that_hangs_can_be_ended_and_none_begins_after_that(server, client):
    way = client()
    server.script = [lambda *given: (way.abort(), hang(*given))]
    assert "stopped" in str(error_of(way))
    assert "stopped" in str(error_of(way))


# ------------------------------------------------------------------------------------------ TLS


def test_over_tls_the_named_authority_is_trusted_and_no_other(tmp_path, client):
    ours, other = Authority(tmp_path, "site"), Authority(tmp_path, "other")
    with ControllerServer(context=ours.server()) as there:
        assert client(config={"url": there.url, "ca": str(ours.ca)}).send(report()).decision == "none"
        for ca in (str(other.ca), ""):
            error = error_of(client(config={"url": there.url, "ca": ca}))
            assert "its certificate is not trusted" in str(error)
        missing = error_of(client(config={"url": there.url, "ca": str(tmp_path / "none.pem")}))
        assert "controller.ca" in str(missing)
        assert len(there.reports) == 1
