"""A Kubernetes Node as ibmon sees it, and what it writes there, as values. Pure.

The taint is the drain and the mark of its owner: a cordon has no owner, so somebody else's is seen, counted, and left
alone. Names of taint value, annotations and condition are a contract with operators (docs/kubernetes.md).
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Final

import msgspec

from ibmon.model import NodeFitness, NodeView

TAINT_VALUE: Final = "unfit"
TAINT_EFFECT: Final = "NoSchedule"  # never NoExecute: that would end running pods
REASON: Final = "ibmon.dev/drain"
DRAINED_AT: Final = "ibmon.dev/drained-at"
CORDON: Final = "ibmon.dev/cordon"
CORDONED_BY_US: Final = "ibmon"
CORDONED_BEFORE: Final = "pre-existing"
CONDITION: Final = "RdmaFabricUnhealthy"


class Metadata(msgspec.Struct, rename="camel"):
    """What is used of an object's metadata."""

    name: str
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Spec(msgspec.Struct):
    """`taints` stay as they came: what others wrote there is written back whole."""

    unschedulable: bool | None = None
    taints: list[dict[str, Any]] | None = None


class Condition(msgspec.Struct, rename="camel"):
    """A condition's type, status (True, False, Unknown) and when that changed last."""

    type: str
    status: str
    last_transition_time: str | None = None


class Status(msgspec.Struct):
    """What is used of a node's status."""

    conditions: list[Condition] | None = None


class Node(msgspec.Struct):
    """One Node."""

    metadata: Metadata
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    def annotation(self, name: str) -> str | None:
        """An annotation's text, None where there is none."""
        return (self.metadata.annotations or {}).get(name)

    def condition(self, name: str) -> Condition | None:
        """The condition of that type."""
        return next((c for c in self.status.conditions or () if c.type == name), None)

    def taints_of(self, key: str) -> list[dict[str, Any]]:
        """The taints with this key, whatever value and effect they have."""
        return [taint for taint in self.spec.taints or () if taint.get("key") == key]

    def other_taints(self, key: str) -> list[dict[str, Any]]:
        """All others, as they came and in their order."""
        return [taint for taint in self.spec.taints or () if taint.get("key") != key]


class ListMetadata(msgspec.Struct, rename={"token": "continue"}):
    """What is used of a list's metadata: where the next page begins, empty at the last."""

    token: str = ""


class NodeList(msgspec.Struct):
    """One page of a list."""

    items: list[Node]
    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)


# ------------------------------------------------------------------------------------------------------ reading


def view(node: Node, key: str) -> NodeView:
    """The node in the words of the limits and gates, `key` being that of our taint.

    DRAIN: a taint of our key stands; its reason is that of the annotation only where the taint is as ibmon writes it.
    CORDONED: somebody else has set ``spec.unschedulable``. Without a Ready condition that is True the node counts as
    not responding.
    """
    ready = node.condition("Ready")
    flags = {"IDLE" if ready is not None and ready.status == "True" else "NOT_RESPONDING"}
    taints = node.taints_of(key)
    if node.spec.unschedulable and not (taints and node.annotation(CORDON) == CORDONED_BY_US):
        flags.add("CORDONED")
    if not taints:
        # Annotations that were left behind say nothing.
        return NodeView(node.metadata.name, frozenset(flags))
    flags.add("DRAIN")
    if not is_ours(taints):
        return NodeView(node.metadata.name, frozenset(flags), reason=f"taint {' '.join(map(taint_text, taints))}")
    reason = node.annotation(REASON) or f"taint {taint_text(taints[0])} without the annotation {REASON}"
    return NodeView(node.metadata.name, frozenset(flags), reason=reason, since=wall(node.annotation(DRAINED_AT)))


def is_ours(taints: list[dict[str, Any]]) -> bool:
    """Whether the taints of our key are the one that ibmon writes."""
    return [(taint.get("value"), taint.get("effect")) for taint in taints] == [(TAINT_VALUE, TAINT_EFFECT)]


def taint_text(taint: dict[str, Any]) -> str:
    """``key=value:effect``, as kubectl writes a taint."""
    value = taint.get("value")
    return f"{taint.get('key')}{f'={value}' if value else ''}:{taint.get('effect')}"


def wall(text: str | None) -> float | None:
    """Wall time (seconds) of an RFC 3339 text in UTC, None where it is not one."""
    try:
        return datetime.strptime(text or "", "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def time_text(at: float) -> str:
    """RFC 3339 in UTC, whole seconds: the form of metav1.Time."""
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


# ------------------------------------------------------------------------------------------------------ writing


def drain_patch(node: Node, key: str, reason: str, at: float, *, cordon: bool) -> dict[str, Any]:
    """A strategic merge patch that sets our taint with its annotations, and with `cordon` unschedulable.

    The list of taints is one value for the server, so it is written whole, and the resource version makes the patch
    fail (409) where the node is not any more as it was read.
    """
    mark: str | None = None
    spec: dict[str, Any] = {
        "taints": [*node.other_taints(key), {"key": key, "value": TAINT_VALUE, "effect": TAINT_EFFECT}]
    }
    if node.spec.unschedulable:
        mark = CORDONED_BEFORE
    elif cordon:
        mark = CORDONED_BY_US
        spec["unschedulable"] = True
    return _patch(node, {REASON: reason, DRAINED_AT: time_text(at), CORDON: mark}, spec)


def undrain_patch(node: Node, key: str) -> dict[str, Any]:
    """A patch that takes away what `drain_patch` set, and a cordon only where that is ours too."""
    spec: dict[str, Any] = {"taints": node.other_taints(key)}
    if node.annotation(CORDON) == CORDONED_BY_US and node.spec.unschedulable:
        spec["unschedulable"] = None
    return _patch(node, dict.fromkeys((REASON, DRAINED_AT, CORDON)), spec)


def _patch(node: Node, annotations: dict[str, str | None], spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"resourceVersion": node.metadata.resource_version, "annotations": annotations}
    return {"metadata": metadata, "spec": spec}


_WORDS: Final = {
    NodeFitness.FIT: ("False", "FabricFit", "all compute ports are well"),
    NodeFitness.WATCH: ("False", "FabricWatch", "something is not well, but the node is fit"),
    NodeFitness.UNFIT: ("True", "FabricUnfit", "unfit for multi-node jobs"),
    NodeFitness.UNKNOWN: ("Unknown", "FabricUnknown", "a compute port cannot be read"),
}


def condition_status(fitness: NodeFitness) -> str:
    """True is a problem, as for the kubelet's own pressure conditions."""
    return _WORDS[fitness][0]


def condition(fitness: NodeFitness, why: str, at: float, *, changed: bool) -> dict[str, Any]:
    """The condition with a heartbeat of `at`; the message is `why`, or says what the fitness means.

    Without `changed` the time of the last transition is left out, and stays as it is at the server.
    """
    status, reason, words = _WORDS[fitness]
    found = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": (why or words)[:1024],
        "lastHeartbeatTime": time_text(at),
    }
    return found | {"lastTransitionTime": time_text(at)} if changed else found


def event(node: str, reason: str, message: str, at: float, *, warning: bool) -> dict[str, Any]:
    """A core/v1 Event about a node. Such events live in the namespace default, with the name as the uid (kubelet)."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "ibmon-", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "reason": reason,
        "message": message[:1024],
        "type": "Warning" if warning else "Normal",
        "source": {"component": "ibmon", "host": node},
        "firstTimestamp": time_text(at),
        "lastTimestamp": time_text(at),
        "count": 1,
    }
