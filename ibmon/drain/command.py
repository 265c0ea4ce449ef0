"""Any other scheduler, through an executable of the site's own: `observe`, `drain` and `release`, JSON in and out.

Owns the contract of docs/command-backend.md. It believes nothing that has not the shape written there: an empty or odd
answer is an error, never "not drained".
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Final, Literal

import msgspec

from ibmon.config import CommandConfig
from ibmon.drain import process
from ibmon.model import NodeView
from ibmon.ports import SchedulerError

VERSION: Final = 1

FORBIDDEN: Final = 77
"""Exit status that says "no permission" (EX_NOPERM of sysexits.h); every other one but 0 means "not known"."""

# What the policy knows states by (`ibmon/drain/policy.py`).
_FLAGS: Final = {"up": "IDLE", "down": "DOWN", "off": "POWERED_DOWN", "maintenance": "MAINT"}

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class NodeAnswer(msgspec.Struct, frozen=True):
    """A node as the executable describes it; what it adds beyond these keys is not looked at.

    `drained`: somebody asked that it gets no new work. `since`: Unix time at which that was.
    """

    name: _Name
    state: Literal["up", "down", "off", "maintenance"]
    drained: bool
    reason: str | None = None
    user: str | None = None
    since: float | None = None

    def view(self) -> NodeView:
        """The node in the words that all schedulers share."""
        flags = {_FLAGS[self.state]} | ({"DRAIN"} if self.drained else set())
        return NodeView(self.name, frozenset(flags), self.reason or None, self.user, self.since)


class PoolAnswer(msgspec.Struct, frozen=True):
    """A queue, partition or pool with all its nodes."""

    name: _Name
    nodes: tuple[NodeAnswer, ...]


class Observed(msgspec.Struct, frozen=True):
    """The answer to `observe`. `pools` only where they were asked for."""

    node: NodeAnswer
    pools: tuple[PoolAnswer, ...] | None = None


class CommandPool(msgspec.Struct, frozen=True):
    """A pool with all its nodes."""

    name: str
    nodes: tuple[NodeView, ...]


class Command:
    """One node's view of a scheduler. Every method runs the executable once, with the configured deadline (seconds).

    Args:
        config: the executable and its deadline.
        node: this node's name, handed to the executable.
    """

    def __init__(self, config: CommandConfig, node: str) -> None:
        self._config = config
        self._node = node
        self._reason: str | None = None  # what stood when the node was last read: a release names it

    def read_node(self) -> NodeView:
        """This node's state, read now."""
        view = self._observe(pools=False).node.view()
        self._reason = view.reason
        return view

    def read_pools(self) -> tuple[CommandPool, ...]:
        """All pools, read now."""
        pools = self._observe(pools=True).pools
        if pools is None:
            raise SchedulerError(f"{self._config.path} observe was asked for pools and printed none")
        return tuple(CommandPool(pool.name, tuple(node.view() for node in pool.nodes)) for pool in pools)

    def drain(self, reason: str) -> None:
        """Ask for no new work on this node, with this reason."""
        self._run("drain", reason=reason)

    def undrain(self) -> None:
        """Take the drain away; the executable is told which reason stood, so that it can look again."""
        self._run("release", reason=self._reason)

    def _observe(self, *, pools: bool) -> Observed:
        text = self._run("observe", pools=pools)
        try:
            return msgspec.json.decode(text, type=Observed)
        except (msgspec.DecodeError, RecursionError) as error:
            said = " ".join(str(error).split())
            raise SchedulerError(f"{self._config.path} observe prints no answer that can be used: {said}") from None

    def _run(self, action: str, **more: Any) -> bytes:
        """Run the executable; its standard output, or SchedulerError with the last line that it wrote to stderr."""
        request = {"v": VERSION, "action": action, "node": self._node, **more}
        path = self._config.path
        try:
            output = process.run(
                [path, action],
                timeout=self._config.timeout,
                environment=_environment(),
                stdin=msgspec.json.encode(request) + b"\n",
            )
        except process.CommandError as error:
            raise SchedulerError(f"{action}: {error}", general=True) from None
        if output.status != 0:
            lines = output.stderr.strip().splitlines()
            said = " ".join(lines[-1].split())[:200] if lines else "it said nothing"
            raise SchedulerError(
                f"{path} {action} failed with status {output.status}: {said}", forbidden=output.status == FORBIDDEN
            )
        return output.stdout.encode()


def _environment() -> dict[str, str]:
    """What the executable may count on: a search path and untranslated messages, and nothing of the daemon's own."""
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", "TZ": "UTC"}
