"""What the controller answers at each path, to whom, and when it says that something is not durable."""

from __future__ import annotations

import itertools
import json
import threading
from concurrent.futures import Future

import pytest
from controller_web import ALERT, OPERATE, TOKENS, VIEW, WALL, FleetWorld

from ibmon.controller import api
from ibmon.controller.values import AlertSeen, Ask, Told
from ibmon.model import Mode

VIEWS = ("/api/v1/fleet", "/api/v1/nodes", "/api/v1/nodes/gpu-1", "/api/v1/audit")
ACTS = {
    "/v1/stop": {"reason": "bad optics"},
    "/v1/start": {},
    "/v1/mode": {"mode": "drain", "nodes": ["gpu-1*"]},
    "/v1/maintenance": {"nodes": ["gpu-1"], "seconds": 3600, "reason": "new optics"},
    "/v1/maintenance/end": {"nodes": ["gpu-1"]},
    "/v1/release": {"nodes": ["gpu-1"], "group": "leaf1"},
}
ASKS = {
    "/v1/stop": Ask(action="stop", user="alice", reason="bad optics"),
    "/v1/start": Ask(action="start", user="alice"),
    "/v1/mode": Ask(action="mode", user="alice", mode=Mode.DRAIN, nodes=("gpu-1*",)),
    "/v1/maintenance": Ask(
        action="maintenance-start", user="alice", nodes=("gpu-1",), seconds=3600, reason="new optics"
    ),
    "/v1/maintenance/end": Ask(action="maintenance-stop", user="alice", nodes=("gpu-1",)),
    "/v1/release": Ask(action="release", user="alice", nodes=("gpu-1",), group="leaf1"),
}


def alert(status="firing", **changes):
    """One alert of the example in Prometheus's documentation, with everything that Alertmanager writes."""
    return {
        "status": status,
        "labels": {"alertname": "NodeFabricBroken", "instance": "gpu-3:9100", "node": "gpu-1", "severity": "critical"},
        "annotations": {"summary": "the fabric\nis broken", "description": "more"},
        "startsAt": "2029-11-21T10:00:00.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus:9090/graph?g0.expr=up",
        "fingerprint": "c5e9a8f1b2d34567",
        **changes,
    }


def webhook(*alerts, **changes):
    return {
        "receiver": "ibmon", "status": "firing", "alerts": list(alerts), "groupLabels": {"alertname": "x"},
        "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://alertmanager:9093", "version": "4",
        "groupKey": '{}:{alertname="x"}', "truncatedAlerts": 0, **changes,
    }  # fmt: skip


@pytest.fixture
def world(tmp_path):
    world = FleetWorld(tmp_path).start()
    yield world
    world.close()


@pytest.fixture
def unstarted(tmp_path):
    world = FleetWorld(tmp_path)
    yield world
    world.close()


# -------------------------------------------------------------------------------------------------------------- roles


@pytest.mark.parametrize(
    ("token", "views", "acts", "alerts"),
    [
        (VIEW, 200, 403, 403),
        (OPERATE, 200, 200, 403),
        (ALERT, 403, 403, 200),
        (None, 401, 401, 401),
        ("operate-0123456789abcdeF", 401, 401, 401),
        ("", 401, 401, 401),
    ],
)
def test_each_role_may_do_what_it_is_for_and_nothing_else(world, token, views, acts, alerts):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    assert {world.json("GET", path, **headers)[0] for path in VIEWS} == {views}
    assert {world.json("POST", path, body, **headers)[0] for path, body in ACTS.items()} == {acts}
    assert world.json("POST", "/v1/alerts", webhook(alert()), **headers)[0] == alerts
    assert (len(world.desk.asks), len(world.desk.alerts)) == (len(ACTS) * (acts == 200), alerts == 200)


@pytest.mark.parametrize("header", ["Basic {}", "Token {}", "{}", "bearer  {}", "BEARER {}"])
def test_only_a_bearer_token_counts_however_the_word_is_written(world, header):
    expected = 200 if header.lower().startswith("bearer") else 401

    assert world.json("GET", "/api/v1/fleet", Authorization=header.format(VIEW))[0] == expected


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_probes_and_metrics_need_no_token(world, path):
    assert world.ask("GET", path)[0] == 200


def test_without_tokens_this_machine_may_look_and_nobody_may_act(unstarted):
    unstarted.tokens_file = None
    unstarted.start()

    assert {unstarted.json("GET", path)[0] for path in VIEWS} == {200}
    assert {unstarted.json("POST", path, body, OPERATE)[0] for path, body in ACTS.items()} == {403}
    assert unstarted.json("POST", "/v1/alerts", webhook(alert()), ALERT)[0] == 403
    assert unstarted.desk.asks == unstarted.desk.alerts == []


def test_without_tokens_nobody_may_look_where_others_can_reach_it(unstarted):
    unstarted.tokens_file, unstarted.listen = None, ":0"
    unstarted.start()
    unstarted.server._wanted = unstarted.server._wanted._replace(host="127.0.0.1")

    assert {unstarted.json("GET", path)[0] for path in VIEWS} == {403}


def test_tokens_that_are_tried_are_logged_once_a_minute_and_never_shown(world, caplog):
    for n in range(5):
        world.json("GET", "/api/v1/fleet", token=f"guess-number-{n}-0123456789")
    world.json("POST", "/v1/stop", {}, VIEW)
    world.json("POST", "/v1/stop", {"reason": OPERATE, "x": 1}, OPERATE)

    text = "\n".join(record.getMessage() for record in caplog.records)
    assert text.count("kind=token") == text.count("kind=role") == 1
    for token in ("guess", VIEW, OPERATE):
        assert token not in text
    assert OPERATE not in world.ask("GET", "/metrics")[2].decode()


# ------------------------------------------------------------------------------------------------------------ looking


class Stopwatch:
    """The clock by which the site knows how long it took to look: always so long."""

    def __init__(self, seconds):
        self.perf_counter = itertools.count(step=seconds).__next__


def test_the_fleet_is_shown(world):
    status, fleet = world.json("GET", "/api/v1/fleet", token=VIEW)

    assert status == 200
    assert fleet["stop"] == {"by": "alice", "at": WALL - 60, "reason": "bad optics [day 2]"}
    assert fleet["drains"][0]["reason"] == "ibmon: port-down mlx5_3/1 [id 7f3a9c]"


def test_a_view_is_made_once_a_second_however_many_look(world, monkeypatch):
    monkeypatch.setattr(api, "time", Stopwatch(0.0))
    for _ in range(5):
        world.json("GET", "/api/v1/fleet", token=VIEW)
    assert world.desk.looks == 1
    world.at = world.at._replace(monotonic=world.at.monotonic + api.KEPT)
    world.json("GET", "/api/v1/fleet", token=VIEW)

    assert world.desk.looks == 2


def test_a_view_that_takes_long_to_make_is_kept_so_long_that_making_it_is_a_small_share(world, monkeypatch):
    monkeypatch.setattr(api, "time", Stopwatch(0.1))
    world.json("GET", "/api/v1/fleet", token=VIEW)
    for seconds, looks in ((api.SHARE * 0.1 - 0.01, 1), (0.02, 2)):
        world.at = world.at._replace(monotonic=world.at.monotonic + seconds)
        world.json("GET", "/api/v1/fleet", token=VIEW)
        assert world.desk.looks == looks


def test_a_view_after_a_change_shows_it(world):
    world.json("GET", "/api/v1/fleet", token=VIEW)
    world.json("POST", "/v1/start", {}, OPERATE)
    world.json("GET", "/api/v1/fleet", token=VIEW)

    assert world.desk.looks == 2


def test_nodes_are_shown_as_objects_or_in_short(world):
    assert world.json("GET", "/api/v1/nodes", token=VIEW)[1][1] == {
        "name": "gpu-2", "fitness": "unknown", "group": "", "rails": "", "age": None, "code": "", "missing": True,
    }  # fmt: skip
    assert world.json("GET", "/api/v1/nodes?compact=1", token=VIEW)[1] == {
        "v": 1,
        "rails": [0, 1, 2, 3],
        "nodes": [["gpu-1", "fit", "leaf1", "oooo", 3.1, ""], ["gpu-2", "unknown", "", "", None, ""]],
    }


def test_a_node_is_shown_and_one_that_is_not_there_is_not(world):
    assert world.json("GET", "/api/v1/nodes/gpu%2d1", token=VIEW) == (200, {"name": "gpu-1", "fitness": "fit"})
    assert world.json("GET", "/api/v1/nodes/gpu-9", token=VIEW)[0] == 404


def test_the_audit_log_is_shown_and_read_beside_the_server(world):
    threads = []
    rows = world.audit_rows

    class Rows(list):
        def __getitem__(self, item):
            threads.append(threading.current_thread().name)
            return rows[item]

    world.audit_rows = Rows()

    assert world.json("GET", "/api/v1/audit?limit=1", token=VIEW) == (200, rows)
    assert threads
    assert "ibmon-fleet" not in threads


@pytest.mark.parametrize("limit", ["0", "-1", "x", "10001", "", "9" * 5000, "\u0663"])
def test_a_limit_that_is_none_is_refused(world, limit):
    assert world.json("GET", f"/api/v1/audit?limit={limit or '%20'}".encode().decode("latin-1"), token=VIEW)[0] == 400


def test_ready_is_who_leads(world):
    assert [world.ask("GET", path)[0] for path in ("/healthz", "/readyz")] == [200, 200]
    world.leads = False
    assert [world.ask("GET", path)[0] for path in ("/healthz", "/readyz")] == [200, 503]


def test_the_page_is_served_with_its_tag_and_not_sent_again(unstarted):
    unstarted.pages = {"/": ("text/html", b"<html>", '"abc"', {"Content-Security-Policy": "default-src 'self'"})}.get
    unstarted.start()
    status, headers, body = unstarted.ask("GET", "/")

    assert (status, headers["etag"], body) == (200, '"abc"', b"<html>")
    assert headers["content-security-policy"] == "default-src 'self'"
    for tag in ('"abc"', 'W/"abc"', '"x", "abc"'):
        status, headers, body = unstarted.ask("GET", "/", **{"If-None-Match": tag})
        assert (status, headers["etag"], body) == (304, '"abc"', b"")
    assert unstarted.ask("GET", "/", **{"If-None-Match": '"old"'})[0] == 200
    assert unstarted.ask("POST", "/")[0] == 405


@pytest.mark.parametrize(
    "path", ["/", "/x", "/api/v1/", "/v1/report/", "/api/v1/nodes/", "//metrics", "/../etc/passwd"]
)
def test_there_is_nothing_elsewhere(world, path):
    assert world.json("GET", path, token=VIEW)[0] == 404


@pytest.mark.parametrize("path", ["/metrics", *VIEWS])
def test_what_is_looked_at_cannot_be_posted_to(world, path):
    status, headers, _ = world.ask("POST", path, b"{}")

    assert (status, headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", [*ACTS, "/v1/alerts"])
@pytest.mark.parametrize("method", ["GET", "PUT", "BREW"])
def test_what_acts_is_posted_only(world, path, method):
    status, headers, _ = world.ask(method, path, Authorization=f"Bearer {OPERATE}")

    assert (status, headers["allow"], world.desk.asks) == (405, "POST", [])


# ------------------------------------------------------------------------------------------------------------- acting


@pytest.mark.parametrize("path", ACTS)
def test_what_an_operator_asks_for_reaches_the_desk_and_is_answered_once_it_is_saved(world, path):
    status, told = world.json("POST", path, ACTS[path], OPERATE)

    assert (status, told) == (200, {"done": True, "text": "done", "nodes": ["gpu-1"]})
    assert (world.desk.asks, world.saves) == ([ASKS[path]], 1)


def test_a_person_behind_a_token_is_noted(world):
    world.json("POST", "/v1/start", {}, OPERATE, **{"X-Ibmon-User": "bob@example.org"})

    assert world.desk.asks[0].user == "alice (bob@example.org)"


@pytest.mark.parametrize("name", ["bob\tx", "x" * 65, "b)", ""])
def test_a_person_with_no_proper_name_is_refused(world, name):
    assert world.json("POST", "/v1/start", {}, OPERATE, **{"X-Ibmon-User": name})[0] == 400
    assert world.desk.asks == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/stop", b"garbage"),
        ("/v1/stop", b"[]"),
        ("/v1/stop", b'{"reason": 5}'),
        ("/v1/stop", b'{"reason": "line\\n"}'),
        ("/v1/release", b'{"nodes": ["gpu-1\\n"]}'),
        ("/v1/stop", b'{"reson": "typo"}'),
        ("/v1/stop", json.dumps({"reason": "two\nlines"}).encode()),
        ("/v1/stop", json.dumps({"reason": "x" * 501}).encode()),
        ("/v1/mode", b"{}"),
        ("/v1/mode", b'{"mode": "drain"}'),
        ("/v1/mode", b'{"mode": "drain", "nodes": []}'),
        ("/v1/mode", b'{"nodes": ["a"]}'),
        ("/v1/mode", b'{"mode": "drain", "all": true}'),
        ("/v1/mode", b'{"mode": "rage", "nodes": ["a"]}'),
        ("/v1/mode", b'{"mode": "drain", "nodes": ["a b"]}'),
        ("/v1/mode", b'{"mode": "drain", "nodes": [""]}'),
        ("/v1/maintenance", b'{"nodes": ["a"]}'),
        ("/v1/maintenance", b'{"seconds": 60}'),
        ("/v1/maintenance", b'{"nodes": ["a"], "seconds": 0}'),
        ("/v1/maintenance", b'{"nodes": ["a"], "seconds": 604801}'),
        ("/v1/maintenance/end", b"{}"),
        ("/v1/release", b"{}"),
        ("/v1/release", b'{"dry_run": true}'),
        ("/v1/release", b'{"nodes": ["a"], "seconds": -1}'),
    ],
)
def test_a_body_of_another_form_is_refused_in_one_line(world, path, body):
    status, _, answer = world.ask("POST", path, body, Authorization=f"Bearer {OPERATE}")

    assert status == 400
    assert "\n" not in json.loads(answer)["error"]
    assert (world.desk.asks, world.saves) == ([], 0)


def test_the_controllers_no_is_a_conflict_and_nothing_is_saved(world):
    world.desk.told = Told(done=False, text="there is no such drain")

    assert world.json("POST", "/v1/release", {"all": True}, OPERATE) == (
        409, {"done": False, "text": "there is no such drain", "nodes": []},
    )  # fmt: skip
    assert world.saves == 0


def test_a_dry_run_saves_nothing(world):
    assert world.json("POST", "/v1/release", {"all": True, "dry_run": True}, OPERATE)[0] == 200
    assert (world.desk.asks[0].dry_run, world.saves) == (True, 0)


def raising(error):
    def save():
        raise error

    return save


def failing(error):
    def save():
        future: Future = Future()
        future.set_exception(error)
        return future

    return save


@pytest.mark.parametrize("save", [raising, failing])
@pytest.mark.parametrize("path", [*ACTS, "/v1/alerts"])
def test_what_cannot_be_saved_is_said_not_to_be_durable(world, save, path):
    world.save = save(OSError("No space left\non device"))
    body, token = (webhook(alert()), ALERT) if path == "/v1/alerts" else (ACTS[path], OPERATE)
    status, told = world.json("POST", path, body, token)

    assert status == 503
    assert told["error"].startswith("not saved (No space left on device); ")
    assert "\n" not in told["error"]


def test_saving_that_never_ends_is_told_in_time_and_delays_nobody(world, monkeypatch):
    monkeypatch.setattr(api, "SAVE_PATIENCE", 0.2)
    world.save = Future
    status, told = world.json("POST", "/v1/stop", {}, OPERATE)

    assert (status, told["error"][:35]) == (503, "not saved (no answer within 0.2 s);")


def test_reports_go_on_while_something_is_saved(world):
    future: Future = Future()
    world.save = lambda: future
    with world.connect() as client:
        client.send(b"POST /v1/stop HTTP/1.1\r\nHost: f\r\nAuthorization: Bearer %s\r\n\r\n" % OPERATE.encode())
        while not world.saves:
            assert world.ask("GET", "/healthz")[0] == 200
        future.set_result(None)

        assert client.answer()[0] == 200


@pytest.mark.parametrize("path", [*ACTS, "/v1/alerts"])
def test_who_does_not_lead_does_nothing(world, path):
    world.leads = False
    body, token = (webhook(alert()), ALERT) if path == "/v1/alerts" else (ACTS[path], OPERATE)
    status, headers, answer = world.ask("POST", path, json.dumps(body).encode(), Authorization=f"Bearer {token}")

    assert (status, headers["retry-after"], json.loads(answer)) == (503, "2", {"error": "not the leader"})
    assert (world.desk.asks, world.desk.alerts) == ([], [])


# ------------------------------------------------------------------------------------------------------------- alerts


def test_an_alertmanagers_alerts_reach_the_desk_and_are_saved(world):
    resolved = alert("resolved", fingerprint="ab", annotations={})
    status, told = world.json("POST", "/v1/alerts", webhook(alert(), resolved), ALERT)

    assert status == 200
    assert [item["status"] for item in told["alerts"]] == [200, 200]
    starts = 1889949600.123456
    assert world.desk.alerts == [
        AlertSeen("NodeFabricBroken", "gpu-1", True, "c5e9a8f1b2d34567", pytest.approx(starts), "the fabric is broken"),
        AlertSeen("NodeFabricBroken", "gpu-1", False, "ab", pytest.approx(starts)),
    ]
    assert world.saves == 1


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"node": "gpu-1", "instance": "gpu-2:9100"}, "gpu-1"),
        ({"instance": "gpu-2:9100"}, "gpu-2"),
        ({"instance": "gpu-2"}, "gpu-2"),
        ({"instance": "gpu-2.example.org:19315"}, "gpu-2.example.org"),
        ({"instance": "http://gpu-2:9100/metrics"}, "gpu-2"),
        ({"node": "", "instance": "gpu-2:9100"}, "gpu-2"),
    ],
)
def test_the_node_is_the_label_node_else_the_host_of_instance(world, labels, node):
    world.json("POST", "/v1/alerts", webhook(alert(labels={"alertname": "A", **labels})), ALERT)

    assert [seen.node for seen in world.desk.alerts] == [node]


@pytest.mark.parametrize(
    "wrong",
    [
        alert(labels={"alertname": "A"}),
        alert(labels={"alertname": "A", "instance": "[::1]:9100"}),
        alert(labels={"alertname": "A", "node": "../x"}),
        alert(labels={"alertname": "A", "node": "x" * 300}),
        alert(labels={"node": "gpu-1"}),
        alert(fingerprint=""),
        alert(labels={"alertname": "A\nevent=stop \x1b[2J", "node": ""}),
    ],
)
def test_an_alert_that_names_no_node_is_refused_and_the_others_are_taken(world, wrong, caplog):
    status, told = world.json("POST", "/v1/alerts", webhook(alert(), wrong), ALERT)

    assert (status, [item["status"] for item in told["alerts"]]) == (200, [200, 400])
    assert told["alerts"][1]["error"]
    assert len(world.desk.alerts) == 1
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("event=alert-refused kind=")
    assert line.isprintable()
    assert world.json("POST", "/v1/alerts", webhook(wrong), ALERT)[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        b"[]",
        b"{}",
        json.dumps(webhook(alert(), version="3")).encode(),
        json.dumps(webhook(alert(status="maybe"))).encode(),
        json.dumps(webhook(alert(startsAt="yesterday"))).encode(),
        json.dumps(webhook(alert(labels={"alertname": 5}))).encode(),
    ],
)
def test_what_is_no_webhook_of_an_alertmanager_does_nothing(world, body):
    status, _, answer = world.ask("POST", "/v1/alerts", body, Authorization=f"Bearer {ALERT}")

    assert (status, world.desk.alerts, world.saves) == (400, [], 0)
    assert json.loads(answer)["error"].startswith("this is no webhook of an Alertmanager: ")


def test_alerts_that_were_left_out_are_noted(world, caplog):
    _, told = world.json("POST", "/v1/alerts", webhook(alert(), truncatedAlerts=7), ALERT)

    assert told["left_out"] == 7
    assert "7 alerts were left out" in caplog.text


def test_tokens_may_be_changed_while_it_runs(world):
    world.write_tokens(TOKENS.replace(VIEW, "another-0123456789abcdef"))
    assert world.json("GET", "/api/v1/fleet", token="another-0123456789abcdef")[0] == 200
    assert world.json("GET", "/api/v1/fleet", token=VIEW)[0] == 401
