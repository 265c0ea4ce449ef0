"""POST /v1/alerts: the webhook of an Alertmanager (payload version 4), as values for the fleet's logic.

Source of the form: prometheus.io/docs/alerting/latest/configuration/#webhook_config. What it may drain is decided
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from ibmon.controller.operate import decode
from ibmon.controller.values import AlertSeen

_NODE: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")
_SUMMARY: Final = 200


class _Alert(msgspec.Struct, frozen=True):
    status: Literal["firing", "resolved"]
    startsAt: Annotated[datetime, msgspec.Meta(tz=True)]  # noqa: N815 - Alertmanager's name
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    fingerprint: str = ""


class _Webhook(msgspec.Struct, frozen=True):
    version: Literal["4"]
    alerts: list[_Alert]
    truncatedAlerts: int = 0  # noqa: N815 - as above


class Item(NamedTuple):
    """One alert of a message: as a value, or the line that says why it is none."""

    name: str
    node: str
    alert: AlertSeen | None
    wrong: str = ""


class Message(NamedTuple):
    """A webhook of an Alertmanager. It may have left some alerts out (`max_alerts`)."""

    items: Sequence[Item]
    left_out: int


def read(body: bytes) -> Message:
    """The alerts in a webhook; BodyError where it is none of version 4."""
    message = decode(body, _Webhook)
    return Message([_item(alert) for alert in message.alerts], message.truncatedAlerts)


def _item(alert: _Alert) -> Item:
    name, node = alert.labels.get("alertname", "")[:253], _node(alert.labels)
    if not name:
        return Item(name, node, None, "it has no label alertname")
    if not node:
        return Item(name, node, None, "it has neither a label node nor one instance that names a node")
    if not alert.fingerprint:
        return Item(name, node, None, "it has no fingerprint")
    notes = alert.annotations
    summary = " ".join((notes.get("summary") or notes.get("description") or "").split())[:_SUMMARY]
    seen = AlertSeen(
        name=name,
        node=node,
        firing=alert.status == "firing",
        fingerprint=alert.fingerprint[:64],
        starts=alert.startsAt.timestamp(),
        summary=summary,
    )
    return Item(name, node, seen)


def _node(labels: Mapping[str, str]) -> str:
    """The node that an alert is about: the label `node`, else the host of `instance`; empty where neither names one."""
    node = labels.get("node") or labels.get("instance", "").rpartition("//")[2].partition("/")[0].partition(":")[0]
    return node if _NODE.fullmatch(node) else ""
