"""What people must know beside the findings: alerts that are about no port, and no fault of the node. Pure.

They follow the findings' way: one log line when they begin and end, and a place among the alerts that fire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ibmon.drain.intent import DrainDesk
from ibmon.health.counts import span
from ibmon.messages import Notice
from ibmon.model import Mode, Now, Severity

WORDS: Final[Mapping[str, str]] = {
    "actions-disabled": "This daemon drains nothing and gives nothing back: another one acts for the node, it cannot"
    " know that none does, or it is not allowed to.",
    "drain-overridden": "An operator resumed this node while it was unfit, and ibmon leaves it so until"
    " action.override_ttl is over or it gets worse.",
    "drain-orphaned": "The scheduler shows a drain in ibmon's words of which this node has no record. It stays until"
    " somebody decides: `ibmon release` gives the node back.",
    "node-name-unknown": "The scheduler does not know this host by exactly one name, so nothing is drained.",
    "state-lost": "The stored state could not be used, and learning starts anew. Where its file was set aside, drains"
    " of before are nobody's; look at the file that is named.",
    "state-unsaved": "The state cannot be saved. ibmon goes on from memory and gives nothing back that was not saved.",
    "state-on-network": "The state directory is on a network file system, which may lose what is saved.",
}
"""Every notice by name, with the sentence that its alert carries."""


def of_desk(desk: DrainDesk, mode: Mode, override_ttl: float, now: Now) -> Iterable[Notice]:
    """What the drain desk has to tell at a time."""
    override = desk.override
    if override is not None and desk.long_overridden(now.monotonic):
        text = f"resumed while {', '.join(override.subjects)}; respected for {span(override_ttl)}"
        yield Notice("drain-overridden", Severity.WARNING, override.wall, text)
    if mode is not Mode.DRAIN:
        return
    orphan = desk.orphans.orphan
    if orphan is not None:
        yield Notice("drain-orphaned", Severity.WARNING, orphan.since, orphan.reason)
    if desk.unnamed is not None:
        yield Notice("node-name-unknown", Severity.WARNING, *desk.unnamed)


def of_troubles(found: Mapping[str, str], before: Iterable[Notice], now: Now) -> tuple[Notice, ...]:
    """What a runtime tells of its surroundings, each since it was first told."""
    since = {notice.name: notice.since for notice in before}
    return tuple(
        Notice(name, Severity.WARNING, since.get(name, now.wall), text) for name, text in sorted(found.items())
    )
