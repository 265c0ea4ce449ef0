"""Who may report for a node: every way to be refused changes nothing, is counted, and leaves one line."""

from __future__ import annotations

import json
import logging
import time

import pytest
from controller_web import MASTER, OLD_MASTER, WALL, FleetWorld, Message, key_of, secret
from standardwebhooks import Webhook, WebhookVerificationError

from ibmon.controller.complaints import PAUSE
from ibmon.report import MAX_BYTES, PATH


@pytest.fixture
def world(tmp_path):
    world = FleetWorld(tmp_path).start()
    yield world
    world.close()


def changed(message, **headers):
    message.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return message


def without(message, name):
    del message.headers[name]
    return message


def tampered(message):
    message.body = message.body.replace(b"unfit", b"fit")
    return message


def test_a_signed_report_is_taken_and_answered(world):
    status, _, answer = world.send(Message())

    assert status == 200
    assert answer == {"decision": "blocked", "code": "limit_nodes", "stop": False, "mode": "drain"}
    assert [report.node for report in world.desk.reports] == ["gpu-1"]
    assert world.counted("accepted") == 1


def test_the_answer_is_signed_with_the_nodes_key_for_the_reports_id(world):
    world.at = world.at._replace(wall=time.time())  # that of the verifying library
    message = Message(sent=world.at.wall)
    _, headers, body = world.ask("POST", PATH, message.body, **message.headers)

    assert headers["webhook-id"] == message.headers["webhook-id"]
    assert Webhook(secret(key_of("gpu-1"))).verify(body, headers)["decision"] == "blocked"
    with pytest.raises(WebhookVerificationError):
        Webhook(secret(key_of("gpu-2"))).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret(key_of("gpu-1"))).verify(body.replace(b"false", b"true"), headers)


REFUSED = {
    "forged": (lambda: Message(key=b"x" * 32), 401, "signature"),
    "another node's name": (lambda: Message("gpu-1", key=key_of("gpu-2")), 401, "signature"),
    "signed with the master key itself": (lambda: Message(key=MASTER), 401, "signature"),
    "a master key that is not in the file": (lambda: Message(key=key_of("gpu-1", OLD_MASTER)), 401, "signature"),
    "changed on the way": (lambda: tampered(Message()), 401, "signature"),
    "another id than was signed": (lambda: changed(Message(), webhook_id="other"), 401, "signature"),
    "another time than was signed": (lambda: changed(Message(), webhook_timestamp="1890000001"), 401, "signature"),
    "an empty signature": (lambda: changed(Message(), webhook_signature=""), 401, "signature"),
    "a signature of another version": (
        lambda: changed(Message(), webhook_signature=f"v2{Message().headers['webhook-signature'][2:]}"),
        401, "signature",
    ),
    "the right signature behind too many": (
        lambda: changed(Message(), webhook_signature="v1,x " * 9 + Message().headers["webhook-signature"]),
        401, "signature",
    ),
    "no signature": (lambda: without(Message(), "webhook-signature"), 401, "shape"),
    "no id": (lambda: without(Message(), "webhook-id"), 401, "shape"),
    "no time": (lambda: without(Message(), "webhook-timestamp"), 401, "shape"),
    "a time that is no number": (lambda: changed(Message(), webhook_timestamp="1e9"), 400, "shape"),
    "a negative time": (lambda: changed(Message(), webhook_timestamp="-5"), 400, "shape"),
    "an id with a brace": (lambda: changed(Message(), webhook_id='a.1.{"v":1'), 400, "shape"),
    "no JSON": (lambda: Message(body=b"garbage"), 400, "shape"),
    "no body": (lambda: Message(body=b""), 400, "shape"),
    "a list": (lambda: Message(body=b"[]"), 400, "shape"),
    "half a report": (lambda: Message(body=Message().body[:-9]), 400, "shape"),
    "another version": (lambda: Message(v=2), 400, "shape"),
    "a number as text": (lambda: Message(seq="1"), 400, "shape"),
    "a negative count": (lambda: Message(seq=-1), 400, "shape"),
    "an unknown mode": (lambda: Message(mode="rage"), 400, "shape"),
    "a name with a slash": (lambda: Message("../gpu-1"), 400, "shape"),
    "a name with a line break": (lambda: Message("gpu-1\nevent=stop"), 400, "shape"),
    "a name with a line break behind it": (lambda: Message("gpu-1\n", key=b"x" * 32), 400, "shape"),
    "an id with a line break behind it": (
        lambda: Message(intent={"drain": True, "id": "7f3a9c\n", "reason": "x"}), 400, "shape",
    ),
    "a record with a line break behind its id": (
        lambda: Message(owned={"id": "7f3a9c\n", "reason": "x"}), 400, "shape",
    ),
    "a wish since no year that a calendar has": (
        lambda: Message(intent={"drain": True, "id": "7f3a9c", "reason": "x", "since": 1e300}), 400, "shape",
    ),
    "a fault since no such year": (
        lambda: Message(findings=[{"rule": "r", "device": "d", "port": 1, "severity": "critical", "onset": -1e300}]),
        400, "shape",
    ),
    "a name without end": (lambda: Message("n" * 300), 400, "shape"),
    "too many findings": (
        lambda: Message(holds=[{"rule": "r", "device": "d"}] * 1025), 400, "shape",
    ),
    "sent at another second than signed": (
        lambda: Message(sent=WALL, body=Message(sent=WALL + 5).body), 400, "shape",
    ),
    "late": (lambda: Message(sent=WALL - 301), 400, "skew"),
    "from the future": (lambda: Message(sent=WALL + 301), 400, "skew"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_report_that_is_wrong_does_nothing_and_is_counted(world, caplog, case):
    make, status, kind = REFUSED[case]
    with caplog.at_level(logging.WARNING):
        got, headers, answer = world.send(make())

    assert got == status
    assert list(answer) == ["error"]
    assert "webhook-signature" not in headers
    assert world.desk.reports == []
    assert world.counted(f"refused_{kind}") == 1
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"event=report-refused kind={kind} peer=127.0.0.1")


def test_a_report_that_comes_again_does_nothing_and_is_counted(world):
    message = Message()
    world.send(message)
    status, _, _ = world.send(message)

    assert (status, len(world.desk.reports), world.counted("refused_replay")) == (409, 1, 1)


@pytest.mark.parametrize("off", [-299, 299])
def test_clocks_may_differ_a_little(world, off):
    assert world.send(Message(sent=WALL + off))[0] == 200


def test_while_keys_are_changed_any_of_them_counts_and_afterwards_the_old_one_does_not(world):
    new, old = Message("gpu-1"), Message("gpu-2", key=key_of("gpu-2", OLD_MASTER))
    world.write_keys(MASTER, OLD_MASTER)
    world.at = world.at._replace(monotonic=1010.0)
    assert [world.send(message)[0] for message in (new, old)] == [200, 200]

    world.write_keys(MASTER)
    world.at = world.at._replace(monotonic=1020.0)
    assert world.send(Message("gpu-2", key=key_of("gpu-2", OLD_MASTER), seq=2))[0] == 401


def test_a_node_that_is_changing_its_key_may_sign_with_both(world):
    message = Message(key=key_of("gpu-1", OLD_MASTER))
    other = Message()
    message.headers["webhook-signature"] += f" {other.headers['webhook-signature']}"

    assert world.send(message)[0] == 200


@pytest.mark.parametrize("text", ["", "whsec_short\n", "\x00\xff"])
def test_a_file_of_keys_that_is_spoilt_later_changes_nothing_and_is_logged_once(world, caplog, text):
    world.keys_file.write_text(text)
    for step in range(3):
        world.at = world.at._replace(monotonic=2000.0 + 10 * step)
        assert world.send(Message(seq=step))[0] == 200

    assert len([r for r in caplog.records if "event=master-keys-refused" in r.getMessage()]) == 1


def test_a_peer_that_goes_on_is_logged_once_a_minute(world, caplog):
    for _ in range(5):
        world.send(Message(key=b"x" * 32))
    world.send(Message(body=b"garbage"))
    world.at = world.at._replace(monotonic=world.at.monotonic + PAUSE)
    world.send(Message(key=b"x" * 32))

    lines = [record.getMessage() for record in caplog.records]
    assert [line.split()[1] for line in lines] == ["kind=signature", "kind=shape", "kind=signature"]
    assert "unsaid=4" in lines[2]
    assert world.counted("refused_signature") == 6


def test_too_large_a_report_is_refused_before_it_is_read(world):
    with world.connect() as client:
        client.send(f"POST {PATH} HTTP/1.1\r\nHost: f\r\nContent-Length: {MAX_BYTES + 1}\r\n\r\n".encode())

        assert client.answer()[0] == 413
    assert world.desk.reports == []


def test_who_does_not_lead_takes_no_report_and_says_when_to_come_again(world):
    world.leads = False
    status, headers, answer = world.send(Message())

    assert (status, headers["retry-after"], answer) == (503, "2", {"error": "not the leader"})
    assert world.desk.reports == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_reports_are_posted_only(world, method):
    status, headers, _ = world.ask(method, PATH)

    assert (status, headers["allow"]) == (405, "POST")


def test_no_key_is_in_any_answer_metric_or_line(world, caplog):
    answers = [json.dumps(world.send(make())[2]) for make, _, _ in REFUSED.values()]
    answers.append(world.ask("GET", "/metrics")[2].decode())
    everything = "\n".join([*answers, *(record.getMessage() for record in caplog.records), repr(world.server)])

    for raw in (MASTER, key_of("gpu-1"), key_of("gpu-2")):
        assert secret(raw).removeprefix("whsec_") not in everything
        assert raw.hex() not in everything
        assert repr(raw) not in everything
