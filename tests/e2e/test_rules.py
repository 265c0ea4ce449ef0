"""The rules that are shipped for Prometheus: promtool reads them, and each alert fires when it should and only then."""

from __future__ import annotations

from pathlib import Path

import pytest
from services import ruletrials
from services.prometheus import promtool

from ibmon.promrules.table import Alert

DEPLOY = Path(__file__).parents[2] / "deploy/prometheus"
FILES = sorted(DEPLOY.glob("*.rules.yml"))
TRIALS = [*ruletrials.of_findings(), *ruletrials.of_fleet()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_promtool_has_nothing_to_say_about_the_rules(file: Path) -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", file)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_has_a_trial() -> None:
    assert {alert.slug for alert, _ in TRIALS} == {*ruletrials.FINDINGS, *ruletrials.FLEET}


@pytest.mark.parametrize(("alert", "trial"), TRIALS, ids=[alert.name for alert, _ in TRIALS])
def test_an_alert_fires_on_its_fault_says_what_it_saw_and_is_quiet_without(
    tmp_path: Path, alert: Alert, trial: ruletrials.Trial
) -> None:
    test = tmp_path / "test.yml"
    test.write_text(ruletrials.document(FILES, alert, trial))
    tried = promtool("test", "rules", test)
    assert tried.returncode == 0, tried.stdout + tried.stderr
