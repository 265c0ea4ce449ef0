"""The values that rules for Prometheus are made of, and the PromQL that several of them share. Pure."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

RUNBOOK_URL: Final = "https://ibmon.dev/docs/runbook"
"""Where the pages of docs/runbook are looked for unless a site names another place."""

BRIDGED: Final = "2m"
"""What was scraped within this time still counts, so that one failed scrape neither ends an alert nor begins it anew
(one notification a fault). It is two scrapes at the longest interval in common use, 60 s."""


class Recording(NamedTuple):
    """A recording rule; `says` is its comment."""

    name: str
    expr: str
    says: str


class Alert(NamedTuple):
    """An alerting rule.

    Attributes:
        slug: file name of its page in docs/runbook.
        name: alertname.
        expr: what holds while it fires.
        hold: ``for``, as Prometheus writes durations; empty: at once.
        severity: None where the series itself carries the label.
        summary: one line, a template of Prometheus: who, what was seen, what may be.
        description: one sentence.
    """

    slug: str
    name: str
    expr: str
    hold: str
    severity: Literal["warning", "critical"] | None
    summary: str
    description: str

    @property
    def labels(self) -> dict[str, str]:
        """What the rule adds to the labels of its series."""
        return {"severity": self.severity} if self.severity else {}

    def annotations(self, runbook_url: str) -> dict[str, str]:
        """What it says; `runbook_url` is the directory of the runbook."""
        return {
            "summary": self.summary,
            "description": self.description,
            "runbook_url": f"{runbook_url.rstrip('/')}/{self.slug}.md",
        }


class FleetRule(NamedTuple):
    """One row: an alert, and its page in the runbook. In `causes` and `todo` a semicolon parts one item from the next.

    `title` and `means` are for people; `source` tells where the limit comes from, `clears` what ends the alert.
    """

    slug: str
    name: str
    expr: str
    hold: str
    severity: Literal["warning", "critical"]
    summary: str
    title: str
    means: str
    causes: str
    todo: str
    clears: str
    source: str

    @property
    def alert(self) -> Alert:
        """The row as a rule."""
        return Alert(self.slug, self.name, self.expr, self.hold, self.severity, self.summary, f"{self.title}.")


class Group(NamedTuple):
    """Rules that are evaluated one after the other, each seeing what those before it recorded."""

    name: str
    recordings: tuple[Recording, ...]
    alerts: tuple[Alert, ...]


NODE_OF: Final = f"max by (job, instance, node) (last_over_time(ibmon_node_info[{BRIDGED}]))"


def named(expr: str) -> str:
    """The expression with the label `node`: the name that the node itself has, whatever its target is called."""
    return f"({expr})\n* on (job, instance) group_left (node)\n{NODE_OF}"
