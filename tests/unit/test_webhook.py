"""Webhooks: what is sent, how it is signed, and what becomes of it when the receiver misbehaves."""

from __future__ import annotations

import datetime as dt
import errno
import ipaddress
import json
import logging
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
from delivery_counts import Metrics
from standardwebhooks import Webhook, WebhookVerificationError
from urllib3.response import HTTPResponse
from webhook_bodies import AT, CLEARED, FITNESS, OTHER, SECRET, finding
from webhook_receivers import SECONDS, Receiver, close, drip, garbage, hang, large

from ibmon.alert import delivery
from ibmon.alert.transport import DeliveryError, Limits, Transport
from ibmon.alert.webhook import WebhookSender
from ibmon.config import WebhookConfig
from ibmon.store import Store

LONG = Limits(20.0, 20.0, 20.0)  # a busy machine answers late, too
FAST = Limits(connect=20.0, read=0.5, total=1.5)  # for those that do not answer


# ------------------------------------------------------------------------------------------------------ receiver


@pytest.fixture
def receiver():
    made = []

    def make(*script):
        made.append(Receiver(*script))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "webhook.key"
    path.write_text(SECRET + "\n")
    return str(path)


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path, node="n1")
    yield made
    made.close()


@pytest.fixture
def sender(store, secret_file, monkeypatch):
    """A sender for these receivers, with short waits."""
    monkeypatch.setattr(delivery, "RETRY_BASE", 0.05)
    monkeypatch.setattr(delivery, "RETRY_CAP", 0.1)
    made = []

    def make(*receivers, limits=LONG, wall=lambda: AT, **more):
        webhooks = [WebhookConfig(url=getattr(r, "url", r), secret_file=secret_file, **more) for r in receivers]
        metrics = Metrics()
        made.append(WebhookSender(store, webhooks, node="gpu-node-7", metrics=metrics, limits=limits, wall=wall))
        return made[-1], metrics

    yield make
    for one in made:
        one.close()


def eventually(condition, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ------------------------------------------------------------------------------------------------------ delivery


def test_a_message_arrives_signed_and_in_the_published_form(receiver, sender):
    there = receiver(204)
    made, metrics = sender(there, wall=time.time)
    made.send("fitness", "gpu-node-7", FITNESS)
    ((method, path, headers, body, _),) = there.wait(1)
    assert (method, path) == ("POST", "/hook/T0KEN")
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"].startswith("ibmon/")
    told = Webhook(SECRET).verify(body, headers)
    assert told["type"] == "ibmon.fitness"
    assert told["data"]["node"] == "gpu-node-7"
    assert told["data"]["findings"][0]["port"] == "mlx5_3/1"
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(body, headers)
    eventually(lambda: metrics.attempts == [(there.name, True)])
    eventually(lambda: metrics.pending == {there.name: 0})


def test_only_the_topics_that_a_receiver_wants_go_to_it(receiver, sender):
    there = receiver()
    made, _ = sender(there, events=("finding",))
    made.send("fitness", "n", FITNESS)
    made.send("finding", "port-down mlx5_3/1", CLEARED)
    there.wait(1)
    assert [json.loads(r[3])["type"] for r in there.requests] == ["ibmon.finding"]


@pytest.mark.parametrize("failure", [500, 503, 429, 408, 100, hang, drip, close, garbage])
def test_a_receiver_that_fails_gets_the_same_message_again_until_it_takes_it(receiver, sender, failure):
    there = receiver(failure, failure, 200)
    made, metrics = sender(there, limits=FAST if failure in (hang, drip) else LONG)
    made.send("fitness", "n", FITNESS)
    there.wait(3)
    eventually(lambda: metrics.pending[there.name] == 0)
    requests = there.requests
    assert len({r[3] for r in requests}) == 1
    assert len({r[2]["webhook-id"] for r in requests}) == 1
    failures = 2 if failure not in (hang, drip) else len(requests) - 1  # on a busy machine 200 may come too late, too
    assert metrics.attempts == [(there.name, False)] * failures + [(there.name, True)]


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 403, 404, 410, 413])
def test_a_refusal_for_good_is_not_tried_again_and_the_next_message_goes_on(receiver, sender, caplog, status):
    elsewhere = receiver()
    there = receiver((status, {"Location": elsewhere.url}), 200)
    made, metrics = sender(there)
    made.send("fitness", "n", FITNESS)
    there.wait(1)
    made.send("finding", "x", CLEARED)
    first, second = there.wait(2)
    assert first[3] != second[3]
    assert elsewhere.requests == []
    eventually(lambda: metrics.attempts == [(there.name, False), (there.name, True)])
    assert [r.levelno for r in caplog.records] == [logging.ERROR]


def test_an_answer_of_ten_megabytes_is_not_read(receiver, sender):
    there = receiver(large)
    made, metrics = sender(there)
    made.send("fitness", "n", FITNESS)
    made.send("finding", "x", CLEARED)
    there.wait(2)
    eventually(lambda: metrics.attempts == [(there.name, True)] * 2)


def test_messages_arrive_in_the_order_in_which_they_were_sent(receiver, sender):
    there = receiver(503, 200)
    made, _ = sender(there)
    for i in range(5):
        made.send("finding", f"s{i}", {"state": "open", "finding": finding(device=f"mlx5_{i}")})
    requests = there.wait(6)
    ports = [json.loads(r[3])["data"]["finding"]["port"] for r in requests]
    assert ports == [f"mlx5_{i}/1" for i in (0, 0, 1, 2, 3, 4)]


def test_a_message_that_the_receiver_chokes_on_does_not_hold_up_the_others(receiver, sender):
    all_sent = threading.Event()
    there = receiver(lambda _, handler: (all_sent.wait(20), handler.send_error(500)), 200, 200, 500, 200)
    made, _ = sender(there)
    for i in range(3):
        made.send("finding", f"s{i}", {"state": "open", "finding": finding(device=f"mlx5_{i}")})
    all_sent.set()
    ports = [json.loads(r[3])["data"]["finding"]["port"][5] for r in there.wait(5)]
    assert ports[0] == "0"
    assert ports[3:] == ["0", "0"]


def test_while_a_receiver_is_away_only_the_newest_state_of_a_subject_waits(receiver, sender, store):
    there = receiver(503)
    made, metrics = sender(there)
    made.send("finding", "port-down mlx5_3/1", {"state": "open", "finding": finding()})
    made.send("finding", "port-down mlx5_3/1", CLEARED)
    made.send("finding", "port-down mlx5_4/1", {"state": "open", "finding": finding(device="mlx5_4")})
    there.wait(3)
    assert store.outbox.pending(there.name) == 2
    there.script[:] = [200]
    eventually(lambda: metrics.pending[there.name] == 0)
    last = [json.loads(r[3])["data"] for r in there.requests[-2:]]
    assert [(d["state"], d["finding"]["port"]) for d in last] == [("cleared", "mlx5_3/1"), ("open", "mlx5_4/1")]
    assert last[1]["finding"]["onset"] == "2030-01-01T09:58:58.250Z"


@pytest.mark.parametrize("failure", [hang, drip, 503])
def test_a_receiver_that_hangs_delays_no_other(receiver, sender, failure):
    bad, good = receiver(failure), receiver()
    made, metrics = sender(bad, good)
    for i in range(3):
        made.send("finding", f"s{i}", CLEARED)
    good.wait(3)
    assert failure == 503 or (bad.name, False) not in metrics.attempts  # it still has all its time


def test_what_was_not_delivered_is_delivered_by_the_next_process(receiver, sender, store, tmp_path):
    there = receiver(503)
    made, _ = sender(there)
    made.send("fitness", "n", FITNESS)
    there.wait(1)
    made.close(SECONDS)
    store.close()
    there.script[:] = [200]
    before = len(there.requests)
    after = Store(tmp_path, node="n1")
    second = WebhookSender(after, [WebhookConfig(url=there.url)], node="n", metrics=Metrics(), limits=LONG)
    assert there.wait(before + 1)[-1][2]["webhook-id"] == there.requests[0][2]["webhook-id"]
    second.close()
    after.close()


@pytest.mark.parametrize("failure", [hang, drip])
def test_close_ends_an_attempt_that_is_under_way(receiver, sender, failure):
    there = receiver(failure)
    made, _ = sender(there, limits=Limits(5.0, 30.0, 30.0))
    made.send("fitness", "n", FITNESS)
    there.wait(1)
    threads = [t for t in threading.enumerate() if t.name.startswith("ibmon-webhook")]
    made.close(10.0)
    assert threads
    assert not any(t.is_alive() for t in threads)


def test_the_wait_that_a_receiver_asks_for_is_kept(receiver, sender):
    there = receiver((429, {"Retry-After": "1"}), 200)
    made, _ = sender(there)
    made.send("fitness", "n", FITNESS)
    first, second = there.wait(2)
    assert second[4] - first[4] >= 1.0


def test_one_line_tells_that_a_receiver_fails_and_one_that_it_takes_messages_again(receiver, sender, caplog):
    caplog.set_level(logging.INFO)
    there = receiver(500, 500, 500, 200)
    made, metrics = sender(there)
    made.send("fitness", "n", FITNESS)
    eventually(lambda: (there.name, True) in metrics.attempts)
    made.close(SECONDS)
    assert [r.getMessage().split()[0] for r in caplog.records] == ["event=webhook-failing", "event=webhook-delivering"]


def test_neither_the_secret_nor_the_path_of_the_url_is_ever_in_a_log_line(receiver, sender, caplog, secret_file):
    caplog.set_level(logging.DEBUG)
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    dead = f"http://127.0.0.1:{closed.getsockname()[1]}/hook/T0KEN"
    theres = [receiver(s) for s in (hang, close, garbage, 500, 302, 404)]
    made, metrics = sender(*theres, dead, limits=FAST)
    made.send("fitness", "n", FITNESS)
    eventually(lambda: len({target for target, _ in metrics.attempts}) == 7)
    Path(secret_file).write_text("whsec_no-secret-T0KEN")
    made.send("finding", "n", CLEARED)
    eventually(lambda: len(metrics.attempts) > 14)
    made.close()
    closed.close()
    text = caplog.text + repr(metrics.attempts)
    assert caplog.records
    assert "T0KEN" not in text
    assert SECRET.removeprefix("whsec_") not in text
    assert "connection refused" in text


def test_a_changed_secret_is_used_for_the_next_attempt(receiver, sender, secret_file):
    there = receiver()
    made, _ = sender(there, wall=time.time)
    made.send("fitness", "n", FITNESS)
    there.wait(1)
    Path(secret_file).write_text(f"{OTHER}\n{SECRET}\n")
    made.send("finding", "x", CLEARED)
    _, second = there.wait(2)
    for secret in (OTHER, SECRET):
        assert Webhook(secret).verify(second[3], second[2])


def test_without_a_usable_secret_nothing_is_sent_until_there_is_one(receiver, sender, secret_file):
    there = receiver()
    Path(secret_file).unlink()
    made, metrics = sender(there)
    made.send("fitness", "n", FITNESS)
    eventually(lambda: metrics.attempts[:2] == [(there.name, False)] * 2)
    assert there.requests == []
    Path(secret_file).write_text(SECRET)
    there.wait(1)


def test_the_signature_has_the_time_of_the_attempt_and_the_body_that_of_the_event(receiver, sender):
    there = receiver(503, 200)
    walls = iter([AT, AT + 100, AT + 100, AT + 25_000])
    made, _ = sender(there, wall=lambda: next(walls, AT + 25_000))
    made.send("fitness", "n", FITNESS)
    first, second = there.wait(2)
    assert [r[2]["webhook-timestamp"] for r in (first, second)] == [str(int(AT + 100)), str(int(AT + 25_000))]
    assert first[2]["webhook-signature"] != second[2]["webhook-signature"]
    assert json.loads(second[3])["timestamp"] == "2030-01-01T10:00:00.250Z"


def test_a_fault_of_our_own_ends_neither_thread_nor_message(receiver, sender, monkeypatch, caplog):
    there = receiver()
    made, metrics = sender(there)
    real, faults = delivery.judge, iter([ZeroDivisionError])

    def judge(status):
        if fault := next(faults, None):
            raise fault
        return real(status)

    monkeypatch.setattr(delivery, "judge", judge)
    made.send("fitness", "n", FITNESS)
    there.wait(2)
    eventually(lambda: metrics.attempts == [(there.name, False), (there.name, True)])


# --------------------------------------------------------------------------------------------------- transport


def certificate(directory):
    """A certificate of its own for 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = directory / "server.pem"
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


def test_a_certificate_that_nobody_trusts_is_refused_and_a_trusted_one_is_taken(receiver, tmp_path, monkeypatch):
    pem = certificate(tmp_path)
    there = receiver(202)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    there.server.socket = context.wrap_socket(there.server.socket, server_side=True)
    url = there.url.replace("http:", "https:")
    with pytest.raises(DeliveryError, match="TLS"):
        Transport(url, LONG).post(b"{}", {})
    assert there.requests == []
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    assert Transport(url, LONG).post(b"{}", {}).status == 202


@pytest.mark.parametrize(
    ("action", "limits", "words"),
    [
        (hang, LONG._replace(read=0.5), "no answer within 0.5 s"),
        (drip, LONG._replace(total=1.5), "not done within 1.5 s"),
        (close, LONG, "broken answer"),
        (garbage, LONG, "broken"),
    ],
)
def test_each_failure_of_the_way_is_told_in_our_own_words(receiver, action, limits, words):
    there = receiver(action)
    with pytest.raises(DeliveryError, match=words):
        Transport(there.url, limits).post(b"{}", {})


@pytest.mark.parametrize(("total", "words"), [(SECONDS, "stopped"), (0.01, "not done within 0.01 s")])
def test_an_attempt_that_ends_while_the_name_is_looked_up_sends_nothing(receiver, monkeypatch, total, words):
    there = receiver(hang)
    transport = Transport(there.url, LONG._replace(total=total))
    look_up = socket.getaddrinfo

    def slow(*asked):
        transport.abort() if total == SECONDS else transport._late.wait(SECONDS)
        return look_up(*asked)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with pytest.raises(DeliveryError, match=words):
        transport.post(b"{}", {})
    assert there.requests == []


def test_words_that_come_a_byte_at_a_time_end_with_the_attempt(receiver, monkeypatch):
    def drip_words(receiver, handler):
        handler.send_response(200)
        handler.end_headers()
        while not receiver.released.wait(0.01):
            handler.wfile.write(b"x")

    transport = Transport(receiver(drip_words).url, LONG)
    read = HTTPResponse.read

    def read_late(answer, amount):
        transport._overdue()
        return read(answer, amount)

    monkeypatch.setattr(HTTPResponse, "read", read_late)
    answer = transport.post(b"{}", {}, words=400)
    assert answer.status == 200
    assert len(answer.words) < 400


def test_words_that_a_reset_cuts_off_leave_the_status_that_came_before_them(receiver, monkeypatch):
    def reset(_answer, _amount):
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")

    monkeypatch.setattr(HTTPResponse, "read", reset)
    answer = Transport(receiver().url, LONG).post(b"{}", {}, words=400)
    assert (answer.status, answer.words) == (200, "")


def test_a_name_that_is_not_known_is_told():
    with pytest.raises(DeliveryError, match="host name is not known"):
        Transport("http://receiver.invalid/x", FAST).post(b"{}", {})


def test_ipv6_addresses_and_queries_are_understood():
    transport = Transport("https://[::1]:8443/a/b?c=d", FAST)
    assert (transport._host, transport._port, transport._path) == ("::1", 8443, "/a/b?c=d")
    plain = Transport("http://h", FAST)
    assert (plain._host, plain._port, plain._path) == ("h", 80, "/")
