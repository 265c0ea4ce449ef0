"""Loading: what is accepted, what is refused and in which words, and where values are said to come from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibmon.config import Config, LimitsConfig, PortConfig, RuleConfig
from ibmon.configfile import ConfigError, config_hash, loads
from ibmon.configkeys import LONGEST, REMEMBERED
from ibmon.configvalues import duration, duration_text, share, share_text
from ibmon.drain.intent import MAX_DRAINS
from ibmon.health.counts import HORIZON
from ibmon.health.links import MAX_FLAPS, MAX_OUTAGES, MAX_TRANSITIONS
from ibmon.model import Mode, Role


def problems(text):
    with pytest.raises(ConfigError) as caught:
        loads(text, "f.toml")
    return list(caught.value.problems)


def test_no_text_is_the_default_configuration():
    loaded = loads("")
    assert loaded.config == Config()
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("500ms", 0.5),
        ("5s", 5),
        ("10m", 600),
        ("1h30m", 5400),
        ("24h", 86400),
        ("43200s", 43200),
        ("1.5s", 1.5),
        ("2d", 172800),
    ],
)
def test_a_duration_is_read_in_seconds(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("bad", ["", "5", "5 s", "-5s", "s", "5x", "5s!", "1e3s", True, ["5s"], "9" * 400 + "s", "11y"])
def test_what_is_no_duration_is_refused_with_an_example(bad):
    with pytest.raises(ValueError):
        duration(bad)


def test_a_bare_number_is_told_its_unit():
    assert problems("[sampling]\nstate_interval = 5\n") == [
        'f.toml:2: sampling.state_interval: 5 has no unit; write "5s" if seconds are meant'
    ]


@given(st.integers(min_value=0, max_value=10**10).map(lambda ms: ms / 1000) | st.integers(0, 10**8).map(float))
def test_a_written_duration_reads_back_equal(seconds):
    if seconds <= 10 * 365 * 86400:
        assert duration(duration_text(seconds)) == seconds


@pytest.mark.parametrize(
    ("value", "want"), [("2%", 0.02), (0.02, 0.02), ("100%", 1.0), (1, 1.0), (0, 0.0), ("2.5 %", 0.025)]
)
def test_a_share_is_read_as_a_part_of_one(value, want):
    assert share(value) == want


@pytest.mark.parametrize("bad", [2, -0.1, "2", "101%", "%", True, float("nan"), "-1%"])
def test_what_is_no_share_is_refused(bad):
    with pytest.raises(ValueError):
        share(bad)


@given(st.floats(min_value=0, max_value=1))
def test_a_written_share_reads_back_equal(value):
    text = share_text(value)
    assert share(text if text.endswith("%") else float(text)) == value


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('[action]\nmoed = "drain"\n', "f.toml:2: unknown key action.moed; did you mean action.mode?"),
        ('[acton]\nmode = "drain"\n', "f.toml:1: unknown key acton; did you mean action?"),
        (
            'mode = "drain"\n',
            "f.toml:1: unknown key mode outside of a section; did you mean inventory.mode or action.mode?",
        ),
        (
            "[action.limits]\nmin_node = 3\n",
            "f.toml:2: unknown key action.limits.min_node; did you mean action.limits.min_nodes?",
        ),
        (
            "[action.limits]\nmin_nodes_set = true\n",
            "f.toml:2: unknown key action.limits.min_nodes_set; did you mean action.limits.min_nodes?",
        ),
        ('[rules.port-dwn]\nhold = "1s"\n', "f.toml:1: unknown rule rules.port-dwn; did you mean rules.port-down?"),
        (
            '[rules.port-down]\nhodl = "1s"\n',
            "f.toml:2: unknown key rules.port-down.hodl; did you mean rules.port-down.hold?",
        ),
        ('[action]\nmode = "drian"\n', 'f.toml:2: action.mode: "drian" is not known; did you mean "drain"?'),
        ("[action]\nmode = 3\n", "f.toml:2: action.mode: 3 is no text; put it in quotes"),
        (
            '[action]\nauto_release = "yes"\n',
            'f.toml:2: action.auto_release: "yes" is neither true nor false; write true or false, without quotes',
        ),
        (
            '[action]\nscheduler = "pbs"\n',
            (
                'f.toml:2: action.scheduler: "pbs" is not known; '
                'choose "none", "slurm", "kubernetes", "command" or "controller"'
            ),
        ),
        (
            '[action]\nscheduler = "controller"\n[controller]\nurl = "https://ibmon:19316"\n',
            (
                'action.scheduler is "controller" and controller.key_file is missing: '
                "on a node: the file with this node's own key"
            ),
        ),
        (
            '[node]\nname="gpu@1"\n[action]\nscheduler="controller"\n[controller]\nurl="https://a"\nkey_file="/k"\n',
            'node.name: the controller takes letters, digits, dots, - and _ only, not "gpu@1"',
        ),
        (
            '[controller]\ntopology = "rack"\n',
            'controller.topology: "rack" is none of its forms; write "label:topology.kubernetes.io/rack"',
        ),
        (
            '[controller]\nledger = "configmap:controller"\n',
            'controller.ledger: "configmap:controller" is none of its forms; write "configmap:ibmon/controller"',
        ),
        (
            '[controller]\nca = "/etc/ca.crt"\nurl = "http://ibmon:19316"\n',
            "controller.ca names certificates and controller.url is not https://; write https, or remove it",
        ),
        ('[devices]\ninclude = "mlx5_*"\n', 'f.toml:2: devices.include: "mlx5_*" is no list; write it like ["mlx5_*"]'),
        ("[action.limits]\nmin_nodes = 2.5\n", "f.toml:2: action.limits.min_nodes: 2.5 is no whole number"),
        ("[[alertmanager]]\n", 'f.toml:1: [[alertmanager]] has no url; write url = "http://alertmanager:9093"'),
        ('[port]\nmatch = "mlx5_0/1"\n', "f.toml:1: port is a list of tables; write [[port]] with two brackets"),
        ("action = 5\n", "f.toml:1: action is a table; write [action] on a line of its own and its keys below"),
        (
            "[action]\n[action.mode]\n",
            'f.toml:2: action.mode: a table stands where a value belongs; write mode = "drain"',
        ),
        ("[[port]]\nrate = 400\n", 'f.toml:1: [[port]] has no match; write match = "mlx5_[0-7]/1"'),
        (
            "[rules]\nport-down = 3\n",
            "f.toml:2: rules.port-down is a table; write [rules.port-down] and its keys below",
        ),
        ("rules = 3\n", "f.toml:1: rules is a table of tables; write [rules.port-down] and its keys below"),
        (
            '[[override]]\nrule = "rate-low"\naction = "alert"\n',
            "f.toml:1: [[override]] names neither match nor role; for all ports write [rules.rate-low]",
        ),
        (
            "[rules.symbol-errors]\nwarning = 5e-15\nwarning_per_hour = 3\n",
            "f.toml:3: rules.symbol-errors: warning and warning_per_hour say the same twice; keep one of them",
        ),
        (
            "[rules.link-flap]\nwarning = 4\ncritical = 3\n",
            "f.toml:2: rules.link-flap.warning is above critical: it would never come first; lower it",
        ),
        (
            "[rules.flap-storm]\ncritical = 65\n",
            "f.toml:2: rules.flap-storm.critical: no more than 64 are remembered, so it would never come; lower it",
        ),
        (
            '[rules.symbol-errors]\nrecover = "31d"\n',
            "f.toml:2: rules.symbol-errors.recover: what is counted is kept for 30d; write less",
        ),
        (
            '[[override]]\nrule = "link-flap"\nrole = "compute"\nwindow = "31d"\n',
            "f.toml:4: override.window: what is counted is kept for 30d; write less",
        ),
        (
            "[rules.receive-errors]\nwarning = 10\n",
            (
                "f.toml:2: rules.receive-errors.warning: 10 is no ratio of bit errors; for errors an hour write "
                "warning_per_hour = 10"
            ),
        ),
        (
            '[[override]]\nrole = "storage"\nrule = "symbol-errors"\ncritical = 120\n',
            (
                "f.toml:4: override.critical: 120 is no ratio of bit errors; for errors an hour write "
                "critical_per_hour = 120"
            ),
        ),
        ("[controller]\nurl = 0\n", "f.toml:2: controller.url: 0 is no text; put it in quotes"),
        ("[controller]\nurl = []\n", "f.toml:2: controller.url: [] is no text; put it in quotes"),
        (
            '[controller]\nurl = "https://h/?a"\n',
            'f.toml:2: controller.url: "https://h/?a" is more than an address; leave out what begins with ? or #',
        ),
        (
            '[[alertmanager]]\nurl = "https://h/#a"\n',
            'f.toml:2: alertmanager[0].url: "https://h/#a" is more than an address; leave out what begins with ? or #',
        ),
        (
            '[action.limits]\npartitions = ["a", ""]\n',
            "f.toml:2: action.limits.partitions: an empty text names nothing; take it out",
        ),
        ('[controller]\ndrain_on = [""]\n', "f.toml:2: controller.drain_on: an empty text names nothing; take it out"),
        (
            "[action.limits]\npartitions = []\n",
            "action.limits.partitions is empty; leave it out to have its default",
        ),
        (
            "[action]\nboot_grace = -1\n",
            'f.toml:2: action.boot_grace: -1 is no duration; write it like "5s", "10m", "1h30m" or "500ms"',
        ),
        ("[action\n", "f.toml:1: not valid TOML: Expected ']' at the end of a table declaration"),
        (
            '[sampling]\nslow_interval = "0s"\n',
            'f.toml:2: sampling.slow_interval: "0s" is not more than 0; write it like "60s"',
        ),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_to_write(text, want):
    assert problems(text) == [want]


def test_all_problems_are_listed_in_the_order_of_the_file():
    text = '[rules.port-dwn]\n[action]\nmode = "x"\n[sampling]\nstate_interval = 5\nzzz = 1\n'
    assert [p.split(": ")[0] for p in problems(text)] == ["f.toml:1", "f.toml:3", "f.toml:5", "f.toml:6"]


@pytest.mark.parametrize(
    "rule_and_key", ["port-down.window", "port-down.warning", "link-flap.polls", "link-flap.warning_per_hour"]
)
def test_a_key_that_a_rule_has_not_is_refused(rule_and_key):
    rule, key = rule_and_key.split(".")
    for text in (f"[rules.{rule}]\n{key} = 1\n", f'[[override]]\nrole = "storage"\nrule = "{rule}"\n{key} = 1\n'):
        (line, *_) = [p for p in problems(text) if f"has no {key}" in p]
        assert f"the rule {rule} has no {key}; it has enabled, alert_hold" in line


@pytest.mark.parametrize(
    "rule", ["port-down", "all-devices-missing", "monitor-blind", "device-stalled", "symbol-errors"]
)
def test_every_rule_takes_holds_and_an_action(rule):
    text = f'[rules.{rule}]\nenabled = true\nalert_hold = "0s"\nhold = "60s"\nrecover = "30m"\naction = "drain"\n'
    want = RuleConfig(enabled=True, alert_hold=0, hold=60, recover=1800, action=Mode.DRAIN)
    assert loads(text).config.rules == {rule: want}


def test_a_rule_table_without_keys_changes_nothing():
    assert config_hash(loads("[rules.port-down]\n").config) == config_hash(Config())


def test_the_highest_limits_that_can_be_written_are_those_that_are_remembered():
    remembered = {"link-flap": MAX_FLAPS, "flap-storm": MAX_TRANSITIONS, "long-outage": MAX_OUTAGES}

    assert {**remembered, "repeat-offender": MAX_DRAINS} == REMEMBERED
    assert LONGEST == HORIZON


def test_limits_know_whether_min_nodes_was_written():
    assert loads("[action.limits]\nmin_nodes = 2\n").config.action.limits == LimitsConfig(min_nodes_set=True)
    assert not loads('[action.limits]\nmax_drained = "3%"\n').config.action.limits.min_nodes_set


@pytest.mark.parametrize(
    "match",
    [
        "mlx5_0/1",
        "mlx5_[0-7]/1",
        "mlx5_*/?",
        "ibp3s0/[12]",
        "guid:a088:c203:00aa:bbcc",
        "pci:0000:1a:00.0",
        "pci:0000:1a:00.0/2",
    ],
)
def test_a_port_pattern_is_accepted(match):
    assert loads(f'[[port]]\nmatch = "{match}"\nrate = 400\nrole = "storage"\n').config.port == (
        PortConfig(match=match, rate=400, role=Role.STORAGE),
    )


@pytest.mark.parametrize(
    "match",
    [
        "mlx5_0",
        "mlx5_0/",
        "/1",
        "mlx5_0/one",
        "mlx5_[0/1",
        "mlx5_[7-0]/1",
        "guid:xyz",
        "pci:1a:00.0",
        "",
        "a/b/1",
        "mlx5_[0-9][0-9][0-9][0-9]/1",
        "mlx5_0/1-2",
    ],
)
def test_a_pattern_that_names_no_port_is_refused(match):
    (line,) = problems(f'[[port]]\nmatch = "{match}"\n')
    assert line.startswith("f.toml:2: port[0].match: ")


def test_a_device_pattern_with_a_port_is_told_how_to_ignore_a_port():
    (line,) = problems('[devices]\nexclude = ["mlx5_0/1"]\n')
    assert '[[port]] with role = "ignored"' in line


@pytest.mark.parametrize(
    "url", ["ftp://h/x", "https://", "hooks", "https://u:p@h/x", "http://h:99999/", "https://a b/"]
)
def test_a_webhook_needs_a_plain_web_address(url):
    assert problems(f'[[webhook]]\nurl = "{url}"\nsecret_file = "/k"\n')


def test_a_webhook_without_a_key_is_refused():
    (line,) = problems('[[webhook]]\nurl = "https://h/x"\n')
    assert line.startswith("webhook[0].secret_file is missing")


TOKEN = 'rest_token_file = "/t"\n'


@pytest.mark.parametrize(
    "url",
    ["", "http://slurm:6820", "https://slurm.example.org/api", "http://[::1]:6820", "unix:/run/slurmrestd.socket"],
)
def test_an_address_of_slurmrestd_is_accepted(url):
    assert loads(f'[slurm]\nrest_url = "{url}"\n{TOKEN}').config.slurm.rest_url == url


@pytest.mark.parametrize(
    "url",
    ["slurm:6820", "ftp://slurm", "https://", "https://u:p@h", "unix:", "unix:run/s", "http://h/?x=1", "http://h#a"],
)
def test_what_is_no_address_of_slurmrestd_is_refused(url):
    (line,) = problems(f'[slurm]\nrest_url = "{url}"\n{TOKEN}')
    assert line.startswith("f.toml:2: slurm.rest_url: ")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            'rest_url = "https://h"\n',
            "slurm.rest_token_file is missing: slurmrestd knows who asks by a token; name the file that holds it",
        ),
        (
            'rest_url = "http://127.0.0.1"\nrest_ca = "/ca"\n' + TOKEN,
            "slurm.rest_ca has no use without https in slurm.rest_url; write https, or remove it",
        ),
        (
            'rest_url = "unix:/s"\nrest_user = "ibmon"\n',
            "slurm.rest_user needs rest_token_file: without a token slurmrestd goes by the user of the process",
        ),
        (
            'rest_url = "unix:/s"\nrest_version = "v0.0.38"\n',
            (
                'slurm.rest_version: "v0.0.38" is not known; '
                "write one of v0.0.39 (Slurm 23.02) to v0.0.42, or leave it out for the newest"
            ),
        ),
    ],
)
def test_ways_to_slurmrestd_that_contradict_themselves_are_refused(text, want):
    assert problems(f"[slurm]\n{text}") == [want]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9093", "http://localhost:9093", "http://[::1]:9093", "https://h"])
def test_credentials_on_the_loopback_or_encrypted_are_no_doubt(url):
    target = f'[[alertmanager]]\nurl = "{url}"\nbearer_token_file = "/t"\n[action]\nmode = "alert"\n'
    assert loads(f'{target}[slurm]\nrest_url = "{url}"\n{TOKEN}').warnings == ()


@pytest.mark.parametrize("listen", [":19315", "127.0.0.1:19315", "[::1]:0", "node.example:1", "[fe80::1%eth0]:19315"])
def test_an_address_to_listen_at_is_accepted(listen):
    assert loads(f'[exporter]\nlisten = "{listen}"\n').config.exporter.listen == listen


@pytest.mark.parametrize("listen", ["19315", ":", "::1:19315", ":70000", "http://h:1", "", "host"])
def test_what_is_no_address_is_refused(listen):
    assert problems(f'[exporter]\nlisten = "{listen}"\n')


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('[action]\nmode = "drain"\n', "nothing will be drained"),
        ('[inventory]\nmode = "declared"\n', "no port is judged"),
        ('[[port]]\nmatch = "mlx5_0/1"\ncount = 2\n', "port[0].count has no effect"),
        ('[exporter]\nbasic_auth_file = "/x"\n', "in clear"),
        ('[slurm]\nrest_url = "http://slurm:6820"\nrest_token_file = "/t"\n', "the token crosses the network in clear"),
        ('[slurm]\nrest_url = "unix:/s"\ndirectory = "/opt"\n', "slurm.directory has no effect with rest_url"),
        ('[slurm]\nrest_version = "v0.0.41"\n', "slurm.rest_version has no effect without rest_url"),
        ('[slurm]\nrest_token_file = "/t"\n', "slurm.rest_token_file has no effect without rest_url"),
        ('[rules.port-down]\nalert_hold = "2m"\nhold = "1m"\n', "alert_hold is above hold (1m)"),
        ('[rules.port-down]\nalert_hold = "5m"\n', "rules.port-down.alert_hold is above hold (1m)"),
        ("[rules.link-flap]\nwarning = 5\n", "rules.link-flap.warning is above critical (3)"),
        ("[rules.receive-errors]\nwarning_per_hour = 200\n", "warning_per_hour is above critical (100)"),
        ('[[override]]\nrule = "port-down"\nrole = "storage"\nalert_hold = "2m"\n', "override[0].alert_hold is above"),
        (
            '[[override]]\nrule = "link-flap"\nrole = "storage"\nwarning = 9\n',
            "override[0].warning is above critical (3)",
        ),
        ('[[override]]\nrule = "fabric-event"\nrole = "storage"\nenabled = false\n', "override[0] has no effect"),
        ('[[webhook]]\nurl = "https://h"\nsecret_file = "/k"\n', '[[webhook]] has no effect: action.mode is "observe"'),
        (
            '[action]\nmode = "alert"\n[[webhook]]\nurl = "https://h"\nsecret_file = "/k"\nevents = []\n',
            "webhook[0].events is empty",
        ),
    ],
)
def test_what_may_not_be_meant_is_a_warning(text, want):
    (warning,) = loads(text).warnings
    assert want in warning


@pytest.mark.parametrize(
    "text",
    [
        '[rules.port-down]\nhold = "10s"\n',  # the alert comes no later
        "[rules.link-flap]\ncritical = 1\n",
        "[rules.symbol-errors]\nwarning_per_hour = 100\n",  # no ratio to compare it with
        '[rules.port-down]\nhold = "5m"\n[[override]]\nrule = "port-down"\nrole = "storage"\nalert_hold = "2m"\n',
    ],
)
def test_what_fits_what_it_leaves_as_it_is_is_no_warning(text):
    assert loads(text).warnings == ()


def test_the_settings_of_the_field_cases_load():
    text = """
[action]
mode = "drain"
scheduler = "none"
boot_grace = "0s"
auto_release = true
[action.limits]
max_drained = "100%"
min_nodes = 1000
new_per_minute = 1000
[sampling]
state_interval = "10s"
[[port]]
match = "mlx5_0/1"
role = "compute"
rate = 400
[rules.link-flap]
warning = 1
critical = 3
window = "43200s"
recover = "1800s"
action = "drain"
[rules.symbol-errors]
warning_per_hour = 120
critical_per_hour = 120
window = "1h"
hold = "120s"
action = "drain"
[rules.monitor-blind]
polls = 6
"""
    config = loads(text).config
    assert config.action.limits == LimitsConfig(
        max_drained=1.0, min_nodes=1000, new_per_minute=1000, min_nodes_set=True
    )
    assert config.rules["link-flap"] == RuleConfig(warning=1, critical=3, window=43200, recover=1800, action=Mode.DRAIN)
