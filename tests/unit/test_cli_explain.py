"""`ibmon explain` and `ibmon rules`: every rule in words, and what is in force where it was written."""

import json
import time

import msgspec
import pytest
from exporter_snapshots import port_view, snapshot
from hypothesis import given
from hypothesis import strategies as st

from ibmon.cli import main
from ibmon.config import Config, OverrideConfig, RuleConfig
from ibmon.configfile import loads
from ibmon.configkeys import RULE_KEYS
from ibmon.health import explain
from ibmon.health.rules import RULE_BY_ID, RULES
from ibmon.health.settings import of_rule, settings
from ibmon.model import Mode, Now, PortId, Role
from ibmon.runtime import host
from ibmon.runtime.verdict import VerdictFile

TEXT = """\
[[port]]
match = "mlx5_[89]/1"
role = "storage"
[rules.port-down]
hold = "20s"
[rules.symbol-errors]
critical = 1e-13
action = "drain"
[rules.receive-errors]
critical_per_hour = 50
[rules.retransmits]
enabled = false
[[override]]
role = "storage"
rule = "port-down"
hold = "5m"
recover = "1h"
[[override]]
match = "mlx5_8/1"
rule = "port-down"
hold = "10m"
[[override]]
match = "mlx5_0/1"
role = "compute"
rule = "receive-errors"
warning_per_hour = 20
[state]
"""
PORT_DOWN = RULE_BY_ID["port-down"]


@pytest.fixture
def site(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(f'{TEXT}runtime_directory = "{tmp_path}"\n')
    return file


def place(site, text):
    """FILE:LINE of the first such line of the configuration above."""
    return f"{site}:{TEXT.splitlines().index(text) + 1}"


def called(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def words(out, first):
    """The words of the first line that begins with this one."""
    return next(row for row in out.splitlines() if row.split()[:1] == [first]).split()


# ------------------------------------------------------------------------------------------------------- explain


def test_without_a_rule_every_rule_has_one_line(capsys):
    code, out, err = called(capsys, "explain")
    assert (code, err) == (0, "")
    assert [row.split(maxsplit=1) for row in out.splitlines()] == [[rule.id, rule.title] for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_is_explained_with_everything_its_row_says(capsys, site, rule):
    code, out, err = called(capsys, "explain", rule.id, "--config", site)
    assert (code, err) == (0, "")
    flat = " ".join(out.split())
    for said in (rule.title, rule.means, rule.clears, rule.source, *explain.items(rule.causes)):
        assert said in flat
    for number, step in enumerate(explain.items(rule.todo), 1):
        assert f"{number}. {step}" in flat
    assert all(len(row) <= 100 for row in out.splitlines() if str(site) not in row)


def test_the_limits_in_force_name_where_they_were_written(capsys, site):
    out = called(capsys, "explain", "port-down", "--config", site)[1]
    hold, alert_hold, recover = (words(out, key) for key in ("hold", "alert_hold", "recover"))
    assert (hold[1], hold[-1]) == ("20s", f"{site}:5")
    # An alert is never later than a drain: 30 s became 20 s because of the line with the hold.
    assert (alert_hold[1], alert_hold[-1]) == ("20s", f"{site}:5")
    assert (recover[1], recover[-1]) == ("10min", "default")


def test_what_overrides_change_is_listed_for_whom(capsys, site):
    out = called(capsys, "explain", "port-down", "--config", site)[1]
    lines = out.splitlines()
    at = lines.index("  for storage ports:")
    assert [row.split() for row in lines[at : at + 5]] == [
        ["for", "storage", "ports:"],
        ["hold", "5min", place(site, 'hold = "5m"')],
        ["recover", "60min", place(site, 'recover = "1h"')],
        ["for", "mlx5_8/1:"],
        ["hold", "10min", place(site, 'hold = "10m"')],
    ]


def test_bit_error_ratios_are_shown_as_counts_of_what_is_in_force(capsys, site):
    out = called(capsys, "explain", "symbol-errors", "--config", site)[1]
    assert "400 Gb/s   125min  15       300" in out
    assert "BER 1e-13" in out
    assert "As counted errors" not in called(capsys, "explain", "port-down", "--config", site)[1]


def test_json_has_the_same_for_programs(capsys, site):
    code, out, _ = called(capsys, "explain", "receive-errors", "--json", "--config", site)
    found = json.loads(out)
    assert code == 0
    assert found["limits"]["critical"] == {"value": 50, "unit": "per_hour", "from": f"{site}:10"}
    assert found["limits"]["warning"] == {"value": 10, "unit": "per_hour", "from": "default"}
    assert found["limits"]["recover"] == {"value": 3600.0, "from": "default"}
    assert [(o["for"], list(o["limits"])) for o in found["overrides"]] == [("mlx5_0/1, compute ports", ["warning"])]
    assert len(json.loads(called(capsys, "explain", "--json")[1])) == len(RULES)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("portdown", "did you mean port-down?"),
        ("flap", "did you mean"),
        ("zzzzzz", "'ibmon explain' lists them"),
        ("fabric-event", "this version does not judge"),
    ],
)
def test_a_rule_that_does_not_exist_is_a_mistake_with_a_hint(capsys, name, hint):
    if name in RULE_BY_ID:
        pytest.skip("it is judged by now")
    code, out, err = called(capsys, "explain", name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert hint in err


@pytest.mark.parametrize("command", ["explain port-down", "rules"])
def test_a_configuration_that_is_wrong_is_told(capsys, tmp_path, command):
    (tmp_path / "bad.toml").write_text("[rules.port-dwon]\n")
    code, out, err = called(capsys, *command.split(), "--config", tmp_path / "bad.toml")
    assert (code, out) == (2, "")
    assert "did you mean rules.port-down?" in err


# --------------------------------------------------------------------------------------------------------- rules


def test_the_table_has_every_rule_and_where_its_values_are_from(capsys, site):
    code, out, err = called(capsys, "rules", "--config", site)
    assert (code, err) == (0, "")
    rows = [row for row in out.splitlines()[1:] if not row.startswith("  for ")]
    assert [row.split()[0] for row in rows] == [rule.id for rule in RULES]
    assert f"{site}:5 (alert_hold, hold)" in rows[0]
    assert words(out, "retransmits")[1] == "no"
    assert words(out, "rate-low")[-1] == "default"
    assert words(out, "monitor-blind")[5:7] == ["6", "polls"]
    assert out.count("  for ") == 3


def test_the_table_for_programs_has_the_same(capsys, site):
    found = json.loads(called(capsys, "rules", "--json", "--config", site)[1])
    assert (found["port"], found["role"]) == (None, None)
    rows = {row["rule"]: row for row in found["rules"]}
    assert rows["symbol-errors"]["limits"]["critical"] == {"value": 1e-13, "unit": "ber", "from": f"{site}:7"}
    assert [o["for"] for o in rows["port-down"]["overrides"]] == ["storage ports", "mlx5_8/1"]


@pytest.mark.parametrize(
    ("port", "head", "hold", "origin"),
    [
        ("mlx5_8/1", "mlx5_8/1 (storage)", "5min", 'hold = "5m"'),  # both overrides fit: the first holds
        ("mlx5_0/1", "mlx5_0/1 (compute)", "20s", 'hold = "20s"'),
    ],
)
def test_for_one_port_the_overrides_that_fit_are_in_force(capsys, site, port, head, hold, origin):
    code, out, _ = called(capsys, "rules", "--port", port, "--config", site)
    assert code == 0
    assert out.splitlines()[0] == head
    assert words(out, "port-down")[3] == hold
    assert f"{place(site, origin)} (" in next(row for row in out.splitlines() if row.startswith("port-down"))
    assert "  for " not in out


def test_the_role_of_a_port_is_the_running_daemon_s_word(capsys, site):
    now = Now(time.monotonic(), time.time())
    VerdictFile(site.parent).write(
        snapshot(ports=[port_view("mlx5_0", role=Role.STORAGE)], at=now, boot_id=host.boot_id())
    )
    code, out, err = called(capsys, "rules", "--port", "mlx5_0/1", "--config", site)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "mlx5_0/1 (storage)"


def test_a_port_that_nobody_knows_is_shown_as_a_compute_port_and_it_is_said(capsys, site):
    code, out, err = called(capsys, "rules", "--port", "mlx5_0/1", "--config", site)
    assert code == 0
    assert "(compute)" in out
    assert "nobody knows mlx5_0/1" in err


def test_what_is_no_port_is_a_mistake(capsys, site):
    code, out, err = called(capsys, "rules", "--port", "mlx5_0", "--config", site)
    assert (code, out) == (2, "")
    assert "is not a port; write device/port" in err


# ---------------------------------------------------------------------------------------------------- in force

VALUES = {
    "enabled": st.booleans(),
    "alert_hold": st.sampled_from([0.0, 5.0, 900.0]),
    "hold": st.sampled_from([0.0, 60.0, 600.0]),
    "recover": st.sampled_from([0.0, 3600.0]),
    "window": st.sampled_from([60.0, 86400.0]),
    "warning": st.sampled_from([1.0, 2.0]),
    "critical": st.sampled_from([4.0, 5.0]),
    "action": st.sampled_from(Mode),
}


@st.composite
def configs(draw):
    rule = draw(st.sampled_from([PORT_DOWN, RULE_BY_ID["link-flap"], RULE_BY_ID["pkey-missing"]]))
    keys = [key for key in VALUES if key in RULE_KEYS[rule.id]]
    given_ = st.fixed_dictionaries({}, optional={key: VALUES[key] for key in keys})
    where = st.sampled_from([{"match": "mlx5_*/1"}, {"match": "mlx5_3/1"}, {"role": Role.STORAGE}])
    overrides = draw(st.lists(st.tuples(where, given_, st.just(rule.id) | st.just("rate-low")), max_size=3))
    override = tuple(OverrideConfig(rule=name, **at, **changed) for at, changed, name in overrides)
    return rule, Config(rules={rule.id: RuleConfig(**draw(given_))}, override=override)


def origins(config, rule):
    """Every written value with a place of its own."""
    layers = {f"rules.{rule.id}": config.rules[rule.id]}
    layers |= {f"override[{n}]": override for n, override in enumerate(config.override)}
    return {
        f"{path}.{key}": f"{path}.{key}"
        for path, layer in layers.items()
        for key in VALUES
        if getattr(layer, key) is not None
    }


@given(configs(), st.sampled_from(Role), st.sampled_from(["mlx5_3/1", "mlx5_4/1", "mlx5_3/2"]))
def test_what_is_shown_for_a_port_is_what_judges_it(found, role, name):
    rule, config = found
    port = PortId.parse(name)
    judged = settings(config, rule, port, role)
    for limit in explain.in_force(config, origins(config, rule), rule, port, role):
        value = getattr(judged, limit.key)
        assert limit.value == (value.value if isinstance(value, Mode) else value)


@given(configs(), st.sampled_from(Role))
def test_a_value_that_is_not_the_default_s_has_a_place_and_that_place_says_it(found, role):
    rule, config = found
    port = PortId("mlx5_3", 1)
    for limit in explain.in_force(config, origins(config, rule), rule, port, role):
        default = getattr(of_rule(rule), limit.key)
        default = default.value if isinstance(default, Mode) else default
        if limit.origin == explain.DEFAULT:
            assert limit.value == default
        elif limit.key != "alert_hold":  # which the hold may have cut
            path, _, key = limit.origin.rpartition(".")
            layer = config.rules[rule.id] if path.startswith("rules") else config.override[int(path[9:-1])]
            written = getattr(layer, key)
            assert limit.value == (written.value if isinstance(written, Mode) else written)


def test_a_port_of_no_override_has_what_all_ports_have():
    loaded = loads(TEXT)
    everywhere = explain.in_force(loaded.config, loaded.origins, PORT_DOWN)
    assert explain.in_force(loaded.config, loaded.origins, PORT_DOWN, PortId("mlx5_1", 1), Role.COMPUTE) == everywhere


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_setting_that_the_file_knows_and_the_rule_uses_is_shown(rule):
    shown = {limit.key for limit in explain.in_force(Config(), {}, rule)}
    used = {"enabled", "alert_hold", "hold", "recover", "action"}
    used |= {"warning", "critical"} if rule.unit else set()
    used |= {"window"} if rule.window or rule.unit == "ber" else set()
    used |= {"polls"} if rule.polls else set()
    assert shown == used
    assert shown <= set(RULE_KEYS[rule.id])
    assert shown <= {field.name for field in msgspec.structs.fields(RuleConfig)}


@pytest.mark.parametrize(
    ("rule", "key", "text"),
    [
        ("port-down", "hold", "60s"),
        ("link-flap", "critical", "3 episodes"),
        ("flap-storm", "warning", "5 times"),
        ("symbol-errors", "critical", "BER 1e-14"),
        ("symbol-errors", "window", "by rate"),
        ("receive-errors", "warning", "10/h"),
        ("transmit-discards", "warning", "100/s"),
        ("transmit-discards", "critical", "none"),
        ("monitor-blind", "polls", "6"),
        ("rate-low", "enabled", "yes"),
        ("pkey-missing", "enabled", "no"),
        ("module-temperature", "critical", "80 celsius"),
        ("rate-low", "action", "drain"),
    ],
)
def test_a_setting_is_written_as_people_say_it(rule, key, text):
    assert explain.amount(of_rule(RULE_BY_ID[rule]), key) == text
