"""The committed dashboards are what their sources give, and have what each dashboard must have."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "dashboards"))

import generate
import shared
from metric_names import known, names_of

from ibmon.boards import NAMES
from ibmon.model import NodeFitness, PortHealth

ROOT = Path(__file__).parents[2]
TEXTS = generate.texts()
BOARDS = {name.removesuffix(".json"): json.loads(text) for name, text in TEXTS.items()}
PANELS = [(uid, panel) for uid, board in BOARDS.items() for panel in board["panels"] if panel["type"] != "row"]
each_board = pytest.mark.parametrize("uid", BOARDS)
each_panel = pytest.mark.parametrize(
    ("uid", "panel"), PANELS, ids=[f"{uid.removeprefix('ibmon-')}/{panel['title']}" for uid, panel in PANELS]
)


@pytest.mark.parametrize("name", TEXTS)
def test_the_committed_file_is_what_its_source_gives(name):
    assert (ROOT / "dashboards" / name).read_text() == TEXTS[name], "run: python dashboards/generate.py"


def test_what_is_exported_is_all_that_is_made_and_no_file_is_left_over():
    assert set(NAMES) == set(BOARDS) == {file.stem for file in (ROOT / "dashboards").glob("*.json")}


def test_the_wheel_takes_every_dashboard():
    listed = (ROOT / "pyproject.toml").read_text()
    assert all(f'"dashboards/{name}.json" = "ibmon/grafana/{name}.json"' in listed for name in NAMES)


@each_board
def test_a_dashboard_is_called_as_its_file_and_leads_to_the_others_with_time_and_variables(uid):
    board = BOARDS[uid]
    assert board["uid"] == uid
    [others] = board["links"]
    assert others["tags"] == board["tags"] == ["ibmon"]
    assert others["includeVars"]
    assert others["keepTime"]


@each_board
def test_the_data_source_is_a_variable_and_named_nowhere(uid):
    board = BOARDS[uid]
    first = board["templating"]["list"][0]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    used = re.findall(r'"datasource": \{[^}]*"uid": "([^"]*)"', json.dumps(board))
    assert set(used) == {"${datasource}"}


@each_board
def test_every_variable_that_is_used_is_there(uid):
    board = BOARDS[uid]
    known = {variable["name"] for variable in board["templating"]["list"]}
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    queries += [annotation["expr"] for annotation in board["annotations"]["list"]]
    used = {name for query in queries for name in re.findall(r"\$(\w+)", query)}
    assert used - {"__rate_interval", "__range", "__range_s"} <= known


@each_panel
def test_a_panel_is_described_and_has_a_word_for_nothing(uid, panel):
    del uid
    assert panel["description"].endswith(".")
    defaults = panel["fieldConfig"]["defaults"]
    never_empty = {"stat", "timeseries", "state-timeline"}
    assert panel["type"] in never_empty or defaults["noValue"]


@each_panel
def test_a_panel_has_a_unit_or_words_for_its_numbers(uid, panel):
    del uid
    defaults = panel["fieldConfig"]["defaults"]
    overridden = {p["id"] for override in panel["fieldConfig"]["overrides"] for p in override["properties"]}
    assert panel["type"] == "table" or defaults.get("unit") or defaults.get("mappings")
    assert panel["type"] != "table" or "mappings" in overridden or panel["title"].startswith(("Nodes", "Blind", "Ver"))


@each_panel
def test_the_first_step_of_thresholds_has_no_lower_end(uid, panel):
    del uid
    found = [panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
    for override in panel["fieldConfig"]["overrides"]:
        found += [p["value"]["steps"] for p in override["properties"] if p["id"] == "thresholds"]
    for steps in found:
        assert [step["value"] for step in steps] == [None, *sorted(step["value"] for step in steps[1:])]


@each_panel
def test_links_lead_to_dashboards_that_exist_with_variables_that_they_have(uid, panel):
    del uid
    for board, query in re.findall(r'"url": "/d/([^?"]+)\?([^"]*)"', json.dumps(panel)):
        variables = {variable["name"] for variable in BOARDS[board]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", query)) <= variables
        assert "${__url_time_range}" in query
        assert "${datasource:queryparam}" in query


@each_panel
def test_every_metric_that_is_drawn_is_published(uid, panel):
    del uid
    named = {name for target in panel["targets"] for name in names_of(target["expr"])}
    assert {name for name in named if not known(name)} == set()


def test_every_verdict_has_a_word_a_colour_and_its_own_number():
    assert set(shared.HEALTH) == set(PortHealth)
    assert set(shared.FITNESS) == set(NodeFitness)
    for table in (shared.HEALTH, shared.FITNESS):
        assert len({code for code, _ in table.values()}) == len(table)
        assert len({color for _, color in table.values()}) == len(table)


def test_a_row_that_does_not_fill_the_width_is_refused():
    panel = shared.stat("a", "b.", shared.query("up"))
    with pytest.raises(ValueError, match="is not 24 wide"):
        shared.placed((4, [(12, panel), (8, panel)]))
