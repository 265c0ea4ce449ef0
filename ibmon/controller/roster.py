"""Who reports: the newest report of each node, who has gone silent, and whether enough have spoken since the start."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

import msgspec

from ibmon.controller.values import Quorum, Refused
from ibmon.model import Now
from ibmon.report import INTERVAL, SKEW, Report

MISSING: Final = 3 * INTERVAL
"""Seconds without a report after which nothing is known of a node any more."""

SETTLE: Final = 2 * INTERVAL
"""Seconds after a start in which nothing is drained, however many have reported."""

REMEMBERED: Final = 86400.0
"""Seconds for which a silent node still counts as part of the fleet."""

SAVE_EVERY: Final = 600.0
"""Seconds between two savings that happen only because nodes were seen."""


class Known(msgspec.Struct, gc=False):
    """A node's newest report, and when it came. `booted`: when its boot was seen to follow `former` (monotonic)."""

    report: Report
    at: float
    wall: float
    booted: float = -math.inf
    former: str = ""


class Turned(msgspec.Struct):
    """What time has changed."""

    missing: list[str]
    forgotten: list[str]
    opened: bool
    save: bool


class Roster:
    """All nodes that were seen within a day. `missing` are those that are silent for too long.

    The quorum opens once after a start, or a change of leader, and stays open: later silence is each node's own. Nodes
    of which no report within a day is known do not count; where there is none at all (only Alertmanager speaks here,
    or the ledger is lost), time alone opens it.
    """

    def __init__(self, seen: Mapping[str, float], quorum: float, now: Now) -> None:
        self._quorum = quorum
        self.seen = {name: min(wall, now.wall) for name, wall in seen.items() if now.wall - wall < REMEMBERED}
        self._loaded = now
        self.known: dict[str, Known] = {}
        self.missing: set[str] = set()
        # By the time of the last report, the oldest first. Only an OrderedDict finds its first in constant time.
        self._order = OrderedDict.fromkeys(self.seen, now.monotonic)
        self._reported: set[str] = set()
        self._start = now.monotonic
        self._open = False
        self._unsaved = False
        self._kept = now.monotonic  # when old names were looked for last

    def restart(self, now: Now) -> None:
        """Begin to wait for the quorum anew."""
        self._reported.clear()
        self._start = now.monotonic
        self._open = False

    # ------------------------------------------------------------------------------------- reports

    def refusal(self, report: Report, now: Now) -> Refused | None:
        """Why a report is not taken in.

        Within a boot `seq` must grow. A report of another boot than the newest must have been sent after that: one of
        an older boot that comes late would bring back what is over. One of the boot before that is sent later is of
        another machine with the same name, and is heard when the newer one has gone silent.
        """
        known = self.known.get(report.node)
        if known is not None:
            last = known.report
            if last.boot_id == report.boot_id:
                if report.seq <= last.seq:
                    return Refused("replay", f"seq {report.seq} comes after {last.seq}")
            elif report.sent <= last.sent:
                return Refused("replay", "it is of an earlier boot than the newest report")
            elif report.boot_id == known.former and now.monotonic - known.at < MISSING:
                return Refused("replay", "its boot is over: two machines have this name, or one has a clone's identity")
        skew = report.sent - now.wall
        if abs(skew) > SKEW or math.isnan(skew):
            return Refused("skew", f"it was sent {skew:+.0f} s from this clock, at most {SKEW:.0f} s are taken")
        return None

    def take(self, report: Report, now: Now) -> tuple[Known | None, bool]:
        """Take in a report; returns what was known before, and whether the node was missing."""
        node = report.node
        before = self.known.get(node)
        if before is None:
            self.known[node] = Known(report, now.monotonic, now.wall)
        else:
            same = before.report.boot_id == report.boot_id
            booted, former = (before.booted, before.former) if same else (now.monotonic, before.report.boot_id)
            self.known[node] = Known(report, now.monotonic, now.wall, booted, former)
        if node in self._order:
            self._order.move_to_end(node)
        self._order[node] = now.monotonic
        self.seen[node] = now.wall
        self._reported.add(node)
        self._unsaved = True
        was_missing = node in self.missing
        self.missing.discard(node)
        return before, was_missing

    # ------------------------------------------------------------------------------------- time

    def turn(self, now: Now) -> Turned:
        """Find out who is silent by now, whom to forget, and whether the quorum is reached."""
        missing: list[str] = []
        while self._order and now.monotonic - next(iter(self._order.values())) >= MISSING:
            name, _ = self._order.popitem(last=False)
            self.missing.add(name)
            missing.append(name)
        save, forgotten = False, []
        if now.monotonic - self._kept >= SAVE_EVERY:
            self._kept = now.monotonic
            save, self._unsaved = self._unsaved, False
            forgotten = self._forget(now)
        opened = not self._open and now.monotonic - self._start >= SETTLE and self._enough()
        self._open = self._open or opened
        # A process that never lives as long as `SAVE_EVERY` must leave to the next one who the fleet is, too.
        save, self._unsaved = save or (opened and self._unsaved), self._unsaved and not opened
        return Turned(missing, forgotten, opened, save)

    def next_due(self) -> float:
        """Monotonic time at which `turn` would change something without another report, or infinity."""
        silent = next(iter(self._order.values())) + MISSING if self._order else math.inf
        opens = self._start + SETTLE if not self._open and self._enough() else math.inf
        save = self._kept + SAVE_EVERY if self._unsaved or self.missing else math.inf
        return min(silent, opens, save)

    def _forget(self, now: Now) -> list[str]:
        gone = [name for name in self.missing if now.monotonic - self._heard(name) >= REMEMBERED]
        for name in gone:
            self.missing.discard(name)
            self._reported.discard(name)
            del self.seen[name]
            self.known.pop(name, None)
        return gone

    def _heard(self, name: str) -> float:
        """When a node was heard last, on the clock that nobody sets."""
        known = self.known.get(name)
        return known.at if known is not None else self._loaded.monotonic + self.seen[name] - self._loaded.wall

    def _enough(self) -> bool:
        return len(self._reported) >= self._quorum * len(self.seen) - 1e-9

    # ------------------------------------------------------------------------------------- looking

    @property
    def open(self) -> bool:
        """Whether enough of the fleet has been heard."""
        return self._open

    def quorum(self) -> Quorum:
        """How much of the fleet has been heard."""
        seen, reported = len(self.seen), len(self._reported)
        return Quorum(seen, reported, reported / seen if seen else 1.0, self._open)

    def silent(self, node: str) -> bool:
        """Whether this node is one that reports, and does not now."""
        return node in self.missing or (node in self.seen and node not in self.known)
