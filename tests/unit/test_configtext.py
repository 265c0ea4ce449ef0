"""The example, what `config show` prints, the reference page: all true to the typed configuration."""

from pathlib import Path

import msgspec
import pytest

from ibmon.config import (
    AlertmanagerConfig,
    Config,
    LimitsConfig,
    OverrideConfig,
    PortConfig,
    RuleConfig,
    WebhookConfig,
)
from ibmon.configfile import RULE_KEYS, load, loads
from ibmon.configkeys import ERROR_RULES, KEYS, NOT_IN_FILES, SECTIONS, TABLE_ARRAYS
from ibmon.configtext import example, part, reference, to_builtins, to_toml, uncommented
from ibmon.configvalues import parse

ROOT = Path(__file__).parents[2]
STRUCTS = {
    "port": PortConfig,
    "override": OverrideConfig,
    "rules": RuleConfig,
    "alertmanager": AlertmanagerConfig,
    "webhook": WebhookConfig,
}


def struct_of(section):
    return STRUCTS.get(section) or type(part(Config(), section))


def test_the_key_table_holds_every_section_of_the_configuration():
    sections = {f.name for f in msgspec.structs.fields(Config)} | {"action.limits"}
    assert set(KEYS) == set(SECTIONS) == sections


@pytest.mark.parametrize("section", KEYS)
def test_the_key_table_holds_every_key_of_a_section(section):
    fields = {f.name for f in msgspec.structs.fields(struct_of(section))} - NOT_IN_FILES
    assert set(KEYS[section]) | {s.partition(".")[2] for s in KEYS if s.startswith(f"{section}.")} == fields


@pytest.mark.parametrize(("section", "name"), [(s, n) for s, keys in KEYS.items() for n in keys])
def test_the_example_of_a_key_is_one(section, name):
    key = KEYS[section][name]
    parse(key, msgspec.toml.decode(f"x = {key.example}")["x"])


@pytest.mark.parametrize(("rule", "key"), [(r, k) for r, keys in RULE_KEYS.items() for k in keys])
def test_every_key_of_every_rule_loads(rule, key):
    value = "1e-12" if rule in ERROR_RULES and key in {"warning", "critical"} else KEYS["rules"][key].example
    assert loads(f"[rules.{rule}]\n{key} = {value}\n").config.rules[rule]


def test_the_example_holds_the_defaults():
    loaded = loads(example())
    assert (loaded.config, loaded.warnings) == (Config(), ())


def test_the_example_names_every_key():
    text = uncommented(example())
    for section, keys in KEYS.items():
        if section not in TABLE_ARRAYS and section != "rules":
            assert f"[{section}]" in text
            assert [name for name in keys if f"\n{name} = " not in text] == []


def test_the_samples_of_the_example_load():
    config = loads(uncommented(example())).config
    assert config.port
    assert config.rules
    assert config.override
    assert config.alertmanager
    assert config.webhook


@pytest.mark.parametrize("text", ["", uncommented(example()), "[action.limits]\nmax_drained = 0.0333\n"])
def test_what_is_shown_loads_as_the_same(text):
    loaded = loads(text)
    shown = to_toml(loaded.config, loaded.origins)
    assert loads(shown).config == loaded.config


def test_each_shown_value_ends_with_its_origin():
    loaded = loads('[action]\nmode = "alert"\n', "site.toml")
    lines = to_toml(loaded.config, loaded.origins).splitlines()
    assert [line.split() for line in lines if line.startswith("mode")] == [
        ["mode", "=", '"learn"', "#", "default"],
        ["mode", "=", '"alert"', "#", "site.toml:2"],
    ]


def test_a_secret_is_never_shown(tmp_path):
    (tmp_path / "key").write_text("whsec_hush")
    (tmp_path / "c.toml").write_text(f'[[webhook]]\nurl = "https://h/x"\nsecret_file = "{tmp_path}/key"\n')
    loaded = load(tmp_path / "c.toml")
    assert f"{tmp_path}/key" in to_toml(loaded.config)
    assert "hush" not in to_toml(loaded.config) + str(to_builtins(loaded.config)) + str(loaded)


def test_texts_with_odd_characters_are_shown_so_that_they_load():
    config = msgspec.structs.replace(
        Config(),
        action=msgspec.structs.replace(Config().action, limits=LimitsConfig(partitions=('a"b\\c\n\x7fö\U0001f600',))),
    )
    assert loads(to_toml(config)).config == config


def test_programs_get_seconds_and_no_empty_keys():
    found = to_builtins(loads('[rules.port-down]\nhold = "2m"\n[[port]]\nmatch = "a/1"\n').config)
    assert found["rules"] == {"port-down": {"hold": 120.0}}
    assert found["port"] == [{"match": "a/1", "role": "compute"}]
    assert "min_nodes_set" not in found["action"]["limits"]


def test_the_reference_page_is_up_to_date():
    assert (ROOT / "docs/configuration.md").read_text() == reference(), (
        "make it anew: python -m ibmon.configtext > docs/configuration.md"
    )
