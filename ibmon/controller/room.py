"""The newest view of the whole scheduler, with what was seen since laid over it: who stands where, and room in limits.

The limits that count are those of `reconcile`, read at the moment of a drain. This copy only keeps the controller from
asking for what would be refused, at the price of a look-up instead of a walk over all nodes.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from ibmon.config import LimitsConfig
from ibmon.controller.values import FleetView, PoolRow
from ibmon.drain import policy
from ibmon.model import BlockCode, NodeView, Now

FRESH: Final = 90.0
"""Seconds for which a view may be relied on: three bulk reads."""


class _Count:
    """A pool's numbers, changed node by node."""

    def __init__(self, pool: policy.Pool) -> None:
        self.name = pool.name
        self.names = {view.name for view in pool.nodes}
        self.nodes = self.away = 0
        for flags, many in Counter(view.flags for view in pool.nodes).items():
            self._add(flags, many)
        reasons = [view for view in pool.nodes if view.reason is not None]
        self.ours = {view.name: view.since for view in reasons if policy.claims(view) and policy.counts(view.flags)}
        self.closed: BlockCode | None = None  # the scheduler said so after this view was read

    def _add(self, flags: frozenset[str], many: int) -> None:
        if policy.counts(flags):
            self.nodes += many
            self.away += many if policy.unavailable(flags) else 0

    def change(self, old: NodeView, new: NodeView) -> None:
        """A node of this pool stands otherwise now."""
        self._add(old.flags, -1)
        self._add(new.flags, 1)
        self.ours.pop(new.name, None)
        if policy.claims(new) and policy.counts(new.flags):
            self.ours[new.name] = new.since

    def tally(self) -> policy.Tally:
        return policy.Tally(self.nodes, tuple(self.ours.values()), self.away)


class Room:
    """What is known of the scheduler.

    `seq` grows with each view, `at` is when the newest came (monotonic). `claimed` are the drains in ibmon's form.
    `trouble` is why the last view could not be read; before `pause` (monotonic) nothing is tried, since calls have
    just failed that were not one node's own trouble.
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
        self._limiting: tuple[_Count, ...] = ()  # pools whose limits hold for the nodes in them
        self._whole: tuple[_Count, ...] = ()  # pools of all nodes: their limits hold for nodes of no other
        self._patches: dict[str, tuple[float, NodeView]] = {}

    def load(self, view: FleetView, now: Now) -> None:
        """Take in a view of the whole; what was seen of single nodes since it began stays."""
        self.at, self.seq = now.monotonic, self.seq + 1
        self.trouble, self.pause = None, -math.inf
        self.began = now.monotonic if view.began is None else view.began
        self.nodes, self.groups = dict(view.nodes), dict(view.groups)
        self._pools = [_Count(pool) for pool in view.pools]
        names = self._limits.partitions
        if names is not None:
            self._limiting, self._whole = tuple(pool for pool in self._pools if pool.name in names), ()
        else:
            everyone = len(set().union(*(pool.names for pool in self._pools)))
            self._limiting = tuple(pool for pool in self._pools if len(pool.names) < everyone)
            self._whole = tuple(pool for pool in self._pools if len(pool.names) == everyone)
        self.claimed = {name: node for name, node in self.nodes.items() if node.reason and _in_our_form(node)}
        patches, self._patches = self._patches, {}
        if view.began is not None:
            for at, node in patches.values():
                if at > view.began:
                    self.see(node, at)

    def see(self, view: NodeView, at: float) -> None:
        """Take in how one node stands as of `at` (monotonic), newer than the view of the whole."""
        old = self.nodes.get(view.name)
        if old is None:
            return
        self.nodes[view.name] = view
        self._patches[view.name] = (at, view)
        if view.reason and _in_our_form(view):
            self.claimed[view.name] = view
        else:
            self.claimed.pop(view.name, None)
        for pool in self._pools:
            if view.name in pool.names:
                pool.change(old, view)

    def close(self, node: str, code: BlockCode) -> None:
        """The scheduler has counted and refused: the limits of this node's pools are closed until the next view."""
        for pool in self._of(node):
            pool.closed = code

    def _of(self, node: str) -> list[_Count]:
        """The pools whose limits hold for a node, as `policy.choose_pools` would choose them."""
        limiting = [pool for pool in self._limiting if node in pool.names]
        return limiting or [pool for pool in self._whole if node in pool.names]

    def fresh(self, now: Now) -> bool:
        """Whether the view is new enough to act on."""
        return now.monotonic - self.at < FRESH

    def gate(self, node: str, wall: float) -> BlockCode | None:
        """Why the limits have no room for this node, as `policy.limit_gate` would say by this view."""
        pools = self._of(node)
        if not pools:
            return BlockCode.LIMIT_UNREADABLE
        codes = [pool.closed or policy.tally_gate(pool.tally(), self._limits, wall) for pool in pools]
        return next((code for code in codes if code), None)

    def rate_ends(self, node: str, wall: float) -> float:
        """Seconds until a pool of this node that is closed by the rate alone may have room, or infinity."""
        window = policy.rate_window(self._limits) if self._limits.new_per_minute > 0 else math.inf
        times = [since for pool in self._of(node) if pool.closed is None for since in pool.ours.values()]
        recent = [since for since in times if since is not None and since > wall - window]
        return min((since + window - wall for since in recent), default=math.inf)

    def rows(self) -> tuple[PoolRow, ...]:
        """The pools as people see them."""
        return tuple(
            PoolRow(pool.name, pool.nodes, policy.allowed(pool.nodes, self._limits), len(pool.ours), pool.away)
            for pool in self._pools
        )


def _in_our_form(view: NodeView) -> bool:
    return policy.claims(view) and policy.parse_reason(view.reason) is not None
