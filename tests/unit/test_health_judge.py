"""The judge over whole stories: settings by port, rules of devices, counters that go, faults that return."""

from __future__ import annotations

import pytest
from core_world import CONFIG, comes_up, goes_down, node, path, port, rows, start

from ibmon.configfile import loads
from ibmon.health.rules import RULE_BY_ID, RULES
from ibmon.health.settings import settings
from ibmon.model import Mode, PortId, Role
from ibmon.recording import Frame

DAY = 86400.0
SLOW = '[sampling]\nstate_interval = "60s"\ncounter_interval = "60s"\nslow_interval = "60s"\n'
SYMBOLS = '[rules.symbol-errors]\nwarning_per_hour = 5\ncritical_per_hour = 10\nwindow = "1h"\nrecover = "1h"\n'


def rules_of(row, device="mlx5_0"):
    return {f["rule"]: f["severity"] for f in row["findings"] if f["port"].startswith(device)}


def in_force(config, rule, name="mlx5_0/1", role=Role.COMPUTE):
    return settings(loads(config).config, RULE_BY_ID[rule], PortId.parse(name), role)


# ---------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_without_configuration_the_row_is_in_force(rule):
    chosen = settings(loads("").config, rule, PortId("mlx5_0", 1), Role.COMPUTE)

    assert (chosen.alert_hold, chosen.hold, chosen.recover, chosen.action) == (
        rule.alert_hold,
        rule.hold,
        rule.recover,
        rule.action,
    )
    assert chosen.enabled is rule.enabled


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_no_row_drains_before_it_alerts_and_each_has_a_way_out(rule):
    assert rule.alert_hold <= rule.hold
    assert rule.recover > 0
    assert rule.clears


def test_what_the_site_leaves_open_stays_as_the_row_has_it():
    chosen = in_force('[rules.port-down]\nhold = "90s"\n', "port-down")

    assert (chosen.alert_hold, chosen.hold, chosen.recover) == (30, 90, 600)


def test_a_hold_below_the_alerts_brings_the_alert_forward():
    chosen = in_force('[rules.port-down]\nhold = "10s"\n', "port-down")

    assert (chosen.alert_hold, chosen.hold) == (10, 10)


def test_the_first_override_that_fits_lies_over_the_rule():
    config = """
[rules.rate-low]
hold = "90s"
[[override]]
match = "mlx5_8/1"
rule = "rate-low"
action = "alert"
[[override]]
role = "storage"
rule = "rate-low"
hold = "300s"
action = "observe"
"""

    assert in_force(config, "rate-low").action is Mode.DRAIN
    assert (in_force(config, "rate-low", "mlx5_8/1").action, in_force(config, "rate-low", "mlx5_8/1").hold) == (
        Mode.ALERT,
        90,
    )
    assert in_force(config, "rate-low", role=Role.STORAGE).hold == 300
    assert in_force(config, "port-down", "mlx5_8/1").action is Mode.DRAIN


def test_a_rule_that_is_switched_off_says_nothing():
    config = CONFIG + "[rules.port-down]\nenabled = false\n"
    seen = rows([start(), goes_down(10)], [500], config)

    assert rules_of(seen[500]) == {}
    assert not seen[500]["drained"]


def test_a_port_that_only_alerts_does_not_drain():
    config = CONFIG + '[[override]]\nmatch = "mlx5_0/1"\nrule = "port-down"\naction = "alert"\n'
    seen = rows([start(), goes_down(10)], [500], config)

    assert rules_of(seen[500]) == {"port-down": "critical"}
    assert seen[500]["alerts"]
    assert not seen[500]["drained"]


@pytest.mark.parametrize("role", ["storage", "management"])
def test_a_port_that_is_not_for_computing_makes_no_node_unfit(role):
    config = CONFIG.replace("rate = 400", f'rate = 400\nrole = "{role}"')
    seen = rows([start(), goes_down(10)], [500], config)

    assert seen[500]["alerts"]
    assert seen[500]["node"] == "watch"
    assert not seen[500]["drained"]


# ---------------------------------------------------------------------------------------------------------- devices


def test_a_missing_device_is_one_finding_for_all_its_ports():
    config = CONFIG.replace("mlx5_[0-1]/1", "mlx5_[0-1]/[1-2]")
    files = {
        **node("mlx5_0", "mlx5_1"),
        **{p.replace("ports/1", "ports/2"): t for p, t in node("mlx5_0", "mlx5_1").items()},
    }
    seen = rows([Frame(t=0, files=files), Frame(t=10, remove=("class/infiniband/mlx5_0",))], [200], config)

    assert [(f["rule"], f["port"]) for f in seen[200]["findings"]] == [("device-missing", "mlx5_0")]
    assert {seen[200]["ports"][f"mlx5_0/{n}"] for n in (1, 2)} == {"failed"}
    assert {seen[200]["ports"][f"mlx5_1/{n}"] for n in (1, 2)} == {"ok"}


# --------------------------------------------------------------------------------------------------------- counting


def bounces(*times, device="mlx5_0"):
    return [frame for t in times for frame in (goes_down(t, device), comes_up(t + 30, device))]


def test_three_bounces_in_a_day_drain_and_a_day_of_quiet_gives_back():
    frames = [start(), *bounces(1000, 2000, 3000)]
    seen = rows(frames, [900, 1100, 2100, 3100, 2980 + DAY, 3200 + DAY], CONFIG + SLOW.replace("60s", "20s"))

    assert [rules_of(row).get("link-flap") for row in seen.values()] == [
        None,
        None,
        "warning",
        "critical",
        "critical",
        None,
    ]
    assert [row["drained"] for row in seen.values()] == [False, False, False, True, True, False]


def counted(*pairs):
    return [Frame(t=t, files={path("mlx5_0", "counters/symbol_error"): f"{value}\n"}) for t, value in pairs]


RISING = counted((0, 0), *((3600 + 60 * n, 5 * n) for n in range(1, 6)))


def test_a_rise_judges_the_link_and_quiet_clears_it():
    seen = rows([start(), *RISING], [3600, 3910, 7400, 7600], CONFIG + SYMBOLS + SLOW)

    assert [rules_of(row).get("symbol-errors") for row in seen.values()] == [None, "critical", "critical", None]


def test_a_counter_that_goes_takes_its_finding_with_it_when_it_was_quiet_long_enough():
    frames = [start(), *RISING, Frame(t=4000, remove=("class/infiniband/mlx5_0",), files=node("mlx5_0"))]
    seen = rows(frames, [3990, 4100, 7400, 7600], CONFIG + SYMBOLS + SLOW)

    assert [rules_of(row).get("symbol-errors") for row in seen.values()] == ["critical", "critical", "critical", None]


def test_a_counter_that_cannot_be_read_neither_accuses_nor_acquits():
    frames = [start(), *RISING, Frame(t=4000, errnos={path("mlx5_0", "counters/symbol_error"): "EINVAL"})]
    seen = rows(frames, [3990, 9000], CONFIG + SYMBOLS + SLOW)

    assert [rules_of(row).get("symbol-errors") for row in seen.values()] == ["critical", "critical"]


def test_a_saturated_counter_is_told_and_accuses_nobody():
    well = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", symbol_error=0)})
    full, cleared = (Frame(t=t, files=port("mlx5_0", symbol_error=value)) for t, value in ((10, 65535), (900, 0)))
    seen = rows([well, full, cleared], [300, 1000])

    assert rules_of(seen[300]) == {"counter-saturated": "info"}
    assert seen[300]["node"] == "fit"
    assert not seen[300]["alerts"]
    assert rules_of(seen[1000]) == {}


@pytest.mark.parametrize("restart", [False, True])
def test_what_rose_while_the_daemon_was_away_is_counted_once(restart):
    frames = [start(), Frame(t=1000, files=port("mlx5_0", link_downed=1), restart=restart)]
    seen = rows(frames, [990, 1100, 1300])

    assert [row["flaps"].get("mlx5_0/1", 0) for row in seen.values()] == [0, 1, 1]


def test_a_counter_that_came_back_as_it_was_has_not_risen():
    name = path("mlx5_0", "counters/link_downed")
    frames = [
        Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", link_downed=7)}),
        Frame(t=100, errnos={name: "EIO"}),
        Frame(t=200, errnos={name: None}),
        Frame(t=300, remove=("class/infiniband/mlx5_0",)),
        Frame(t=310, files=port("mlx5_0", link_downed=7)),
        Frame(t=400, restart=True),
    ]

    assert rows(frames, [500])[500]["flaps"] == {}
