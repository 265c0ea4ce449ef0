"""A receiver is dead for six hours of virtual time: what waits does not grow, each subject's last word arrives."""

from __future__ import annotations

import itertools
import json

import pytest
from test_webhook import Receiver
from webhook_bodies import FITNESS, finding

from ibmon.alert import webhook
from ibmon.alert.message import rfc3339
from ibmon.alert.webhook import WebhookSender
from ibmon.config import WebhookConfig
from ibmon.store import FILE_NAME, MAX_MESSAGES, Store

HOURS = 6 * 3600
DEVICES = [f"mlx5_{number}" for number in range(12)]
RULES = ("port-down", "rate-low", "symbol-errors", "link-flap", "module-temperature", "pcie-degraded", "gid-missing")
SUBJECTS = len(DEVICES) * len(RULES) + 1
MOST_BYTES = 256 << 10
"""The file: a hundred messages of half a kilobyte, and SQLite's pages around them."""
MOST_LOG = 5 << 20
"""Its log of what changed, which SQLite begins anew after 1000 pages of 4 KiB (wal_autocheckpoint)."""


class Quiet:
    """Counts nothing: what is measured here is the disk."""

    def delivery(self, target, *, arrived):
        pass

    def outbox(self, target, pending):
        pass


@pytest.fixture
def receiver():
    one = Receiver(503)
    yield one
    one.close()


@pytest.fixture
def store(tmp_path):
    one = Store(tmp_path, node="n1", machine="uuid-1")
    yield one
    one.close()


def test_after_six_hours_every_subjects_last_state_arrives_and_the_disk_never_grew(
    receiver, store, tmp_path, monkeypatch
):
    monkeypatch.setattr(webhook._Receiver, "_run", lambda self: None)  # this test is its clock
    clock = [1893456000.0]
    target = WebhookConfig(url=receiver.url, events=("fitness", "finding"))
    sender = WebhookSender(store, [target], node="n1", metrics=Quiet(), wall=lambda: clock[0])
    [thread] = sender._receivers
    last, attempts, try_at = {}, 0, 0.0

    def send(topic, subject, body):
        last[subject] = rfc3339(clock[0])
        sender.send(topic, subject, body)

    for second in range(0, HOURS, 60):
        clock[0] += 60.0
        with store.transaction():
            # Each subject changes every ten minutes, a tenth of them in each minute.
            for number, (device, rule) in enumerate(itertools.product(DEVICES, RULES)):
                if number % 10 == second // 60 % 10:
                    one = finding(device=device, rule=rule, text="DOWN/Polling 62s>60s")
                    send("finding", f"{rule} {device}/1", {"state": "open", "finding": one})
            send("fitness", "n1", FITNESS)
        while try_at <= second + 60 and (waiting := store.outbox.take(thread.target)) is not None:
            try_at = max(try_at, second) + thread._attempt_safely(waiting)
            attempts += 1
        assert (tmp_path / FILE_NAME).stat().st_size < MOST_BYTES
        assert sum(file.stat().st_size for file in tmp_path.glob(f"{FILE_NAME}-*")) < MOST_LOG
    assert SUBJECTS == len(last) <= MAX_MESSAGES
    assert store.outbox.pending(thread.target) == SUBJECTS
    assert store.outbox.dropped == 0
    assert 60 < attempts <= 100

    receiver.script = [200]
    before = len(receiver.requests)
    while (waiting := store.outbox.take(thread.target)) is not None:
        assert thread._attempt_safely(waiting) == 0.0
    arrived = {}
    for *_, body, _ in receiver.requests[before:]:
        told = json.loads(body)
        what = told["data"].get("finding")
        arrived["n1" if what is None else f"{what['rule']} {what['port']}"] = told["timestamp"]
    assert len(receiver.requests) - before == SUBJECTS
    assert arrived == last
    sender.close()
