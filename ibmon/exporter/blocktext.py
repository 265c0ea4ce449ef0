"""Why a drain that is wanted is not made now, in a sentence for each code. Words only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ibmon.model import BlockCode

BLOCK_TEXT: Final[Mapping[BlockCode, str]] = {
    BlockCode.MODE: "The mode is observe or alert: ibmon writes nothing to the scheduler.",
    BlockCode.STOP: "A stop is in force: the stop file exists, or the controller was stopped.",
    BlockCode.MAINTENANCE: "A maintenance window covers what is wrong.",
    BlockCode.BOOT_GRACE: "The node has just started; links may still be coming up.",
    BlockCode.LIMIT_NODES: "As many nodes are drained as the limits allow (action.limits.max_drained).",
    BlockCode.LIMIT_RATE: "Another node was drained a moment ago (action.limits.new_per_minute).",
    BlockCode.LIMIT_UNREADABLE: "It cannot be counted how many nodes are drained, and nobody drains blindly.",
    BlockCode.MAX_UNAVAILABLE: "Too many nodes are down or drained by anyone (action.limits.max_unavailable).",
    BlockCode.FOREIGN_DRAIN: "Somebody else has drained the node already; that is never touched.",
    BlockCode.SCHEDULER_STATE: "The node is in a state at its scheduler in which a drain may not be set.",
    BlockCode.SCHEDULER_UNREACHABLE: "The scheduler does not answer; it is asked again.",
    BlockCode.FORBIDDEN: "The scheduler refuses: ibmon has no right to drain the node.",
    BlockCode.FABRIC_EVENT: "Several nodes were hit at once: this looks like the fabric, not like this node.",
    BlockCode.OVERRIDE: "An operator resumed the node although it is bad, and is respected (action.override_ttl).",
    BlockCode.INVENTORY_UNCONFIRMED: "The port was only learned; declare it, or run: ibmon inventory accept.",
}
"""By code; a test holds it complete."""
