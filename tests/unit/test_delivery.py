"""What an answer means, how long to wait, and how a message is signed."""

from __future__ import annotations

import base64
import datetime as dt
from email.utils import formatdate

import pytest
from standardwebhooks import Webhook
from webhook_bodies import OTHER, SECRET

from ibmon.alert import delivery
from ibmon.alert.delivery import Verdict
from ibmon.alert.signature import SecretError, SecretFile, parse_secrets, sign
from ibmon.backoff import Backoff


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        *((s, Verdict.DELIVERED) for s in (200, 201, 202, 204, 299)),
        *((s, Verdict.LATER) for s in (408, 425, 429, 502, 503, 504)),
        *((s, Verdict.REFUSED_NOW) for s in (100, 500, 501, 505, 599)),
        *((s, Verdict.REFUSED) for s in (300, 301, 304, 400, 401, 404, 410, 422)),
    ],
)
def test_what_a_status_means(status, verdict):
    assert delivery.judge(status) is verdict


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 0.0),
        ("", 0.0),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("-5", 0.0),
        ("1.5", 0.0),
        ("soon", 0.0),
        ("999999999999999999999", 3600.0),
        ("86400", 3600.0),
        (formatdate(1893492060, usegmt=True), 60.0),
        (formatdate(1893491000, usegmt=True), 0.0),
        ("Tue, 01 Jan 2030 99:00:00 GMT", 0.0),
        ("²", 0.0),
    ],
)
def test_how_long_a_receiver_asks_to_wait(text, seconds):
    assert delivery.retry_after(text, 1893492000.0) == seconds


def test_six_hours_of_failures_are_at_most_a_hundred_attempts_and_five_minutes_apart_at_most():
    for _ in range(20):
        waits, backoff = [], delivery.backoff()
        while sum(waits) < 6 * 3600:
            waits.append(backoff.next())
        assert len(waits) <= 100
        assert max(waits) <= 300
        assert waits[0] <= 2


def test_backoff_doubles_to_its_cap_with_jitter_that_only_shortens_and_starts_anew():
    plain = Backoff(1.0, 10.0, jitter=0.0)
    assert [plain.next() for _ in range(6)] == [1, 2, 4, 8, 10, 10]
    plain.reset()
    assert plain.next() == 1
    spread = [Backoff(8.0, 8.0, seed=s, jitter=0.5).next() for s in range(50)]
    assert all(4 <= wait <= 8 for wait in spread)
    assert len(set(spread)) > 10
    assert Backoff(8.0, 8.0, seed=1).next() == Backoff(8.0, 8.0, seed=1).next()
    assert Backoff(1.0, 10.0).failures == 0
    for _ in range(5000):
        assert plain.next() <= 10
    for wrong in ({"base": 0.0, "cap": 1.0}, {"base": 2.0, "cap": 1.0}, {"base": 1.0, "cap": 1.0, "jitter": 1.0}):
        with pytest.raises(ValueError, match="backoff needs"):
            Backoff(**wrong)


def test_receivers_are_called_by_their_host_and_never_by_their_path():
    urls = [
        "https://Hooks.example.org/services/SECRET",
        "http://a:8080",
        "https://hooks.example.org/x",
        "http://[::1]:1/",
    ]
    assert delivery.target_names(urls) == ("hooks.example.org", "a:8080", "hooks.example.org#2", "[::1]:1")


@pytest.mark.parametrize("url", ["", "hooks.example.org/x", "ftp://h/x", "https:///x", "https://u:T0KEN@h/x"])
def test_a_url_that_cannot_be_a_receiver_is_refused_without_printing_it(url):
    with pytest.raises(ValueError, match="webhook 2") as caught:
        delivery.target_names(["http://fine", url])
    assert "T0KEN" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        ("whsec_not base64!", "line 1: not a secret"),
        ("whsec_" + base64.b64encode(b"short").decode(), "24 to 64 bytes, not 5"),
        (SECRET + "\nwhsec_%", "line 2: not a secret"),
        ("ü", "not a secret"),
    ],
)
def test_a_secret_that_cannot_be_used_is_told_without_showing_it(text, why):
    with pytest.raises(SecretError, match=why) as caught:
        parse_secrets(text, "/etc/key")
    assert str(caught.value).startswith("/etc/key")
    assert SECRET[6:] not in str(caught.value)
    assert "base64!" not in str(caught.value)


def test_secrets_are_read_with_and_without_their_prefix():
    assert parse_secrets(f"{SECRET}\n\n{SECRET[6:]}  \n", "f") == (b"0123456789abcdef0123456789abcdef",) * 2


def test_the_signature_is_that_of_the_standards_own_library():
    body, now = b'{"a":1}', dt.datetime(2030, 1, 1, tzinfo=dt.timezone.utc)
    ours = sign(parse_secrets(SECRET, "f"), "msg_1", int(now.timestamp()), body)
    assert ours == Webhook(SECRET).sign("msg_1", now, body.decode())


def test_a_secret_file_is_read_again_only_when_it_changed(tmp_path, monkeypatch):
    path = tmp_path / "key"
    path.write_text(SECRET)
    file = SecretFile(str(path))
    first = file.secrets()
    assert file.secrets() is first
    path.write_text(f"{SECRET}\n{OTHER}")
    assert len(file.secrets()) == 2
    path.write_text("")
    with pytest.raises(SecretError, match="is empty"):
        file.secrets()
    path.write_text(SECRET)
    assert file.secrets() == first
    path.unlink()
    with pytest.raises(SecretError, match="cannot be read: No such file"):
        file.secrets()
