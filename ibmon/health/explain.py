"""Rules in words: what is in force for a port, where each value comes from, and a whole explanation. Pure.

Everything that people read of a rule (`explain`, `rules`, docs/rules.md, the runbook) is made here from its row and
the configuration. It decides nothing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ibmon.config import Config, OverrideConfig, RuleConfig
from ibmon.health import counts
from ibmon.health.facts import GBPS, PortFacts
from ibmon.health.settings import Rule, Settings, of_rule, settings
from ibmon.model import Mode, PortHealth, PortId, Role

DEFAULT: Final = "default"
WIDTH: Final = 100
ANY: Final = PortId("", 0)
"""A port that no override names."""

DURATIONS: Final = ("alert_hold", "hold", "recover", "window")
KEYS: Final[Mapping[str, str]] = {
    "enabled": "whether the rule is judged at all",
    "alert_hold": "so long until it is a finding and alerts",
    "hold": "so long until it is critical and may drain",
    "recover": "so long good until the finding ends",
    "window": "over which occurrences are counted",
    "warning": "from here on a warning",
    "critical": "from here on critical",
    "polls": "so many failed reads in a row",
    "action": "the most that the rule may cause",
}
RATES: Final = (100, 200, 400, 800)
"""Gb/s for which bit error ratios are shown as counts."""


class Limit(NamedTuple):
    """One setting in force: its key, its value (durations in seconds), the value in words, and where it was written.

    `unit` is that of `warning` and `critical`, as the rule's row has it.
    """

    key: str
    value: Any
    text: str
    origin: str
    unit: str = ""


class Changed(NamedTuple):
    """What one ``[[override]]`` changes, and for which ports."""

    subject: str
    limits: tuple[Limit, ...]


class Ber(NamedTuple):
    """A bit error ratio at a link rate: the window in seconds, and the limits as counted errors (None: no limit)."""

    gbps: float
    window: float
    warning: float | None
    critical: float | None


# ------------------------------------------------------------------------------------------------- what is in force


def in_force(
    config: Config, origins: Mapping[str, str], rule: Rule, port: PortId = ANY, role: Role | None = None
) -> tuple[Limit, ...]:
    """The rule's settings for a port of that role; without a port those that no override changes.

    Args:
        config: the configuration in force.
        origins: of its values, as `ibmon.configfile.Loaded` has them.
        rule: the row.
        port: the port, if one is asked for.
        role: the role of that port.
    """
    number = None if role is None else override_of(config, rule, port, role)
    layers: list[tuple[str, RuleConfig | OverrideConfig]] = []
    if number is not None:
        layers.append((f"override[{number}]", config.override[number]))
    if rule.id in config.rules:
        layers.append((f"rules.{rule.id}", config.rules[rule.id]))
    if role is None:
        config = msgspec.structs.replace(config, override=())
    return _limits(settings(config, rule, port, role or Role.COMPUTE), layers, origins)


def chosen(config: Config, rule: Rule) -> Settings:
    """The rule's settings that no override changes."""
    return settings(msgspec.structs.replace(config, override=()), rule, ANY, Role.COMPUTE)


def override_of(config: Config, rule: Rule, port: PortId, role: Role) -> int | None:
    """The number of the ``[[override]]`` that holds for the port, as `settings` itself chooses it."""
    for number, override in enumerate(config.override):
        alone = msgspec.structs.replace(override, enabled=not rule.enabled)
        if settings(Config(override=(alone,)), rule, port, role).enabled is not rule.enabled:
            return number
    return None


def changes(config: Config, origins: Mapping[str, str], rule: Rule) -> tuple[Changed, ...]:
    """What the overrides change of the rule, in their order: of two that fit a port the first holds."""
    out = []
    for number, override in enumerate(config.override):
        if override.rule != rule.id:
            continue
        base = msgspec.structs.replace(config, override=(msgspec.structs.replace(override, match=None, role=None),))
        limits = _limits(settings(base, rule, ANY, Role.COMPUTE), [(f"override[{number}]", override)], origins)
        given = tuple(limit for limit in limits if _written(override, limit.key))
        where = [override.match or "", f"{override.role.value} ports" if override.role else ""]
        out.append(Changed(", ".join(filter(None, where)), given))
    return tuple(out)


def _limits(
    chosen: Settings, layers: Sequence[tuple[str, RuleConfig | OverrideConfig]], origins: Mapping[str, str]
) -> tuple[Limit, ...]:
    out = []
    row = of_rule(chosen.rule)
    for key in KEYS:
        value = getattr(chosen, key)
        if value is None and getattr(row, key) is None and key not in _counted(chosen.rule):
            continue
        # An alert's hold above the drain's is cut to that, so it comes from where the other was written.
        sources = (key, "hold") if key == "alert_hold" and value != row.alert_hold else (key,)
        value = value.value if isinstance(value, Mode) else value
        unit = chosen.unit(key) if key in ("warning", "critical") else ""
        out.append(Limit(key, value, amount(chosen, key), _origin(sources, layers, origins), unit))
    return tuple(out)


def _counted(rule: Rule) -> tuple[str, ...]:
    """The limits that the rule has even where there is none by default."""
    return {"": (), "ber": ("window", "warning", "critical")}.get(rule.unit, ("warning", "critical"))


def _origin(
    keys: Iterable[str], layers: Sequence[tuple[str, RuleConfig | OverrideConfig]], origins: Mapping[str, str]
) -> str:
    for key in keys:
        for path, layer in layers:
            name = _written(layer, key)
            if name:
                return origins.get(f"{path}.{name}", path)
    return DEFAULT


def _written(layer: RuleConfig | OverrideConfig, key: str) -> str:
    """Under which name the layer gives the key; empty where it leaves it open."""
    names = (key, f"{key}_per_hour") if key in ("warning", "critical") else (key,)
    return next((name for name in names if getattr(layer, name) is not None), "")


def as_values(limits: Iterable[Limit]) -> dict[str, dict[str, Any]]:
    """Settings for programs: by key the value (durations in seconds), the unit of a limit, and where it was written."""
    return {
        limit.key: {"value": limit.value, **({"unit": limit.unit} if limit.unit else {}), "from": limit.origin}
        for limit in limits
    }


# --------------------------------------------------------------------------------------------------------- in words


def items(text: str) -> tuple[str, ...]:
    """The single items of a row's `causes` or `todo`."""
    return tuple(text.split("; "))


def amount(chosen: Settings, key: str) -> str:
    """A setting in words: ``10min``, ``3 episodes``, ``BER 5e-15``, ``100/h``."""
    value = getattr(chosen, key)
    if isinstance(value, Mode):
        return value.value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "by rate" if key == "window" else "none"
    if key in DURATIONS:
        return counts.span(value)
    if key not in ("warning", "critical"):
        return f"{value:g}"
    unit = chosen.unit(key)
    if unit == "ber":
        return f"BER {value:g}"
    if unit == "per_hour":
        each_second = value / 3600
        return f"{each_second:g}/s" if each_second >= 1 and each_second.is_integer() else f"{value:g}/h"
    return f"{value:g} {unit}".rstrip()


def effect(chosen: Settings) -> str:
    """What a finding of the rule shows and may cause, in a sentence or two."""
    rule = chosen.rule
    if rule.health is PortHealth.OK:
        shown = "It changes no port's health."
    elif rule.warning_health not in (None, rule.health):
        assert rule.warning_health is not None  # noqa: S101 - for the type checker
        shown = f"The port shows as {rule.warning_health.value}, when critical as {rule.health.value}."
    else:
        shown = f"The port shows as {rule.health.value}."
    if rule.scope == "node" and rule.health is not PortHealth.OK:
        shown = "It is a finding of the node, not of a port."
    fleet = f" {_FLEET}" if rule.fleet_action not in (None, chosen.action) else ""
    return f"{shown} {_MOST[chosen.action]}{fleet}" + ("" if chosen.enabled else " It is switched off.")


_MOST: Final[Mapping[Mode, str]] = {
    Mode.OBSERVE: "It is shown and counted, and neither alerts nor drains.",
    Mode.ALERT: "It alerts (in the modes alert and drain) and never drains.",
    Mode.DRAIN: "It alerts (in the modes alert and drain); once critical on a compute port that is declared or "
    "accepted, it may drain the node (in mode drain).",
}

_FLEET: Final = (
    "Where a fleet controller drains (action.scheduler), it may drain the node all the same: the controller sees other "
    "nodes, and does it only while fewer than three of them show the fault."
)


def at_rate(chosen: Settings, gbps: float) -> Ber | None:
    """The rule's limits as counts at a link rate in Gb/s; None for a rule that knows no bit error ratio."""
    if not chosen.ratio:
        return None
    rate = round(gbps * GBPS)
    facts = PortFacts(ANY, Role.COMPUTE, None, True, False, None, None, rate, None, None, None, None, True)  # noqa: FBT003
    window = counts.ber_window(facts, chosen)
    assert window is not None  # noqa: S101 - there is a rate
    limits = counts.limits(facts, chosen, window)
    warning, critical = (None if limit == float("inf") else limit for limit in limits)
    return Ber(gbps, window, warning, critical)


# ----------------------------------------------------------------------------------------------------- whole texts

_HEAD: Final = ("RULE", "ON", "ALERT", "HOLD", "RECOVER", "WINDOW", "WARNING", "CRITICAL", "ACTION", "FROM")
_COLUMNS: Final = ("enabled", "alert_hold", "hold", "recover", "window", "warning", "critical", "action")


def table(rows: Iterable[tuple[Rule, Sequence[Limit], Sequence[Changed]]]) -> list[str]:
    """The rules in force, one line each, and below each one what overrides change for some ports."""
    cells: list[tuple[str, ...]] = [_HEAD]
    for rule, limits, changed in rows:
        cells.append(_row(rule.id, limits))
        cells.extend(_row(f"  for {one.subject}", one.limits) for one in changed)
    return aligned(cells)


def _row(name: str, limits: Sequence[Limit]) -> tuple[str, ...]:
    values = {limit.key: limit.text for limit in limits}
    if "polls" in values:
        values["window"] = f"{values['polls']} polls"
    places: dict[str, list[str]] = {}
    for limit in limits:
        if limit.origin != DEFAULT:
            places.setdefault(limit.origin, []).append(limit.key)
    written = "; ".join(f"{place} ({', '.join(keys)})" for place, keys in places.items())
    return (name, *(values.get(key, "") for key in _COLUMNS), written or DEFAULT)


def text(
    rule: Rule,
    chosen: Settings,
    limits: Sequence[Limit],
    changed: Sequence[Changed] = (),
    subject: str = "",
) -> str:
    """Everything about a rule, for a terminal of a hundred columns.

    Args:
        rule: the row.
        chosen: its settings in force.
        limits: the same, with where each was written.
        changed: what overrides change for some ports.
        subject: the port for which this holds, if for one only.
    """
    return "\n".join(_text(rule, chosen, limits, changed, subject)) + "\n"


def _text(
    rule: Rule, chosen: Settings, limits: Sequence[Limit], changed: Sequence[Changed], subject: str
) -> Iterator[str]:
    yield from _paragraph(f"{rule.id}: {rule.title}")
    yield ""
    yield from _paragraph(f"{rule.means} {effect(chosen)}")
    yield from ("", "Likely causes")
    for cause in items(rule.causes):
        yield from _paragraph(cause, "  - ")
    yield from ("", "What to do")
    for number, step in enumerate(items(rule.todo), 1):
        yield from _paragraph(step, f"  {number}. ")
    yield from ("", "What clears it")
    yield from _paragraph(f"{rule.clears} (recover: {counts.span(chosen.recover)})", "  ")
    yield from ("", f"Limits in force{f' for {subject}' if subject else ''}")
    rows = [(limit.key, limit.text, KEYS[limit.key], limit.origin) for limit in limits]
    yield from (f"  {line}" for line in aligned(rows))
    for one in changed:
        yield f"  for {one.subject}:"
        yield from (f"    {line}" for line in aligned([(c.key, c.text, c.origin) for c in one.limits]))
    if bers := [ber for gbps in RATES if (ber := at_rate(chosen, gbps)) is not None]:
        yield from ("", "As counted errors")
        yield from (f"  {line}" for line in aligned([_BER_HEAD, *map(_ber_row, bers)]))
    yield from ("", "Where the defaults come from")
    yield from _paragraph(rule.source, "  ")


_BER_HEAD: Final = ("link rate", "window", "warning", "critical")


def _ber_row(ber: Ber) -> tuple[str, ...]:
    limits = ("none" if limit is None else f"{limit:g}" for limit in (ber.warning, ber.critical))
    return (f"{ber.gbps:g} Gb/s", counts.span(ber.window), *limits)


def _paragraph(words: str, mark: str = "") -> Iterator[str]:
    yield from textwrap.wrap(
        words, WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with their cells one below the other, two spaces apart."""
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(map(len, rows), default=0))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
