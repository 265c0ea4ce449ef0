"""The runbook's pages of the fleet's alerts, from their table. `python -m ibmon.rulesdoc --runbook` writes them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ibmon.health.explain import items
from ibmon.promrules.table import FleetRule

_WIDTH = 120


def page(rule: FleetRule) -> str:
    """The page of an alert for whoever is called at night, ending in a newline."""
    return "".join(_page(rule))


def _page(rule: FleetRule) -> Iterator[str]:
    yield f"# {rule.slug}\n\n**{rule.title}.** Alert `{rule.name}`, {rule.severity}.\n\n## What it means\n\n"
    yield from _paragraph(rule.means)
    yield "\n## Likely causes\n\n"
    for cause in items(rule.causes):
        yield from _paragraph(_upper(cause), "- ")
    yield "\n## What to do\n\n"
    for number, step in enumerate(items(rule.todo), 1):
        yield from _paragraph(f"{_upper(step)}.", f"{number}. ")
    yield "\n## How it clears\n\n"
    yield from _paragraph(f"{_upper(rule.clears)}.")
    yield "\n## The rule\n\n"
    held = f"It fires when this holds for {rule.hold}." if rule.hold else "It fires as soon as this holds."
    yield from _paragraph(f"{held} Source of the limit: {rule.source}.")
    yield f"\n```\n{rule.expr}\n```\n\nAll alerts: [alerts](../alerts.md).\n"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _paragraph(words: str, mark: str = "") -> Iterator[str]:
    lines = textwrap.wrap(
        words, _WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
    yield from (f"{line}\n" for line in lines)
