"""[[alertmanager]]: what may be written, what is refused, what is doubted, and that docs/alerts.md is true to it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from ibmon.alert.alerts import Told, alert_name, encode, from_finding
from ibmon.config import AlertmanagerConfig
from ibmon.configfile import ConfigError, loads
from ibmon.configtext import to_toml
from ibmon.model import Finding, PortId, Severity
from ibmon.notices import WORDS

PAGE = (Path(__file__).parents[2] / "docs/alerts.md").read_text()
ACTS = '[action]\nmode = "alert"\n'
TARGET = '[[alertmanager]]\nurl = "{url}"\n'


def test_an_address_is_enough():
    (target,) = loads(TARGET.format(url="http://am:9093")).config.alertmanager
    assert target == AlertmanagerConfig(url="http://am:9093")
    assert target.resend_interval == 60


def test_every_key_is_read_and_shown_again():
    text = TARGET.format(url="https://am/x") + (
        'resend_interval = "30s"\nbearer_token_file = "/t"\nca = "/ca"\nclient_cert = "/c"\nclient_key = "/k"\n'
        'runbook_url = "https://wiki/rb"\n'
    )
    config = loads(text).config
    assert config.alertmanager == (
        AlertmanagerConfig(
            url="https://am/x",
            resend_interval=30.0,
            bearer_token_file="/t",
            ca="/ca",
            client_cert="/c",
            client_key="/k",
            runbook_url="https://wiki/rb",
        ),
    )
    assert loads(to_toml(config)).config == config


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ('basic_auth_file = "/a"\nbearer_token_file = "/b"\n', "has both basic_auth_file and bearer_token_file"),
        ('client_key = "/k"\n', "alertmanager[0].client_cert is missing"),
        ('resend_interval = "0s"\n', "less than 1"),
        ("resend_interval = 60\n", "has no unit"),
        ('bearer_token_file = "token"\n', "no absolute path"),
        ('runbook_url = "wiki"\n', "no URL"),
        ('bearer_token = "S3CRET"\n', "unknown key alertmanager.bearer_token"),
    ],
)
def test_what_cannot_be_meant_is_refused(more, why):
    with pytest.raises(ConfigError) as caught:
        loads(TARGET.format(url="https://am:9093") + more)
    (problem,) = caught.value.problems
    assert why in problem
    assert "S3CRET" not in problem


@pytest.mark.parametrize("key", ["ca", "client_cert"])
def test_certificates_without_https_are_refused(key):
    with pytest.raises(ConfigError, match="names certificates and its url is not https"):
        loads(TARGET.format(url="http://am:9093") + f'{key} = "/x"\n')


def test_a_password_in_the_address_is_refused_and_not_printed():
    with pytest.raises(ConfigError, match="holds a user or a password") as caught:
        loads(TARGET.format(url="http://ibmon:S3CRET@am:9093"))
    assert "S3CRET" not in str(caught.value)


def test_in_observe_mode_it_has_no_effect_and_that_is_said():
    target = TARGET.format(url="http://am:9093")
    assert [w for w in loads(target).warnings if "[[alertmanager]] has no effect" in w]
    assert loads(ACTS + target).warnings == ()


@pytest.mark.parametrize(
    ("url", "doubted"), [("http://am:9093", True), ("https://am", False), ("http://127.0.0.1:9093", False)]
)
def test_credentials_that_cross_the_network_in_clear_are_a_warning(url, doubted):
    warnings = loads(ACTS + TARGET.format(url=url) + 'basic_auth_file = "/a"\n').warnings
    assert bool([w for w in warnings if "in clear" in w]) is doubted


@pytest.mark.parametrize("key", ["basic_auth_file", "bearer_token_file", "client_key"])
def test_a_secret_that_others_can_read_is_a_warning(tmp_path, key):
    file = tmp_path / "secret"
    file.write_text("x")
    file.chmod(0o644)
    cert = f'client_cert = "{file}"\n' if key == "client_key" else ""
    text = ACTS + TARGET.format(url="https://am") + cert + f'{key} = "{file}"\n'
    assert [w for w in loads(text, host=True).warnings if f"alertmanager[0].{key}" in w and "chmod 600" in w]


# ------------------------------------------------------------------------------------------------------------ the page


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
def test_the_examples_of_the_page_load(text):
    assert loads(text).config.alertmanager


def test_the_page_tells_every_label_and_annotation():
    found = Finding("rate-low", "mlx5_3", 1, "x", Severity.CRITICAL, 0.0, 200.0, 400.0, "200<400")
    alert = from_finding(found, "n", {PortId("mlx5_3", 1): 3})
    (told,) = msgspec.json.decode(encode([Told(alert, 1.0)], runbook_url="https://w"))
    rows = re.findall(r"^\| (`.+?`) \|", PAGE.partition("\n## Alerts about ibmon itself\n")[0], re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {*told["labels"], *told["annotations"]}


def test_the_page_tells_every_alert_about_ibmon_itself():
    part = PAGE.partition("\n## Alerts about ibmon itself\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)[1:] == [alert_name(name) for name in WORDS]
