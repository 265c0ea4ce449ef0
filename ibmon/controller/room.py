"""The newest view of the whole scheduler, with what was seen since laid over it: who stands where, and room in limits.

The limits that count are those of `reconcile`, read at the moment of a drain. This copy only keeps the controller from
asking for what would be refused, at the price of a look-up instead of a walk over all nodes.
"""

from __future__ import annotations

import math
from typing import Final

from ibmon.config import LimitsConfig
from ibmon.controller.values import FleetView, PoolRow
from ibmon.drain import policy
from ibmon.model import BlockCode, NodeView, Now

FRESH: Final = 90.0
"""Seconds for which a view may be relied on: three bulk reads."""


class _Count:
    """A pool's numbers, changed node by node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counted: set[str] = set()
        self.ours: dict[str, float | None] = {}
        self.away: set[str] = set()
        self.closed: BlockCode | None = None  # the scheduler said so after this view was read

    def put(self, view: NodeView, kind: tuple[bool, bool]) -> None:
        name = view.name
        counts, away = kind
        if not counts:
            self.counted.discard(name)
            self.away.discard(name)
            self.ours.pop(name, None)
            return
        self.counted.add(name)
        (self.away.add if away else self.away.discard)(name)
        if view.reason is not None and policy.claims(view):
            self.ours[name] = view.since
        else:
            self.ours.pop(name, None)

    def tally(self) -> policy.Tally:
        return policy.Tally(len(self.counted), tuple(self.ours.values()), len(self.away))


class Room:
    """What is known of the scheduler.

    `seq` grows with each view, `at` is when the newest came (monotonic). `claimed` are the drains in ibmon's form.
    `trouble` is why the last view could not be read; before `pause` (monotonic) nothing is tried, since a call has
    just failed.
    """

    def __init__(self, limits: LimitsConfig) -> None:
        self._limits = limits
        self.nodes: dict[str, NodeView] = {}
        self.groups: dict[str, str] = {}
        self.claimed: dict[str, NodeView] = {}
        self.at = -math.inf
        self.began = -math.inf
        self.seq = 0
        self.trouble: BlockCode | None = None
        self.pause = -math.inf
        self._pools: list[_Count] = []
        self._of: dict[str, list[_Count]] = {}
        self._kinds: dict[frozenset[str], tuple[bool, bool]] = {}
        self._patches: dict[str, tuple[float, NodeView]] = {}

    def load(self, view: FleetView, now: Now) -> None:
        """Take in a view of the whole; what was seen of single nodes since it began stays."""
        self.at, self.seq = now.monotonic, self.seq + 1
        self.trouble, self.pause = None, -math.inf
        self.began = now.monotonic if view.began is None else view.began
        self.nodes, self.groups = dict(view.nodes), dict(view.groups)
        self._pools, self._of = [], {}
        everyone = {node.name for pool in view.pools for node in pool.nodes}
        chosen: dict[str, list[_Count]] = {}
        whole: dict[str, list[_Count]] = {}
        for pool in view.pools:
            count = _Count(pool.name)
            self._pools.append(count)
            for node in pool.nodes:
                count.put(node, self._kind(node.flags))
            names = {node.name for node in pool.nodes}
            if self._limits.partitions is not None:
                into = chosen if pool.name in self._limits.partitions else None
            else:
                into = chosen if len(names) < len(everyone) else whole
            for name in names if into is not None else ():
                into.setdefault(name, []).append(count)  # type: ignore[union-attr]
        self._of = {**whole, **chosen}
        self.claimed = {name: node for name, node in self.nodes.items() if node.reason and _in_our_form(node)}
        patches, self._patches = self._patches, {}
        if view.began is not None:
            for at, node in patches.values():
                if at > view.began:
                    self.see(node, at)

    def _kind(self, flags: frozenset[str]) -> tuple[bool, bool]:
        kind = self._kinds.get(flags)
        if kind is None:
            kind = self._kinds[flags] = (policy.counts(flags), policy.unavailable(flags))
        return kind

    def see(self, view: NodeView, at: float) -> None:
        """Take in how one node stands as of `at` (monotonic), newer than the view of the whole."""
        if view.name not in self.nodes:
            return
        self.nodes[view.name] = view
        self._patches[view.name] = (at, view)
        if view.reason and _in_our_form(view):
            self.claimed[view.name] = view
        else:
            self.claimed.pop(view.name, None)
        for count in self._pools:
            if view.name in count.counted or view.name in count.away:
                count.put(view, self._kind(view.flags))

    def close(self, node: str, code: BlockCode) -> None:
        """The scheduler has counted and refused: the limits of this node's pools are closed until the next view."""
        for count in self._of.get(node, ()):
            count.closed = code

    def fresh(self, now: Now) -> bool:
        """Whether the view is new enough to act on."""
        return now.monotonic - self.at < FRESH

    def gate(self, node: str, wall: float) -> BlockCode | None:
        """Why the limits have no room for this node, as `policy.limit_gate` would say by this view."""
        counts = self._of.get(node)
        if not counts:
            return BlockCode.LIMIT_UNREADABLE
        codes = [count.closed or policy.tally_gate(count.tally(), self._limits, wall) for count in counts]
        return next((code for code in codes if code), None)

    def rate_ends(self, node: str, wall: float) -> float:
        """Seconds until a pool of this node that is closed by the rate alone may have room, or infinity."""
        window = policy.rate_window(self._limits) if self._limits.new_per_minute > 0 else math.inf
        times = [since for count in self._of.get(node, ()) if count.closed is None for since in count.ours.values()]
        recent = [since for since in times if since is not None and since > wall - window]
        return min((since + window - wall for since in recent), default=math.inf)

    def rows(self) -> tuple[PoolRow, ...]:
        """The pools as people see them."""
        return tuple(
            PoolRow(
                count.name,
                len(count.counted),
                policy.allowed(len(count.counted), self._limits),
                len(count.ours),
                len(count.away),
            )
            for count in self._pools
        )


def _in_our_form(view: NodeView) -> bool:
    return policy.claims(view) and policy.parse_reason(view.reason) is not None
