"""What all ports of a node say together: one cause, one finding, instead of one for each port. Pure.

These are the only places where one port's verdict depends on another's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ibmon.health.checks import trained
from ibmon.health.counts import moments
from ibmon.health.facts import GOOD, UNKNOWN, Condition, PortFacts, Verdict
from ibmon.health.settings import Settings
from ibmon.health.windows import Moment
from ibmon.model import Mode, Now, PortId, Role

ALL_MISSING = "all-devices-missing"
ALL_INIT = "port-init"
BLIND = "monitor-blind"
OFFENDER = "repeat-offender"
NODE_RULES = (ALL_MISSING, ALL_INIT, BLIND, OFFENDER)

INIT_ALERT_HOLD = 60.0
INIT_RECOVER = 60.0
"""A subnet manager that is away is not this node's fault: its alert waits a minute, and goes a minute after."""

TOGETHER = 2
"""Fewer compute ports than this cannot tell a subnet manager's absence from their own trouble."""


class NodeFacts(NamedTuple):
    """The node as the correlations see it.

    `names` are the devices of the newest complete listing, None while it is unreadable; `failed_listings` the number
    of unreadable ones in a row. `ports` holds the expected ports.
    """

    names: frozenset[str] | None
    failed_listings: int
    ports: Mapping[PortId, PortFacts]
    expected_devices: frozenset[str]
    ever_listed: bool
    drains: tuple[Moment, ...] = ()
    now: Now = Now(0.0, 0.0)
    boot: str = ""


def all_missing(facts: NodeFacts) -> Condition:
    """None of the expected devices is listed."""
    if facts.names is None or not facts.ever_listed:
        return UNKNOWN
    if not facts.expected_devices or facts.expected_devices & facts.names:
        return GOOD
    count = len(facts.expected_devices)
    return Condition(Verdict.BAD, 0, count, f"all {count} devices absent")


def all_init(facts: NodeFacts) -> Condition:
    """Every compute port has its link up and waits for a subnet manager."""
    compute = [f for f in facts.ports.values() if f.role is Role.COMPUTE]
    if len(compute) < TOGETHER or not any(f.fresh for f in compute):
        return UNKNOWN
    seen = [f for f in compute if f.fresh]
    if not all(trained(f) for f in seen):
        return GOOD
    if len(seen) == len(compute):
        words = f"all {len(compute)} ports INIT, no subnet manager?"
        return Condition(Verdict.BAD, "INIT", "ACTIVE", words, "critical")
    return UNKNOWN  # those that are seen wait, and of the others nobody knows


def blind(facts: NodeFacts, polls: int) -> Condition:
    """The class directory cannot be read."""
    if facts.failed_listings == 0:
        return GOOD
    if facts.failed_listings < polls:
        return UNKNOWN
    words = f"class/infiniband unreadable {facts.failed_listings}x"
    return Condition(Verdict.BAD, facts.failed_listings, polls, words, "warning")


def offender(facts: NodeFacts, settings: Settings) -> Condition:
    """Drains of this node by ibmon, however each of them ended."""
    return moments(facts.drains, facts.now, facts.boot, settings, "drains=")


def conditions(facts: NodeFacts, chosen: Mapping[str, Settings]) -> dict[str, Condition]:
    """What holds for the node, by rule."""
    return {
        ALL_MISSING: all_missing(facts),
        ALL_INIT: all_init(facts),
        BLIND: blind(facts, chosen[BLIND].polls or 1),
        OFFENDER: offender(facts, chosen[OFFENDER]),
    }


def settings_for(rule: str, configured: Settings, interval: float, *, critical: bool) -> Settings:
    """A node rule's settings: the configured ones with what the correlation itself prescribes.

    Args:
        rule: its id.
        configured: what the table and the site say.
        interval: seconds between two listings.
        critical: whether its episode has reached critical.
    """
    if rule == ALL_MISSING:
        three_listings = 2 * interval
        recover = configured.recover if critical else min(configured.recover, three_listings)
        return configured._replace(alert_hold=min(three_listings, configured.hold), recover=recover)
    if rule == ALL_INIT:
        action = Mode.OBSERVE if configured.action is Mode.OBSERVE else Mode.ALERT
        return configured._replace(
            alert_hold=INIT_ALERT_HOLD, hold=max(configured.hold, INIT_ALERT_HOLD), recover=INIT_RECOVER, action=action
        )
    return configured


def waits_for_manager(conditions: Mapping[str, Condition], open_rules: Collection[str]) -> bool:
    """Whether all compute ports wait for a subnet manager, or did when they were last seen all."""
    verdict = conditions[ALL_INIT].verdict
    return verdict is Verdict.BAD or (verdict is Verdict.UNKNOWN and ALL_INIT in open_rules)


def explained(conditions: Mapping[str, Condition], open_rules: Collection[str]) -> frozenset[str]:
    """Rules of single ports that a condition of the node speaks for."""
    out = set()
    if conditions[ALL_MISSING].verdict is Verdict.BAD:
        out.add("device-missing")
    if waits_for_manager(conditions, open_rules):
        out.add("port-init")
    return frozenset(out) | (frozenset({"monitor-blind"}) if BLIND in open_rules else frozenset())
