"""A configuration as a whole: which files are read in what order, its hash, and that every key of it can be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibmon.config import Config
from ibmon.configfile import ConfigError, config_hash, load, loads
from ibmon.configkeys import KEYS, Key, Kind
from ibmon.configvalues import parse, write
from ibmon.model import Mode


def test_later_files_replace_values_and_append_entries(tmp_path):
    main = tmp_path / "ibmon.toml"
    main.write_text('[action]\nmode = "observe"\nboot_grace = "1m"\n[[port]]\nmatch = "a/1"\n')
    conf_d = tmp_path / "conf.d"
    conf_d.mkdir()
    (conf_d / "20.toml").write_text('[action]\nmode = "drain"\nscheduler = "slurm"\n')
    (conf_d / "10.toml").write_text('[action]\nmode = "alert"\n[[port]]\nmatch = "b/1"\n')
    (conf_d / "notes.txt").write_text("not read")
    (conf_d / ".hidden.toml").write_text("not read")
    loaded = load(main, conf_d)
    assert (loaded.config.action.mode, loaded.config.action.boot_grace) == (Mode.DRAIN, 60)
    assert [p.match for p in loaded.config.port] == ["a/1", "b/1"]
    assert loaded.files == (main, conf_d / "10.toml", conf_d / "20.toml")
    assert loaded.origins["action.mode"] == f"{conf_d}/20.toml:2"
    assert loaded.origins["action.boot_grace"] == f"{main}:3"
    assert loaded.origins["port[1].match"] == f"{conf_d}/10.toml:4"
    assert loaded.origins["state.directory"] == "default"


def test_a_missing_default_file_means_defaults(tmp_path, monkeypatch):
    monkeypatch.setattr("ibmon.configfile.DEFAULT_FILE", tmp_path / "none.toml")
    loaded = load(None, tmp_path / "none.d")
    assert (loaded.config, loaded.files) == (Config(), ())


def test_a_missing_file_that_was_named_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml: no such file"):
        load(tmp_path / "none.toml")


def test_a_named_file_stands_alone(tmp_path, monkeypatch):
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "x.toml").write_text('[node]\nname = "other"\n')
    monkeypatch.setattr("ibmon.configfile.CONF_D", tmp_path / "conf.d")
    (tmp_path / "a.toml").write_text("")
    assert load(tmp_path / "a.toml").config.node.name == ""


def test_problems_of_several_files_come_together(tmp_path):
    (tmp_path / "a.toml").write_text("[action\n")
    conf_d = tmp_path / "d"
    conf_d.mkdir()
    (conf_d / "b.toml").write_bytes(b'[node]\nname = "\xff"\n')
    (conf_d / "c.toml").write_text("x = 1\n")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "a.toml", conf_d)
    assert [p.rpartition("/")[2].split(": ")[0] for p in caught.value.problems] == ["a.toml:1", "b.toml:2", "c.toml:1"]


def test_a_directory_in_place_of_a_file_is_told(tmp_path):
    with pytest.raises(ConfigError, match="Is a directory"):
        load(tmp_path)


def test_a_key_file_that_others_can_read_is_a_warning(tmp_path):
    key = tmp_path / "key"
    key.write_text("whsec_x")
    key.chmod(0o644)
    text = f'[action]\nmode = "alert"\n[[webhook]]\nurl = "https://h/x"\nsecret_file = "{key}"\n'
    assert loads(text).warnings == ()  # a replay looks at nothing of the host
    (warning,) = loads(text, host=True).warnings
    assert f"chmod 600 {key}" in warning
    key.chmod(0o600)
    assert loads(text, host=True).warnings == ()
    key.unlink()
    assert "No such file" in loads(text, host=True).warnings[0]


@pytest.mark.parametrize(
    ("key", "bad", "good", "why"),
    [
        ('[kubernetes]\nkubeconfig = "{}"\n', 0o644, 0o600, "chmod 600"),
        ('[command]\npath = "{}"\n', 0o644, 0o755, "is no executable"),
    ],
)
def test_a_file_of_a_scheduler_is_looked_at_before_it_is_needed(tmp_path, key, bad, good, why):
    file = tmp_path / "file"
    text = key.format(file)
    assert "No such file" in loads(text, host=True).warnings[0]
    file.write_text("")
    file.chmod(bad)
    (warning,) = loads(text, host=True).warnings
    assert why in warning
    file.chmod(good)
    assert loads(text, host=True).warnings == ()


def test_the_hash_follows_the_values_and_not_their_spelling():
    base = config_hash(Config())
    assert len(base) == 12
    assert loads('[sampling]\nslow_interval = "1m"\n[action]\nmode = "observe"\n').hash == base
    assert loads('[sampling]\nslow_interval = "61s"\n').hash != base


def test_the_hash_does_not_follow_the_order_of_rules():
    a = '[rules.port-down]\nhold = "1m"\n'
    b = '[rules.rate-low]\nhold = "2m"\n'
    assert loads(a + b).hash == loads(b + a).hash


_ODD = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text(), lambda s: st.lists(s, max_size=3), max_leaves=4
)


@given(st.sampled_from([(section, key) for section, keys in KEYS.items() for key in keys]), _ODD)
def test_no_value_breaks_the_reader(place, value):
    key: Key = KEYS[place[0]][place[1]]
    try:
        found = parse(key, value)
    except ValueError as error:
        text = str(error)
    else:
        text = write(key, found)
    assert text.isprintable()


def test_every_kind_of_key_is_used():
    assert {key.kind for keys in KEYS.values() for key in keys.values()} == set(Kind)
