"""A scheduler in memory that behaves as Slurm was seen to behave, for a daemon that must not meet a real one.

Owns the nodes' states and what an administrator or an outage does to them. It decides nothing, and knows of ibmon only
the port it serves (`ibmon.ports.Scheduler`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ibmon.model import NodeView
from ibmon.ports import SchedulerError
from ibmon.recording import SchedulerAct

_OURS = "ibmon"  # the user that our own calls show as


class Pool(msgspec.Struct):
    """A partition with all its nodes, as the limits need it (`ibmon.ports.PoolView`)."""

    name: str
    nodes: tuple[NodeView, ...]


class Cluster:
    """Nodes, partitions and the controller in front of them.

    Slurm 22.05's behaviour, as far as it matters here: a drain needs a reason; another reason silently overwrites the
    old one with its user and time; the same text changes nothing; undrain of a node that is not drained succeeds.
    While the controller hangs calls fail, **and what they asked is done when it wakes**; while it is down they fail and
    are lost. Work that runs is never touched.

    Args:
        nodes: names, or how many ``node0001`` … there are.
        partitions: node names by partition; by default one, ``batch``, with all nodes.
        wall: the wall clock, for the time beside a reason.
    """

    def __init__(
        self,
        nodes: int | Sequence[str] = 1000,
        *,
        partitions: Mapping[str, Sequence[str]] | None = None,
        wall: Callable[[], float] = lambda: 0.0,
    ) -> None:
        names = [f"node{number:04d}" for number in range(1, nodes + 1)] if isinstance(nodes, int) else nodes
        self._nodes = {name: NodeView(name, frozenset({"IDLE"})) for name in names}
        self._partitions = {name: tuple(members) for name, members in (partitions or {"batch": names}).items()}
        self._wall = wall
        self._outage: str | None = None
        self._asked: list[Callable[[], None]] = []

    def client(self, node: str) -> SimulatedScheduler:
        """The scheduler as the daemon of this node sees it."""
        return SimulatedScheduler(self, node)

    # ------------------------------------------------------------------------------------ what the outside world does

    def act(self, node: str, what: SchedulerAct) -> None:
        """Do what a recording's `scheduler` says: to this node (drain, resume) or to the controller."""
        if what.do == "drain":
            self._drain(node, what.reason or "maintenance", what.by)
        elif what.do == "resume":
            self._undrain(node)
        else:
            self._outage = None if what.do == "up" else what.do
            if what.do == "down":
                self._asked.clear()
            elif what.do == "up":
                asked, self._asked = self._asked, []
                for write in asked:
                    write()

    def set_flags(self, node: str, *flags: str) -> None:
        """Give a node other state flags (``ALLOCATED``, ``DOWN``, ``POWERED_DOWN`` …); DRAIN stays as it is."""
        view = self.view(node)
        kept = view.flags & {"DRAIN"}
        self._nodes[node] = msgspec.structs.replace(view, flags=frozenset(flags) | kept)

    def view(self, node: str) -> NodeView:
        """A node as it truly is, even while nobody can ask. Raises SchedulerError for an unknown name."""
        try:
            return self._nodes[node]
        except KeyError:
            raise SchedulerError(f"Invalid node name specified: {node}") from None

    def count_drained(self, prefix: str) -> int:
        """How many nodes are drained with a reason that begins so."""
        return sum(
            view.reason is not None and view.reason.startswith(prefix) for view in self._nodes.values() if view.drained
        )

    # ----------------------------------------------------------------------------------------- what the client may do

    def pools_of(self, node: str) -> tuple[Pool, ...]:
        """The partitions that contain a node."""
        return tuple(
            Pool(name, tuple(self._nodes[member] for member in members))
            for name, members in self._partitions.items()
            if node in members
        )

    def reach(self, write: Callable[[], None] | None = None) -> None:
        """Raise SchedulerError unless the controller answers; it keeps `write` for later while it hangs."""
        if self._outage == "hang" and write is not None:
            self._asked.append(write)
        if self._outage is not None:
            seen = "no answer within the deadline" if self._outage == "hang" else "connection refused"
            raise SchedulerError(f"the controller cannot be reached: {seen}", general=True)
        if write is not None:
            write()

    def drain(self, node: str, reason: str) -> None:
        """Drain a node as our own user."""
        if not reason.strip():
            raise SchedulerError("You must specify a reason when DOWNING a node or DRAINING it")
        self.view(node)
        self.reach(lambda: self._drain(node, reason, _OURS))

    def undrain(self, node: str) -> None:
        """Take a node's drain away, whoever's it is: what may be taken is not the scheduler's care."""
        self.view(node)
        self.reach(lambda: self._undrain(node))

    def _drain(self, node: str, reason: str, user: str) -> None:
        view = self.view(node)
        if view.drained and view.reason == reason:
            return
        self._nodes[node] = NodeView(node, view.flags | {"DRAIN"}, reason, user, self._wall())

    def _undrain(self, node: str) -> None:
        view = self.view(node)
        if view.drained:
            self._nodes[node] = NodeView(node, view.flags - {"DRAIN"})


class SimulatedScheduler:
    """One node's way to the cluster: `ibmon.ports.Scheduler`.

    Attributes:
        calls: how often each call was made, those that failed included.
    """

    def __init__(self, cluster: Cluster, node: str) -> None:
        self._cluster = cluster
        self._node = node
        self.calls: Counter[str] = Counter()

    def read_node(self) -> NodeView:
        """This node's state. Raises SchedulerError while the controller is away."""
        self.calls["read_node"] += 1
        self._cluster.reach()
        return self._cluster.view(self._node)

    def read_pools(self) -> tuple[Pool, ...]:
        """The partitions that contain this node. Raises SchedulerError while the controller is away."""
        self.calls["read_pools"] += 1
        self._cluster.reach()
        return self._cluster.pools_of(self._node)

    def drain(self, reason: str) -> None:
        """Drain this node. Raises SchedulerError; after a hang it may be done later all the same."""
        self.calls["drain"] += 1
        self._cluster.drain(self._node, reason)

    def undrain(self) -> None:
        """Take the drain away. Raises SchedulerError; after a hang it may be done later all the same."""
        self.calls["undrain"] += 1
        self._cluster.undrain(self._node)
