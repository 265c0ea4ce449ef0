"""The rules in deploy/prometheus are what the tables give, and one fault is told by one way only."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from metric_names import known, names_of

from ibmon.alert.alerts import alert_name, from_finding, from_notice
from ibmon.config import Config
from ibmon.configfile import loads
from ibmon.health.rules import RULE_BY_ID, RULES
from ibmon.model import Finding, Mode, PortId, Severity
from ibmon.notices import WORDS, Notice
from ibmon.promrules import files, findings, fleet
from ibmon.promrules.table import RUNBOOK_URL

ROOT = Path(__file__).parents[2]
ALL = files.contents(Config(), push=False)
ALERTS = [*findings.group(Config()).alerts, *fleet.group().alerts]
RECORDINGS = [*findings.group(Config()).recordings, *fleet.group().recordings]
each_alert = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)


@pytest.mark.parametrize("name", ALL)
def test_the_committed_file_is_what_the_tables_give(name):
    committed = (ROOT / "deploy/prometheus" / name).read_text()
    assert committed == ALL[name], "run: python -m ibmon.promrules.files deploy/prometheus"


def test_no_file_is_left_over():
    assert {file.name for file in (ROOT / "deploy/prometheus").iterdir()} == set(ALL)


@pytest.mark.parametrize(("rules", "manifest"), [files.FINDING_FILES, files.FLEET_FILES])
def test_the_manifest_of_the_operator_holds_the_same_groups(rules, manifest):
    document = yaml.safe_load(ALL[manifest])
    assert (document["apiVersion"], document["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert document["spec"] == yaml.safe_load(ALL[rules])


@each_alert
def test_an_alert_says_who_what_and_how_bad_and_where_to_read_on(alert):
    texts = alert.annotations(RUNBOOK_URL)
    assert "limit" in texts["summary"] or alert.slug == "nothing-scraped"
    assert texts["description"]
    page = texts["runbook_url"].removeprefix(f"{RUNBOOK_URL}/")
    assert (ROOT / "docs/runbook" / page).is_file()
    assert alert.severity or "ibmon:finding:named" in alert.expr  # there the series says it


@each_alert
def test_no_two_alerts_share_a_name(alert):
    assert [other.slug for other in ALERTS if other.name == alert.name] == [alert.slug]


def test_every_rule_that_alerts_by_default_has_an_alert_and_no_other_has_one():
    expected = [rule.id for rule in RULES if rule.enabled and rule.action is not Mode.OBSERVE]
    assert [alert.slug for alert in findings.group(Config()).alerts if alert.slug in RULE_BY_ID] == expected


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_site_that_lets_a_rule_alert_gets_an_alert_for_it(rule):
    config = loads(f'[rules.{rule.id}]\nenabled = true\naction = "alert"\n').config
    assert findings.may_alert(config, rule)
    quiet = loads(f'[rules.{rule.id}]\naction = "observe"\n').config
    assert not findings.may_alert(quiet, rule)
    some = f'[rules.{rule.id}]\nenabled = true\naction = "observe"\n[[override]]\nmatch = "mlx5_0/1"\n'
    overridden = loads(f'{some}rule = "{rule.id}"\naction = "alert"\n').config
    assert findings.may_alert(overridden, rule)
    assert rule.id in {alert.slug for alert in findings.group(overridden).alerts}


def test_a_limit_that_a_site_has_changed_is_told():
    config = loads("[rules.link-flap]\nwarning = 4\ncritical = 9\n").config
    [alert] = [one for one in findings.group(config).alerts if one.slug == "link-flap"]
    assert "9 episodes{{ else }}4 episodes" in alert.summary


@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.CRITICAL])
def test_a_finding_has_the_name_and_labels_that_a_node_would_push(severity):
    found = Finding("port-down", "mlx5_3", 1, "", severity, 0.0, "DOWN", "ACTIVE", "DOWN")
    pushed = from_finding(found, "gpu-17", {PortId("mlx5_3", 1): 3}).labels
    recorded = findings.group(Config()).recordings[0].expr
    assert pushed["alertname"] == alert_name("port-down") in {alert.name for alert in ALERTS}
    of_series = {"rule", "severity", "device", "port", "rail", "node"}
    assert set(pushed) - {"alertname"} == of_series
    assert all(re.search(rf"\b{label}\b", recorded) for label in of_series)


def test_where_nodes_push_no_rule_tells_of_a_finding_and_all_tell_of_the_fleet():
    pushed = files.contents(Config(), push=True)
    assert set(pushed) == set(files.FLEET_FILES)
    assert all("ibmon_finding" not in text and "ibmon:finding" not in text for text in pushed.values())
    assert all(ALL[name] == text for name, text in pushed.items())
    told_by_nodes = {alert_name(name) for name in (*RULE_BY_ID, *WORDS)}
    assert {alert.name for alert in fleet.group().alerts} & told_by_nodes == set()


@pytest.mark.parametrize("rule", fleet.PUSHED, ids=lambda rule: rule.slug)
def test_what_a_node_pushes_about_ibmon_itself_has_the_same_name_here_and_stands_with_the_findings(rule):
    notice = from_notice(Notice(rule.slug, Severity.WARNING, 0.0, "as it is"), "gpu-17")
    assert (rule.name, rule.severity) == (notice.labels["alertname"], notice.labels["severity"])
    assert rule.alert in findings.group(Config()).alerts


def test_another_runbook_is_named_in_every_alert():
    for text in files.contents(Config(), push=False, runbook_url="https://wiki.example/rb/").values():
        urls = re.findall(r'runbook_url: "(.*)"', text)
        assert urls
        assert all(re.fullmatch(r"https://wiki\.example/rb/[a-z-]+\.md", url) for url in urls)


@pytest.mark.parametrize(
    "expr",
    [alert.expr for alert in ALERTS]
    + [r.expr for g in (findings.group(Config()), fleet.group()) for r in g.recordings],
)
def test_every_metric_that_a_rule_asks_for_is_published_or_recorded(expr):
    recorded = {recording.name for recording in RECORDINGS}
    assert set(re.findall(r"\w+(?::\w+)+", re.sub(r'"[^"]*"', "", expr))) <= recorded
    assert {name for name in names_of(re.sub(r"\w+(?::\w+)+", "", expr)) if not known(name)} == set()


@pytest.mark.parametrize(
    ("seconds", "text"), [(86_400, "1d"), (7500, "125m"), (900, "15m"), (90, "90s"), (7200, "2h"), (2_592_000, "30d")]
)
def test_a_duration_is_written_as_prometheus_reads_it(seconds, text):
    assert findings.duration(seconds) == text


def test_every_rule_can_be_shown():
    assert set(findings._READINGS) == set(RULE_BY_ID)


def test_the_generator_writes_the_files_and_says_how_it_is_called(tmp_path, capsys):
    assert files.main([str(tmp_path / "out")]) == 0
    assert {file.name: file.read_text() for file in (tmp_path / "out").iterdir()} == dict(ALL)
    assert files.main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_summaries_are_texts_that_yaml_reads_back():
    document = yaml.safe_load(ALL["ibmon-findings.rules.yml"])
    written = {rule["alert"]: rule["annotations"]["summary"] for rule in document["groups"][0]["rules"][1:]}
    assert written == {alert.name: alert.summary for alert in findings.group(Config()).alerts}
    assert json.dumps(written)
