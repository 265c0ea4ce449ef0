"""How a finding looks in Alertmanager: its name, labels and annotations, and the body of a POST. Pure.

Dashboards, routes and silences of a site rest on these labels (docs/alerts.md), so none is renamed or taken away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from ibmon.alert.message import rfc3339
from ibmon.health.rules import RULE_BY_ID
from ibmon.messages import Notice
from ibmon.model import Finding, PortId
from ibmon.notices import WORDS

PATH = "/api/v2/alerts"
"""Below the address of an Alertmanager, from 0.16 on (its api/v2/openapi.yaml)."""

_SHORTEST = 0.001
"""Seconds that an alert lasts at least: one that ends before it starts is refused with 400."""

Identity = tuple[tuple[str, str], ...]


class Alert(msgspec.Struct, frozen=True):
    """What Alertmanager is told of one finding or notice. `starts` is wall time."""

    labels: dict[str, str]
    annotations: dict[str, str]
    starts: float

    @property
    def identity(self) -> Identity:
        """What makes it the same alert as before: all labels but the rail, which a restart knows only after a while."""
        return tuple(sorted((name, value) for name, value in self.labels.items() if name != "rail"))

    def on_rail_of(self, known: Alert) -> Alert:
        """This alert with the rail that was told first: another label would make it another alert."""
        labels = {name: value for name, value in self.labels.items() if name != "rail"}
        if "rail" in known.labels:
            labels["rail"] = known.labels["rail"]
        return msgspec.structs.replace(self, labels=labels)


class Told(NamedTuple):
    """One alert in a POST: it holds until `ends` (wall time), which lies in the past for one that is over."""

    alert: Alert
    ends: float


def alert_name(rule: str) -> str:
    """The alertname of a rule: ``IbmonPortDown`` of ``port-down``."""
    return "Ibmon" + "".join(word.capitalize() for word in rule.split("-"))


def from_finding(finding: Finding, node: str, rails: Mapping[PortId, int | None]) -> Alert:
    """The alert of a finding on this node; what a finding does not have is no label."""
    rail = rails.get(PortId(finding.device, finding.port))
    labels = {
        "alertname": alert_name(finding.rule),
        "rule": finding.rule,
        "node": node,
        "severity": finding.severity.value,
        "device": finding.device,
        "port": str(finding.port) if finding.port else "",
        "counter": finding.counter,
        "rail": "" if rail is None else str(rail),
    }
    words = " ".join(part for part in (finding.rule, finding.subject, finding.text) if part)
    rule = RULE_BY_ID.get(finding.rule)
    annotations = {
        "summary": f"{node}: {words}",
        "description": f"{rule.title}. `ibmon explain {finding.rule}` tells more." if rule else "",
        "observed": _text(finding.observed),
        "limit": _text(finding.limit),
    }
    return Alert(_filled(labels), _filled(annotations), finding.onset)


def from_notice(notice: Notice, node: str) -> Alert:
    """The alert of a notice: about ibmon's acting on this node, so without rule, device and port."""
    labels = {"alertname": alert_name(notice.name), "node": node, "severity": notice.severity.value}
    annotations = {"summary": f"{node}: {notice.name} {notice.text}", "description": WORDS.get(notice.name, "")}
    return Alert(labels, _filled(annotations), notice.since)


def trial_alert(node: str, now: float) -> Alert:
    """An alert by which people see that alerts arrive; it is about nothing."""
    labels = {"alertname": "IbmonTest", "rule": "test", "node": node, "severity": "info"}
    return Alert(labels, {"summary": f"{node}: a test by `ibmon test-alert`; nothing is wrong"}, now)


def encode(told: Iterable[Told], *, source: str = "", runbook_url: str | None = None) -> bytes:
    """The JSON of a POST to `PATH`. `source` is the page of this node, `runbook_url` the directory of the runbook."""
    return msgspec.json.encode([_wire(alert, ends, source, runbook_url) for alert, ends in told])


def _wire(alert: Alert, ends: float, source: str, runbook_url: str | None) -> dict[str, Any]:
    annotations = alert.annotations
    if runbook_url and alert.labels.get("rule") in RULE_BY_ID:
        annotations = {**annotations, "runbook_url": f"{runbook_url.rstrip('/')}/{alert.labels['rule']}.md"}
    # A clock that was set back since must not make an alert that ends before it starts.
    starts = min(alert.starts, ends - _SHORTEST)
    found = {"labels": alert.labels, "annotations": annotations, "startsAt": rfc3339(starts), "endsAt": rfc3339(ends)}
    return {**found, "generatorURL": source} if source else found


def _filled(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if text}


def _text(value: float | str | None) -> str:
    """A number as people write it: 400, 0.25, 1.5e-12."""
    if value is None or isinstance(value, str):
        return value or ""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.6g}"
