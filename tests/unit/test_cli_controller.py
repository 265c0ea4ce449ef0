"""What operators ask of a running controller from the command line, and what comes back to them."""

from __future__ import annotations

import json
import logging

import pytest
from controller_web import MASTER, OPERATE, VIEW, FleetWorld, key_of, secret

from ibmon.cli import main
from ibmon.controller.values import Ask, Told
from ibmon.model import Mode


class Person:
    """Somebody at a shell, with a token in a file and a configuration that names the controller."""

    def __init__(self, world, capsys):
        self.world, self.capsys = world, capsys
        self.token = world.directory / "mine"
        self.token.write_text(f"# of alice\n{OPERATE}\n")
        self.config = world.directory / "ibmon.toml"
        self.configure(f'url = "{world.server.url}"\n')

    def configure(self, controller):
        self.config.write_text(f"[controller]\n{controller}")

    def types(self, *words):
        """Exit code, standard output, standard error."""
        code = main(["--config", str(self.config), *words])
        out, err = self.capsys.readouterr()
        return code, out, err


@pytest.fixture
def person(tmp_path, capsys, monkeypatch):
    world = FleetWorld(tmp_path).start()
    person = Person(world, capsys)
    monkeypatch.setenv("IBMON_TOKEN_FILE", str(person.token))
    monkeypatch.setenv("COLUMNS", "160")
    yield person
    world.close()


ASKS = {
    ("controller", "stop", "--reason", "bad optics"): Ask(action="stop", user="alice", reason="bad optics"),
    ("controller", "start"): Ask(action="start", user="alice"),
    ("controller", "mode", "drain", "--nodes", "gpu-1*,gpu-2"): Ask(
        action="mode", user="alice", mode=Mode.DRAIN, nodes=("gpu-1*", "gpu-2")
    ),
    ("controller", "mode", "--clear", "--nodes", "gpu-1*"): Ask(action="mode", user="alice", nodes=("gpu-1*",)),
    ("controller", "mode", "--clear", "--all"): Ask(action="mode", user="alice", all=True),
    ("controller", "maintenance", "start", "--for", "2h", "--reason", "optics", "--group", "leaf1"): Ask(
        action="maintenance-start", user="alice", seconds=7200, reason="optics", group="leaf1"
    ),
    ("controller", "maintenance", "end", "--nodes", "gpu-1", "--nodes", "gpu-2"): Ask(
        action="maintenance-stop", user="alice", nodes=("gpu-1", "gpu-2")
    ),
    ("controller", "maintenance", "end", "--all"): Ask(action="maintenance-stop", user="alice", all=True),
    ("release", "--node", "gpu-1", "--reason", "repaired"): Ask(
        action="release", user="alice", nodes=("gpu-1",), reason="repaired"
    ),
    ("release", "--rule", "port-down", "--since", "2h"): Ask(
        action="release", user="alice", rule="port-down", seconds=7200
    ),
    ("release", "--all", "--dry-run"): Ask(action="release", user="alice", all=True, dry_run=True),
}


@pytest.mark.parametrize("words", ASKS, ids=" ".join)
def test_what_is_typed_reaches_the_controller_and_its_answer_the_person(person, words):
    person.world.desk.told = Told(done=True, text="so it is", nodes=("gpu-1", "gpu-2"))

    assert person.types(*words) == (0, "so it is\n  gpu-1\n  gpu-2\n", "")
    assert person.world.desk.asks == [ASKS[words]]


def test_programs_get_json(person):
    code, out, _ = person.types("controller", "stop", "--reason", "x", "--json")

    assert (code, json.loads(out)) == (0, {"done": True, "text": "done", "nodes": ["gpu-1"]})


def test_the_controllers_no_is_one_line_and_exit_1(person):
    person.world.desk.told = Told(done=False, text="there is no such drain")
    code, out, err = person.types("release", "--all")

    assert (code, out) == (1, "")
    assert err.startswith("ibmon: there is no such drain (http://127.0.0.1:")
    assert err.count("\n") == 1


def test_what_is_not_durable_is_said_so(person):
    def save():
        raise OSError("No space left on device")

    person.world.save = save
    code, _, err = person.types("controller", "stop", "--reason", "x")

    assert code == 1
    assert "not saved (No space left on device)" in err


def test_the_fleet_is_shown_to_people(person):
    code, out, _ = person.types("controller", "status")

    assert code == 0
    for part in (
        "2 nodes, 1 fit, 1 unknown",
        "1 of 2 have reported, quorum not reached",
        "bad optics [day 2]",
        "batch 100 2 1 5",
        "ibmon: port-down mlx5_3/1 [id 7f3a9c]",
        "fabric event: port-down on 2 nodes of leaf1 rail 3",
        "maintenance of gpu-9*",
    ):
        assert part in " ".join(out.split())
    assert "\x1b" not in out, "what a node wrote does not reach the terminal as it is"


def test_nodes_are_shown_by_pattern_and_fitness(person):
    assert person.types("controller", "nodes")[1].count("\n") == 3
    assert person.types("controller", "nodes", "gpu-2")[1].splitlines()[1].split()[:3] == [
        "gpu-2",
        "unknown,",
        "missing",
    ]
    assert [
        row["name"] for row in json.loads(person.types("controller", "nodes", "--fitness", "fit", "--json")[1])
    ] == ["gpu-1"]
    assert person.types("controller", "nodes", "none*")[1] == "no nodes\n"


def test_the_audit_log_is_shown(person):
    code, out, _ = person.types("controller", "audit", "--limit", "5")

    assert code == 0
    assert out.rstrip().endswith("event=stop level=info user=alice nodes=gpu-1,gpu-2")


def test_a_nodes_key_is_made_from_the_master_key(person):
    person.configure(f'master_key_file = "{person.world.keys_file}"\n')

    assert person.types("controller", "key", "gpu-1") == (0, f"{secret(key_of('gpu-1'))}\n", "")
    assert person.types("controller", "key", "gpu 1")[0] == 2
    person.world.keys_file.write_text("spoilt")
    code, out, err = person.types("controller", "key", "gpu-1")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_the_controller_is_the_one_named_else_the_configured_one_else_that_of_this_host(person):
    url = person.world.server.url
    person.configure('url = "http://127.0.0.1:1"\n')
    assert person.types("controller", "status", "--controller", url, "--json")[0] == 0
    assert person.types("controller", "status")[2] == (
        "ibmon: http://127.0.0.1:1 cannot be reached: connection refused\n"
    )
    person.configure(f'listen = ":{person.world.server.address.port}"\n')
    assert person.types("controller", "status", "--json")[0] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("controller", "mode"), "give a mode, or --clear"),
        (("controller", "mode", "drain"), "name the nodes"),
        (("controller", "mode", "drain", "--all"), "name the nodes"),
        (("controller", "mode", "drain", "--clear", "--nodes", "x"), "give a mode, or --clear"),
        (("controller", "maintenance", "start", "--for", "2h", "--reason", "x"), "name the nodes"),
        (("controller", "maintenance", "end"), "name the nodes"),
        (("controller", "stop"), "missing option '--reason'"),
        (("release", "--controller", "http://127.0.0.1:1"), "say which drains"),
        (("release",), "say which drains"),
        (("controller", "status", "--controller", "ibmon:19316"), '"ibmon:19316" is no URL'),
        (("controller", "status", "--token-file", "/nowhere"), "/nowhere cannot be read"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_2(person, words, says):
    code, out, err = person.types(*words)

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert person.world.desk.asks == []


def test_a_token_of_another_role_or_none_is_told_and_not_shown(person, monkeypatch, caplog):
    person.token.write_text(VIEW)
    code, _, err = person.types("controller", "stop", "--reason", "x")
    assert code == 1
    assert "needs a token of role operate; grafana's has role view" in err
    monkeypatch.delenv("IBMON_TOKEN_FILE")
    assert "name its file by --token-file or IBMON_TOKEN_FILE" in person.types("controller", "stop", "--reason", "x")[2]
    person.token.write_text("wrong-token-0123456789")
    other = person.types("controller", "stop", "--reason", "x", "--token-file", str(person.token))[2]
    assert "this token is not known" in other

    text = "\n".join([err, other, *(r.getMessage() for r in caplog.records if r.levelno >= logging.INFO)])
    assert VIEW not in text
    assert "wrong-token" not in text


def test_without_a_controller_the_release_is_this_nodes_own(person, monkeypatch):
    monkeypatch.delenv("IBMON_TOKEN_FILE")
    person.config.write_text(f'{person.config.read_text()}[state]\nruntime_directory = "{person.world.directory}"\n')
    code, _, err = person.types("release")

    assert (code, person.world.desk.asks) == (1, [])
    assert "no daemon runs here" in err


def test_what_is_no_controller_is_said_to_be_none(person):
    person.world.desk.fleet = lambda now: 5 / 0
    _, _, err = person.types("controller", "status")
    assert "this answer could not be made" in err
    assert secret(MASTER) not in err
    _, _, err = person.types("controller", "status", "--controller", f"{person.world.server.url}/metrics?")
    assert err.startswith("ibmon: ")
    assert err.count("\n") == 1


def test_a_fitness_that_there_is_not_is_no_empty_answer(person):
    code, out, err = person.types("controller", "nodes", "--fitness", "fit,unfitt")
    assert (code, out) == (2, "")
    assert "there is no fitness 'unfitt'; write fit, watch, unfit, unknown" in err


def test_https_where_none_is_spoken_is_told_in_words(person):
    url = person.world.server.url.replace("http:", "https:")
    _, _, err = person.types("controller", "status", "--controller", url)
    assert err == f"ibmon: {url} cannot be reached: it does not speak TLS; write http:// if that is meant\n"


def test_the_end_of_a_window_is_a_time_that_people_read(person):
    person.world.audit_rows = [{"at": 1.0, "level": "info", "event": "maintenance-start", "until": 1796073657.73}]
    assert "2026-1" in person.types("controller", "audit")[1].partition("until=")[2]
