"""Alertmanagers are told what holds, whatever they, the network and the clock do; and the engine waits for none."""

from __future__ import annotations

import base64
import logging
import socket
import threading
import time
from types import SimpleNamespace

import pytest
from alertmanagers import FakeAlertmanager, cut, garbage, hang, large, says, seconds
from authorities import Authority
from bells import Bell
from delivery_counts import Metrics

from ibmon.alert import delivery, target
from ibmon.alert.alertmanager import AlertmanagerSender
from ibmon.alert.transport import Limits
from ibmon.config import AlertmanagerConfig
from ibmon.model import Finding, PortId, Severity

SECONDS = 20.0  # no test waits so long unless it fails
LONG = Limits(20.0, 20.0, 20.0)  # a busy machine answers late, too
FAST = Limits(connect=20.0, read=0.5, total=1.5)  # for those that do not answer
RAILS = {PortId("mlx5_3", 1): 3}


def finding(rule="port-down", severity=Severity.CRITICAL, device="mlx5_3") -> Finding:
    return Finding(rule, device, 1, "", severity, time.time() - 62, "DOWN/Polling", 60.0, "DOWN/Polling 62s>60s")


@pytest.fixture
def alertmanager():
    made = []

    def make(*script, **more):
        made.append(FakeAlertmanager(*script, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def sender(tmp_path, monkeypatch):
    """A sender for these Alertmanagers, with short waits."""
    monkeypatch.setattr(delivery, "RETRY_BASE", 0.05)
    monkeypatch.setattr(delivery, "RETRY_CAP", 0.1)
    made = []

    def make(*targets, limits=LONG, wall=time.time, **more):
        configs = [AlertmanagerConfig(url=getattr(t, "url", t), **({"resend_interval": 60.0} | more)) for t in targets]
        metrics = Metrics()
        one = AlertmanagerSender(
            tmp_path, configs, node="gpu-17", source="http://gpu-17:1/", metrics=metrics, limits=limits, wall=wall
        )
        made.append(one)
        return one, metrics

    yield make
    for one in made:
        one.close()


@pytest.fixture
def bells(monkeypatch):
    """Of each thread can be seen whether it waits, and for how long it means to."""
    monkeypatch.setattr(target, "threading", SimpleNamespace(Event=Bell, Thread=threading.Thread))


def eventually(condition, within=SECONDS):
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def states(request):
    """What a request says: name and severity, and whether it holds on."""
    return {
        (a["labels"]["alertname"], a["labels"]["severity"]): seconds(a["endsAt"]) > time.time() for a in request.alerts
    }


# ------------------------------------------------------------------------------------------------------- what is told


def test_what_fires_is_told_at_once_with_the_time_at_which_it_expires(alertmanager, sender):
    there = alertmanager()
    made, metrics = sender(there, resend_interval=60.0, runbook_url="https://wiki/rb")
    before = time.time()
    made.fire([finding()], RAILS)
    (request,) = there.wait(1)
    assert request.path == "/api/v2/alerts"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["User-Agent"].startswith("ibmon/")
    assert "Authorization" not in request.headers
    (alert,) = request.alerts
    assert alert["labels"]["rail"] == "3"
    assert alert["annotations"]["runbook_url"] == "https://wiki/rb/port-down.md"
    assert alert["generatorURL"] == "http://gpu-17:1/"
    assert 239.99 <= seconds(alert["endsAt"]) - before < 250
    eventually(lambda: metrics.attempts == [(there.name, True)])
    eventually(lambda: metrics.pending == {there.name: 0})


def test_an_address_with_a_path_keeps_it(alertmanager, sender):
    there = alertmanager()
    made, _ = sender(there.url + "/am/")
    made.fire([finding()], {})
    assert there.wait(1)[0].path == "/am/api/v2/alerts"


def test_nothing_is_sent_where_nothing_fires(alertmanager, sender):
    there = alertmanager()
    made, metrics = sender(there)
    made.fire([], {})
    made.fire([], {})
    eventually(lambda: metrics.pending == {there.name: 0})
    assert there.requests == []


def test_what_is_over_is_ended_explicitly_and_what_goes_on_is_told_with_it(alertmanager, sender):
    there = alertmanager()
    made, _ = sender(there)
    made.fire([finding(), finding("rate-low")], RAILS)
    there.wait(1)
    made.fire([finding("rate-low")], RAILS)
    request = there.wait(2)[1]
    assert states(request) == {("IbmonPortDown", "critical"): False, ("IbmonRateLow", "critical"): True}
    assert there.names() == ["IbmonRateLow"]


def test_a_warning_that_becomes_critical_is_one_message_that_ends_the_one_and_fires_the_other(alertmanager, sender):
    there = alertmanager()
    made, _ = sender(there)
    made.fire([finding(severity=Severity.WARNING)], RAILS)
    there.wait(1)
    made.fire([finding()], RAILS)
    assert states(there.wait(2)[1]) == {("IbmonPortDown", "warning"): False, ("IbmonPortDown", "critical"): True}


def test_it_is_told_again_before_it_expires_and_the_end_is_told_again_too(alertmanager, sender, bells):
    there = alertmanager()
    made, _ = sender(there, resend_interval=0.5)
    made.fire([finding()], {})
    first, second, third = there.wait(3)[:3]
    for early, late in ((first, second), (second, third)):
        assert late.at - early.at > 0.4
    (thread,) = made._targets
    eventually(thread._work.settled)
    assert thread._work.pause <= 0.5  # what was told holds for 2 s
    assert first.alerts[0]["startsAt"] == second.alerts[0]["startsAt"]
    assert first.alerts[0]["endsAt"] < second.alerts[0]["endsAt"]
    made.fire([], {})
    eventually(lambda: there.requests[-1].alerts[0]["endsAt"] < second.alerts[0]["endsAt"] or there.firing() == [])
    ended = len(there.requests)
    again = there.wait(ended + 1)
    assert states(again[-1]) == {("IbmonPortDown", "critical"): False}
    assert again[-1].alerts[0]["endsAt"] == again[ended - 1].alerts[0]["endsAt"]


def test_ends_are_not_told_for_ever(alertmanager, sender, bells):
    there = alertmanager()
    now = [1000.0]
    made, _ = sender(there, resend_interval=0.05)
    made._board._monotonic = lambda: now[0]
    made.fire([finding()], {})
    there.wait(1)
    made.fire([], {})
    eventually(lambda: there.names() == [])
    told = len(there.requests)
    there.wait(told + 3)
    now[0] += made._board._keep_ends
    (thread,) = made._targets
    eventually(lambda: thread._work.settled() and thread._work.pause is None)  # nothing more is planned


@pytest.mark.parametrize("ahead", [-1.9, 0.0, 1.9])
def test_an_end_counts_at_once_although_the_clocks_differ(alertmanager, sender, ahead):
    there = alertmanager()
    made, _ = sender(there, wall=lambda: time.time() + ahead)
    made.fire([finding()], {})
    eventually(lambda: there.names() == ["IbmonPortDown"])
    made.fire([], {})
    there.wait(2)
    assert there.names() == []


# -------------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("failure", [500, 503, 429, 408, hang, cut, garbage])
def test_an_alertmanager_that_fails_is_told_until_it_knows(alertmanager, sender, failure):
    there = alertmanager(failure, failure, 200)
    made, metrics = sender(there, limits=FAST if failure is hang else LONG)
    made.fire([finding()], {})
    there.wait(3)
    eventually(lambda: metrics.pending == {there.name: 0} and (there.name, True) in metrics.attempts)
    failures = 2 if failure is not hang else len(there.requests) - 1  # on a busy machine 200 may come too late, too
    assert metrics.attempts == [(there.name, False)] * failures + [(there.name, True)]
    assert there.names() == ["IbmonPortDown"]


def test_while_it_is_away_it_waits_and_then_hears_what_holds_by_then(alertmanager, sender):
    there = alertmanager(503)
    made, metrics = sender(there)
    made.fire([finding()], {})
    there.wait(2)
    made.fire([finding("rate-low"), finding("port-init")], {})
    eventually(lambda: metrics.pending[there.name] == 3)
    there.script[:] = [200]
    eventually(lambda: metrics.pending[there.name] == 0)
    assert there.names() == ["IbmonPortInit", "IbmonRateLow"]


@pytest.mark.parametrize("failure", [hang, 503])
def test_one_that_hangs_delays_no_other(alertmanager, sender, failure):
    bad, good = alertmanager(failure), alertmanager()
    made, metrics = sender(bad, good)
    for rule in ("port-down", "rate-low", "port-init"):
        made.fire([finding(rule)], {})
        eventually(lambda rule=rule: good.requests and rule in {a["labels"]["rule"] for a in good.requests[-1].alerts})
    assert failure == 503 or (bad.name, False) not in metrics.attempts  # it still has all its time


def test_the_engine_waits_for_none_of_it(alertmanager, sender):
    there = alertmanager(hang)
    made, metrics = sender(there)
    made.fire([finding()], {})
    there.wait(1)
    for _ in range(100):
        made.fire([finding()], {})
        made.fire([], {})
    assert (len(there.requests), metrics.attempts) == (1, [])  # the first one still is under way


def test_the_wait_that_it_asks_for_is_kept_also_when_there_is_news(alertmanager, sender):
    there = alertmanager((429, {"Retry-After": "1"}), 200)
    made, _ = sender(there)
    made.fire([finding()], {})
    there.wait(1)
    made.fire([finding("rate-low")], {})
    first, second = there.wait(2)
    assert second.at - first.at >= 1.0


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404])
def test_a_refusal_is_told_once_and_tried_again_only_at_the_next_interval(alertmanager, sender, caplog, status):
    elsewhere = alertmanager()
    there = alertmanager((status, {"Location": elsewhere.url}), (status, {}), 200)
    made, metrics = sender(there, resend_interval=0.6)
    made.fire([finding()], {})
    first, second, _ = there.wait(3)
    assert second.at - first.at >= 0.6
    eventually(lambda: metrics.pending[there.name] == 0)
    assert elsewhere.requests == []
    (record,) = caplog.records
    assert f"HTTP {status}, look at its url and credentials" in record.getMessage()


def test_an_answer_of_ten_megabytes_is_not_read(alertmanager, sender):
    there = alertmanager(large)
    made, metrics = sender(there)
    made.fire([finding()], {})
    eventually(lambda: metrics.attempts == [(there.name, True)])


def test_an_alertmanager_that_is_back_hears_before_what_it_knew_expires(tmp_path):
    backoff = delivery.backoff(cap=60.0)
    waits = [backoff.next() for _ in range(400)]
    assert max(waits) <= 60
    assert delivery.backoff(cap=1.0).next() <= 1


def test_one_line_tells_that_it_fails_and_one_that_it_works_again(alertmanager, sender, caplog):
    caplog.set_level(logging.INFO)
    there = alertmanager(500, 500, 500, 200)
    made, metrics = sender(there)
    made.fire([finding()], {})
    eventually(lambda: (there.name, True) in metrics.attempts)
    made.close(SECONDS)
    assert [r.getMessage().split()[:2] for r in caplog.records] == [
        ["event=alertmanager-failing", f"target={there.name}"],
        ["event=alertmanager-delivering", f"target={there.name}"],
    ]


def test_a_fault_of_our_own_silences_nobody(alertmanager, sender, monkeypatch, caplog):
    there = alertmanager()
    made, metrics = sender(there)
    real, faults = delivery.judge, iter([ZeroDivisionError])

    def judge(status):
        if fault := next(faults, None):
            raise fault
        return real(status)

    monkeypatch.setattr(delivery, "judge", judge)
    made.fire([finding()], {})
    there.wait(2)
    eventually(lambda: metrics.attempts == [(there.name, False), (there.name, True)])


def test_close_ends_an_attempt_that_is_under_way_and_no_alert(alertmanager, sender):
    there = alertmanager(200, hang)
    made, _ = sender(there, limits=Limits(30.0, 30.0, 30.0))
    made.fire([finding()], {})
    there.wait(1)
    made.fire([finding(), finding("rate-low")], {})
    there.wait(2)
    threads = [t for t in threading.enumerate() if t.name.startswith("ibmon-am:")]
    assert threads
    made.close(10.0)
    assert not any(t.is_alive() for t in threads)
    assert there.names() == ["IbmonPortDown"]


# --------------------------------------------------------------------------------------------------------- restarts


def test_the_next_process_ends_what_an_earlier_one_left_at_every_alertmanager(alertmanager, sender):
    one, other = alertmanager(), alertmanager()
    first, _ = sender(one, other)
    first.fire([finding(), finding("rate-low")], RAILS)
    for there in (one, other):
        there.wait(1)
    first.close()
    again, metrics = sender(one, other)
    again.fire([finding("rate-low")], {})
    for there in (one, other):
        there.wait(2)
        assert there.names() == ["IbmonRateLow"]
        assert there.firing()[0]["rail"] == "3"
    eventually(lambda: set(metrics.pending.values()) == {0})


def test_a_restart_ends_nothing_that_goes_on(alertmanager, sender):
    there = alertmanager()
    for count in range(1, 4):
        made, _ = sender(there)
        made.fire([finding()], RAILS if count == 1 else {})
        there.wait(count)
        made.close()
    assert there.ends == []
    assert len(there.held) == 1


# ------------------------------------------------------------------------------------------------------ credentials


def test_a_password_is_sent_and_a_new_one_used_at_the_next_attempt(alertmanager, sender, tmp_path):
    there = alertmanager()
    file = tmp_path / "user"
    file.write_text("ibmon:old\n")
    made, _ = sender(there, basic_auth_file=str(file))
    made.fire([finding()], {})
    there.wait(1)
    file.write_text("ibmon:new\n")
    made.fire([], {})
    sent = [r.headers["Authorization"].removeprefix("Basic ") for r in there.wait(2)]
    assert [base64.b64decode(s) for s in sent] == [b"ibmon:old", b"ibmon:new"]


def test_a_token_is_read_again_after_it_was_refused(alertmanager, sender, tmp_path):
    file = tmp_path / "token"
    file.write_text("stale")

    def refuse(server, handler):
        file.write_text("fresh")
        says(401, "it has expired")(server, handler)

    there = alertmanager(refuse, 200)
    made, _ = sender(there, bearer_token_file=str(file), resend_interval=0.3)
    made.fire([finding()], {})
    assert [r.headers["Authorization"] for r in there.wait(2)[:2]] == ["Bearer stale", "Bearer fresh"]


def test_without_usable_credentials_nothing_is_sent_until_there_are_some(alertmanager, sender, tmp_path, caplog):
    there = alertmanager()
    file = tmp_path / "token"
    made, metrics = sender(there, bearer_token_file=str(file))
    made.fire([finding()], {})
    eventually(lambda: metrics.attempts[:2] == [(there.name, False)] * 2)
    assert there.requests == []
    assert f"{file} cannot be read" in caplog.text
    file.write_text("here")
    there.wait(1)


def test_no_credential_is_in_a_log_line_or_a_metric(alertmanager, sender, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "token"
    file.write_text("T0KEN")
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    dead = f"http://127.0.0.1:{closed.getsockname()[1]}/T0KEN"
    theres = [alertmanager(s) for s in (hang, cut, garbage, 500, 302, 401)]
    made, metrics = sender(*theres, dead, bearer_token_file=str(file), resend_interval=0.2, limits=FAST)
    made.fire([finding()], {})
    eventually(lambda: len({target for target, _ in metrics.attempts}) == 7)
    file.write_bytes(b"T0K\x02EN")
    eventually(lambda: len(metrics.attempts) > 21)
    made.close()
    closed.close()
    assert caplog.records
    text = caplog.text + repr(metrics.attempts)
    assert "T0K" not in text
    assert base64.b64encode(b"T0KEN").decode() not in text
    assert "connection refused" in text


# -------------------------------------------------------------------------------------------------------------- TLS


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, "site")


def test_an_authority_of_the_site_is_trusted_and_the_systems_are_not(alertmanager, sender, authority):
    there = alertmanager(tls=authority.server())
    made, _ = sender(there, ca=str(authority.ca))
    made.fire([finding()], {})
    eventually(lambda: there.names() == ["IbmonPortDown"])


def test_a_certificate_of_somebody_else_gets_nothing_until_the_right_authority_is_named(
    alertmanager, sender, authority, tmp_path, caplog
):
    there = alertmanager(tls=authority.server())
    named = tmp_path / "ca.pem"
    named.write_bytes(Authority(tmp_path, "other").ca.read_bytes())
    made, metrics = sender(there, ca=str(named))
    made.fire([finding()], {})
    eventually(lambda: metrics.attempts[:2] == [(there.name, False)] * 2)
    assert there.requests == []
    assert "TLS: CERTIFICATE_VERIFY_FAILED" in caplog.text
    named.write_bytes(authority.ca.read_bytes())
    eventually(lambda: there.names() == ["IbmonPortDown"])


def test_who_asks_for_a_certificate_of_ours_gets_it(alertmanager, sender, authority, tmp_path, caplog):
    there = alertmanager(tls=authority.server(clients=True))
    made, metrics = sender(there, ca=str(authority.ca))
    made.fire([finding()], {})
    eventually(lambda: (there.name, False) in metrics.attempts)
    made.close()
    made, _ = sender(there, ca=str(authority.ca), client_cert=str(authority.sign("ibmon")))
    made.fire([finding()], {})
    eventually(lambda: there.names() == ["IbmonPortDown"])
