"""A close is heard in every moment of a thread's life, also between its look whether it was closed and its wait."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from bells import Bell
from delivery_counts import Metrics
from stores import close_all, opened

from ibmon.alert import target
from ibmon.alert.alertmanager import AlertmanagerSender
from ibmon.alert.webhook import WebhookSender
from ibmon.config import AlertmanagerConfig, WebhookConfig
from ibmon.controller import conditions
from ibmon.model import Now
from ibmon.runtime import condition, reporter

SECONDS = 10  # no test waits so long unless it fails
NOBODY = "http://127.0.0.1:9/"
CLOCK = SimpleNamespace(now=lambda: Now(0.0, 0.0))


def alertmanagers(directory):
    config = AlertmanagerConfig(url=NOBODY, resend_interval=60.0)
    (one,) = AlertmanagerSender(directory, [config], node="n", source="", metrics=Metrics())._targets
    return one._thread, one._work, one._stopped


def webhooks(directory):
    sender = WebhookSender(opened(directory), [WebhookConfig(url=NOBODY)], node="n", metrics=Metrics())
    (one,) = sender._receivers
    return one._thread, one._work, one._stopped


def reports(_):
    letters = SimpleNamespace(letter=lambda *_: (None, []))
    way = SimpleNamespace(close=lambda: None)
    one = reporter.Reporter(print, way, letters, CLOCK, node="n", metrics=Metrics())
    one.start()
    return one._thread, one._wake, one._closed


def fleet_conditions(_):
    one = conditions.Conditions(None, None, CLOCK)
    one.start()
    return one._thread, one._changed, one._closed


def own_condition(_):
    gates = SimpleNamespace(closed=lambda: True)
    one = condition.ConditionKeeper(None, lambda: gates, "n", first=0.0)
    return one._thread, one._changed, one._closed


@pytest.mark.parametrize("started", [alertmanagers, webhooks, reports, fleet_conditions, own_condition])
def test_a_close_that_comes_between_two_turns_is_heard(started, tmp_path, monkeypatch):
    for module in (target, reporter, conditions, condition):
        names = SimpleNamespace(**{**vars(threading), "Event": Bell})
        monkeypatch.setattr(module, "threading", names)
    thread, bell, closed = started(tmp_path)
    end = time.monotonic() + SECONDS
    while not bell.settled():
        assert time.monotonic() < end
        time.sleep(0.01)

    def close():
        closed.set()
        bell.set()

    bell.before_clear = close
    bell.set()
    thread.join(SECONDS)
    assert not thread.is_alive()
    close_all()
