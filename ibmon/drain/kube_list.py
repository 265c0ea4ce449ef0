"""The list of a cluster's nodes, read page by page: for the limits of one node, and for who serves all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from ibmon.drain.kube_client import Call, KubeClient, decode
from ibmon.drain.kube_node import Node, NodeList
from ibmon.model import NodeView
from ibmon.ports import SchedulerError

PAGE: Final = 250
"""Nodes in one answer of a list."""
ALL: Final = "nodes"
"""Name of the pool of all nodes, where no label makes pools."""
_PAGES: Final = 1000


class KubernetesPool(msgspec.Struct):
    """The nodes with one value of the pool label; without such a label all nodes."""

    name: str
    nodes: tuple[NodeView, ...]


def list_nodes(client: KubeClient, selector: str = "") -> Iterator[Node]:
    """All nodes that the label selector matches, as they are asked for; SchedulerError at any page that fails."""
    query = {"limit": str(PAGE)} | ({"labelSelector": selector} if selector else {})
    for _ in range(_PAGES):
        answer = client.send(Call("GET", "/api/v1/nodes", "list", "nodes", "nodes", query))
        page = decode(answer.body, NodeList, "list of nodes")
        yield from page.items
        if not page.metadata.token:
            return
        query = query | {"continue": page.metadata.token}
    raise SchedulerError("Kubernetes' list of nodes does not end")
