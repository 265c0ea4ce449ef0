"""What an alert says, what is remembered of it, and who we say that we are: the parts that need no Alertmanager."""

from __future__ import annotations

import base64
import json
import ssl
import threading

import pytest

from ibmon.alert import delivery
from ibmon.alert.access import Access, AccessError
from ibmon.alert.alertrecord import FILE_NAME, AlertRecord, Row
from ibmon.alert.alerts import Told, alert_name, encode, from_finding, trial_alert
from ibmon.alert.board import Board
from ibmon.health.rules import RULES
from ibmon.model import Finding, PortId, Severity

AT = 1893492000.25  # 2030-01-01T10:00:00.250Z
RAILS = {PortId("mlx5_3", 1): 3}


def finding(**more) -> Finding:
    values = {
        "rule": "port-down",
        "device": "mlx5_3",
        "port": 1,
        "counter": "",
        "severity": Severity.CRITICAL,
        "onset": AT - 62,
        "observed": "DOWN/Polling",
        "limit": 60.0,
        "text": "DOWN/Polling 62s>60s",
    }
    return Finding(**(values | more))


def alert(rails=RAILS, **more):
    return from_finding(finding(**more), "gpu-17", rails)


# ------------------------------------------------------------------------------------------------------- what it says


def test_an_alert_names_node_device_port_and_rail_and_says_what_was_seen_and_what_may_be():
    (told,) = json.loads(encode([Told(alert(), AT + 240)], source="http://gpu-17:19315/", runbook_url="https://w/rb/"))
    assert told == {
        "labels": {
            "alertname": "IbmonPortDown",
            "rule": "port-down",
            "node": "gpu-17",
            "severity": "critical",
            "device": "mlx5_3",
            "port": "1",
            "rail": "3",
        },
        "annotations": {
            "summary": "gpu-17: port-down mlx5_3/1 DOWN/Polling 62s>60s",
            "description": "An expected port is not ACTIVE and its link is not up. "
            "`ibmon explain port-down` tells more.",
            "observed": "DOWN/Polling",
            "limit": "60",
            "runbook_url": "https://w/rb/port-down.md",
        },
        "startsAt": "2030-01-01T09:58:58.250Z",
        "endsAt": "2030-01-01T10:04:00.250Z",
        "generatorURL": "http://gpu-17:19315/",
    }


def test_what_a_finding_has_not_is_neither_a_label_nor_an_annotation():
    made = alert(device="", port=0, observed=None, limit=None, text="", rule="monitor-blind")
    assert set(made.labels) == {"alertname", "rule", "node", "severity"}
    assert set(made.annotations) == {"summary", "description"}
    (told,) = json.loads(encode([Told(made, AT)]))
    assert "generatorURL" not in told
    assert "runbook_url" not in told["annotations"]


def test_two_counters_of_a_port_are_two_alerts():
    assert len({alert(counter=c).identity for c in ("symbol_error", "port_rcv_errors", "")}) == 3


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_every_rule_has_a_name_that_needs_no_quotes(rule):
    name = alert_name(rule)
    assert name.startswith("Ibmon")
    assert name.isalnum()
    assert len({alert_name(r.id) for r in RULES}) == len(RULES)


@pytest.mark.parametrize(
    ("value", "text"), [(400.0, "400"), (0.25, "0.25"), (1.5e-12, "1.5e-12"), (10**18 + 0.0, "1e+18"), (0, "0")]
)
def test_numbers_are_written_as_people_write_them(value, text):
    assert alert(observed=value).annotations["observed"] == text


@pytest.mark.parametrize("ends", [AT - 62, AT - 100, AT])
def test_no_alert_ends_before_it_starts_whatever_the_clock_did(ends):
    (told,) = json.loads(encode([Told(alert(), ends)]))
    assert told["startsAt"] < told["endsAt"]


def test_a_trial_alert_is_no_rule_and_links_to_no_runbook():
    (told,) = json.loads(encode([Told(trial_alert("n", AT), AT + 60)], runbook_url="https://w"))
    assert told["labels"] == {"alertname": "IbmonTest", "rule": "test", "node": "n", "severity": "info"}
    assert "runbook_url" not in told["annotations"]


def test_an_alertmanager_has_never_the_name_of_a_webhook():
    urls = ["http://am:9093", "https://am:9093/prefix"]
    assert delivery.alertmanager_names(urls) == ("am:am:9093", "am:am:9093#2")


# ----------------------------------------------------------------------------------------------------------- the board


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def board(tmp_path, clock):
    return lambda node="gpu-17": Board(AlertRecord(tmp_path, node), 255.0, wall=lambda: AT + clock.now, monotonic=clock)


def shown(board):
    return {(e.alert.labels["alertname"], e.alert.labels["severity"]): e.ended for e in board.batch().entries}


def test_nothing_is_told_before_somebody_said_what_fires(board):
    assert board().batch() is None


def test_what_leaves_the_set_has_ended_then_and_is_told_for_as_long_as_a_promise_may_hold(board, clock):
    made = board()
    made.show([alert(), alert(rule="rate-low")])
    clock.now = 150.0
    made.show([alert(rule="rate-low")])
    clock.now = 160.0
    made.show([alert(rule="rate-low")])
    assert shown(made) == {("IbmonPortDown", "critical"): AT + 150, ("IbmonRateLow", "critical"): None}
    clock.now = 404.0
    assert len(shown(made)) == 2
    clock.now = 405.0
    assert shown(made) == {("IbmonRateLow", "critical"): None}


def test_another_severity_ends_the_alert_of_the_one_before(board):
    made = board()
    made.show([alert(severity=Severity.WARNING)])
    made.show([alert()])
    assert shown(made) == {("IbmonPortDown", "warning"): AT + 100, ("IbmonPortDown", "critical"): None}


def test_what_has_not_changed_is_no_news(board):
    made = board()
    made.show([alert()])
    first = made.batch()
    made.show([alert(), alert(rule="rate-low")])
    second = made.batch()
    assert [e.version <= first.version for e in second.entries] == [True, False]


def test_an_alert_that_comes_again_is_firing_and_news(board):
    made = board()
    made.show([alert()])
    made.show([])
    told = made.batch().version
    made.show([alert()])
    ((_, version, ended, _),) = made.batch().entries
    assert ended is None
    assert version > told


def test_a_rail_that_is_known_later_does_not_make_it_another_alert(board):
    made = board()
    made.show([alert()])
    made.show([alert(rails={})])
    ((again, _, ended, _),) = made.batch().entries
    assert (again.labels["rail"], ended) == ("3", None)
    made.show([])
    made.show([alert(rails={PortId("mlx5_3", 1): 5})])
    assert made.batch().entries[0].alert.labels["rail"] == "5"


def test_the_next_process_ends_what_an_earlier_one_left_and_goes_on_with_what_still_fires(board, clock):
    first = board()
    first.show([alert(), alert(rule="rate-low")])
    first.save()
    clock.now = 500.0
    again = board()
    assert again.batch() is None
    again.show([alert(rails={})])
    assert shown(again) == {("IbmonPortDown", "critical"): None, ("IbmonRateLow", "critical"): AT + 500}
    assert again.batch().entries[0].alert.labels["rail"] == "3"
    assert {e.alert.annotations["summary"] for e in again.batch().entries} >= {
        "gpu-17: rate-low mlx5_3/1 DOWN/Polling 62s>60s"
    }
    assert all(e.version > 0 for e in again.batch().entries), "all of it is news to every Alertmanager"


def test_an_end_that_was_not_told_is_told_by_the_next_process_with_its_own_time_and_then_forgotten(board, clock):
    first = board()
    first.show([alert()])
    first.show([])
    first.save()
    clock.now = 110.0
    again = board()
    again.show([])
    assert shown(again) == {("IbmonPortDown", "critical"): AT + 100}
    clock.now = 110.0 + 255.0
    assert shown(again) == {}
    again.save()
    later = board()
    later.show([])
    assert shown(later) == {}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"v":1}', '{"v":2,"node":"gpu-17","alerts":[]}', '{"v":1,"node":"other","alerts":[]}', "\xff"],
)
def test_a_record_that_cannot_be_used_is_as_none(tmp_path, text):
    (tmp_path / FILE_NAME).write_bytes(text.encode("latin-1"))
    assert AlertRecord(tmp_path, "gpu-17").load() == ()


def test_a_record_is_of_its_node_only(tmp_path):
    record = AlertRecord(tmp_path, "gpu-17")
    record.save([Row(alert(), AT)])
    assert record.load() == (Row(alert(), AT),)
    assert AlertRecord(tmp_path, "gpu-18").load() == ()


def test_a_record_that_cannot_be_written_stops_nothing_is_told_once_and_is_written_when_it_can(tmp_path, caplog, clock):
    place = tmp_path / "later"
    made = Board(AlertRecord(place, "n"), 1.0, monotonic=clock)
    for _ in range(3):
        made.show([alert()])
        made.save()
    assert len(made.batch().entries) == 1
    assert len(caplog.records) == 1
    assert "No such file" in caplog.text
    place.mkdir()
    made.save()
    assert len(AlertRecord(place, "n").load()) == 1
    assert [p.name for p in place.iterdir()] == [FILE_NAME]


def test_showing_waits_for_no_disk(board, monkeypatch):
    made = board()
    made.show([alert()])
    hanging, released = threading.Event(), threading.Event()
    real = AlertRecord.save

    def save(self, rows):
        hanging.set()
        assert released.wait(10)
        real(self, rows)

    monkeypatch.setattr(AlertRecord, "save", save)
    writer = threading.Thread(target=made.save)
    writer.start()
    try:
        assert hanging.wait(10)
        made.show([])  # would wait for ever
    finally:
        released.set()
        writer.join()
    assert shown(made)["IbmonPortDown", "critical"] is not None


# --------------------------------------------------------------------------------------------------------- who we are


def test_credentials_are_read_from_their_file_each_time(tmp_path):
    file = tmp_path / "token"
    file.write_text("# of May\nfirst\n")
    bearer = Access(bearer_token_file=str(file))
    assert bearer.headers() == {"Authorization": "Bearer first"}
    file.write_text("second")
    assert bearer.headers() == {"Authorization": "Bearer second"}
    file.write_text("ibmon:pass:wörd\n")
    header = Access(basic_auth_file=str(file)).headers()["Authorization"]
    assert base64.b64decode(header.removeprefix("Basic ")).decode() == "ibmon:pass:wörd"
    assert Access().headers() == {}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"\n# only this\n", "is empty"),
        (b"\xff\xfeS3CRET", "no UTF-8"),
        (b"S3C\x01RET", "no header may have"),
        (None, "cannot be read: No such file"),
    ],
)
@pytest.mark.parametrize("key", ["basic_auth_file", "bearer_token_file"])
def test_a_file_of_credentials_that_cannot_be_used_is_named_and_not_shown(tmp_path, content, why, key):
    file = tmp_path / "credentials"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(AccessError, match=why) as caught:
        Access(**{key: str(file)}).headers()
    assert str(file) in str(caught.value)
    assert "S3C" not in str(caught.value)


@pytest.mark.parametrize("token", ["S3C\N{EURO SIGN}RET", "S3Cü"])
def test_a_token_that_no_header_takes_is_named_and_not_shown(tmp_path, token):
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(AccessError, match="no header may have") as caught:
        Access(bearer_token_file=str(file)).headers()
    assert token not in str(caught.value)


def test_a_user_without_a_password_is_told(tmp_path):
    (tmp_path / "user").write_text("S3CRET")
    with pytest.raises(AccessError, match="no user:password line") as caught:
        Access(basic_auth_file=str(tmp_path / "user")).headers()
    assert "S3CRET" not in str(caught.value)


@pytest.mark.parametrize("key", ["ca", "client_cert"])
@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_a_certificate_that_cannot_be_used_is_named(tmp_path, key, content):
    file = tmp_path / "x.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(AccessError, match=str(file)):
        Access(**{key: str(file)}).context()


def test_without_a_ca_the_system_is_trusted_and_names_are_checked():
    context = Access().context()
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
