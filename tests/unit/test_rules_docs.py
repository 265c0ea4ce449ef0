"""docs/rules.md and the runbook say what the rule table and the evaluation say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibmon import rulesdoc
from ibmon.cli.app import COMMANDS
from ibmon.health import correlate, explain
from ibmon.health.evaluate import Episode, advance
from ibmon.health.facts import GOOD, UNKNOWN, Condition, Verdict
from ibmon.health.rules import RULE_BY_ID, RULES
from ibmon.health.settings import of_rule
from ibmon.health.transitions import STATES, STEPS, state_of
from ibmon.promrules import runbook as fleetbook
from ibmon.promrules.fleet import BY_SLUG, FLEET
from ibmon.rulescenes import finding

DOCS = Path(__file__).parents[2] / "docs"
ids = [rule.id for rule in RULES]
BOOK = [*map(rulesdoc.runbook, RULES), *map(fleetbook.page, FLEET)]
book_ids = [*ids, *BY_SLUG]
each_rule = pytest.mark.parametrize("rule", RULES, ids=ids)


def test_the_page_in_docs_is_the_one_that_the_table_gives():
    assert (DOCS / "rules.md").read_text() == rulesdoc.page(), "run: python -m ibmon.rulesdoc > docs/rules.md"


@each_rule
def test_the_runbook_page_in_docs_is_the_one_that_the_row_gives(rule):
    file = DOCS / "runbook" / f"{rule.id}.md"
    assert file.read_text() == rulesdoc.runbook(rule), "run: python -m ibmon.rulesdoc --runbook docs/runbook"


@pytest.mark.parametrize("alert", FLEET, ids=lambda alert: alert.slug)
def test_the_runbook_page_of_a_fleet_alert_is_the_one_that_its_row_gives(alert):
    file = DOCS / "runbook" / f"{alert.slug}.md"
    assert file.read_text() == fleetbook.page(alert), "run: python -m ibmon.rulesdoc --runbook docs/runbook"


def test_the_runbook_has_no_page_of_a_rule_that_is_gone():
    assert {file.stem for file in (DOCS / "runbook").iterdir()} == {*ids, *BY_SLUG}


@each_rule
def test_every_rule_has_one_row_and_one_section(rule):
    page = rulesdoc.page()
    assert page.count(f"| [{rule.id}](#{rule.id}) |") == 1
    assert page.count(f"\n## {rule.id}\n") == 1
    assert f"(runbook/{rule.id}.md)" in page


@each_rule
def test_every_row_has_something_to_say_to_people(rule):
    assert all((rule.title, rule.means, rule.source, rule.clears))
    assert all(explain.items(rule.causes))
    assert all(explain.items(rule.todo))
    assert rule.means.endswith(".")
    assert not rule.clears.endswith(".")


@each_rule
def test_the_advice_of_a_rule_stands_on_its_own(rule):
    """Who is called at night must not look up another rule first."""
    advice = rule.causes + rule.todo
    assert [other for other in ids if f"as {other}" in advice] == []


@pytest.mark.parametrize("page", [rulesdoc.page(), *BOOK], ids=["rules.md", *book_ids])
def test_every_command_that_is_named_exists(page):
    assert set(re.findall(r"`ibmon ([a-z-]+)", page)) <= set(COMMANDS)


@pytest.mark.parametrize("page", [rulesdoc.page(), *BOOK], ids=["rules.md", *book_ids])
def test_only_tables_are_wider_than_the_page(page):
    assert [line for line in page.splitlines() if len(line) > 120 and not line.startswith(("|", "    "))] == []


@each_rule
def test_what_a_finding_reads_like_fits_a_drain_s_reason(rule):
    text = finding(rule)
    assert text.startswith(rule.id)
    assert text.isascii()
    assert text.isprintable()
    assert len(f"ibmon: {text} [id 7f3a9c] (+2 more)") <= 200


def test_bit_error_ratios_are_the_counts_that_physics_gives():
    page = rulesdoc.page()
    for gbps, minutes in ((100, "500min"), (200, "250min"), (400, "125min"), (800, "3750s")):
        gross = 1e-12 * gbps * 1e9 * 600
        assert f"| {gbps} Gb/s | {minutes} | 15 | 30 | 10min | {gross:g} |" in page


def test_the_correlations_name_every_rule_of_the_node():
    text = rulesdoc.page().partition("## What ports say together")[2].partition("\n## ")[0]
    named = {rule for rule in correlate.NODE_RULES if f"`{rule}`" in text}
    assert named == set(correlate.NODE_RULES) - {"repeat-offender"}  # it looks at drains, not at ports


def test_links_to_other_pages_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)", rulesdoc.page()):
        assert (DOCS / target).exists(), target
    for rule in RULES:
        for target in re.findall(r"\]\(([^)#]+)", rulesdoc.runbook(rule)):
            assert (DOCS / "runbook" / target).exists(), target


def test_the_generator_writes_the_runbook_and_removes_what_is_gone(tmp_path, capsys):
    (tmp_path / "book").mkdir()
    (tmp_path / "book/old-rule.md").write_text("")
    assert rulesdoc.main(["--runbook", str(tmp_path / "book")]) == 0
    assert {file.stem for file in (tmp_path / "book").iterdir()} == {*ids, *BY_SLUG}
    assert rulesdoc.main([]) == 0
    assert capsys.readouterr().out == rulesdoc.page()
    assert rulesdoc.main(["--runbok"]) == 2


# ------------------------------------------------------------------------------------------- the life of a finding

STATE = of_rule(RULE_BY_ID["port-down"])
COUNT = of_rule(RULE_BY_ID["link-flap"])
BAD = Condition(Verdict.BAD, "DOWN", "ACTIVE", "DOWN")
LISTED = {(step.before, step.after) for step in STEPS}

times = st.sampled_from([0.0, 1.0, 30.0, 60.0, 600.0])
conditions = st.one_of(
    st.just(UNKNOWN),
    st.builds(GOOD._replace, quiet=times),
    st.builds(BAD._replace, reach=st.sampled_from(["info", "warning", "critical"]), quiet=times),
)


@st.composite
def chosen(draw):
    hold = draw(times)
    base = draw(st.sampled_from([STATE, COUNT]))
    return base._replace(hold=hold, alert_hold=min(hold, draw(times)), recover=draw(times))


@given(chosen(), st.lists(st.tuples(conditions, times, st.booleans()), max_size=12))
def test_no_finding_makes_a_step_that_is_not_in_the_table(settings, looks):
    episode = None
    for condition, seconds, may_start in looks:
        before = state_of(episode)
        episode = advance(episode, condition, settings, seconds, may_start=may_start, wall=0.0)
        after = state_of(episode)
        assert before == after or (before, after) in LISTED
        if condition.verdict is Verdict.UNKNOWN:
            assert before == after


def episode(severity=None, *, recovering=False, elapsed=0.0):
    return Episode(severity, recovering, elapsed, 0.0, None, None, "", 60.0, elapsed)


WARN = BAD._replace(reach="warning")
MADE = {  # by step: the episode before, what is read now, the settings, and the seconds since the last look
    ("nothing", "seen"): (None, BAD, STATE, 0),
    ("nothing", "warning"): (None, WARN, COUNT, 0),
    ("nothing", "critical"): (None, BAD, COUNT, 0),
    ("seen", "nothing"): (episode(), GOOD, STATE, 10),
    ("seen", "warning"): (episode(), BAD, STATE, 30),
    ("seen", "critical"): (episode(), BAD, STATE._replace(alert_hold=60), 60),
    ("warning", "critical"): (episode("warning", elapsed=30.0), BAD, STATE, 30),
    ("warning", "recovering"): (episode("warning", elapsed=30.0), GOOD, STATE, 10),
    ("warning", "nothing"): (episode("warning"), GOOD._replace(quiet=86400.0), COUNT, 10),
    ("critical", "warning"): (episode("critical"), WARN._replace(quiet=86400.0), COUNT, 10),
    ("critical", "recovering"): (episode("critical", elapsed=60.0), GOOD, STATE, 10),
    ("critical", "nothing"): (episode("critical", elapsed=60.0), GOOD, STATE._replace(recover=0), 10),
    ("recovering", "nothing"): (episode("warning", recovering=True), GOOD, STATE, 600),
    ("recovering", "warning"): (episode("warning", recovering=True), BAD, STATE, 10),
    ("recovering", "critical"): (episode("critical", recovering=True, elapsed=60.0), BAD, STATE, 10),
}


def test_there_is_an_example_for_every_step():
    assert set(MADE) == LISTED
    assert len(STEPS) == len(LISTED)
    assert {state for pair in LISTED for state in pair} == set(STATES)


@pytest.mark.parametrize("step", MADE, ids=" to ".join)
def test_every_step_of_the_table_is_made(step):
    before, condition, settings, seconds = MADE[step]
    after = advance(before, condition, settings, seconds, may_start=True, wall=0.0)
    assert (state_of(before), state_of(after)) == step


def test_the_diagram_has_every_step_and_no_other():
    drawn = re.findall(r"^    (\S+) --> (\S+): .", rulesdoc.diagram(), re.MULTILINE)
    assert {(a.replace("[*]", "nothing"), b.replace("[*]", "nothing")) for a, b in drawn} == LISTED
