"""Kubernetes as a scheduler: reads this node and the pools, sets and takes away our taint, tells the node's condition.

It writes nothing but its own taint, annotations, condition and events, and a cordon of its own where that is
configured. It evicts nothing, and believes nothing that it cannot parse.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ibmon.config import KubernetesConfig
from ibmon.drain import kube_node
from ibmon.drain.kube_client import STRATEGIC, Answer, Call, KubeClient, KubeError, decode
from ibmon.drain.kube_list import ALL, KubernetesPool, list_nodes
from ibmon.drain.kube_node import CONDITION, REASON, Node
from ibmon.model import NodeFitness, NodeView
from ibmon.ports import SchedulerError

log = logging.getLogger(__name__)

ATTEMPTS: Final = 5
"""How often a change is tried anew after the node was changed in between (409)."""
# RFC 1123; also keeps a name from being another path.
_NODE_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class Kubernetes:
    """One node's view of Kubernetes. Every call has the configured deadline (seconds) and raises SchedulerError.

    Args:
        config: section [kubernetes].
        environ: where the pod's variables are.
        client: makes the calls; by default one with the configured credentials.
        wall: the wall clock (seconds), for where the server does not tell its own.
    """

    def __init__(
        self,
        config: KubernetesConfig,
        *,
        environ: Mapping[str, str] | None = None,
        client: KubeClient | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._environ = os.environ if environ is None else environ
        self._client = client or KubeClient.configured(config, self._environ)
        self._wall = wall
        self._shown: str | None = None  # the reason that read_node told last
        self._told: str | None = None  # the condition's status at the server, as far as known

    @property
    def node_name(self) -> str:
        """This node's name in Kubernetes: configured, else NODE_NAME (downward API); SchedulerError without."""
        name = self._config.node_name or self._environ.get("NODE_NAME", "")
        if not name:
            raise SchedulerError("this node's name is not known: set kubernetes.node_name, or NODE_NAME in the pod")
        if not _NODE_NAME.fullmatch(name):
            raise SchedulerError(f"{name!r} is no name of a Kubernetes node; set kubernetes.node_name")
        return name

    # ------------------------------------------------------------------------------------------------ reading

    def read_node(self) -> NodeView:
        """This node's state, read now."""
        view = kube_node.view(self._get()[0], self._config.taint_key)
        self._shown = view.reason
        return view

    def read_pools(self) -> tuple[KubernetesPool, ...]:
        """The pool of this node, read now: by the label `pool_label` if it is configured, else every node.

        Listing nodes is a right of its own; without it the limits cannot be counted and nothing is drained.
        """
        name, selector = ALL, ""
        if label := self._config.pool_label:
            value = (self._get()[0].metadata.labels or {}).get(label)
            if value is None:
                raise SchedulerError(f"node {self.node_name} has no label {label}: its pool is not known")
            name, selector = value, f"{label}={value}"
        nodes = tuple(kube_node.view(node, self._config.taint_key) for node in list_nodes(self._client, selector))
        if not any(node.name == self.node_name for node in nodes):
            raise SchedulerError(f"Kubernetes lists {len(nodes)} nodes, and {self.node_name} is not among them")
        return (KubernetesPool(name, nodes),)

    # ------------------------------------------------------------------------------------------------ writing

    def drain(self, reason: str) -> None:
        """Set our taint, and the reason beside it. A taint of our key that stands already is never overwritten."""
        key = self._config.taint_key

        def change(node: Node, at: float) -> dict[str, Any] | None:
            if taints := node.taints_of(key):
                if kube_node.is_ours(taints) and node.annotation(REASON) == reason:
                    return None
                raise SchedulerError(f"node {node.metadata.name} has got the taint {key} by somebody else meanwhile")
            return kube_node.drain_patch(node, key, reason, at, cordon=self._config.cordon)

        if self._change(change):
            self._event("FabricDrained", reason, warning=True)

    def undrain(self) -> None:
        """Take our taint, annotations and cordon away, if they still are as `read_node` showed them last."""
        key = self._config.taint_key

        def change(node: Node, _at: float) -> dict[str, Any] | None:
            view = kube_node.view(node, key)
            if not view.drained:
                return None
            if not kube_node.is_ours(node.taints_of(key)) or view.reason != self._shown:
                raise SchedulerError(f"the taint {key} of node {view.name} is not any more the one that was read")
            return kube_node.undrain_patch(node, key)

        if self._change(change):
            self._event("FabricReleased", self._shown or "", warning=False)

    def _change(self, make: Callable[[Node, float], dict[str, Any] | None]) -> bool:
        """Read, make a patch of what was read, write it under that version; again where it changed in between.

        Whether anything was written: None of `make` means that nothing is to do.
        """
        for _ in range(ATTEMPTS):
            node, at = self._get()
            patch = make(node, at)
            if patch is None:
                return False
            try:
                self._patch(patch)
            except KubeError as error:
                if error.conflict:
                    continue
                raise
            return True
        raise SchedulerError(f"node {self.node_name} was changed by others {ATTEMPTS} times in a row while it was read")

    # ------------------------------------------------------------------------------------------------ telling

    def publish(self, fitness: NodeFitness, why: str) -> None:
        """Write the condition RdmaFabricUnhealthy with a new heartbeat; an event where it became true or ended."""
        if not self._config.condition:
            return
        status = kube_node.condition_status(fitness)
        if self._told is None:
            known = self._get()[0].condition(CONDITION)
            self._told = known.status if known else ""
        before, self._told = self._told, None
        told = self._write_condition(fitness, why, changed=status != before)
        self._told = status
        if status != before and "True" in {status, before}:
            self._event(told["reason"], told["message"], warning=status == "True")

    def _write_condition(self, fitness: NodeFitness, why: str, *, changed: bool) -> dict[str, Any]:
        """Conditions are merged by their type in a strategic merge patch of /status, so those of others stay."""
        condition = kube_node.condition(fitness, why, self._wall(), changed=changed)
        answer = self._patch({"status": {"conditions": [condition]}}, "status")
        written = decode(answer.body, Node, "node").condition(CONDITION)
        if written is None:
            raise SchedulerError(f"Kubernetes took the condition {CONDITION} and does not show it")
        if written.last_transition_time is None and not changed:  # the node was made anew since the last time
            return self._write_condition(fitness, why, changed=True)
        return condition

    def check(self) -> tuple[str, ...]:
        """What would keep a drain from happening, one line each; tried by a dry run, which leaves nothing behind.

        SchedulerError where there was no answer at all: that says nothing about rights.
        """
        return tuple(why for why in (_barred(self._try_write), _barred(self._try_list)) if why)

    def _try_write(self) -> None:
        self._get()
        self._patch({"metadata": {}}, dry_run=True)

    def _try_list(self) -> None:
        self._client.send(Call("GET", "/api/v1/nodes", "list", "nodes", "nodes", {"limit": "1"}))

    def _event(self, reason: str, message: str, *, warning: bool) -> None:
        """An event is for people who look; one that cannot be written changes nothing and is said once."""
        if not self._config.events:
            return
        body = kube_node.event(self.node_name, reason, message, self._wall(), warning=warning)
        path = "/api/v1/namespaces/default/events"
        try:
            self._client.send(Call("POST", path, "create", "events", "events in namespace default", {}, body))
        except SchedulerError as error:
            log.warning("%s", error)

    # -------------------------------------------------------------------------------------------------- calls

    def _get(self) -> tuple[Node, float]:
        """This node, and the server's time of it (wall): marks of all nodes are set by one clock."""
        name = self.node_name
        answer = self._client.send(Call("GET", f"/api/v1/nodes/{name}", "get", "nodes", f"node {name}"))
        node = decode(answer.body, Node, "node")
        if node.metadata.name != name:
            raise SchedulerError(f"Kubernetes answered with node {node.metadata.name} instead of {name}")
        return node, self._wall() if answer.date is None else answer.date

    def _patch(self, body: dict[str, Any], subresource: str = "", *, dry_run: bool = False) -> Answer:
        name = self.node_name
        path, resource = f"/api/v1/nodes/{name}", "nodes"
        if subresource:
            path, resource = f"{path}/{subresource}", f"{resource}/{subresource}"
        query = {"fieldManager": "ibmon"} | ({"dryRun": "All"} if dry_run else {})
        about = f"{subresource} of node {name}" if subresource else f"node {name}"
        return self._client.send(Call("PATCH", path, "patch", resource, about, query, body, STRATEGIC))


def _barred(attempt: Callable[[], None]) -> str | None:
    """Why the server refuses this, None where it does not; SchedulerError where it says neither."""
    try:
        attempt()
    except KubeError as error:
        if error.refused:
            return str(error)
        raise
    return None
