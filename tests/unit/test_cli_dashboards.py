"""`ibmon dashboards export` writes all of it or says in one line why not, and tells of no fault twice."""

from __future__ import annotations

import json

import pytest
import yaml

from ibmon.boards import NAMES
from ibmon.cli.app import run
from ibmon.promrules.files import FINDING_FILES, FLEET_FILES

PUSHING = '[action]\nmode = "alert"\n[[alertmanager]]\nurl = "http://alertmanager:9093"\n'


@pytest.fixture
def config(tmp_path):
    """A way to write a configuration and name it on the command line."""

    def write(text: str = "") -> list[str]:
        file = tmp_path / "ibmon.toml"
        file.write_text(text)
        return ["--config", str(file)]

    return write


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def rules(out):
    return {file.name for file in (out / "prometheus").iterdir()}


def test_it_writes_dashboards_rules_and_the_provisioning_and_prints_each_file(out, config, capsys):
    assert run(["dashboards", "export", str(out), *config()]) == 0
    printed = capsys.readouterr().out.split()
    assert sorted(printed) == sorted(str(file) for file in out.rglob("*") if file.is_file())
    assert {json.loads(file.read_text())["uid"] for file in (out / "grafana/dashboards").iterdir()} == set(NAMES)
    assert rules(out) == {*FINDING_FILES, *FLEET_FILES}


def test_grafana_is_told_where_the_dashboards_lie(out, config):
    run(["dashboards", "export", str(out), *config()])
    [provider] = yaml.safe_load((out / "grafana/provisioning/ibmon.yaml").read_text())["providers"]
    assert provider["options"]["path"] == str(out.resolve() / "grafana/dashboards")


def test_a_second_time_it_writes_the_same(out, config):
    run(["dashboards", "export", str(out), *config()])
    before = {file: file.read_text() for file in out.rglob("*") if file.is_file()}
    assert run(["dashboards", "export", str(out), *config()]) == 0
    assert {file: file.read_text() for file in out.rglob("*") if file.is_file()} == before


def test_where_nodes_push_the_rules_of_findings_are_left_out_and_it_says_so(out, config, capsys):
    assert run(["dashboards", "export", str(out), *config(PUSHING)]) == 0
    assert rules(out) == set(FLEET_FILES)
    assert "rules for findings are left out" in capsys.readouterr().err


def test_rules_of_findings_that_an_earlier_export_has_left_are_removed(out, config, capsys):
    run(["dashboards", "export", str(out), *config()])
    assert run(["dashboards", "export", str(out), *config(PUSHING)]) == 0
    assert rules(out) == set(FLEET_FILES)
    assert capsys.readouterr().err.count("ibmon: removed ") == len(FINDING_FILES)


@pytest.mark.parametrize("text", ["", PUSHING])
def test_somebody_elses_file_is_not_touched_and_nothing_is_written(out, config, capsys, text):
    theirs = out / "prometheus" / FINDING_FILES[0]
    theirs.parent.mkdir(parents=True)
    theirs.write_text("groups: []\n")
    assert run(["dashboards", "export", str(out), *config(text)]) == 2
    assert [file for file in out.rglob("*") if file.is_file()] == [theirs]
    assert theirs.read_text() == "groups: []\n"
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("content", ["not JSON", "[]", '{"uid": "somebody-else"}'])
def test_another_dashboard_of_that_name_is_not_overwritten(out, config, capsys, content):
    theirs = out / "grafana/dashboards/ibmon-node.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text(content)
    assert run(["dashboards", "export", str(out), *config()]) == 2
    assert theirs.read_text() == content
    assert "was not written by ibmon" in capsys.readouterr().err


def test_a_directory_that_cannot_be_made_is_told_in_one_line(out, config, capsys):
    out.write_text("a file")
    assert run(["dashboards", "export", str(out), *config()]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "name another directory" in said


def test_the_runbook_is_the_one_that_is_named_else_that_of_the_alertmanager(out, config):
    place = "https://wiki.example/rb"
    configured = PUSHING + 'runbook_url = "https://other.example/rb"\n'
    for options, expected in ((["--runbook-url", place], place), ([], "https://other.example/rb")):
        assert run(["dashboards", "export", str(out), *options, *config(configured)]) == 0
        assert f"{expected}/daemon-down.md" in (out / "prometheus" / FLEET_FILES[0]).read_text()


def test_a_configuration_with_a_mistake_is_refused(out, config, capsys):
    assert run(["dashboards", "export", str(out), *config("[action]\nmod = 1\n")]) == 2
    assert not out.exists()
    assert "mod" in capsys.readouterr().err
