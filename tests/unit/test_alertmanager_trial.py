"""`ibmon test-alert`: every target gets one test, and a person reads what came back."""

from __future__ import annotations

import base64
import json
import socket
import time
from pathlib import Path

import msgspec
import pytest
from alertmanagers import FakeAlertmanager, cut, large, says, seconds
from standardwebhooks import Webhook

from ibmon.alert import message, trial
from ibmon.alert.transport import Limits
from ibmon.cli import main
from ibmon.configfile import loads

SECRET = "whsec_" + base64.b64encode(b"a secret of the loopback, 32 byte").decode()


@pytest.fixture
def target():
    made = []

    def make(*script):
        made.append(FakeAlertmanager(*script))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def called(tmp_path, capsys):
    """Calls the command with a configuration; its exit code, output lines and errors."""

    def call(text, *options):
        file = tmp_path / "ibmon.toml"
        file.write_text(f'[node]\nname = "gpu-17"\n{text}')
        code = main(["--config", str(file), "test-alert", *options])
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return call


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "key"
    file.write_text(SECRET)
    file.chmod(0o600)
    return str(file)


def alertmanager(there, more=""):
    return f'[[alertmanager]]\nurl = "{there.url}"\n{more}'


def webhook(there, secret):
    return f'[[webhook]]\nurl = "{there.url}/hook/T0KEN"\nsecret_file = "{secret}"\n'


def test_every_target_gets_one_test_also_in_observe_mode(target, called, secret):
    one, other, hook = target(), target(), target(204)
    code, lines, _ = called(alertmanager(one) + alertmanager(other) + webhook(hook, secret))
    assert code == 0
    assert [line.split(" after ")[0] for line in lines] == [
        f"{one.name}: ok, HTTP 200",
        f"{other.name}: ok, HTTP 200",
        f"{hook.name.removeprefix('am:')}: ok, HTTP 204",
    ]
    for there in (one, other):
        (request,) = there.requests
        (alert,) = request.alerts
        assert alert["labels"] == {"alertname": "IbmonTest", "rule": "test", "node": "gpu-17", "severity": "info"}
        assert 0 < seconds(alert["endsAt"]) - time.time() <= trial.LASTS
    (request,) = hook.requests
    told = Webhook(SECRET).verify(request.body, request.headers)
    assert told["type"] == "ibmon.test"
    assert told["data"]["node"] == "gpu-17"
    assert isinstance(msgspec.json.decode(request.body, type=message.WebhookMessage), message.TrialMessage)


def test_one_that_does_not_take_it_is_told_with_its_words_and_the_others_are_tried(target, called, secret):
    refusing = target(says(400, '{"error":"start time\nmust be \x1b[31mbefore end time"}' + "x" * 1000))
    gone, fine = target(cut), target(204)
    code, lines, _ = called(alertmanager(refusing) + alertmanager(gone) + webhook(fine, secret))
    assert code == 1
    assert lines[0].startswith(f"{refusing.name}: FAILED, HTTP 400 after ")
    assert ' s: {"error":"start time must be [31mbefore end time"}x' in lines[0]
    assert len(lines[0]) < 500
    assert lines[1].startswith(f"{gone.name}: FAILED, no answer after ")
    assert "broken answer" in lines[1]
    assert ": ok, HTTP 204" in lines[2]
    assert [len(there.requests) for there in (refusing, gone, fine)] == [1, 1, 1], "it was tried again"


def test_programs_get_one_object_a_target(target, called):
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    there = target()
    dead = f'[[alertmanager]]\nurl = "http://127.0.0.1:{closed.getsockname()[1]}"\n'
    code, lines, _ = called(alertmanager(there) + dead, "--json")
    closed.close()
    assert code == 1
    first, second = map(json.loads, lines)
    assert (first["target"], first["delivered"], first["status"], first["words"]) == (there.name, True, 200, "")
    assert (second["delivered"], second["status"], second["words"]) == (False, None, "connection refused")


def test_without_a_target_it_says_so(called):
    code, lines, err = called("")
    assert (code, lines) == (2, [])
    assert err == "ibmon: there is no [[alertmanager]] and no [[webhook]] in the configuration to send a test to\n"


@pytest.mark.parametrize("key", ["basic_auth_file", "bearer_token_file"])
def test_a_file_that_is_not_there_is_what_came_back(target, called, tmp_path, key):
    there = target()
    code, lines, _ = called(alertmanager(there, f'{key} = "{tmp_path}/none"\n'))
    assert code == 1
    assert lines[0].endswith(f"s: {tmp_path}/none cannot be read: No such file or directory")
    assert there.requests == []


def test_no_secret_is_printed(target, called, secret, tmp_path):
    (tmp_path / "token").write_text("B3ARER")
    bad = target(500)
    code, lines, err = called(
        alertmanager(bad, f'bearer_token_file = "{tmp_path}/token"\n') + webhook(target(404), secret)
    )
    assert code == 1
    text = "\n".join(lines) + err
    assert not {word for word in ("B3ARER", "T0KEN", SECRET[6:]) if word in text}
    assert bad.requests[0].headers["Authorization"] == "Bearer B3ARER"


def test_an_answer_of_ten_megabytes_takes_neither_time_nor_space(target):
    there = target(large)
    (outcome,) = trial.attempts(loads(alertmanager(there)).config, "n", Limits(20.0, 20.0, 20.0))
    assert outcome.delivered
    assert outcome.words == ""


def test_the_command_is_in_the_help(capsys):
    assert main(["--help"]) == 0
    assert "test-alert" in capsys.readouterr().out


def test_what_is_sent_stands_in_the_published_schema():
    schema = json.loads((Path(__file__).parents[2] / "docs/webhook.schema.json").read_text())
    assert schema["discriminator"]["mapping"]["ibmon.test"] == "#/$defs/TrialMessage"
