"""Bodies that no honest client sends: each is refused in one line, and no fault of the controller is logged."""

import json

import pytest
from controller_web import ALERT, OPERATE, FleetWorld, Message

DEEP = b'{"a":' * 20_000


@pytest.fixture
def world(tmp_path):
    world = FleetWorld(tmp_path).start()
    yield world
    world.close()


@pytest.mark.parametrize(("path", "token"), [("/v1/report", ""), ("/v1/alerts", ALERT), ("/v1/stop", OPERATE)])
@pytest.mark.parametrize("body", [DEEP, b"\xff\xfe", b'{"v": 1, "node": "\xff"}', b"[]", b'{"v": 1e999}'])
def test_what_is_no_body_is_refused_and_is_no_fault_of_ours(world, caplog, path, token, body):
    headers = {"Authorization": f"Bearer {token}"} if token else Message().headers
    status, _, answer = world.ask("POST", path, body, **headers)
    assert status == 400
    assert len(json.loads(answer)["error"]) < 300
    assert "request-failed" not in caplog.text


@pytest.mark.parametrize("starts", ["0001-01-01T00:00:00", "2024-05-06T07:08:09", "yesterday"])
def test_an_alert_without_a_time_zone_is_refused(world, caplog, starts):
    alert = {"status": "firing", "startsAt": starts, "labels": {"alertname": "A", "node": "n"}, "fingerprint": "f"}
    status, answer = world.json("POST", "/v1/alerts", {"version": "4", "alerts": [alert]}, token=ALERT)
    assert (status, world.desk.alerts) == (400, [])
    assert "startsAt" in answer["error"]
    assert "request-failed" not in caplog.text
