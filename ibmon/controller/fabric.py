"""Faults that many nodes show at once: one switch, one subnet manager, not many bad cables. Pure, kept up to date.

A *sign* is a rule on a rail that a node shows, as a finding or as a hold that still runs. Signs that begin together
make an event; drains that rest on nothing else then wait. Only signs that begin are looked at, so a report that tells
nothing new costs nothing, whatever the size of the fleet.

When is it an event? With onsets within 60 s, by two nets: three nodes that hang on one leaf of the topology (they share
a switch, so three are no chance); or, whatever they hang on, five nodes and at least 1 % of the fleet (a spine, a
subnet manager, or no topology is known). A sign belongs to one event only, and events of one fault on three leaves at
once are one event of the fleet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ibmon.controller.values import FabricEvent
from ibmon.health.rules import RULE_BY_ID
from ibmon.model import Mode, Now, Severity
from ibmon.report import Report

WINDOW: Final = 60.0
"""Seconds between the first and the last onset of one event."""

SIBLINGS: Final = 10.0
"""Seconds that a drain waits for others of its kind, where its rule has no hold in which they would have shown."""

ON_A_LEAF: Final = 3
FLEET_LEAST: Final = 5
FLEET_SHARE: Final = 0.01

PORT_INIT: Final = "port-init"
"""A port that waits for the subnet manager is its node's own matter only while fewer than `ON_A_LEAF` nodes wait."""


REPORT, ALERT = "report", "alert"
"""Who tells of a node's signs."""


class Key(NamedTuple):
    """What is wrong, apart from where."""

    rail: int | None
    rule: str


class Shown(NamedTuple):
    """A sign as a report tells it: the node's onset, and whether it is over and only waits to be sure of that."""

    onset: float
    recovering: bool


class Event:
    """One event while it is known. It holds drains back until `until` (monotonic)."""

    def __init__(self, group: str, key: Key, began: Now, hold: float) -> None:
        self.group, self.key, self.began = group, key, began
        self.until = began.monotonic + hold
        self.signs: dict[tuple[str, str], _Sign] = {}
        self.joined = 0  # signs that ever belonged to it
        self.ended = False

    def join(self, who: tuple[str, str], sign: _Sign) -> None:
        """One more sign of the same fault."""
        sign.event = self
        self.signs[who] = sign
        self.joined += 1

    def row(self) -> FabricEvent:
        """The event as people see it."""
        until = self.began.wall + (self.until - self.began.monotonic)
        nodes = tuple(sorted({node for node, _ in self.signs}))
        return FabricEvent(self.group, self.key.rail, self.key.rule, nodes, self.began.wall, until)


class _Sign:
    __slots__ = ("at", "event", "group", "onset", "recovering")

    def __init__(self, shown: Shown, at: float, group: str) -> None:
        self.onset, self.recovering = shown
        self.at, self.group = at, group
        self.event: Event | None = None


_NOTHING: Final[Mapping[Key, Shown]] = {}


class FabricDesk:
    """All signs and events.

    Args:
        hold: seconds that an event holds drains back (`controller.fabric_hold`).
    """

    def __init__(self, hold: float) -> None:
        self._hold = hold
        self.events: dict[tuple[str, Key], Event] = {}
        self.total = 0
        self._next_end = math.inf
        self._signs: dict[tuple[str, str], dict[Key, _Sign]] = {}  # by node and who tells it
        self._lone: dict[Key, dict[tuple[str, str], _Sign]] = {}  # those of no event
        self._waiting: set[str] = set()  # nodes with a port in INIT
        self._turned = False  # they became many, or few
        self._began: list[Event] = []
        self._ended: list[Event] = []

    def show(
        self, who: tuple[str, str], group: str, shown: Mapping[Key, Shown], now: Now, *, ahead: float, fleet: int
    ) -> None:
        """Take in all signs of a node that one teller (its report, an alert) knows.

        `who` is node and teller; `ahead` how far the teller's clock is ahead of ours (seconds); `fleet` the number of
        nodes.
        """
        old = self._signs.get(who)
        if not shown and old is None:
            return
        for key in [key for key in old or () if key not in shown]:
            self._drop(who, key)
        signs = self._signs.setdefault(who, {})
        for key, one in shown.items():
            sign = signs.get(key)
            if sign is not None and sign.onset == one.onset:
                sign.recovering = one.recovering
                continue
            if sign is not None:
                self._drop(who, key)
            signs[key] = sign = _Sign(one, one.onset - ahead, group)
            self._place(who, key, sign, now, fleet)
        if not signs:
            del self._signs[who]
        if who[1] == REPORT:
            self._note_init(who[0], shown)

    def regroup(self, groups: Mapping[str, str], now: Now, fleet: int) -> None:
        """The topology has changed, or was learned: signs that belong to no event yet are looked at anew."""
        moved = [
            (who, key, sign)
            for key, lone in self._lone.items()
            for who, sign in lone.items()
            if sign.group != groups.get(who[0], "")
        ]
        for who, _, sign in moved:
            sign.group = groups.get(who[0], "")
        for who, key, sign in moved:
            if sign.event is None:
                self._lone[key].pop(who)
                self._place(who, key, sign, now, fleet)

    @property
    def news(self) -> bool:
        """Whether what is held back has changed since the last `turn`."""
        return bool(self._began or self._ended or self._turned)

    def forget(self, who: tuple[str, str], now: Now) -> None:
        """Nothing is known of these signs any more."""
        self.show(who, "", _NOTHING, now, ahead=0.0, fleet=0)

    def _note_init(self, node: str, shown: Mapping[Key, Shown]) -> None:
        many = len(self._waiting) >= ON_A_LEAF
        if any(key.rule == PORT_INIT and not one.recovering for key, one in shown.items()):
            self._waiting.add(node)
        else:
            self._waiting.discard(node)
        self._turned = self._turned or many is not (len(self._waiting) >= ON_A_LEAF)

    def _drop(self, who: tuple[str, str], key: Key) -> None:
        sign = self._signs[who].pop(key)
        if sign.event is None:
            lone = self._lone[key]
            del lone[who]
            if not lone:
                del self._lone[key]
            return
        del sign.event.signs[who]
        if not sign.event.signs:
            self._end(sign.event)

    def _place(self, who: tuple[str, str], key: Key, sign: _Sign, now: Now, fleet: int) -> None:
        """Put a new sign into the event that it belongs to, begin that event, or keep the sign for itself."""
        event = self.events.get(("", key)) or self.events.get((sign.group, key))
        if event is not None:
            event.join(who, sign)
            return
        lone = self._lone.setdefault(key, {})
        lone[who] = sign
        near = {other: at for other, at in lone.items() if abs(at.at - sign.at) <= WINDOW}
        leaf = {other: at for other, at in near.items() if at.group == sign.group} if sign.group else {}
        if _together(leaf) >= ON_A_LEAF:
            self._begin(sign.group, key, leaf, now)
        elif _together(near) >= max(FLEET_LEAST, math.ceil(FLEET_SHARE * fleet)):
            self._begin("", key, near, now)

    def _begin(self, group: str, key: Key, signs: Mapping[tuple[str, str], _Sign], now: Now) -> None:
        event = self._open(group, key, now)
        lone = self._lone[key]
        for who, sign in signs.items():
            del lone[who]
            event.join(who, sign)
        if not lone:
            del self._lone[key]
        if group:
            self._widen(event)

    def _open(self, group: str, key: Key, began: Now) -> Event:
        event = self.events[group, key] = Event(group, key, began, self._hold)
        self.total += 1
        self._began.append(event)
        self._next_end = min(self._next_end, event.until)
        return event

    def _widen(self, newest: Event) -> None:
        """Make one event of those that the same fault has begun on several leaves within `WINDOW`."""
        since = newest.began.monotonic - WINDOW
        parts = [e for (_, key), e in self.events.items() if key == newest.key and e.began.monotonic >= since]
        if len(parts) < ON_A_LEAF:
            return
        event = self._open("", newest.key, min(part.began for part in parts))
        for part in parts:
            for who, sign in part.signs.items():
                event.join(who, sign)
            if part in self._began:
                self._began.remove(part)  # nobody has heard of it, and one alert is enough
                part.ended = True
                del self.events[part.group, part.key]
            else:
                self._end(part)

    def _end(self, event: Event) -> None:
        if not event.ended:
            event.ended = True
            del self.events[event.group, event.key]
            self._ended.append(event)
            self._next_end = min((other.until for other in self.events.values()), default=math.inf)

    # ------------------------------------------------------------------------------------- time

    def turn(self, now: Now) -> tuple[list[Event], list[Event]]:
        """The events that began and those that ended since the last turn, each told once."""
        for event in [event for event in self.events.values() if now.monotonic >= event.until]:
            self._end(event)
        self._turned = False
        began, self._began = self._began, []
        ended, self._ended = self._ended, []
        return began, ended

    def next_due(self) -> float:
        """Monotonic time at which an event ends by itself, or infinity."""
        return self._next_end

    # ------------------------------------------------------------------------------------- what it holds back

    def holds_back(self, who: tuple[str, str], causes: Iterable[Key], missing: set[str]) -> float | None:
        """Until when (monotonic) a drain for these causes waits, infinity where time does not end that, or None.

        Every cause must belong to an event: one that stands beside it is reason enough to drain. When the event is
        over, only what still is wrong is drained; what recovers is not.
        """
        causes = list(causes)
        if causes and all(key.rule == PORT_INIT for key in causes) and self._many_wait(missing):
            return math.inf
        signs = self._signs.get(who, {})
        until = -math.inf
        for sign in [signs.get(key) for key in causes] if causes else signs.values():
            if sign is None or sign.event is None:
                return None
            if not sign.event.ended:
                until = max(until, sign.event.until)
            elif sign.recovering:
                until = math.inf
            else:
                return None
        return until if until > -math.inf else None

    def _many_wait(self, missing: set[str]) -> bool:
        """Whether several nodes that are not silent have a port in INIT; quick where many have, or are silent."""
        if len(self._waiting) - len(missing) >= ON_A_LEAF:
            return True
        few, many = sorted((self._waiting, missing), key=len)
        return len(self._waiting) - sum(node in many for node in few) >= ON_A_LEAF


def _together(signs: Mapping[tuple[str, str], _Sign]) -> int:
    """How many nodes at most have an onset within `WINDOW` of each other."""
    times = sorted((sign.at, who[0]) for who, sign in signs.items())
    best = first = 0
    for last, (at, _) in enumerate(times):
        while at - times[first][0] > WINDOW:
            first += 1
        if last - first >= best:
            best = max(best, len({node for _, node in times[first : last + 1]}))
    return best


# ---------------------------------------------------------------------------------------------- reading reports


def signs_of(report: Report) -> Mapping[Key, Shown]:
    """The signs in a report: holds that run, and findings from warning upwards of rules that are more than watched.

    With several ports on one rail the newest onset counts, and it recovers when all do.
    """
    if not report.findings and not report.holds:
        return _NOTHING
    signs: dict[Key, Shown] = {}
    for finding in report.findings:
        if finding.drains or (finding.severity is not Severity.INFO and _acts(finding.rule)):
            _add(signs, Key(finding.rail, finding.rule), finding.onset, recovering=finding.recovering)
    for hold in report.holds:
        if _acts(hold.rule):
            _add(signs, Key(hold.rail, hold.rule), hold.onset, recovering=False)
    return signs


def _acts(rule: str) -> bool:
    row = RULE_BY_ID.get(rule)
    return row is None or row.action is not Mode.OBSERVE


def _add(signs: dict[Key, Shown], key: Key, onset: float, *, recovering: bool) -> None:
    before = signs.get(key)
    if before is not None:
        onset, recovering = max(onset, before.onset), recovering and before.recovering
    signs[key] = Shown(onset, recovering)


def causes_of(report: Report) -> tuple[Key, ...]:
    """What the node wants to be drained for."""
    return tuple(Key(finding.rail, finding.rule) for finding in report.findings if finding.drains)


def at_once(causes: Iterable[Key]) -> bool:
    """Whether none of these rules has a hold in which others of its kind would have shown."""
    rows = [RULE_BY_ID.get(key.rule) for key in causes]
    return all(row is None or row.hold == 0 for row in rows)


def alert_sign(alert: str) -> Key:
    """The key under which an alert of Prometheus is looked for on other nodes; no rule of ibmon has such a name."""
    return Key(None, f"alert:{alert}")
