"""A daemon that cannot start as configured says why in one line and leaves nothing behind; and what it loads."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from livenode import DECLARED, FAST, PATIENCE, LiveNode, until


@pytest.fixture
def node(tmp_path):
    with LiveNode(tmp_path) as live:
        yield live


def refused(node: LiveNode) -> str:
    """The one line of a start that must fail, without a trace of it in the node's directories."""
    daemon = node.start()
    assert daemon.process.wait(PATIENCE) == 2, daemon.text
    assert list(node.state.iterdir()) == []
    assert list(node.runtime.iterdir()) == []
    [line] = daemon.text.splitlines()
    assert line.startswith("ibmon: ")
    return line


def test_a_port_that_is_in_use_is_told_and_left_alone(node):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        node.configure(exporter=f'listen = "{address}"')

        assert refused(node) == f"ibmon: exporter.listen: cannot listen on {address}: Address already in use"
        with socket.create_connection(other.getsockname(), timeout=5):
            other.accept()[0].close()
    # Nothing of the refused start is in the way of the next one.
    node.configure()
    assert node.serving().metric("ibmon_actions_enabled") == 1


@pytest.mark.parametrize(
    ("exporter", "words"),
    [
        ('listen = "192.0.2.1:19315"', ("exporter.listen", "192.0.2.1:19315", "Cannot assign requested address")),
        ('listen = "19315"', ("exporter.listen", '"19315"')),
        ('listen = "127.0.0.1:0"\ntls_cert = "/no/such.pem"\ntls_key = "/no/such.pem"', ("tls_cert", "/no/such.pem")),
        ('listen = "127.0.0.1:0"\ntls_cert = "{config}"\ntls_key = "{config}"', ("tls_cert", "ibmon.toml")),
        ('listen = "127.0.0.1:0"\nbasic_auth_file = "/no/such/users"', ("basic_auth_file", "/no/such/users")),
    ],
)
def test_an_address_or_a_file_that_cannot_serve_is_one_line_and_exit_code_2(node, exporter, words):
    node.configure(exporter=exporter.format(config=node.config))

    line = refused(node)
    assert all(word in line for word in words), line


# Each of these was once taken in silence by a daemon of this kind, which then watched less than its owner thought.
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[devices]\nexlude = ["mlx5_0"]', ("unknown key devices.exlude", "did you mean devices.exclude?")),
        ("[rules.port-dwon]\nhold = '60s'", ("unknown rule rules.port-dwon", "did you mean rules.port-down?")),
        ("[rules.link-flap]\nwidow = '24h'", ("unknown key rules.link-flap.widow", "rules.link-flap.window?")),
    ],
)
def test_a_misspelt_configuration_stops_the_start_and_names_what_was_meant(node, text, words):
    node.configure(text)
    line = refused(node)

    assert all(word in line for word in words), line
    assert f"{node.config}:" in line


def test_a_named_configuration_that_is_not_there_stops_the_start(node):
    node.config.unlink()

    assert str(node.config) in refused(node)


def test_doubts_about_a_configuration_are_told_when_it_comes_into_force(node):
    node.configure(FAST + '[inventory]\nmode = "declared"\n')
    daemon = node.serving()
    daemon.wait_line("WARNING", 'inventory.mode is "declared" and there is no [[port]]')

    node.configure(FAST + '[action]\nmode = "drain"\n')
    daemon.reload()
    daemon.wait_line("WARNING", 'action.mode is "drain" with action.scheduler = "none"')


# ------------------------------------------------------------------------------------------------ what it loads


def loaded_by(node: LiveNode, text: str) -> set[str]:
    """Names of the modules that a daemon has loaded by the time it has judged the node."""
    node.configure(FAST + DECLARED + text)
    daemon = node.serving(python=("-X", "importtime"))
    until(lambda: node.verdict().get("fitness") == "fit")
    assert daemon.end() == 0
    return {line.rpartition("|")[2].strip() for line in daemon.lines("import time:")}


def test_a_daemon_loads_neither_the_tables_of_the_command_line_nor_what_nobody_configured(node):
    loaded = {name.partition(".")[0] for name in loaded_by(node, "")}

    assert "msgspec" in loaded, "the list of imports is not what it should be"
    assert loaded.isdisjoint({"rich", "urllib3", "hypothesis", "pytest", "grafanalib"})


def test_with_a_webhook_it_loads_what_delivers(node):
    secret = node.directory / "key"
    secret.write_text("whsec_" + "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n")
    secret.chmod(0o600)
    loaded = loaded_by(node, f'[[webhook]]\nurl = "http://127.0.0.1:9/"\nsecret_file = "{secret}"\n')

    assert "urllib3" in loaded
    assert "rich" not in loaded


def test_the_module_is_the_command():
    told = subprocess.run(
        [sys.executable, "-m", "ibmon", "version"], capture_output=True, text=True, timeout=PATIENCE, check=True
    )

    assert told.stdout.startswith("ibmon ")
