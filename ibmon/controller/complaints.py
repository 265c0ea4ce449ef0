"""Log lines about what peers do wrong: one a minute for each peer and kind, however often they do it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

from ibmon.runtime import logs

_log = logging.getLogger(__name__)

PAUSE: Final = 60.0
"""Seconds between two lines about the same peer and kind."""

_MOST: Final = 4096  # peers and kinds that are remembered; beyond that the oldest may be told anew


class Complaints:
    """Says what is wrong, and how often it was since the last line."""

    def __init__(self) -> None:
        self._told: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def say(self, event: str, kind: str, peer: str, reason: str, monotonic: float, node: str = "") -> None:
        """Something of this kind came from this peer."""
        at, more = self._told.get((peer, kind), (float("-inf"), 0))
        if monotonic - at < PAUSE:
            self._told[peer, kind] = (at, more + 1)
            return
        self._told[peer, kind] = (monotonic, 0)
        self._told.move_to_end((peer, kind))
        if len(self._told) > _MOST:
            self._told.popitem(last=False)
        fields = {"kind": kind, "peer": peer, "node": node or None, "unsaid": more or None, "reason": reason}
        told = {name: value for name, value in fields.items() if value is not None}
        _log.warning("%s", logs.line(event, told))
