"""Thousands of nodes that report over kept connections: asyncio on raw protocols, so that the load costs little itself.

A report is timed from when it is written to when its whole answer is read, whatever else this process does meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from bench.fleetserver import name
from ibmon.alert.signature import sign
from ibmon.model import Mode, NodeFitness, Severity
from ibmon.report import PATH, FindingLine, Report, Wish, node_key

UNFIT = 100
"""One node in so many reports a finding and wants to be drained."""

_OK = b"HTTP/1.1 200 "


@dataclass
class Seen:
    """Seconds of every report, and what went wrong."""

    seconds: list[float] = field(default_factory=list)
    wrong: int = 0
    lost: int = 0


class Link(asyncio.Protocol):
    """A connection that is kept."""

    __slots__ = ("_seen", "sent", "transport")

    def __init__(self, seen: Seen) -> None:
        self._seen, self.sent = seen, 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.transport = None

    def data_received(self, data: bytes) -> None:
        self._seen.seconds.append(time.perf_counter() - self.sent)
        self.sent = 0.0
        if not data.startswith(_OK) or not data.endswith(b"}"):
            self._seen.wrong += 1


class Node:
    """One node and the connection that it has."""

    __slots__ = ("_fields", "_key", "_link", "_seen", "_seq", "number")

    def __init__(self, number: int, master: bytes, seen: Seen, link: Link) -> None:
        self.number, self._link = number, link
        self._key, self._seen = node_key(master, name(number)), seen
        self._fields = _fields(number)
        self._seq = 0

    def report(self) -> None:
        link = self._link
        if link.transport is None or link.sent:
            self._seen.lost += 1
            return
        self._seq += 1
        moment = time.time()
        body = self._body(moment)
        identity = f"msg_{self.number}_{self._seq}"
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: ibmon.example.org:19316\r\nAccept-Encoding: identity\r\n"
            f"User-Agent: ibmon\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"webhook-id: {identity}\r\nwebhook-timestamp: {int(moment)}\r\n"
            f"webhook-signature: {sign((self._key,), identity, int(moment), body)}\r\n\r\n"
        )
        link.sent = time.perf_counter()
        link.transport.write(head.encode() + body)

    def end(self) -> None:
        if self._link.transport is not None:
            self._link.transport.close()

    def _body(self, moment: float) -> bytes:
        return msgspec.json.encode(
            Report(
                v=1, node=name(self.number), boot_id="0f8fad5b-d9cb-469f-a165-70867728950e", seq=self._seq,
                sent=moment, version="1.0.0", config_hash="c0ffee12", mode=Mode.DRAIN, **self._fields,
            )
        )  # fmt: skip


def _fields(number: int) -> dict[str, Any]:
    """What a report says of the node. Faults began at times far apart, so that they are no fabric event."""
    if number % UNFIT:
        return {"fitness": NodeFitness.FIT, "rails": "oooooooo"}
    onset = time.time() - 90 - number
    finding = FindingLine(
        "port-down", "mlx5_3", 1, Severity.CRITICAL, onset, rail=3, observed="DOWN", limit=60.0, drains=True
    )
    wish = Wish(drain=True, id="7f3a9c", reason="ibmon: port-down mlx5_3/1 DOWN 62s>60s [id 7f3a9c]", since=onset + 60)
    return {"fitness": NodeFitness.UNFIT, "rails": "ooofoooo", "findings": (finding,), "intent": wish}


@dataclass
class Load:
    """Reports of all nodes, spread evenly over the interval. Where nodes outnumber `links`, some share one."""

    port: int
    master: bytes
    nodes: int
    links: int
    interval: float
    seen: Seen = field(default_factory=Seen)

    async def begin(self) -> list[Node]:
        """The first round: each node connects and reports, as it does when it starts."""
        nodes: list[Node] = []
        links: list[Link] = []
        async for number in self._turns(self.nodes):
            if number < self.links:
                links.append(await self._link(number))
            nodes.append(Node(number, self.master, self.seen, links[number % self.links]))
            nodes[-1].report()
        return nodes

    async def close(self, nodes: list[Node]) -> None:
        """End all connections."""
        for node in nodes:
            node.end()
        await asyncio.sleep(0)

    async def _link(self, number: int) -> Link:
        # Further addresses of the loopback: one alone has fewer ports than there are nodes.
        own = (f"127.0.0.{2 + number // 5000}", 0)
        _, link = await asyncio.get_running_loop().create_connection(
            lambda: Link(self.seen), "127.0.0.1", self.port, local_addr=own
        )
        return link

    async def run(self, nodes: list[Node], rounds: int) -> None:
        """So many reports of each node."""
        async for turn in self._turns(rounds * self.nodes):
            nodes[turn % self.nodes].report()

    async def _turns(self, count: int) -> AsyncIterator[int]:
        """Numbers from 0, each when it is due; then a moment for the last answers."""
        began, pause = time.monotonic(), self.interval / self.nodes
        for turn in range(count):
            await asyncio.sleep(max(0.0, began + turn * pause - time.monotonic()))
            yield turn
        await asyncio.sleep(min(1.0, self.interval))
