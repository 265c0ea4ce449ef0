"""`ibmon explain`."""

from __future__ import annotations

import json
from typing import Any

import click

from ibmon.cli.common import Command, Failure, Settings
from ibmon.nearest import nearest


@click.command("explain", cls=Command)
@click.argument("rule", required=False)
@click.option("--json", "as_json", is_flag=True, help="As JSON, durations in seconds.")
@click.pass_obj
def command(settings: Settings, rule: str | None, as_json: bool) -> None:
    """Tell what a rule means, what causes it, what to do, what clears it, and the limits in force.

    Without RULE: all rules in one line each.
    """
    from ibmon.health import explain
    from ibmon.health.rules import RULE_BY_ID, RULES

    if rule is None:
        if as_json:
            click.echo(json.dumps([{"rule": row.id, "title": row.title} for row in RULES], indent=2))
        else:
            click.echo("\n".join(explain.aligned([(row.id, row.title) for row in RULES])))
        return
    row = RULE_BY_ID.get(rule)
    if row is None:
        raise Failure(_no_rule(rule, list(RULE_BY_ID)))
    loaded = settings.load()
    limits = explain.in_force(loaded.config, loaded.origins, row)
    changed = explain.changes(loaded.config, loaded.origins, row)
    chosen = explain.chosen(loaded.config, row)
    if as_json:
        click.echo(json.dumps(_document(row, limits, changed), indent=2))
    else:
        click.echo(explain.text(row, chosen, limits, changed), nl=False)


def _no_rule(name: str, known: list[str]) -> str:
    from ibmon.configkeys import RULES

    if name in RULES:
        return f"{name} is a rule of the file format that this version does not judge"
    close = nearest(name, known, 0.4)
    hint = f"did you mean {close}?" if close else "'ibmon explain' lists them"
    return f"there is no rule {name!r}; {hint}"


def _document(row: Any, limits: Any, changed: Any) -> dict[str, Any]:
    from ibmon.health import explain

    return {
        "rule": row.id,
        "title": row.title,
        "means": row.means,
        "scope": row.scope,
        "health": row.health.value,
        "causes": explain.items(row.causes),
        "todo": explain.items(row.todo),
        "clears": row.clears,
        "source": row.source,
        "limits": explain.as_values(limits),
        "overrides": [{"for": one.subject, "limits": explain.as_values(one.limits)} for one in changed],
    }
