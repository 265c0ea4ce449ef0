"""deploy/command/pbs-example.py against a pbsnodes and a qmgr that behave as those of OpenPBS do."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest

from ibmon.config import CommandConfig
from ibmon.drain.command import Command
from ibmon.ports import SchedulerError

EXAMPLE = Path(__file__).parents[2] / "deploy/command/pbs-example.py"
REASON = "ibmon: device-missing mlx5_3 " + "PCI function 0000:9a:00.0 gone " * 4 + "121s>120s (+2 more) [id 7f3a9c]"
HOST = socket.gethostname().partition(".")[0]

# What pbsnodes does (openpbs/src/cmds/pbsnodes.c): a comment is cut after 79 characters; in JSON a value that reads as
# a number is written as one.
FAKE = """#!{python}
import json, sys
file = {file!r}
nodes = json.load(open(file))
def number(text):
    return int(text) if str(text).isdigit() else text
name, words = sys.argv[0].rpartition("/")[2], sys.argv[1:]
if name == "pbsnodes" and words[:2] == ["-F", "json"]:
    chosen = nodes if words[2] == "-a" else {{words[2]: nodes[words[2]]}}
    shown = {{n: {{k: number(v) for k, v in node.items() if v != ""}} for n, node in chosen.items()}}
    print(json.dumps({{"timestamp": 1, "pbs_version": "23.06.06", "pbs_server": "pbs", "nodes": shown}}))
    sys.exit()
if {refuse!r}:
    sys.exit({refuse!r})
if name == "qmgr":
    _, _, host, _, _, comment = words[1].split(" ", 5)
    nodes[host]["comment"] = comment.strip('"')
else:
    host, states = words[-1], nodes[words[-1]]["state"].split(",")
    if "-C" in words:
        nodes[host]["comment"] = words[words.index("-C") + 1][:79]
    states = [s for s in states if s != "offline"] + (["offline"] if "-o" in words else [])
    nodes[host]["state"] = ",".join(states)
json.dump(nodes, open(file, "w"))
"""


class Pbs:
    """Two hosts of PBS, one of them this one."""

    def __init__(self, directory, monkeypatch):
        self.file, self.bin = directory / "nodes.json", directory / "bin"
        self.bin.mkdir()
        node = {"Mom": f"{HOST}.example.org", "state": "job-busy", "last_state_change_time": "1893492000"}
        self.write({HOST: {**node}, "other": {**node, "queue": "gpu"}})
        self.install()
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        self.client = Command(CommandConfig(path=str(EXAMPLE)), "a-name-of-ibmon")

    def install(self, refuse=""):
        for name in ("pbsnodes", "qmgr"):
            (self.bin / name).write_text(FAKE.format(python=sys.executable, file=str(self.file), refuse=refuse))
            (self.bin / name).chmod(0o755)

    def write(self, nodes):
        self.file.write_text(json.dumps(nodes))

    def nodes(self):
        return json.loads(self.file.read_text())

    def change(self, **values):
        nodes = self.nodes()
        nodes[HOST].update(values)
        self.write(nodes)


@pytest.fixture
def pbs(tmp_path, monkeypatch):
    return Pbs(tmp_path, monkeypatch)


def test_a_drain_keeps_its_whole_reason_and_leaves_the_running_job_alone(pbs):
    assert len(REASON) > 79
    pbs.client.drain(REASON)

    view = pbs.client.read_node()
    assert (view.name, view.drained, view.reason, view.since) == (HOST, True, REASON, 1893492000.0)
    assert pbs.nodes()[HOST]["state"] == "job-busy,offline"


def test_a_release_takes_mark_and_comment_away(pbs):
    pbs.client.drain(REASON)
    pbs.client.read_node()
    pbs.client.undrain()

    assert pbs.nodes()[HOST]["state"] == "job-busy"
    assert pbs.nodes()[HOST]["comment"] == ""


def test_what_somebody_else_took_offline_is_neither_drained_nor_released(pbs):
    pbs.change(state="free,offline", comment="bad DIMM")
    with pytest.raises(SchedulerError, match="offline already: bad DIMM"):
        pbs.client.drain(REASON)

    pbs.change(comment=REASON)
    pbs.client.read_node()
    pbs.change(comment="bad DIMM")
    with pytest.raises(SchedulerError, match="another reason by now"):
        pbs.client.undrain()
    assert pbs.nodes()[HOST]["state"] == "free,offline"


def test_a_comment_on_a_node_that_nobody_holds_offline_is_no_drain(pbs):
    pbs.change(comment=REASON)

    view = pbs.client.read_node()
    assert not view.drained
    assert view.reason is None


def test_nodes_of_a_queue_are_a_pool_of_their_own(pbs):
    pools = {pool.name: [node.name for node in pool.nodes] for pool in pbs.client.read_pools()}

    assert pools == {"all": [HOST, "other"], "gpu": ["other"]}


@pytest.mark.parametrize(
    ("state", "flags"),
    [
        ("free", {"IDLE"}),
        ("down", {"DOWN"}),
        ("down,offline", {"DOWN", "DRAIN"}),
        ("state-unknown,down", {"DOWN"}),
        ("maintenance", {"MAINT"}),
        ("sleep", {"POWERED_DOWN"}),
    ],
)
def test_states_are_told_in_the_words_of_the_contract(pbs, state, flags):
    pbs.change(state=state, comment="7")

    assert pbs.client.read_node().flags == flags


def test_a_state_that_the_example_does_not_know_is_no_state(pbs):
    pbs.change(state="free,quarantined")

    with pytest.raises(SchedulerError, match="quarantined"):
        pbs.client.read_node()


def test_a_user_who_may_not_is_told_so(pbs):
    pbs.install(refuse=f"Error marking node {HOST} - Unauthorized Request")

    with pytest.raises(SchedulerError, match="Unauthorized") as caught:
        pbs.client.drain(REASON)
    assert caught.value.forbidden


def test_a_host_that_pbs_does_not_know_is_an_error(pbs):
    pbs.write({"other": {"state": "free"}})

    with pytest.raises(SchedulerError, match="status 1"):
        pbs.client.read_node()
