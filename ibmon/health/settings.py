"""A rule's effective settings for one port: its row, what the site changed, and the first override that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

import msgspec

from ibmon.config import Config, OverrideConfig, RuleConfig
from ibmon.health.facts import Condition, PortFacts
from ibmon.model import Mode, PortHealth, PortId, Role

Unit = Literal["", "episodes", "per_hour", "ber", "times", "celsius"]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table. Times in seconds.

    `action` is the most the rule may cause unless the configuration says otherwise; `health` what a port shows while it
    holds, `warning_health` what it shows while the finding is not critical. A rule of scope `device` is looked at once
    a device, one of scope `node` once a node. `warning` and `critical` are in `unit`: episodes or times within
    `window`, a bit error ratio, a rise per hour, or degrees. A rule that is not `enabled` waits for a site that asks
    for it. `fleet_action` takes the place of `action` where a fleet controller drains, because that sees whether other
    nodes show the same. `title`, `means`, `source`, `causes`, `todo` and `clears` are for people; in `causes` and
    `todo` a semicolon parts one item from the next.
    """

    id: str
    check: Callable[[PortFacts, Settings], tuple[Condition, ...]]
    title: str
    means: str
    health: PortHealth
    alert_hold: float
    hold: float
    recover: float
    action: Mode
    source: str
    causes: str
    todo: str
    clears: str
    warning_health: PortHealth | None = None
    scope: Literal["port", "device", "node"] = "port"
    unit: Unit = ""
    window: float | None = None
    warning: float | None = None
    critical: float | None = None
    polls: int | None = None
    counts: bool = False  # count-like: three times the boot grace, and recovery from the last bad moment
    enabled: bool = True
    fleet_action: Mode | None = None
    once_a_day: bool = False  # clears by itself once in 24 hours; a second time it waits for a person


class Settings(NamedTuple):
    """What is in force for one rule on one port. `window` None: from the port's own rate."""

    rule: Rule
    enabled: bool
    alert_hold: float
    hold: float
    recover: float
    action: Mode
    window: float | None = None
    warning: float | None = None
    critical: float | None = None
    warning_unit: Unit = ""
    critical_unit: Unit = ""
    polls: int | None = None

    def unit(self, limit: str) -> Unit:
        """The unit of ``warning`` or ``critical``: a site may write one of them in another unit than the table."""
        return self.critical_unit if limit == "critical" else self.warning_unit

    @property
    def ratio(self) -> bool:
        """Whether a limit is a bit error ratio, so that the port's own rate sets the count."""
        return "ber" in (self.warning_unit, self.critical_unit)


def of_rule(rule: Rule) -> Settings:
    """The row as it stands."""
    return Settings(
        rule, rule.enabled, rule.alert_hold, rule.hold, rule.recover, rule.action,
        rule.window, rule.warning, rule.critical, rule.unit, rule.unit, rule.polls,
    )  # fmt: skip


def settings(config: Config, rule: Rule, port: PortId, role: Role) -> Settings:
    """The rule's settings for this port: its row, then ``[rules.ID]``, then the first ``[[override]]`` that fits.

    The row's `fleet_action` counts where `action.scheduler` is the fleet controller.
    """
    effective = of_rule(rule)
    if rule.fleet_action is not None and config.action.scheduler == "controller":
        effective = effective._replace(action=rule.fleet_action)
    layers: Iterable[RuleConfig | None] = (
        config.rules.get(rule.id),
        _first_override(config, rule.id, port, role),
    )
    for layer in layers:
        if layer is not None:
            effective = lay(effective, layer)
    return effective


def lay(below: Settings, layer: RuleConfig) -> Settings:
    """One layer over what lies below it; what it leaves open stays."""
    names = ("enabled", "alert_hold", "hold", "recover", "action", "window", "warning", "critical", "polls")
    given = {name: value for name in names if (value := getattr(layer, name)) is not None}
    for limit in ("warning", "critical"):
        rise = getattr(layer, f"{limit}_per_hour")
        if rise is not None:
            given[limit], given[f"{limit}_unit"] = rise, "per_hour"
        elif limit in given and below.unit(limit) == "per_hour":
            given[f"{limit}_unit"] = "ber"
    laid = below._replace(**given)
    if "hold" in given and "alert_hold" not in given:
        # A hold shorter than the alert's would drain without an alert: the alert comes no later than the drain.
        laid = laid._replace(alert_hold=min(laid.alert_hold, laid.hold))
    return laid._replace(alert_hold=min(laid.alert_hold, laid.hold))


def _first_override(config: Config, rule: str, port: PortId, role: Role) -> OverrideConfig | None:
    for override in config.override:
        if override.rule != rule or (override.role is not None and override.role is not role):
            continue
        if override.match is None or fnmatchcase(str(port), override.match):
            return override
    return None
