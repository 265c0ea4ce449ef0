"""What each path answers, health and readiness."""

from __future__ import annotations

import gzip
import json

import pytest
from exporter_snapshots import AT, READ, device_view, port_values, snapshot, typical

from ibmon.exporter.render import Renderer
from ibmon.exporter.selfmetrics import SelfMetrics
from ibmon.exporter.site import TURN_LIMIT, Site
from ibmon.model import Level


class World:
    """A site whose snapshot, heartbeat and clock a test moves."""

    def __init__(self, shot=None, turned=AT.monotonic, now=AT.monotonic):
        self.shot, self.turned, self.now = shot, turned, now
        self.site = Site(lambda: self.shot, Renderer(), SelfMetrics(), lambda: self.turned, lambda: self.now)

    def get(self, path, accept=None, encoding=None):
        return self.site.respond(path, accept, encoding)


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/../etc/passwd", "", "*", "/api/v1/status/x"])
def test_other_paths_are_not_found(path):
    answer = World(snapshot()).get(path)
    assert answer.status == 404
    assert b"/metrics" in answer.body


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "text/plain; version=0.0.4"),
        ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0"),
    ],
)
def test_metrics_are_negotiated_and_packed_where_asked(accept, kind):
    world = World(typical())
    plain, packed = world.get("/metrics", accept), world.get("/metrics", accept, "gzip")
    assert plain.content_type.startswith(kind)
    assert ("Content-Encoding", "gzip") in packed.headers
    assert ("Content-Encoding", "gzip") not in plain.headers
    assert ("Vary", "Accept, Accept-Encoding") in plain.headers
    assert gzip.decompress(packed.body) == plain.body


def test_status_is_the_document():
    answer = World(typical()).get("/api/v1/status")
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert json.loads(answer.body)["node"] == "node1"


def test_before_the_first_snapshot_metrics_and_page_answer_and_status_does_not():
    world = World(None)
    assert world.get("/metrics").status == world.get("/").status == 200
    assert world.get("/api/v1/status").status == 503


@pytest.mark.parametrize(
    ("turned", "now", "status"),
    [
        (None, 1000.0, 503),
        (1000.0, 1000.0, 200),
        (1000.0, 1000.0 + TURN_LIMIT, 200),
        (1000.0, 1000.1 + TURN_LIMIT, 503),
    ],
)
def test_healthy_means_that_the_loop_turns(turned, now, status):
    answer = World(snapshot(), turned, now).get("/healthz")
    assert answer.status == status
    assert answer.body.decode().strip() == "ok" or status == 503


UNREAD = {(1, Level.ATTR, "state"): None}


@pytest.mark.parametrize(
    ("shot", "status"),
    [
        (None, 503),
        (snapshot(up=False), 503),
        (snapshot(up=False, listing_errno=13), 200),
        (snapshot(), 200),
        (snapshot([device_view("a", UNREAD, sampled=None)]), 503),
        (snapshot([device_view("a", UNREAD, sampled=None, stalled=True)]), 200),
        (snapshot([device_view("a", UNREAD, sampled=READ)]), 200),
        (snapshot([device_view("a", port_values()), device_view("b", UNREAD, sampled=None)]), 503),
        (snapshot([device_view("a", {}, sampled=None)]), 200),
    ],
    ids=["none", "not-listed", "unreadable", "empty", "unread", "hangs", "failed", "one-of-two", "no-files"],
)
def test_ready_means_that_everything_was_tried_once(shot, status):
    assert World(shot).get("/readyz").status == status


def test_a_device_that_comes_later_does_not_take_readiness_back():
    world = World(snapshot())
    assert world.get("/readyz").status == 200
    world.shot = snapshot([device_view("a", UNREAD, sampled=None)])
    assert world.get("/readyz").status == 200


def test_not_ready_says_what_is_missing():
    assert b"not read yet: a" in World(snapshot([device_view("a", UNREAD, sampled=None)])).get("/readyz").body
