"""Commands that are given something else than they can show: one line that says so, whoever wrote it."""

import io
import json
import time

import pytest
from answering_server import answering
from exporter_snapshots import device_view, port_view, snapshot

from ibmon.cli import main, shapes, verdictfile
from ibmon.exporter.status import status_document
from ibmon.model import Finding, Intent, Level, Ownership, Severity
from ibmon.snapshot import DrainView

EVENT = {"seq": 1, "at": 1.5, "level": "info", "event": "start", "fields": {}}


def document(**changes):
    """What a daemon says of a node that it drained, as JSON has it."""
    found = status_document(
        snapshot(
            [device_view("mlx5_0", {(1, Level.COUNTERS, "port_rcv_data"): 7})],
            [port_view("mlx5_0", present=True, expected=True)],
            findings=(Finding("port-down", "mlx5_0", 1, "", Severity.CRITICAL, 1.0, "DOWN", 60.0, "DOWN"),),
            drain=DrainView(Intent(drain=True, id="7f3a9c"), Ownership("7f3a9c", "ibmon: x", asked=1.0, held=True)),
        )
    )
    fresh = {"boot_id": verdictfile.boot_id(), "monotonic": time.monotonic()}
    return {**json.loads(json.dumps(found)), **fresh, **changes}


def test_what_a_daemon_says_has_the_shape():
    shapes.fit(document(), shapes.Status)


@pytest.fixture
def config(tmp_path, monkeypatch):
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    monkeypatch.setattr("ibmon.cli.common.SYSFS", tmp_path / "sys")
    file = tmp_path / "c.toml"
    file.write_text(f'[state]\nruntime_directory = "{tmp_path}"\n')
    return file


@pytest.fixture
def server():
    with answering() as one:
        yield one


ODD = [
    {"node": None},
    {"wall": 1e300},
    {"ports": None},
    {"ports": [{}]},
    {"devices": [{"device": 1}]},
    {"findings": [None]},
    {"drain": 7},
    {"drain": {**document()["drain"], "owned": None}},
    {"maintenance": {"windows": [{"ports": []}]}},
]


@pytest.mark.parametrize(
    "words", [("inventory", "show"), ("inventory", "export"), ("maintenance", "show")], ids=" ".join
)
@pytest.mark.parametrize("changes", ODD)
def test_a_verdict_that_is_not_whole_is_told_by_who_needs_it(capsys, config, words, changes):
    (config.parent / "verdict.json").write_text(json.dumps(document(**changes)))
    assert main([*words, "--config", str(config)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "verdict.json holds no whole status document: " in err


@pytest.mark.parametrize("changes", [*ODD, {"fitness": None}])
def test_status_looks_itself_where_the_verdict_is_not_whole(capsys, config, changes):
    (config.parent / "verdict.json").write_text(json.dumps(document(**changes)))
    assert main(["status", "--config", str(config)]) == 0
    out, err = capsys.readouterr()
    assert "one look, without history" in out
    assert "no whole status document" in err


DEEP = "[" * 100_000

CALLS = {
    "status": [{"v": 1, "ports": []}, document(fitness=None), DEEP],
    "events": [
        {"events": [{**EVENT, "at": "x"}], "next": 1},
        {"events": [{**EVENT, "at": 1e300}], "next": 1},
        {"events": [{**EVENT, "fields": []}], "next": 1},
        {"events": [EVENT], "next": None},
        DEEP,
    ],
    "controller status": [{}, [], {"nodes": {}}, DEEP],
    "controller nodes": [{"nodes": []}, [{}], [None], DEEP],
    "controller audit": [{"rows": []}, [None], [{"at": "x"}], DEEP],
    "controller stop --reason x": [{}, {"text": 1, "nodes": []}, {"text": "x"}, DEEP],
    "release --all": [{}, {"text": "x", "nodes": None}, DEEP],
}


@pytest.mark.parametrize(("call", "answer"), [(call, answer) for call, answers in CALLS.items() for answer in answers])
def test_an_answer_of_another_shape_is_told(capsys, config, server, call, answer):
    server.answer = 200, answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
    option = "--url" if call in {"status", "events"} else "--controller"
    assert main([*call.split(), option, server.url, "--config", str(config)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "is that a" in err or "no answer of a controller" in err


@pytest.mark.parametrize("letters", ["ascii", "latin-1"])
def test_letters_that_an_output_does_not_have_are_replaced(config, monkeypatch, letters):
    (config.parent / "verdict.json").write_text(json.dumps(document(node="Kn\u00f6ten", why="\u2192 x \ud800")))
    out = io.TextIOWrapper(io.BytesIO(), encoding=letters)
    monkeypatch.setattr("sys.stdout", out)
    assert main(["status", "--config", str(config)]) == 0
    out.flush()
    assert b"ten is fit: ? x ?" in out.buffer.getvalue()


@pytest.mark.parametrize("columns", ["0", ""])
def test_a_terminal_that_tells_no_width_has_the_usual_one(capsys, config, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    (config.parent / "verdict.json").write_text(json.dumps(document()))
    assert main(["status", "--config", str(config)]) == 0
    assert "mlx5_0/1" in capsys.readouterr()[0]
