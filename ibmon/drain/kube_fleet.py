"""Kubernetes for who serves all nodes and is none of them: the pools, the topology, and each node's own backend.

It reads. What is written is written by the backend of one node, through `reconcile` as ever.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from ibmon.config import KubernetesConfig
from ibmon.drain import kube_node
from ibmon.drain.kube_client import KubeClient
from ibmon.drain.kube_list import ALL, KubernetesPool, list_nodes
from ibmon.drain.kube_node import Node
from ibmon.drain.kubernetes import Kubernetes
from ibmon.model import NodeView
from ibmon.ports import SchedulerError

UNLABELLED: Final = "none"
"""Name of the pool of nodes that lack the pool label."""


class KubernetesFleet:
    """All nodes of a cluster. Every call has the configured deadline (seconds, a page) and raises SchedulerError.

    Args:
        config: section [kubernetes]; its `node_name` is not used.
        client: makes the calls; by default one with the configured credentials.
    """

    def __init__(self, config: KubernetesConfig, *, client: KubeClient | None = None) -> None:
        self._config = config
        self._client = client or KubeClient.configured(config, os.environ)

    def for_node(self, name: str) -> Kubernetes:
        """The backend of one node, through the same client. It asks nothing before it is used."""
        return Kubernetes(msgspec.structs.replace(self._config, node_name=name), client=self._client)

    def read_fleet(self) -> tuple[KubernetesPool, ...]:
        """All pools with all nodes, read now and in one go, sorted by name.

        With `pool_label` one pool a value of it, and the nodes without it in the pool ``none``; else one, ``nodes``.
        """
        label = self._config.pool_label
        pools: dict[str, list[NodeView]] = {}
        for node in self._nodes():
            name = _label(node, label) or UNLABELLED if label else ALL
            pools.setdefault(name, []).append(kube_node.view(node, self._config.taint_key))
        return tuple(KubernetesPool(name, tuple(pools[name])) for name in sorted(pools))

    def read_topology(self, label: str) -> dict[str, str]:
        """Each node's value of this label, read now; nodes without it are left out."""
        found = {node.metadata.name: _label(node, label) for node in self._nodes()}
        return {name: value for name, value in found.items() if value}

    def _nodes(self) -> list[Node]:
        nodes = list(list_nodes(self._client))
        if not nodes:
            raise SchedulerError("Kubernetes lists no node at all, which is not believed")
        return nodes


def _label(node: Node, name: str) -> str:
    """A label's value, empty where the node has not got it."""
    return (node.metadata.labels or {}).get(name, "")
