"""Whose trouble it is when calls to the scheduler fail: one odd node's own, or the scheduler's. Pure."""

from __future__ import annotations

from typing import Final

IN_A_ROW: Final = 3
"""Nodes whose calls fail one after the other until that is the scheduler's trouble, whatever the errors say."""


class Blame:
    """Counts failures since the last call that worked.

    An odd node must keep no other one waiting; a scheduler in trouble must not be asked for each node anew. It is the
    scheduler's trouble where the error itself says so (`SchedulerError.general`), or where the calls for several
    different nodes have failed and none has worked in between.
    """

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self.general = False  # whether the failures since the last call that worked were the scheduler's trouble

    def failed(self, node: str, *, general: bool) -> bool:
        """A call for this node has failed; whether that is the scheduler's trouble."""
        if len(self._nodes) < IN_A_ROW:
            self._nodes.add(node)
        whole = general or len(self._nodes) >= IN_A_ROW
        self.general = self.general or whole
        return whole

    def worked(self) -> None:
        """The scheduler has done, or answered, what was asked for a node."""
        self._nodes.clear()
        self.general = False
