"""The rule table: one row a rule, with its defaults and the source of each, and the effective settings of a port.

A row's `check` looks at the facts of one port and answers with a `Condition`; time (holds, recovery, severity) is
`evaluate.py`'s business. Docs, `explain` and configuration keys come from the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from fnmatch import fnmatchcase
from typing import NamedTuple

from ibmon.config import Config, OverrideConfig, RuleConfig
from ibmon.model import PHYSICAL_STATE_TEXT, PORT_STATE_TEXT, Mode, PhysicalState, PortHealth, PortId, PortState, Role

GBPS = 125_000_000
"""Bytes per second of one Gb/s."""

FALLBACK_RATES = frozenset({("SDR", 4, 10 * GBPS), ("SDR", 1, 5 * GBPS // 2)})
"""What the kernel prints for a speed it does not know (core/sysfs.c:rate_show falls into the SDR case)."""

ROCE_FALLBACK_RATE = ("QDR", 4, 40 * GBPS)
"""What mlx5 prints for an Ethernet port whose mode it does not know (hw/mlx5/main.c:mlx5_query_port_roce)."""


class Verdict(Enum):
    """Whether a condition holds, by the newest read. UNKNOWN neither opens nor closes anything."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


class Condition(NamedTuple):
    """What a rule sees: the verdict, the value and limit behind it, and the words for them (``DOWN/Polling``)."""

    verdict: Verdict
    observed: float | str | None = None
    limit: float | str | None = None
    words: str = ""


GOOD = Condition(Verdict.GOOD)
UNKNOWN = Condition(Verdict.UNKNOWN)


class PortFacts(NamedTuple):
    """All that the rules may look at. Rates are in bytes per second; None is "not known".

    `listed` is whether the newest complete listing held the device; None before the first, or while it is unreadable.
    """

    id: PortId
    role: Role
    link_layer: str | None
    listed: bool | None
    stalled: bool
    state: int | None
    physical_state: int | None
    rate: int | None
    width: int | None
    speed_word: str | None
    expected_rate: int | None
    best_rate: int | None  # the best rate this boot has shown
    fresh: bool  # the newest good read of `state` is young enough to believe


class Rule(NamedTuple):
    """One row. Times in seconds; `action` is the most the rule may cause unless the configuration says otherwise."""

    id: str
    check: Callable[[PortFacts], Condition]
    health: PortHealth
    alert_hold: float
    hold: float
    recover: float
    action: Mode
    title: str
    source: str


class Settings(NamedTuple):
    """A rule's effective settings for one port (seconds)."""

    rule: Rule
    enabled: bool
    alert_hold: float
    hold: float
    recover: float
    action: Mode


def state_words(facts: PortFacts) -> str:
    """``DOWN/Polling``: the kernel's words, or its numbers where it has none."""
    logical = "?" if facts.state is None else PORT_STATE_TEXT.get(facts.state, str(facts.state))
    if facts.physical_state is None:
        return logical
    return f"{logical}/{PHYSICAL_STATE_TEXT.get(facts.physical_state, str(facts.physical_state))}"


def gbps(rate: int) -> str:
    """A rate in Gb/s without a trailing ``.0``."""
    return f"{rate / GBPS:g}"


def _trained(facts: PortFacts) -> bool:
    """LinkUp, but nobody has brought the port up: INIT or ARMED is a subnet manager's matter, not the cable's."""
    return facts.state in (PortState.INIT, PortState.ARMED) and facts.physical_state in (PhysicalState.LINK_UP, None)


def _port_down(facts: PortFacts) -> Condition:
    if not facts.fresh or facts.state is None or not facts.listed:
        return UNKNOWN
    if facts.state in (PortState.ACTIVE, PortState.ACTIVE_DEFER):
        return GOOD
    if _trained(facts):
        return UNKNOWN  # the cable is well, but a port that came back only as far as INIT has not come back
    return Condition(Verdict.BAD, state_words(facts), "ACTIVE", state_words(facts))


def _port_init(facts: PortFacts) -> Condition:
    if not facts.fresh or facts.state is None or not facts.listed:
        return UNKNOWN
    if not _trained(facts):
        # Down is worse than waiting, and says nothing about whether the subnet manager is back.
        return GOOD if facts.state in (PortState.ACTIVE, PortState.ACTIVE_DEFER) else UNKNOWN
    return Condition(Verdict.BAD, state_words(facts), "ACTIVE", state_words(facts))


def _rate_low(facts: PortFacts) -> Condition:
    if not facts.fresh or not facts.listed or facts.state not in (PortState.ACTIVE, PortState.ACTIVE_DEFER):
        return UNKNOWN  # a rate says nothing while the port is not ACTIVE
    if facts.rate is None or facts.expected_rate is None:
        return UNKNOWN
    if facts.rate >= facts.expected_rate:
        return GOOD
    shown = (facts.speed_word or "SDR", facts.width, facts.rate)
    fallback = shown in FALLBACK_RATES or (facts.link_layer == "Ethernet" and shown == ROCE_FALLBACK_RATE)
    if fallback and (facts.best_rate is None or facts.best_rate < facts.expected_rate):
        return UNKNOWN  # the kernel may just be too old for this speed
    words = f"{gbps(facts.rate)}<{gbps(facts.expected_rate)}Gb/s"
    if facts.width is not None:
        words += f" {facts.width}X"
    return Condition(Verdict.BAD, facts.rate / GBPS, facts.expected_rate / GBPS, words)


def _device_missing(facts: PortFacts) -> Condition:
    if facts.listed is None:
        return UNKNOWN
    return GOOD if facts.listed else Condition(Verdict.BAD, "absent", "present", "absent")


RULES: tuple[Rule, ...] = (
    Rule(
        "port-down", _port_down, PortHealth.FAILED, 30, 60, 600, Mode.DRAIN,
        "An expected port is not ACTIVE and its link is not up",
        "alert 30 s (NVIDIA health validation: outage of 30 s), drain 60 s, recover 10 min (gpud's sticky window)",
    ),
    Rule(
        "port-init", _port_init, PortHealth.FAILED, 60, 300, 300, Mode.ALERT,
        "The link is up but the port waits in INIT or ARMED for a subnet manager",
        "usually fleet-wide, so it alerts and does not drain (Meta GCM warns)",
    ),
    Rule(
        "rate-low", _rate_low, PortHealth.DEGRADED, 30, 60, 300, Mode.DRAIN,
        "An ACTIVE port runs below its expected rate",
        "a lost lane halves a collective and does not heal by itself (Meta GCM, NHC: exact rate or drain)",
    ),
    Rule(
        "device-missing", _device_missing, PortHealth.FAILED, 30, 120, 600, Mode.ALERT,
        "An expected device is not in class/infiniband",
        "counted on complete listings only (NVSentinel #1488)",
    ),
)  # fmt: skip

RULE_BY_ID = {rule.id: rule for rule in RULES}


def _first_override(config: Config, rule: str, port: PortId, role: Role) -> OverrideConfig | None:
    for override in config.override:
        if override.rule != rule or (override.role is not None and override.role is not role):
            continue
        if override.match is None or fnmatchcase(str(port), override.match):
            return override
    return None


def settings(config: Config, rule: Rule, port: PortId, role: Role) -> Settings:
    """The rule's settings for this port: its row, then ``[rules.ID]``, then the first ``[[override]]`` that fits."""
    enabled, alert_hold, hold = True, rule.alert_hold, rule.hold
    recover, action = rule.recover, rule.action
    layers: Iterable[RuleConfig | OverrideConfig | None] = (
        config.rules.get(rule.id),
        _first_override(config, rule.id, port, role),
    )
    for layer in layers:
        if layer is None:
            continue
        enabled = enabled if layer.enabled is None else layer.enabled
        hold = hold if layer.hold is None else layer.hold
        # A hold shorter than the alert's would drain without an alert: the alert comes no later than the drain.
        alert_hold = min(alert_hold if layer.alert_hold is None else layer.alert_hold, hold)
        recover = recover if layer.recover is None else layer.recover
        action = action if layer.action is None else layer.action
    return Settings(rule, enabled, alert_hold, hold, recover, action)
