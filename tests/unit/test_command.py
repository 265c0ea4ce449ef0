"""The command backend: its contract on both sides, and every way in which an executable can go wrong."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from script_time import TimeOfAScript

from ibmon.config import CommandConfig, LimitsConfig
from ibmon.configfile import ConfigError, loads
from ibmon.drain import process, reconcile
from ibmon.drain.command import FORBIDDEN, Command
from ibmon.messages import EffectDone
from ibmon.model import BlockCode, Intent, Mode, NodeView, Now, Ownership
from ibmon.ports import SchedulerError
from ibmon.runtime.memory_store import MemoryStore

REASON = "ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id 7f3a9c]"
UP = {"name": "gpu-17", "state": "up", "drained": False}
NOW = Now(0.0, 1e9)


class Executable:
    """A scheduler's executable in a directory, and what it was called with."""

    def __init__(self, directory):
        self.path, self.log = directory / "scheduler", directory / "calls"

    def script(self, body):
        self.path.write_text(
            f"#!{sys.executable}\nimport json, os, sys, time, subprocess\nrequest = sys.stdin.read()\n"
            "call = json.dumps([sys.argv[1:], request, dict(os.environ), os.getcwd()])\n"
            f"open({str(self.log)!r}, 'a').write(call + '\\n')\n"
            f"{body}\n"
        )
        self.path.chmod(0o755)
        return self

    def prints(self, answer, status=0, errors=""):
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return self.script(f"sys.stdout.write({text!r}); sys.stderr.write({errors!r}); sys.exit({status})")

    def calls(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def client(self, timeout=10.0):
        return Command(CommandConfig(path=str(self.path), timeout=timeout), "gpu-17")


@pytest.fixture
def executable(tmp_path):
    return Executable(tmp_path)


# --------------------------------------------------------------------------------------------------------- the contract


@pytest.mark.parametrize(
    ("answer", "flags"),
    [
        ({"state": "up", "drained": False}, {"IDLE"}),
        ({"state": "up", "drained": True}, {"IDLE", "DRAIN"}),
        ({"state": "down", "drained": True}, {"DOWN", "DRAIN"}),
        ({"state": "off", "drained": False}, {"POWERED_DOWN"}),
        ({"state": "maintenance", "drained": False}, {"MAINT"}),
    ],
)
def test_a_node_is_told_in_the_words_that_all_schedulers_share(executable, answer, flags):
    executable.prints({"node": {"name": "n17", **answer, "rack": 7}, "more": []})

    assert executable.client().read_node() == NodeView("n17", frozenset(flags))


def test_reason_user_and_time_are_handed_on_unchanged(executable):
    node = {**UP, "drained": True, "reason": REASON, "user": "ibmon", "since": 1893492000}
    executable.prints({"node": node})

    view = executable.client().read_node()
    assert (view.reason, view.user, view.since) == (REASON, "ibmon", 1893492000.0)


def test_each_call_names_its_action_and_hands_over_one_line_of_json_and_a_small_environment(executable, monkeypatch):
    monkeypatch.setenv("SECRET", "s3cret")
    executable.prints({"node": {**UP, "drained": True, "reason": REASON}, "pools": []})
    client = executable.client()
    client.read_node()
    client.read_pools()
    client.drain(REASON)
    client.undrain()

    calls = executable.calls()
    assert [arguments for arguments, *_ in calls] == [["observe"], ["observe"], ["drain"], ["release"]]
    assert all(request.endswith("}\n") and request.count("\n") == 1 for _, request, *_ in calls)
    base = {"v": 1, "node": "gpu-17"}
    assert [json.loads(request) for _, request, *_ in calls] == [
        {**base, "action": "observe", "pools": False},
        {**base, "action": "observe", "pools": True},
        {**base, "action": "drain", "reason": REASON},
        {**base, "action": "release", "reason": REASON},
    ]
    assert all(set(environment) - {"LC_CTYPE"} == {"PATH", "LC_ALL", "TZ"} for *_, environment, _ in calls)
    assert {place for *_, place in calls} == {"/"}


def test_pools_come_with_all_their_nodes(executable):
    executable.prints({"node": UP, "pools": [{"name": "train", "nodes": [UP, {**UP, "name": "gpu-18"}]}]})

    [pool] = executable.client().read_pools()
    assert (pool.name, [node.name for node in pool.nodes]) == ("train", ["gpu-17", "gpu-18"])


# ------------------------------------------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "null",
        "{}",
        "no such node\n",
        '{"node":',
        "[" * 5000,
        {"node": None},
        {"node": {"name": "gpu-17", "state": "up"}},
        {"node": {"name": "gpu-17", "drained": False}},
        {"node": {**UP, "state": "IDLE"}},
        {"node": {**UP, "drained": "no"}},
        {"node": {**UP, "drained": 0}},
        {"node": {**UP, "name": ""}},
        {"node": {**UP, "since": "yesterday"}},
        {"node": {**UP, "reason": 7}},
        {"node": UP, "pools": {"train": []}},
    ],
)
def test_an_answer_of_another_shape_is_an_error_and_never_a_state(executable, answer):
    executable.prints(answer)

    with pytest.raises(SchedulerError, match="prints no answer that can be used"):
        executable.client().read_node()


def test_pools_that_were_not_told_are_not_known(executable):
    executable.prints({"node": UP})

    with pytest.raises(SchedulerError, match="asked for pools"):
        executable.client().read_pools()


def test_a_failure_says_the_last_line_that_was_written_to_stderr(executable):
    executable.prints({"node": UP}, status=3, errors="Traceback:\n  much\nthe server is away\n")

    with pytest.raises(SchedulerError, match=r"observe failed with status 3: the server is away$") as caught:
        executable.client().read_node()
    assert not caught.value.forbidden


def test_one_exit_status_says_that_it_may_not(executable):
    executable.prints("", status=FORBIDDEN)

    with pytest.raises(SchedulerError, match="it said nothing") as caught:
        executable.client().drain(REASON)
    assert caught.value.forbidden


def test_an_executable_that_is_not_there_or_not_executable_says_so(executable, tmp_path):
    with pytest.raises(SchedulerError, match="does not start"):
        executable.client().read_node()
    executable.path.write_text("")
    executable.path.chmod(0o644)
    with pytest.raises(SchedulerError, match="does not start"):
        executable.client().read_node()


def test_an_executable_that_hangs_is_killed_with_all_that_it_started(executable, tmp_path, monkeypatch):
    child = tmp_path / "child"
    executable.script(
        f"p = subprocess.Popen(['sleep', '60']); open({str(child)!r}, 'w').write(str(p.pid)); time.sleep(60)"
    )
    monkeypatch.setattr(process, "time", TimeOfAScript(child))
    began = time.monotonic()
    with pytest.raises(SchedulerError, match="no answer within 1 s"):
        executable.client(timeout=1.0).read_node()
    assert time.monotonic() - began < 30  # it would sleep for a minute

    pid = int(child.read_text())
    gone = time.monotonic() + 20
    while time.monotonic() < gone and _runs(pid):
        time.sleep(0.02)
    assert not _runs(pid)


def _runs(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_an_executable_that_reads_nothing_is_no_trouble(executable):
    executable.path.write_text(f"#!/bin/sh\nexec 0<&-\necho '{json.dumps({'node': UP})}'\n")
    executable.path.chmod(0o755)

    assert executable.client().read_node().flags == {"IDLE"}


def test_what_does_not_fit_into_a_pipe_is_refused_before_anything_runs(executable, tmp_path):
    executable.prints({"node": UP})
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(ValueError, match="do not fit"):
        process.run([str(executable.path)], timeout=5, environment={}, stdin=b"x" * (process.MAX_INPUT + 1))
    assert not executable.log.exists()
    executable.client().read_node()
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


# ---------------------------------------------------------------------------------------------------- through reconcile


class Site:
    """An executable with a memory: one file holds the nodes."""

    def __init__(self, executable, directory, nodes=8):
        self.file = directory / "nodes.json"
        self.nodes = {f"gpu-{n}": {"name": f"gpu-{n}", "state": "up", "drained": False} for n in range(17, 17 + nodes)}
        self.write()
        executable.script(
            f"file = {str(self.file)!r}; nodes = json.load(open(file)); request = json.loads(request)\n"
            "mine = nodes[request['node']]\n"
            "if sys.argv[1] == 'observe':\n"
            "    print(json.dumps({'node': mine, 'pools': [{'name': 'all', 'nodes': list(nodes.values())}]}))\n"
            "elif sys.argv[1] == 'drain':\n"
            "    mine.update(drained=True, reason=request['reason'], since=time.time())\n"
            "else:\n"
            "    assert mine.get('reason') == request['reason'], 'another reason'\n"
            "    mine.update(drained=False, reason=None)\n"
            "json.dump(nodes, open(file, 'w'))"
        )
        self.client = executable.client()
        self.gates = reconcile.Gates(mode=lambda: Mode.DRAIN, stop=lambda: False, limits=LimitsConfig())
        self.store = MemoryStore()

    def write(self):
        self.file.write_text(json.dumps(self.nodes))

    def read(self):
        return json.loads(self.file.read_text())["gpu-17"]

    def drain(self) -> EffectDone:
        intent = Intent(drain=True, id="7f3a9c", reason=REASON, since=NOW.wall)
        return reconcile.drain(intent, self.client, self.store, self.gates, NOW)

    def release(self) -> EffectDone:
        owned = self.store.ownership()
        assert owned is not None
        return reconcile.release(owned, self.client, self.store, self.gates, NOW)


def test_a_node_is_drained_read_back_and_given_back(executable, tmp_path):
    site = Site(executable, tmp_path)

    assert site.drain().outcome == "done"
    assert site.read()["reason"] == REASON
    assert site.store.ownership() == Ownership("7f3a9c", REASON, asked=NOW.wall, held=True)
    assert site.release().outcome == "gone"
    assert not site.read()["drained"]
    assert site.store.ownership() is None


def test_a_drain_of_somebody_else_is_never_touched(executable, tmp_path):
    site = Site(executable, tmp_path)
    site.nodes["gpu-17"] |= {"drained": True, "reason": "bad DIMM"}
    site.write()

    done = site.drain()
    assert (done.outcome, done.code) == ("blocked", BlockCode.FOREIGN_DRAIN)
    assert site.read() == site.nodes["gpu-17"]


def test_a_scheduler_that_shortens_the_reason_makes_the_drain_a_strangers(executable, tmp_path):
    site = Site(executable, tmp_path)
    assert site.drain().outcome == "done"
    site.nodes["gpu-17"] = {**site.read(), "reason": REASON[:40]}
    site.write()

    assert site.release().outcome == "gone"
    assert site.read()["drained"]


def test_the_limits_are_counted_in_the_pools_that_it_tells(executable, tmp_path):
    site = Site(executable, tmp_path)
    for node in ("gpu-18", "gpu-19"):
        site.nodes[node] |= {"drained": True, "reason": REASON.replace("7f3a9c", "aaaa11"), "since": 5.0}
    site.write()

    done = site.drain()
    assert (done.outcome, done.code) == ("blocked", BlockCode.LIMIT_NODES)


# -------------------------------------------------------------------------------------------------------- configuration


def test_the_executable_must_be_named_by_an_absolute_path():
    with pytest.raises(ConfigError, match=r"command\.path is missing"):
        loads('[action]\nscheduler = "command"\n')
    with pytest.raises(ConfigError, match=r"command\.path"):
        loads('[command]\npath = "pbs"\n')
    config = loads('[action]\nscheduler = "command"\n[command]\npath = "/etc/ibmon/pbs"\ntimeout = "5s"\n').config
    assert config.command == CommandConfig(path="/etc/ibmon/pbs", timeout=5.0)
