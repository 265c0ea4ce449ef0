"""Writes docs/rules.md and the runbook from the rule table.

``python -m ibmon.rulesdoc > docs/rules.md`` and ``python -m ibmon.rulesdoc --runbook docs/runbook``. Owns the layout of
these pages. What they say of a rule is its row, read by `ibmon/health/explain.py`.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ibmon.config import Config
from ibmon.health import correlate, explain
from ibmon.health.counts import span
from ibmon.health.explain import KEYS, RATES
from ibmon.health.rules import RULE_BY_ID, RULES
from ibmon.health.settings import Rule, of_rule
from ibmon.health.transitions import STATES, STEPS
from ibmon.model import Mode
from ibmon.promrules import runbook as fleetbook
from ibmon.promrules.fleet import BY_SLUG, FLEET
from ibmon.rulescenes import finding

_INTRO: Final = """\
# Rules

What ibmon looks for, from when on it says so, what that may cause, and how it ends. This page is generated from the
table in `ibmon/health/rules.py`: change that, then run `python -m ibmon.rulesdoc > docs/rules.md` and
`python -m ibmon.rulesdoc --runbook docs/runbook`. On a node, `ibmon rules` shows what is in force there and where it
was written, and `ibmon explain RULE` tells all of one rule.

- A rule speaks about expected ports only: declared in `[[port]]`, or seen ACTIVE once on this node.
- Not being able to read is neither good nor bad: it starts nothing, ends nothing, and no hold runs meanwhile.
- **State-like** rules look at the newest read; their times are time in which that was read without a break.
- **Count-like** rules count within a window; they recover from the last bad moment. A counter that was reset is not
  repaired, and one that stands at the maximum of its field makes its rules unknown.
- A rule's **action** is the most that it may cause. `[action] mode` bounds all of them, and only a declared or accepted
  compute port can drain its node. The order is observe, alert, drain.
- Inside a grace (the host has just booted, a port has just come up for the first time since) conditions are shown and
  no hold runs; what is counted there counts for no rule. Count-like rules have three times the boot grace.
- Every setting can be changed: for all ports in `[rules.RULE]`, for some in `[[override]]` by port or role; see
  [configuration.md](configuration.md).
"""

_LIFE: Final = """
## From a condition to a finding and back

One finding is one rule on one port (or device, or node) and, where a rule looks at several counters, one counter. It is
cleared by the same rule on the same subject and by nothing else, except a person's `ibmon clear`.
"""

_BER: Final = """
## Bit error ratios as counts

Limits of error rules are bit error ratios and are turned into counts with the port's own rate. The window of
`symbol-errors` is as long as a link within its specification (1e-15) takes to count three errors, so the counts are the
same at each rate and the window is not. A rise counts only in at least three different minutes (`gross-errors`: five),
not within two minutes of a flap, and `symbol-errors` needs the port to have been up for the whole window.

"""

_TOGETHER: Final = """
## What ports say together

One port's verdict never depends on another's errors, with these exceptions:

"""


class Correlation(NamedTuple):
    """What several ports of a node say together, and what follows."""

    seen: str
    meaning: str
    follows: str


_CORRELATIONS: Final = (
    Correlation(
        seen="every expected device is missing from a complete listing",
        meaning="one cause on the node",
        follows=f"one finding `{correlate.ALL_MISSING}`, not a `device-missing` for each; the node is `unknown` until "
        "its hold is over",
    ),
    Correlation(
        seen=f"all compute ports ({correlate.TOGETHER} or more) have their link up and wait in INIT or ARMED",
        meaning="no subnet manager",
        follows=f"one finding `{correlate.ALL_INIT}` of the node after {span(correlate.INIT_ALERT_HOLD)}, not one for "
        "each port; the ports are `degraded`, the node is `unknown`, nothing is drained; it clears "
        f"{span(correlate.INIT_RECOVER)} after the ports are back",
    ),
    Correlation(
        seen="the list of devices cannot be read",
        meaning="ibmon is blind",
        follows=f"one finding `{correlate.BLIND}` of the node; it alerts and never drains",
    ),
    Correlation(
        seen="a read of one device hangs while another device of the node answers",
        meaning="the device hangs, not the node",
        follows="`device-stalled` may become critical; without such a neighbour or word in the kernel log it stays a "
        "warning",
    ),
    Correlation(
        seen="a device has no verbs character device while others have theirs",
        meaning="the device's trouble, not the node's",
        follows="`chardev-missing` of that device",
    ),
)
_HANDED_BACK: Final = (
    "A drain keeps new jobs away and ends none that runs. ibmon gives the node back by itself when all of its findings "
    "that drain have cleared, and only where it was ibmon that took it."
)
_TOLD: Final = """\
A read that tells nothing makes no step. A finding that opens, changes or ends is one line in the log and one event;
what is only seen is neither.
"""
_WIDTH: Final = 120


def page() -> str:
    """docs/rules.md, ending in a newline."""
    return "".join(_page())


def _page() -> Iterator[str]:
    yield _INTRO
    yield "\n## All rules\n\n"
    yield "| Rule | Alert after | Drain after | Clears after | Window | Warning | Critical | Most it may cause |\n"
    yield "|---|---|---|---|---|---|---|---|\n"
    yield from (_row(rule) for rule in RULES)
    yield _LIFE
    yield f"\n```mermaid\n{diagram()}```\n\n"
    yield from _table(("State", "Meaning"), ((f"**{state}**", meaning) for state, meaning in STATES.items()))
    yield "\n"
    yield from _table(("From", "To", "When"), STEPS)
    yield f"\n{_TOLD}"
    yield _BER
    yield from _ratios()
    yield _TOGETHER
    yield from _table(("What is seen", "What it means", "What follows"), _CORRELATIONS)
    for rule in RULES:
        yield from _section(rule)


def _row(rule: Rule) -> str:
    values = {limit.key: limit.text for limit in explain.in_force(Config(), {}, rule)}
    window = f"{values['polls']} polls" if "polls" in values else values.get("window", "")
    cells = (
        f"[{rule.id}](#{rule.id})", values["alert_hold"], values["hold"], values["recover"], window,
        values.get("warning", ""), values.get("critical", ""), values["action"] if rule.enabled else "off",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def diagram() -> str:
    """The steps of a finding as a Mermaid state diagram; `nothing` is its begin and end."""
    lines = ["stateDiagram-v2"]
    for step in STEPS:
        before, after = ("[*]" if state == "nothing" else state for state in (step.before, step.after))
        lines.append(f"    {before} --> {after}: {step.when.replace(':', ',').replace(';', ',')}")
    return "\n".join(lines) + "\n"


def _ratios() -> Iterator[str]:
    rules = [rule for rule in RULES if rule.unit == "ber"]
    head = ["Link rate"]
    for rule in rules:
        head += [f"{rule.id}: window"]
        for limit in ("warning", "critical"):
            if getattr(rule, limit) is not None:
                head.append(f"{limit} at {getattr(rule, limit):g}")
    rows = []
    for gbps in RATES:
        row = [f"{gbps} Gb/s"]
        for rule in rules:
            ber = explain.at_rate(of_rule(rule), gbps)
            assert ber is not None  # noqa: S101 - the rule is stated as a ratio
            row.append(span(ber.window))
            row += [f"{limit:g}" for limit in (ber.warning, ber.critical) if limit is not None]
        rows.append(row)
    yield from _table(head, rows)


def _section(rule: Rule) -> Iterator[str]:
    yield f"\n## {rule.id}\n\n"
    yield from _paragraph(f"**{rule.title}.** {rule.means}")
    yield "\n"
    yield from _paragraph(f"{explain.effect(of_rule(rule))} {_kind(rule)}")
    yield "\n"
    yield from _paragraph(f"Reads like: `{finding(rule)}`", "- ")
    yield from _paragraph(f"Likely causes: {rule.causes}", "- ")
    yield from _paragraph(f"What to do: [runbook](runbook/{rule.id}.md)", "- ")
    yield from _paragraph(f"Clears: {rule.clears} (recover: {span(rule.recover)})", "- ")
    yield from _paragraph(f"Source of the defaults: {rule.source}", "- ")


def _kind(rule: Rule) -> str:
    scope = {"port": "a port", "device": "a device", "node": "the node"}[rule.scope]
    return f"It is a {'count-like' if rule.counts else 'state-like'} rule about {scope}."


def _paragraph(words: str, mark: str = "") -> Iterator[str]:
    lines = textwrap.wrap(
        words, _WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
    yield from (f"{line}\n" for line in lines)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    yield from (f"| {' | '.join(row)} |\n" for row in rows)


# ------------------------------------------------------------------------------------------------------- the runbook


def runbook(rule: Rule) -> str:
    """The page of a rule for whoever is called at night, ending in a newline."""
    return "".join(_runbook(rule))


def _runbook(rule: Rule) -> Iterator[str]:
    chosen = of_rule(rule)
    yield f"# {rule.id}\n\n**{rule.title}.**\n\n## What ibmon saw\n\n    {finding(rule)}\n\n"
    yield from _paragraph(f"{_reading(rule)} `ibmon status` shows that line of your node and every port of it.")
    yield "\n## What it means\n\n"
    yield from _paragraph(f"{rule.means} {explain.effect(chosen)}")
    if rule.action is Mode.DRAIN:
        yield "\n"
        yield from _paragraph(_HANDED_BACK)
    yield "\n## Likely causes\n\n"
    for cause in explain.items(rule.causes):
        yield from _paragraph(_upper(cause), "- ")
    yield "\n## What to do\n\n"
    for number, step in enumerate(explain.items(rule.todo), 1):
        yield from _paragraph(f"{_upper(step)}.", f"{number}. ")
    yield "\n## How it clears\n\n"
    since = "from the last bad moment" if rule.counts else "without a break; a bad read begins it anew"
    yield from _paragraph(
        f"{_upper(rule.clears)}. The recover time is {span(rule.recover)}, {since}. After a repair nobody needs to "
        "wait for it: `ibmon clear` ends the finding."
    )
    yield "\n## Limits\n\n"
    limits = explain.in_force(Config(), {}, rule)
    yield from _table(
        ("Setting", "Default", "Meaning"), ((f"`{limit.key}`", limit.text, KEYS[limit.key]) for limit in limits)
    )
    if chosen.ratio:
        yield "\n"
        yield from _ratios()
    yield "\n"
    yield from _paragraph(
        f"`ibmon explain {rule.id}` shows what is in force on the node, `ibmon rules --port DEVICE/PORT` what is for "
        f"one port. Source of the defaults: {rule.source}. More: [rules](../rules.md#{rule.id})."
    )


def _reading(rule: Rule) -> str:
    """How the line above is read."""
    subject = {"port": "the rule, the port", "device": "the rule, the device", "node": "the rule"}[rule.scope]
    if rule.counts:
        return f"That is {subject}, what was counted, in which window, and the limit that was reached."
    return f"That is {subject}, what was read, for how long, and, once critical, the hold that this has outlasted."


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def main(arguments: Sequence[str]) -> int:
    """Print the page, or with ``--runbook DIR`` write one file a rule and fleet alert there and remove those gone."""
    if not arguments:
        sys.stdout.write(page())
        return 0
    if len(arguments) != 2 or arguments[0] != "--runbook":
        sys.stderr.write("usage: python -m ibmon.rulesdoc [--runbook DIR]\n")
        return 2
    directory = Path(arguments[1])
    directory.mkdir(parents=True, exist_ok=True)
    for rule in RULES:
        (directory / f"{rule.id}.md").write_text(runbook(rule), encoding="utf-8")
    for alert in FLEET:
        (directory / f"{alert.slug}.md").write_text(fleetbook.page(alert), encoding="utf-8")
    for file in directory.glob("*.md"):
        if file.stem not in {*RULE_BY_ID, *BY_SLUG}:
            file.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
