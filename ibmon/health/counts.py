"""The checks of count-like rules: how often something happened within a window. Pure.

A bit error ratio is turned into a count with the port's own rate. A counter at its maximum, or one that cannot be read,
makes its rule unknown: it can neither accuse nor acquit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from ibmon.health.facts import Condition, PortFacts, Verdict
from ibmon.health.settings import Settings
from ibmon.health.windows import MAX_WALL_AGE, NOTHING, Moment, Total, Window
from ibmon.model import Now

HORIZON = MAX_WALL_AGE
"""Seconds of history that is kept: sites may write windows and recoveries as long as that."""

SPEC_BER = 1e-15
SPEC_ERRORS = 3.0
"""NVIDIA's bring-up guide: the window is as long as it takes to see three errors at the specified ratio."""

FLAP_MARGIN = 120.0
"""Seconds around a flap, its begin and its end, whose symbol errors belong to the retraining."""

LONG_OUTAGE = 30.0
EMPTY = Window()


def ber_window(facts: PortFacts, settings: Settings) -> float | None:
    """The window in seconds: the configured one, else from the port's rate (125 min at 400 Gb/s); None: no rate."""
    if settings.window is not None:
        return settings.window
    return SPEC_ERRORS / (SPEC_BER * facts.rate * 8) if facts.rate else None


def limits(facts: PortFacts, settings: Settings, window: float) -> tuple[float, float]:
    """Warning and critical as counts within the window; infinity where there is none."""
    out = []
    for value, unit in (
        (settings.warning, settings.warning_unit),
        (settings.critical, settings.critical_unit),
    ):
        if value is None:
            out.append(math.inf)
        elif unit == "ber":
            # Rounded, so that a product of fractions does not come out a hair above or below its whole number.
            out.append(round(value * facts.rate * 8 * window, 6) if facts.rate else math.inf)
        elif unit == "per_hour":
            out.append(value * window / 3600.0)
        else:
            out.append(value)
    return out[0], out[1]


def span(seconds: float) -> str:
    """A window for people: ``24h``, ``125min``, ``90s``."""
    if seconds >= 7200 and seconds % 3600 == 0:
        return f"{seconds / 3600:g}h"
    return f"{seconds / 60:g}min" if seconds >= 120 and seconds % 60 == 0 else f"{seconds:g}s"


def _judge(
    total: Total, quiet: float, bounds: tuple[float, float], window: float, what: str, counter: str = ""
) -> Condition:
    warning, critical = bounds
    # A limit below one event would accuse a clean counter.
    if total.events >= max(1.0, critical):
        return _said(total, quiet, critical, window, what, counter, critical=True)
    if total.events >= max(1.0, warning):
        return _said(total, quiet, warning, window, what, counter, critical=False)
    return Condition(Verdict.GOOD, quiet=quiet, counter=counter, expires=total.expires)


def _said(
    total: Total, quiet: float, limit: float, window: float, what: str, counter: str, *, critical: bool
) -> Condition:
    words = f"{what}{total.events}/{span(window)}>={limit:g}"
    reach: Literal["warning", "critical"] = "critical" if critical else "warning"
    return Condition(Verdict.BAD, total.events, limit, words, reach, quiet, counter, total.expires)


def counter(
    facts: PortFacts,
    settings: Settings,
    key: str,
    *,
    intervals: int = 1,
    factor: float = 1.0,
    without: Sequence[tuple[float, float]] = (),
) -> Condition | None:
    """One counter against the limits; None where the port has no such counter."""
    name = key.partition("/")[2]
    if key not in facts.present:
        return None
    window = ber_window(facts, settings)
    if window is None or key in facts.saturated or key in facts.unreadable:
        return Condition(Verdict.UNKNOWN, counter=name)
    history = facts.windows.get(key, EMPTY)
    total = history.total(window, facts.now, facts.boot, without)
    quiet = history.total(HORIZON, facts.now, facts.boot).quiet
    if total.intervals < intervals:
        total = NOTHING
    warning, critical = limits(facts, settings, window)
    bounds = (warning * factor, critical * factor)
    return _judge(total, math.inf if quiet is None else quiet, bounds, window, f"{name}=", name)


def one(key: str, *, intervals: int = 1) -> Callable[[PortFacts, Settings], tuple[Condition, ...]]:
    """The check of a rule on a single counter."""

    def check(facts: PortFacts, settings: Settings) -> tuple[Condition, ...]:
        found = counter(facts, settings, key, intervals=intervals)
        return () if found is None else (found,)

    return check


def each(
    keys: Iterable[str], factors: dict[str, float] | None = None
) -> Callable[[PortFacts, Settings], tuple[Condition, ...]]:
    """The check of a rule on several counters, each judged for itself."""
    keys, factors = tuple(keys), factors or {}

    def check(facts: PortFacts, settings: Settings) -> tuple[Condition, ...]:
        found = (counter(facts, settings, key, factor=factors.get(key, 1.0)) for key in keys)
        return tuple(condition for condition in found if condition is not None)

    return check


def on_infiniband(
    check: Callable[[PortFacts, Settings], tuple[Condition, ...]],
) -> Callable[[PortFacts, Settings], tuple[Condition, ...]]:
    """The same check on InfiniBand ports only: the kernel's `counters/` are no measure of an Ethernet link."""

    def infiniband(facts: PortFacts, settings: Settings) -> tuple[Condition, ...]:
        return () if facts.link_layer == "Ethernet" else check(facts, settings)

    return infiniband


def _around_retraining(facts: PortFacts) -> tuple[tuple[float, float], ...]:
    """The ages at which errors belong to a link that fell or came up."""
    ages = (moment.age(facts.now, facts.boot) for moment in facts.retrained)
    return tuple((age - FLAP_MARGIN, age + FLAP_MARGIN) for age in ages)


def symbol_errors(facts: PortFacts, settings: Settings) -> tuple[Condition, ...]:
    """Symbol errors as a bit error ratio, in three minutes at least, away from flaps, on a port that was up so long."""
    key = "phy/rx_pcs_symbol_err_phy" if facts.link_layer == "Ethernet" else "counters/symbol_error"
    window = ber_window(facts, settings)
    if key in facts.present and settings.ratio:
        up = facts.active_for or 0.0
        if window is None or up < window:
            expires = math.inf if window is None else window - up
            return (Condition(Verdict.UNKNOWN, counter=key.partition("/")[2], expires=expires),)
    found = counter(facts, settings, key, intervals=3, without=_around_retraining(facts))
    return () if found is None else (_clean(found, facts, settings, key),)


def _clean(found: Condition, facts: PortFacts, settings: Settings, key: str) -> Condition:
    """A link at its specified ratio counts an error now and then for ever: fewer than three in one window are clean."""
    if found.verdict is not Verdict.GOOD or not settings.ratio or not facts.rate:
        return found
    window = SPEC_ERRORS / (SPEC_BER * facts.rate * 8)
    errors = facts.windows.get(key, EMPTY).total(window, facts.now, facts.boot)
    if errors.events < SPEC_ERRORS:
        return found._replace(quiet=math.inf)
    return found._replace(quiet=0.0, expires=min(found.expires, errors.expires))


def gross_errors(facts: PortFacts, settings: Settings) -> tuple[Condition, ...]:
    """So many symbol errors that no long window is needed to be sure."""
    key = "phy/rx_pcs_symbol_err_phy" if facts.link_layer == "Ethernet" else "counters/symbol_error"
    found = counter(facts, settings, key, intervals=5, without=_around_retraining(facts))
    return () if found is None else (_clean(found, facts, settings, key),)


def link_recovery(facts: PortFacts, settings: Settings) -> tuple[Condition, ...]:
    """Retrainings; critical only where symbol errors rose within the same window."""
    found = counter(facts, settings, "counters/link_error_recovery")
    if found is None or found.verdict is not Verdict.BAD or settings.window is None:
        return () if found is None else (found,)
    symbols = facts.windows.get("counters/symbol_error", EMPTY)
    with_errors = symbols.total(settings.window, facts.now, facts.boot).events > 0
    return (found._replace(reach="critical" if with_errors else "warning"),)


def receive_errors(facts: PortFacts, settings: Settings) -> tuple[Condition, ...]:
    """Broken packets; no more than a warning while packets arrive that were broken elsewhere."""
    if facts.link_layer == "Ethernet":
        return ()
    found = counter(facts, settings, "counters/port_rcv_errors")
    if found is None or found.reach != "critical" or settings.window is None:
        return () if found is None else (found,)
    remote = facts.windows.get("counters/port_rcv_remote_physical_errors", EMPTY)
    elsewhere = remote.total(settings.window, facts.now, facts.boot).events > 0
    return (found._replace(reach="warning") if elsewhere else found,)


def moments(happened: Sequence[Moment], now: Now, boot: str, settings: Settings, what: str) -> Condition:
    """Single happenings within the window against the limits."""
    window = settings.window or 86400.0
    ages = sorted(moment.age(now, boot) for moment in happened)
    within = [age for age in ages if age <= window]
    quiet = ages[0] if ages else math.inf
    total = Total(len(within), len(within), quiet, window - within[-1] if within else math.inf)
    bounds = (settings.warning or math.inf, settings.critical or math.inf)
    return _judge(total, quiet, bounds, window, what)


def link_flap(facts: PortFacts, settings: Settings) -> tuple[Condition, ...]:
    """Bounces of the link, however each was seen."""
    return (moments(facts.flaps, facts.now, facts.boot, settings, "flaps="),)


def flap_storm(facts: PortFacts, settings: Settings) -> tuple[Condition, ...]:
    """Changes between ACTIVE and not, one by one."""
    return (moments(facts.transitions, facts.now, facts.boot, settings, "transitions="),)


def long_outage(facts: PortFacts, settings: Settings) -> tuple[Condition, ...]:
    """Outages of half a minute and more that ended by themselves."""
    ended = [outage.ended for outage in facts.outages if outage.counted and outage.seconds >= LONG_OUTAGE]
    return (moments(ended, facts.now, facts.boot, settings, "outages="),)
