"""The five ports through which a runtime meets the world: clock, sysfs, scheduler, store, sender.

Protocols only. The live runtime, replay and the simulation each bring their own implementations; the engine knows
none of them.
"""

from __future__ import annotations

from typing import Any, Protocol

from ibmon.model import NodeFitness, NodeView, Now, Ownership


class Clock(Protocol):
    """Time."""

    def now(self) -> Now:
        """This instant on both clocks."""
        ...


class Tree(Protocol):
    """A sysfs root: the reading calls that ibmon makes, by path relative to the root.

    Every call raises OSError with the errno that the kernel gave.
    """

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, unsorted."""
        ...

    def read(self, path: str) -> bytes:
        """The content of a small file (at most a page) in one read."""
        ...

    def readlink(self, path: str) -> str:
        """Target of a symbolic link as it is written."""
        ...

    def realpath(self, path: str) -> str:
        """The path with all links resolved, relative to the root; ENOENT when it dangles."""
        ...

    def exists(self, path: str) -> bool:
        """Whether the path leads to something."""
        ...


class SchedulerError(Exception):
    """A call to the scheduler failed or gave nothing that can be believed; the text says what and why.

    It never means anything about the node (law 4). `forbidden` is set where the scheduler refused by permission,
    `unnamed` where it does not know this host by exactly one name. `general` is set where the same call for any other
    node would have failed too: no connection, no answer in time, credentials, the server's own fault.
    """

    def __init__(self, text: str, *, forbidden: bool = False, unnamed: bool = False, general: bool = False) -> None:
        super().__init__(text)
        self.forbidden = forbidden
        self.unnamed = unnamed
        self.general = general

    @property
    def missing(self) -> bool:
        """Whether the scheduler answered that there is no such object."""
        return False


class PoolView(Protocol):
    """What the limits need of a pool (partition)."""

    @property
    def name(self) -> str:
        """The scheduler's name of it."""
        ...

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """All its nodes."""
        ...


class Scheduler(Protocol):
    """One scheduler as ibmon needs it. Every call has a deadline and raises SchedulerError."""

    def read_node(self) -> NodeView:
        """This node's state, read now."""
        ...

    def read_pools(self) -> tuple[PoolView, ...]:
        """All pools, read now: which of them hold every node can only be seen among all."""
        ...

    def drain(self, reason: str) -> None:
        """Ask for no new work on this node. Whether it happened only `read_node` tells."""
        ...

    def undrain(self) -> None:
        """Take the drain of this node away. Whether it happened only `read_node` tells."""
        ...


class Teller(Protocol):
    """A scheduler that also shows what a node's monitor says of it. Every call has a deadline; SchedulerError."""

    def publish(self, fitness: NodeFitness, why: str) -> None:
        """Show the verdict beside the node, with a new heartbeat. It changes nothing for the node's work."""
        ...

    def check(self) -> tuple[str, ...]:
        """What would keep a drain from happening, one line each; it changes nothing."""
        ...


class StoreError(Exception):
    """The store could not save or read; the text says what and why. Nothing that was not saved is released."""


class Records(Protocol):
    """Where the record of a drain stands."""

    def ownership(self) -> Ownership | None:
        """The record of a drain that is ours or was asked for."""
        ...

    def record(self, owned: Ownership | None) -> None:
        """Commit (or with None remove) the record of a drain; StoreError if it is not on disk now."""
        ...


class Store(Records, Protocol):
    """What must outlive the process."""

    def load(self) -> bytes | None:
        """The engine's state as saved last, or None where there is none."""
        ...

    def save(self, state: bytes) -> None:
        """Commit the engine's state; StoreError if it is not on disk now."""
        ...

    def add_event(self, at: float, level: str, event: str, fields: dict[str, Any]) -> None:
        """One row of history."""
        ...


class Sender(Protocol):
    """Delivers messages to the outside until they have arrived."""

    def send(self, topic: str, subject: str, body: dict[str, Any]) -> None:
        """Accept a message; a newer one of the same subject replaces one that was not delivered yet."""
        ...
