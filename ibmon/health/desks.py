"""What the judge keeps of a port while the process runs, and what of it is stored. Pure.

One port of a device speaks for it: the rules of the device are looked at there, and what is open about it stands there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from ibmon.health.evaluate import Episode, advance
from ibmon.health.facts import Condition, PortFacts, Verdict
from ibmon.health.inventory import Expected, Learned
from ibmon.health.links import NO_LINK, LinkMemory, LinkWatch
from ibmon.health.rules import RULES
from ibmon.health.settings import Settings
from ibmon.health.windows import Moment, Window
from ibmon.model import PortId, Role


class PortMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """One slot's state as it is stored: what was learned, what runs, and its history.

    `last` holds by counter key the newest value and the boot it was read in, so that a restart counts nothing twice
    and misses nothing.
    """

    learned: Learned
    episodes: dict[str, Episode] = {}
    link: LinkMemory = NO_LINK
    windows: dict[str, Window] = {}
    last: dict[str, tuple[int, str]] = {}
    self_cleared: dict[str, Moment] = {}


@dataclass(slots=True)
class Running:
    """The episodes of one subject, by rule or ``rule:counter``, with the newest condition of each."""

    episodes: dict[str, Episode] = field(default_factory=dict)
    conditions: dict[str, Condition] = field(default_factory=dict)
    checked: float | None = None  # monotonic time of the last evaluation
    held_back: bool = False  # whether that was inside a grace, in which no hold runs

    def move(
        self, key: str, condition: Condition, chosen: Settings, observed: float, *, may_start: bool, wall: float
    ) -> None:
        """Advance one episode."""
        before = self.conditions.get(key)
        unseen = before is not None and (before.verdict is Verdict.UNKNOWN or before.near)
        begins = condition.verdict is Verdict.BAD and self.held_back  # what lies behind belongs to the grace
        seen = 0.0 if unseen or begins else observed
        self.conditions[key] = condition
        episode = advance(self.episodes.get(key), condition, chosen, seen, may_start=may_start, wall=wall)
        if episode is None:
            self.episodes.pop(key, None)
        else:
            self.episodes[key] = episode


@dataclass(slots=True)
class PortDesk:
    """The working state of one port: its row of the inventory and everything that runs."""

    expected: Expected
    settings: dict[str, Settings]
    running: Running = field(default_factory=Running)
    link: LinkWatch = field(default_factory=LinkWatch)
    windows: dict[str, Window] = field(default_factory=dict)
    last: dict[str, tuple[int, str]] = field(default_factory=dict)
    self_cleared: dict[str, Moment] = field(default_factory=dict)  # rules that may clear by themselves once a day
    best_rate: int | None = None  # of this boot, while ACTIVE
    facts: PortFacts | None = None
    carries: bool = False  # whether the rules of its device are looked at here
    rises: int = 0  # how often a judged counter rose: tells a window that changed
    judged: tuple[object, ...] | None = None  # what the last full evaluation saw, apart from time
    wake: float = -math.inf  # monotonic time before which the same facts give the same verdict

    @property
    def episodes(self) -> dict[str, Episode]:
        """What runs, by rule or ``rule:counter``."""
        return self.running.episodes


def carriers(inventory: Iterable[Expected]) -> dict[str, PortId]:
    """By device, the port that speaks for it: one of its compute ports where it has any, as they lose what it loses."""
    found: dict[str, Expected] = {}
    for row in sorted((row for row in inventory if row.expected), key=lambda row: (_weight(row), row.id)):
        found.setdefault(row.id.device, row)
    return {device: row.id for device, row in found.items()}


def _weight(row: Expected) -> tuple[bool, bool]:
    return row.role is not Role.COMPUTE, not row.trusted


def hand_over(before: PortDesk, after: PortDesk, *, carried: bool) -> None:
    """What is open about a device goes with the port that speaks for it now.

    A port that did not speak for its device may have lost itself (`_own_loss`), and that stays with it.
    """
    rules = {rule.id for rule in RULES if rule.scope == "device" and (carried or not rule.once_a_day)}
    for key in [key for key in before.episodes if rule_of(key) in rules]:
        after.episodes.setdefault(key, before.episodes.pop(key))
    for key in [key for key in before.self_cleared if rule_of(key) in rules]:
        after.self_cleared.setdefault(key, before.self_cleared.pop(key))


def still_judged(episodes: Mapping[str, Episode], rules: Mapping[str, Settings]) -> dict[str, Episode]:
    """The episodes whose rule is known and not switched off."""
    found = ((key, rules.get(rule_of(key)), episode) for key, episode in episodes.items())
    return {key: episode for key, chosen, episode in found if chosen is not None and chosen.enabled}


def rule_of(key: str) -> str:
    """The rule's id of an episode's key."""
    return key.partition(":")[0]
