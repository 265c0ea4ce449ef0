"""Rules that look beside states and counters: kernel log, tables of the port, temperatures."""

from __future__ import annotations

import pytest
from core_world import CONFIG, path, rows, start
from test_health_checks import WELL, check, verdict

from ibmon.config import Config, RuleConfig
from ibmon.health.facts import DeviceFacts, Verdict
from ibmon.health.rules import RULE_BY_ID, RULES
from ibmon.health.settings import of_rule, settings
from ibmon.model import Mode, PortHealth
from ibmon.recording import Frame

GOOD, BAD, UNKNOWN = Verdict.GOOD, Verdict.BAD, Verdict.UNKNOWN


# ---------------------------------------------------------------------------------------------------------- kernel log


@pytest.mark.parametrize(
    ("kinds", "reach"),
    [
        (("unrecoverable",), "critical"),
        (("timeout",), "warning"),
        (("health", "timeout"), "warning"),
        (("health", "timeout", "timeout"), "warning"),
        (("power",), "warning"),
        (("power",) * 5, "warning"),
        (("queue",) * 5, "warning"),
        (("temperature",) * 5, "warning"),
        (("power", "queue", "temperature", "timeout"), "warning"),
    ],
)
def test_only_the_word_unrecoverable_makes_a_driver_fault_critical(kinds, reach):
    condition = check("driver-fault", device=DeviceFacts(kernel_log=kinds))
    assert (condition.verdict, condition.reach) == (BAD, reach)


def test_what_warns_at_most_is_told_by_its_kind():
    condition = check("driver-fault", device=DeviceFacts(kernel_log=("temperature", "power", "power")))
    assert condition.words == "kernel log: power and temperature"


@pytest.mark.parametrize(("kinds", "reach"), [(("timeout",), "critical"), (("power", "queue"), "warning")])
def test_only_a_fault_in_the_log_makes_a_silent_device_a_dead_one(kinds, reach):
    assert check("device-stalled", stalled=True, device=DeviceFacts(kernel_log=kinds)).reach == reach


def test_a_warning_of_the_log_does_not_show_the_port_as_failed():
    assert RULE_BY_ID["driver-fault"].warning_health is PortHealth.WARNING


# -------------------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"gid0": 1}, GOOD),
        ({"gid0": 0}, BAD),
        ({"gid0": None}, UNKNOWN),
        ({"gid0": 0, "state": 1}, UNKNOWN),
        ({"gid0": 0, "fresh": False}, UNKNOWN),
        ({"gid0": 0, "listed": None}, UNKNOWN),
        ({"gid0": 0, "link_layer": None}, UNKNOWN),
        ({"gid0": 0, "link_layer": "InfiniBand"}, GOOD),
    ],
)
def test_a_gid_is_missed_on_an_active_ethernet_port_only(facts, expected):
    assert verdict("gid-missing", **{"link_layer": "Ethernet", **facts}) is expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"pkey0": 0xFFFF}, GOOD),
        ({"pkey0": 0x8001}, GOOD),
        ({"pkey0": 0x0001}, GOOD),
        ({"pkey0": 0x7FFF}, BAD),
        ({"pkey0": 0}, BAD),
        ({"pkey0": None}, UNKNOWN),
        ({"pkey0": 0, "state": 2}, UNKNOWN),
        ({"pkey0": 0, "fresh": False}, UNKNOWN),
        ({"pkey0": 0, "link_layer": None}, UNKNOWN),
        ({"pkey0": 0, "link_layer": "Ethernet"}, GOOD),
    ],
)
def test_a_pkey_is_missed_on_an_active_infiniband_port_only(facts, expected):
    assert verdict("pkey-missing", **facts) is expected


def test_a_pkey_is_told_as_the_kernel_writes_it():
    assert check("pkey-missing", pkey0=0).words == "P_Key 0x0000"
    assert check("pkey-missing", pkey0=0x7FFF).observed == "0x7fff"


def test_only_the_rule_on_pkeys_waits_for_a_site_that_asks_for_it():
    assert [rule.id for rule in RULES if not of_rule(rule).enabled] == ["pkey-missing"]


def test_a_site_turns_such_a_rule_on():
    config = Config(rules={"pkey-missing": RuleConfig(enabled=True)})
    assert settings(config, RULE_BY_ID["pkey-missing"], WELL.id, WELL.role).enabled


# -------------------------------------------------------------------------------------------------------- temperatures


@pytest.mark.parametrize(
    ("celsius", "expected", "reach"),
    [(-5.0, GOOD, None), (69.9, GOOD, None), (70.0, BAD, "warning"), (79.9, BAD, "warning"), (80.0, BAD, "critical")],
)
def test_the_hottest_module_is_held_against_both_limits(celsius, expected, reach):
    condition = check("module-temperature", device=DeviceFacts(temperatures={"module0": -40.0, "module1": celsius}))
    assert condition.verdict is expected
    assert expected is GOOD or (condition.reach, condition.observed) == (reach, celsius)


def test_a_hot_module_is_told_with_its_limit():
    condition = check("module-temperature", device=DeviceFacts(temperatures={"module0": 82.125}))
    assert (condition.words, condition.limit) == ("module0 82.125C>=80C", 80)


@pytest.mark.parametrize("facts", [{"device": DeviceFacts()}, {"fresh": False}, {"listed": False}])
def test_a_temperature_that_nobody_can_read_is_not_known(facts):
    hot = DeviceFacts(temperatures={"module0": 99.0})
    assert verdict("module-temperature", **{"device": hot, **facts}) is UNKNOWN


def test_a_site_may_take_either_limit_away():
    row = RULE_BY_ID["module-temperature"]
    facts = WELL._replace(device=DeviceFacts(temperatures={"module0": 99.0}))
    [condition] = row.check(facts, of_rule(row)._replace(critical=None))
    assert (condition.reach, condition.limit) == ("warning", 70)
    [condition] = row.check(facts, of_rule(row)._replace(critical=None, warning=None))
    assert condition.verdict is GOOD


@pytest.mark.parametrize("rule", ["gid-missing", "pkey-missing", "module-temperature"])
def test_none_of_these_drains_by_default(rule):
    assert RULE_BY_ID[rule].action is Mode.ALERT


# ------------------------------------------------------------------------------------------------------- the whole way

HOT = {f"class/infiniband/mlx5_0/device/hwmon/hwmon4/{name}": f"{text}\n" for name, text in (
    ("name", "mlx5"), ("temp1_label", "asic"), ("temp1_input", "99000"), ("temp2_label", "module0"),
)}  # fmt: skip
ADDRESS = "0000:1a:00.0"
UEVENT = {"class/infiniband/mlx5_0/device/uevent": f"PCI_SLOT_NAME={ADDRESS}\n"}


def at_module(t, celsius):
    return Frame(t=t, files={"class/infiniband/mlx5_0/device/hwmon/hwmon4/temp2_input": f"{celsius * 1000}\n"})


def found(row, rule):
    """The severity of a rule's finding in a row, or None."""
    return next((f["severity"] for f in row["findings"] if f["rule"] == rule), None)


def severities(rule, frames, times, config=CONFIG):
    seen = rows(frames, times, config)
    return [found(seen[t], rule) for t in times]


def test_a_module_that_gets_hot_warns_after_five_minutes_and_ends_a_quarter_of_an_hour_after_it_cooled():
    frames = [start(), Frame(t=0, files=HOT), at_module(0, 45), at_module(100, 75), at_module(1000, 50)]
    # Read every minute: hot from 120 s on, cool again from 1020 s on.
    times = [100, 415, 425, 1915, 1925]
    assert severities("module-temperature", frames, times) == [None, None, "warning", "warning", None]


def test_a_roce_port_that_loses_its_gid_alerts_after_a_minute_and_ends_a_minute_after_it_is_back():
    gid = path("mlx5_0", "gids/0")
    ethernet = {path("mlx5_0", "link_layer"): "Ethernet\n", gid: "fe80:0000:0000:0000:0000:0000:0000:0001\n"}
    none = Frame(t=100, files={gid: ":".join(["0000"] * 8) + "\n"})
    back = Frame(t=300, files={gid: ethernet[gid]})
    frames = [start(), Frame(t=0, files=ethernet), none, back]
    seen = severities("gid-missing", frames, [100, 155, 165, 355, 365])
    assert seen == [None, None, "critical", "critical", None]


def test_a_limited_pkey_is_said_only_where_a_site_asks_for_it():
    frames = [start(), Frame(t=0, files={path("mlx5_0", "pkeys/0"): "0x7fff\n"})]
    assert severities("pkey-missing", frames, [200]) == [None]
    assert severities("pkey-missing", frames, [200], f"{CONFIG}\n[rules.pkey-missing]\nenabled = true\n") == [
        "critical"
    ]


def test_the_driver_s_word_drains_and_what_an_application_did_does_not():
    line = f"mlx5_core {ADDRESS}: mlx5_fw_fatal_reporter_err_work:691:(pid 4711): health recovery failed"
    harmless = f"mlx5_core {ADDRESS}: CQ error on CQN 0x413, syndrome 0x1"
    frames = [start(), Frame(t=0, files=UEVENT), Frame(t=50, kmsg=(harmless,)), Frame(t=200, kmsg=(line, line))]
    seen = rows(frames, [199, 255, 265])
    assert [found(row, "driver-fault") for row in seen.values()] == [None, None, "critical"]
    assert [row["node"] for row in seen.values()] == ["fit", "watch", "unfit"]
