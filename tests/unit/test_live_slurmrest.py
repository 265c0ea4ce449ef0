"""A running daemon and a slurmrestd: the whole way of a drain and back, and a token that is refused."""

from __future__ import annotations

import re

import pytest
from fake_slurmrestd import FakeSlurmrestd
from livenode import DECLARED, FAST, QUICK, LiveNode, until

TOKEN = "eyJhbGciOi.eyJzdW4iOi.c2VjcmV0"
ACTION = """
[action]
mode = "drain"
scheduler = "slurm"
boot_grace = "0s"
stop_file = "{directory}/STOP"
[slurm]
node_name = "node1"
rest_url = "{url}"
rest_user = "ibmon"
rest_token_file = "{directory}/token"
"""


@pytest.fixture
def server():
    with FakeSlurmrestd() as fake:
        fake.token, fake.user = TOKEN, "ibmon"
        for number in range(1, 11):
            fake.add(f"node{number}", partitions=("train",))
        yield fake
        assert fake.broken == []


@pytest.fixture
def node(tmp_path, server):
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    with LiveNode(tmp_path) as live:
        live.configure(FAST + DECLARED + QUICK + ACTION.format(directory=tmp_path, url=server.url))
        yield live


def test_a_node_is_drained_with_its_reason_and_given_back_when_the_port_returned(node, server):
    daemon = node.serving()
    node.wait_fitness("fit")
    assert server.log == [], "a node that is well makes no call"

    node.goes_down()
    daemon.wait_metric("ibmon_drain_active", 1)
    reason = server.nodes["node1"]["reason"]
    assert re.fullmatch(r"ibmon: port-down mlx5_3/1 DOWN/Polling \d+s>\d+s \[id [0-9a-f]{6}\]", reason)
    assert server.bodies() == [{"state": ["DRAIN"], "reason": reason}]

    node.comes_up()
    until(lambda: server.nodes["node1"]["state"] == ["IDLE"])
    daemon.wait_metric("ibmon_drain_active", 0)
    assert server.bodies()[1:] == [{"state": ["UNDRAIN"]}]


def test_a_token_that_is_refused_shows_as_forbidden_and_nothing_is_written(node, server):
    server.token = "another.token"
    daemon = node.serving()
    node.goes_down()
    daemon.wait_metric("ibmon_drain_blocked", 1, code="forbidden")
    assert server.bodies() == []
