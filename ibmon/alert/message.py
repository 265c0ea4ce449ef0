"""What a webhook receives: the published form of a change of fitness, of a finding, and of a test. Pure.

docs/webhook.schema.json is made from the types on this page; receivers rely on them, so fields are only ever added.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, Literal

import msgspec

from ibmon.model import BlockCode, Finding, NodeFitness, Severity


class FindingBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule that holds for a port, a device or (empty `port`) the node.

    `port` is written ``mlx5_3/1``, without a number for a whole device. `onset` is when it began, `observed` and
    `limit` are in the rule's unit or the kernel's words. Of a finding that has cleared only the first three are told.
    """

    rule: str
    port: str
    counter: str = ""
    severity: Severity | None = None
    onset: str | None = None
    observed: float | str | None = None
    limit: float | str | None = None
    text: str = ""
    recovering: bool = False
    drains: bool = False


class DrainBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The node's drain at its scheduler: wanted, in force by ibmon, or why not."""

    wanted: bool
    active: bool
    id: str = ""
    reason: str = ""
    blocked: BlockCode | None = None


class FitnessData(msgspec.Struct, frozen=True):
    """The node's fitness changed. `why` names the worst cause, empty for a fit node."""

    node: str
    fitness: NodeFitness
    previous: NodeFitness | None
    why: str
    findings: tuple[FindingBody, ...]
    drain: DrainBody | None = None


class FindingData(msgspec.Struct, frozen=True):
    """A finding opened, changed its severity or began to recover (all ``open``), or has cleared."""

    node: str
    state: Literal["open", "cleared"]
    finding: FindingBody


class FitnessMessage(msgspec.Struct, frozen=True, tag_field="type", tag="ibmon.fitness"):
    """`timestamp` is when it happened, not when it was delivered."""

    timestamp: str
    data: FitnessData


class FindingMessage(msgspec.Struct, frozen=True, tag_field="type", tag="ibmon.finding"):
    """`timestamp` is when it happened, not when it was delivered."""

    timestamp: str
    data: FindingData


class TrialData(msgspec.Struct, frozen=True):
    """Somebody called `ibmon test-alert` on this node; nothing has happened."""

    node: str
    text: str


class TrialMessage(msgspec.Struct, frozen=True, tag_field="type", tag="ibmon.test"):
    """Shows that messages arrive and that their signature is accepted."""

    timestamp: str
    data: TrialData


WebhookMessage = FitnessMessage | FindingMessage | TrialMessage


def encode(topic: str, node: str, body: Mapping[str, Any], wall: float) -> bytes:
    """The JSON of a message of the engine (`messages.Send`) about something that happened at `wall`.

    msgspec.ValidationError or KeyError for a body that is not of its topic's form.
    """
    if topic == "fitness":
        data: dict[str, Any] = {
            "node": node,
            "fitness": body["fitness"],
            "previous": body.get("previous"),
            "why": body.get("why") or "",
            "findings": [_finding(finding) for finding in body.get("findings", ())],
            "drain": body.get("drain"),
        }
    else:
        data = {"node": node, "state": body["state"], "finding": _finding(body["finding"])}
    raw = {"type": f"ibmon.{topic}", "timestamp": rfc3339(wall), "data": msgspec.to_builtins(data)}
    # The types have the last word, so that nothing leaves which the schema does not know.
    return msgspec.json.encode(msgspec.convert(raw, WebhookMessage))


def encode_trial(node: str, wall: float) -> bytes:
    """The JSON of a test message."""
    text = f"{node}: a test by `ibmon test-alert`; nothing is wrong"
    return msgspec.json.encode(TrialMessage(rfc3339(wall), TrialData(node, text)))


def _finding(finding: Finding | Mapping[str, Any]) -> dict[str, Any]:
    """A finding, or the key of one that has cleared, in its published form."""
    if isinstance(finding, Finding):
        names = ("rule", "counter", "severity", "observed", "limit", "text", "recovering", "drains")
        told = {name: getattr(finding, name) for name in names}
        return {**told, "port": finding.subject, "onset": rfc3339(finding.onset)}
    device, port = finding.get("device", ""), finding.get("port", 0)
    return {
        "rule": finding["rule"],
        "port": f"{device}/{port}" if port else device,
        "counter": finding.get("counter", ""),
    }


def rfc3339(wall: float) -> str:
    """A wall time as ``2030-01-01T10:00:00.250Z``."""
    text = datetime.fromtimestamp(wall, timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of all messages."""
    made = msgspec.json.schema(WebhookMessage)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Webhook messages of ibmon",
        **made,
    }
