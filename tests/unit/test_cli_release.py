"""`ibmon release` and `ibmon maintenance` on a running daemon that drains through the command backend."""

from __future__ import annotations

import json
import sys
import time

import pytest
from livenode import DECLARED, FAST, NAME, QUICK, LiveNode, always, until

from ibmon.cli import main

# Ten nodes in one file; what an administrator would see and change.
SCHEDULER = """#!{python}
import json, sys, time
file = {file!r}
nodes = json.load(open(file))
request = json.load(sys.stdin)
mine = nodes[request["node"]]
if sys.argv[1] == "observe":
    print(json.dumps({{"node": mine, "pools": [{{"name": "all", "nodes": list(nodes.values())}}]}}))
elif sys.argv[1] == "drain":
    mine.update(drained=True, reason=request["reason"], since=time.time())
    json.dump(nodes, open(file, "w"))
elif {forbidden}:
    sys.exit(77)
else:
    mine.update(drained=False, reason=None)
    json.dump(nodes, open(file, "w"))
"""
ACTION = """
[action]
mode = "{mode}"
scheduler = "command"
boot_grace = "0s"
stop_file = "{directory}/STOP"
[command]
path = "{directory}/scheduler"
"""
ORPHAN = "ibmon: rate-low mlx5_0/1 200<400 [id 0ddba1]"


class Site:
    """A node, its scheduler, and a person with a command line."""

    def __init__(self, node, capsys):
        self.node, self.capsys = node, capsys
        self.file = node.directory / "nodes.json"
        names = [NAME, *(f"other{n}" for n in range(9))]
        self.write({name: {"name": name, "state": "up", "drained": False} for name in names})
        self.forbid(False)
        self.configure()

    def configure(self, mode="drain", more=""):
        action = ACTION.format(directory=self.node.directory, mode=mode)
        self.node.configure(FAST + DECLARED + QUICK + action + more)

    def forbid(self, forbidden):
        script = self.node.directory / "scheduler"
        script.write_text(SCHEDULER.format(python=sys.executable, file=str(self.file), forbidden=forbidden))
        script.chmod(0o755)

    def write(self, nodes):
        beside = self.file.with_suffix(".new")
        beside.write_text(json.dumps(nodes))
        beside.replace(self.file)  # the daemon may read it at any time

    @property
    def mine(self):
        while True:
            try:
                return json.loads(self.file.read_text())[NAME]
            except json.JSONDecodeError:  # noqa: PERF203 - one try a round
                time.sleep(0.01)  # it is being written

    def drained_by(self, reason):
        nodes = json.loads(self.file.read_text())
        nodes[NAME].update(drained=True, reason=reason, since=1e9)
        self.write(nodes)

    def ibmon(self, *words):
        code = main([*words, "--config", str(self.node.config)])
        out, err = self.capsys.readouterr()
        return code, out, err

    def drain(self):
        daemon = self.node.serving()
        self.node.wait_fitness("fit")
        self.node.goes_down()
        until(lambda: (self.node.verdict().get("drain") or {}).get("active"), "the drain")
        return daemon


@pytest.fixture
def site(tmp_path, capsys):
    with LiveNode(tmp_path) as node:
        yield Site(node, capsys)


# ---------------------------------------------------------------------------------------------------------- release


def test_a_person_gives_a_node_back_that_is_still_bad_and_it_stays_so(site):
    daemon = site.drain()
    reason = site.mine["reason"]

    code, out, err = site.ibmon("release", "--dry-run")
    assert (code, err) == (0, "")
    assert out == f"giving back: {reason}; its findings stand, and are not acted on for 24h\n"
    assert site.mine["drained"]

    code, out, err = site.ibmon("release", "--reason", "needed for a test")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == ["ibmon's drain of this node does not stand any more"]
    assert not site.mine["drained"]
    daemon.wait_metric("ibmon_drain_overridden", 1)
    always(lambda: not site.mine["drained"], 1.0)
    until(lambda: site.node.verdict()["drain"]["blocked"] == "override")
    user = site.node.verdict()["drain"]["asked"]["user"]
    daemon.wait_line("event=person-release", f"user={user}")
    daemon.wait_line("event=control", "needed for a test")


def test_a_second_port_that_fails_after_a_release_drains_again(site):
    site.drain()
    assert site.ibmon("release")[0] == 0

    site.node.goes_down("mlx5_1/1")
    until(lambda: site.mine["drained"], "another drain")


def test_what_somebody_else_drained_is_not_given_back(site):
    site.node.serving()
    site.drained_by("bad DIMM")

    code, out, err = site.ibmon("release")
    assert code == 1
    assert out.startswith("no drain of this node is on record")
    assert "not given back (foreign_drain): foreign: drained: bad DIMM" in err
    assert site.mine["reason"] == "bad DIMM"


def test_a_drain_in_our_words_without_a_record_is_given_back_by_a_persons_word_alone(site):
    site.node.serving()
    site.drained_by(ORPHAN)
    always(lambda: site.mine["drained"], 0.5)

    assert site.ibmon("release", "--dry-run")[0] == 0
    assert site.mine["drained"]
    code, out, _ = site.ibmon("release", "--json")
    assert (code, json.loads(out)["outcome"]) == (0, "gone")
    assert not site.mine["drained"]


def test_where_nothing_is_drained_nothing_is_written(site):
    site.node.serving()

    code, out, _ = site.ibmon("release", "--json")
    assert (code, json.loads(out)) == (0, {"outcome": "gone", "code": None, "detail": "the node is not drained"})


def test_a_scheduler_that_refuses_is_told_to_the_person_who_asked(site):
    site.drain()
    site.forbid(True)

    code, _, err = site.ibmon("release")
    assert code == 1
    assert "not given back (forbidden)" in err
    assert site.mine["drained"]
    site.forbid(False)
    assert site.ibmon("release")[0] == 0


def test_under_a_stop_and_below_drain_mode_nothing_is_given_back(site):
    daemon = site.drain()
    (site.node.directory / "STOP").touch()
    daemon.wait_line("event=stop-file")
    code, out, err = site.ibmon("release")
    assert (code, out) == (1, "")
    assert "a stop is in force" in err

    (site.node.directory / "STOP").unlink()
    daemon.wait_line("event=stop-file", "present=false")
    site.configure("observe")
    daemon.reload()
    daemon.wait_line("event=reloaded")
    assert "action.mode is observe" in site.ibmon("release")[2]
    assert json.loads(site.ibmon("release", "--json")[1])["outcome"] == "refused"
    assert site.mine["drained"]


# ---------------------------------------------------------------------------------------------------------- maintenance


def test_a_window_is_begun_shown_kept_over_a_kill_and_ended(site):
    daemon = site.node.serving()
    site.node.wait_fitness("fit")
    assert site.ibmon("maintenance", "show") == (0, "no maintenance\n", "")
    words = ("maintenance", "start", "--for", "2h", "--reason", "new cable", "--ports", "mlx5_3/1", "mlx5_2")
    assert site.ibmon(*words) == (0, "maintenance of mlx5_2, mlx5_3/1 for 2h\n", "")
    daemon.wait_metric("ibmon_maintenance", 1)

    site.node.goes_down()
    until(lambda: site.node.verdict()["fitness"] == "watch")
    daemon.end(9)
    daemon = site.node.serving()
    always(lambda: not site.mine["drained"], 1.0)
    [window] = json.loads(site.ibmon("maintenance", "show", "--json")[1])["windows"]
    assert window["ports"] == ["mlx5_2", "mlx5_3/1"]
    assert window["until"] == pytest.approx(time.time() + 7200, abs=60)
    shown = site.ibmon("maintenance", "show")[1]
    assert shown.startswith("mlx5_2, mlx5_3/1 until ")
    assert shown.endswith(f" by {window['user']}: new cable\n")
    assert "maintenance of mlx5_2, mlx5_3/1 until" in site.ibmon("status")[1]

    assert site.ibmon("maintenance", "stop")[:2] == (0, "ended the maintenance of mlx5_2, mlx5_3/1\n")
    until(lambda: site.mine["drained"], "the drain after the window")
    daemon.wait_line("event=maintenance-ended", f"by={window['user']}")
    daemon.wait_metric("ibmon_maintenance", 0)


def test_a_window_that_ends_by_time_is_logged_once_and_the_fault_drains(site):
    daemon = site.node.serving()
    site.node.wait_fitness("fit")
    assert site.ibmon("maintenance", "start", "--for", "2s", "--reason", "r")[0] == 0
    site.node.goes_down()
    until(lambda: site.mine["drained"], "the drain after the window")

    assert len(daemon.lines("event=maintenance-ended", "by=time")) == 1


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("start", "--for", "2h"), 2, "--reason"),
        (("start", "--reason", "r"), 2, "--for"),
        (("start", "--reason", "r", "--for", "soon"), 2, "soon"),
        (("start", "--reason", "r", "--for", "8d"), 1, "at most"),
        (("start", "--reason", "r", "--for", "1h", "--ports", "mlx5_9/1"), 1, "no such port or device: mlx5_9/1"),
        (("stop",), 1, "there is no maintenance of this node"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(site, words, code, said):
    site.node.serving()
    got, out, err = site.ibmon("maintenance", *words)

    assert (got, out) == (code, "")
    assert said in err
    assert err.count("\n") == 1
