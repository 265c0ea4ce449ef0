"""Limits as bit error ratios: units of their own for each limit, and what counts as a clean window."""

import math

import pytest

from ibmon.config import Config, RuleConfig
from ibmon.health.counts import symbol_errors
from ibmon.health.facts import GBPS, PortFacts, Verdict
from ibmon.health.rules import RULE_BY_ID
from ibmon.health.settings import settings
from ibmon.health.windows import Window
from ibmon.model import Now, PortId, Role

PORT = PortId("mlx5_0", 1)
BOOT = "b"
HOUR = 3600.0
RULE = RULE_BY_ID["symbol-errors"]


def chosen(rule: str = "symbol-errors", **given):
    return settings(Config(rules={rule: RuleConfig(**given)}), RULE_BY_ID[rule], PORT, Role.COMPUTE)


def facts(errors_at, now=10 * HOUR, rate=400, active_for=9 * HOUR):
    window = Window()
    for at in errors_at:
        window = window.add(1, Now(at, at), BOOT)
    key = "counters/symbol_error"
    return PortFacts(
        PORT, Role.COMPUTE, "InfiniBand", True, False, 4, 5, rate * GBPS, 4, "NDR", None, None, True,
        now=Now(now, now), boot=BOOT, active_for=active_for, windows={key: window}, present=frozenset({key}),
    )  # fmt: skip


def test_a_limit_per_hour_leaves_the_other_a_ratio():
    mixed = chosen(warning_per_hour=10)

    assert (mixed.warning, mixed.warning_unit) == (10, "per_hour")
    assert (mixed.critical, mixed.critical_unit) == (1e-14, "ber")


def test_a_ratio_leaves_the_other_limit_per_hour():
    mixed = chosen("receive-errors", warning=1e-13)

    assert mixed.warning_unit == "ber"
    assert (mixed.critical, mixed.critical_unit) == (100, "per_hour")


@pytest.mark.parametrize(("gbps", "minutes"), [(100, 500), (200, 250), (400, 125), (800, 62.5)])
def test_the_window_is_as_long_as_three_errors_at_the_specified_ratio_take(gbps, minutes):
    [condition] = symbol_errors(facts([], rate=gbps, active_for=minutes * 60 - 1), chosen())

    assert condition.verdict is Verdict.UNKNOWN, "the port was not up for its window"
    assert condition.expires == pytest.approx(1)


def test_a_link_at_its_specified_ratio_is_clean():
    # Two errors in a window of 125 min, the newest a minute ago.
    [condition] = symbol_errors(facts([10 * HOUR - 4000, 10 * HOUR - 60]), chosen())

    assert condition.verdict is Verdict.GOOD
    assert condition.quiet == math.inf


def test_three_errors_in_a_window_are_not_clean_until_one_has_aged_out():
    [condition] = symbol_errors(facts([10 * HOUR - 7000, 10 * HOUR - 4000, 10 * HOUR - 60]), chosen())

    assert condition.verdict is Verdict.GOOD
    assert condition.quiet == 0.0
    assert condition.expires == pytest.approx(500)


def test_with_limits_per_hour_recovery_counts_from_the_last_error():
    [condition] = symbol_errors(facts([10 * HOUR - 60]), chosen(warning_per_hour=120, critical_per_hour=120))

    assert condition.quiet == pytest.approx(60)
