"""`ibmon status`: whose word it shows, and that it says so."""

import json
import os
import time
from types import SimpleNamespace

import pytest
from answering_server import answering

from ibmon.cli import main
from ibmon.exporter.status import TTL, status_document
from ibmon.model import Intent, Mode, NodeFitness, Now
from ibmon.snapshot import DrainView, Snapshot


@pytest.fixture
def document():
    snapshot = Snapshot(
        sequence=1,
        at=Now(1, 1),
        node="gpu-17",
        boot_id="b",
        mode=Mode.OBSERVE,
        fitness=NodeFitness.FIT,
        up=True,
        listing_errno=None,
        devices=(),
        ports=(),
        devices_expected=0,
        findings=(),
        drain=DrainView(Intent(False)),
    )
    return status_document(snapshot)


@pytest.fixture
def config(tmp_path):
    """A configuration whose runtime directory is an empty one, and a sysfs root without devices."""
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    file = tmp_path / "c.toml"
    file.write_text(f'[state]\nruntime_directory = "{tmp_path}"\n')
    return file


def status(capsys, *arguments):
    code = main(["status", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_it_shows_what_the_daemon_said(capsys, config, document):
    (config.parent / "verdict.json").write_text(json.dumps(document))
    code, out, err = status(capsys, "--config", config)
    assert (code, err) == (0, "")
    assert "gpu-17 is fit" in out
    assert "mode observe" in out
    assert json.loads(status(capsys, "--config", config, "--json")[1]) == document


def test_a_word_that_gets_old_is_doubted(capsys, config, document):
    file = config.parent / "verdict.json"
    file.write_text(json.dumps(document))
    os.utime(file, (time.time() - 30, time.time() - 30))
    _, out, err = status(capsys, "--config", config)
    assert "gpu-17" in out
    assert "ago; does it still run?" in err


@pytest.mark.parametrize(
    ("text", "age", "why"),
    [
        (None, 0, "no daemon runs here"),
        ("{", 0, "cannot be read"),
        ("[]", 0, "this is no status document"),
        ('{"v": 99, "ports": []}', 0, "version 99"),
        ('{"v": 1, "ports": []}', 3 * TTL, "the daemon has said nothing for 180 s"),
    ],
)
def test_without_a_word_of_the_daemon_it_looks_itself_and_says_so(capsys, config, monkeypatch, text, age, why):
    monkeypatch.setattr("ibmon.cli.common.SYSFS", config.parent / "sys")
    now = time.time()
    monkeypatch.setattr("ibmon.cli.status.time", SimpleNamespace(time=lambda: now))
    if text is not None:
        file = config.parent / "verdict.json"
        file.write_text(text)
        os.utime(file, (now - age, now - age))
    code, out, err = status(capsys, "--config", config)
    assert code == 0
    assert why in err
    assert "reading the hardware once" in err
    assert "one look, without history" in out


def test_a_tree_that_is_named_is_looked_at_whatever_a_daemon_says(capsys, config, document):
    (config.parent / "verdict.json").write_text(json.dumps(document))
    code, out, err = status(capsys, "--config", config, "--sysfs", config.parent / "sys")
    assert (code, err) == (0, "")
    assert "gpu-17" not in out


@pytest.fixture
def server():
    with answering() as one:
        yield one


@pytest.mark.parametrize("end", ["", "/", "/api/v1/status"])
def test_another_daemon_is_asked_over_http(capsys, server, document, end):
    server.answer = (200, json.dumps(document).encode())
    code, out, err = status(capsys, "--url", server.url + end)
    assert (code, err, server.paths) == (0, "", ["/api/v1/status"])
    assert "gpu-17 is fit" in out


@pytest.mark.parametrize(
    ("answer", "why"),
    [((404, b""), "answers 404"), ((200, b"<html>"), "is that an ibmon?"), ((200, b"[]"), "is that an ibmon?")],
)
def test_what_is_no_ibmon_is_told(capsys, server, answer, why):
    server.answer = answer
    code, out, err = status(capsys, "--url", server.url)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert why in err


@pytest.mark.parametrize("odd", [{"node": None}, {"ports": [{"device": "mlx5_0"}]}, {"wall": 1e300}, {"drain": []}])
def test_what_another_version_says_otherwise_is_one_line(capsys, config, server, document, odd):
    """Between an upgrade and the restart the command is newer than the daemon."""
    text = json.dumps({key: value for key, value in {**document, **odd}.items() if value is not None})
    server.answer = (200, text.encode())
    (config.parent / "verdict.json").write_text(text)
    code, out, err = status(capsys, "--url", server.url)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "no whole status document" in err
    err = status(capsys, "--config", config)[2]
    assert err.count("\n") == 1
    assert "no whole status document" in err
    assert "reading the hardware once" in err


def test_a_daemon_that_is_not_there_is_told(capsys):
    code, _, err = status(capsys, "--url", "http://127.0.0.1:1")
    assert (code, err) == (1, "ibmon: http://127.0.0.1:1/api/v1/status does not answer: Connection refused\n")
