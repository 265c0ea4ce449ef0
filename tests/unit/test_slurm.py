"""Slurm through scontrol: real outputs of several versions, and every way in which the command can go wrong."""

from __future__ import annotations

import os
import socket
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from script_time import TimeOfAScript

from ibmon.config import SlurmConfig
from ibmon.drain import process, slurm_text
from ibmon.drain.slurm import Slurm
from ibmon.drain.slurm_node import NodeNameError
from ibmon.ports import SchedulerError

REASON = "ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id 7f3a9c]"

# `scontrol -o show node` of Debian's 22.05.8, of 23.11.4 and 24.05 (fields as printed there, names changed).
SLURM_2205 = (
    "NodeName=node1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=1 CPUTot=1 CPULoad=0.86 AvailableFeatures=(null) "
    "ActiveFeatures=(null) Gres=(null) NodeAddr=127.0.0.1 NodeHostName=host-a Port=16828 Version=22.05.8 "
    "OS=Linux 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)  RealMemory=100 AllocMem=0 "
    "FreeMem=6012 Sockets=1 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A "
    "Partitions={partitions}  BootTime=2030-01-01T09:00:00 SlurmdStartTime=2030-01-01T09:10:00 "
    "LastBusyTime=2030-01-01T09:10:00 CfgTRES=cpu=1,mem=100M,billing=1 AllocTRES= CapWatts=n/a CurrentWatts=0 "
    "AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s {reason}"
)
SLURM_2311 = (
    "NodeName=node1 Arch=x86_64 CoresPerSocket=56  CPUAlloc=224 CPUEfctv=224 CPUTot=224 CPULoad=97.31 "
    "AvailableFeatures=h100 ActiveFeatures=h100 Gres=gpu:h100:8 NodeAddr=node1 NodeHostName=node1 Version=23.11.4 "
    "OS=Linux 5.15.0-105-generic #115-Ubuntu SMP Mon Apr 15 09:52:04 UTC 2024  RealMemory=2063000 AllocMem=0 "
    "FreeMem=1891212 Sockets=2 Boards=1 State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A "
    "Partitions={partitions}  BootTime=2030-01-01T09:00:00 SlurmdStartTime=2030-01-01T09:10:00 "
    "LastBusyTime=2030-01-01T09:10:00 ResumeAfterTime=None CfgTRES=cpu=224,mem=2063000M,billing=224,gres/gpu=8 "
    "AllocTRES=cpu=224 CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/a ExtSensorsWatts=0 "
    "ExtSensorsTemp=n/a {reason}Comment=rack 7 State=IDLE Extra={{}} InstanceId=i-0abc"
)
NOTE = " [root@2030-01-01T10:00:00]"
AT = 1893492000.0


def line(template=SLURM_2205, *, name="node1", state="IDLE", reason="", partitions="all"):
    text = f"Reason={reason} " if reason else ""
    return template.format(state=state, reason=text, partitions=partitions).replace("node1", name, 1)


class FakeSlurm:
    """A scontrol in a directory: a script with the given body, and the calls it wrote down."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.log = directory, directory / "calls"

    def script(self, body: str) -> None:
        path = self.directory / "scontrol"
        path.write_text(
            f"#!{sys.executable}\nimport os, sys, time, subprocess\n"
            f"open({str(self.log)!r}, 'a').write(repr((sys.argv[1:], dict(os.environ))) + '\\n')\n{body}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def prints(self, text: str, *, status: int = 0, errors: str = "") -> None:
        self.script(f"sys.stdout.write({text!r}); sys.stderr.write({errors!r}); sys.exit({status})")

    def calls(self):
        return [eval(row) for row in self.log.read_text().splitlines()] if self.log.exists() else []

    def client(self, *, name="node1", timeout=10.0, environ=None):
        config = SlurmConfig(node_name=name, directory=str(self.directory), timeout=timeout)
        return Slurm(
            config, environ=environ or {}, hostname=lambda: "host-a", full_hostname=lambda: "host-a.example.org"
        )


@pytest.fixture
def fake(tmp_path):
    return FakeSlurm(tmp_path)


# ------------------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize("template", [SLURM_2205, SLURM_2311])
def test_state_reason_user_and_time_are_read_from_each_version(fake, template):
    fake.prints(line(template, state="IDLE+DRAIN", reason=REASON + NOTE) + "\n")
    view = fake.client().read_node()
    assert view.name == "node1"
    assert view.flags == {"IDLE", "DRAIN"}
    assert (view.reason, view.user, view.since) == (REASON, "root", AT)
    assert view.drained


@pytest.mark.parametrize("template", [SLURM_2205, SLURM_2311])
def test_a_node_without_a_reason_has_none(fake, template):
    fake.prints(line(template) + "\n")
    view = fake.client().read_node()
    assert (view.flags, view.reason, view.user, view.since) == ({"IDLE"}, None, None, None)


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("IDLE", {"IDLE"}),
        ("IDLE+DRAIN+REBOOT_REQUESTED", {"IDLE", "DRAIN", "REBOOT_REQUESTED"}),
        ("MIXED+CLOUD", {"MIXED", "CLOUD"}),
        ("DOWN*", {"DOWN", "NOT_RESPONDING"}),
        ("DOWN*+DRAIN", {"DOWN", "NOT_RESPONDING", "DRAIN"}),
        ("idle~", {"IDLE", "POWERED_DOWN"}),
        ("IDLE#", {"IDLE", "POWERING_UP"}),
        ("ALLOCATED@", {"ALLOCATED", "REBOOT_REQUESTED"}),
        ("IDLE^", {"IDLE", "REBOOT_ISSUED"}),
        ("IDLE$", {"IDLE", "MAINT"}),
        ("IDLE%", {"IDLE", "POWERING_DOWN"}),
        ("IDLE!", {"IDLE", "POWER_DOWN"}),
        ("IDLE-", {"IDLE", "PLANNED"}),
        ("drained*", {"IDLE", "DRAIN", "NOT_RESPONDING"}),
        ("draining", {"ALLOCATED", "DRAIN"}),
    ],
)
def test_states_are_read_as_a_set_of_words_whatever_their_form(text, flags):
    assert slurm_text.parse_flags(text) == flags


@pytest.mark.parametrize("text", ["", "+", "IDLE+", "IDLE?", "(null)", "4", "IDLE DRAIN"])
def test_a_state_of_anything_else_is_an_error(text):
    with pytest.raises(ValueError, match="not a node state"):
        slurm_text.parse_flags(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"ADMIN hardware swap{NOTE}", ("ADMIN hardware swap", "root", AT)),
        (f"x [y] z{NOTE}", ("x [y] z", "root", AT)),
        (f"{REASON}{NOTE} see ticket", (f"{REASON} see ticket", "root", AT)),
        (f"first{NOTE}        second line", ("first second line", "root", AT)),
        (f"{REASON}{NOTE} Comment=rack 7 [a@b]", (REASON, "root", AT)),
        ("no note", ("no note", None, None)),
        ("no note Comment=x", ("no note", None, None)),
        ("Not responding [slurm@Unknown]", ("Not responding", "slurm", None)),
        ("epoch [root@1893492000]", ("epoch", "root", AT)),
        (
            f"fake [admin@2020-01-01T00:00:00] more{NOTE}",
            ("fake more [root@2030-01-01T10:00:00]", "admin", 1577836800.0),
        ),
        ("", ("", None, None)),
    ],
)
def test_the_reason_field_is_taken_apart_without_losing_words_of_people(text, expected):
    assert slurm_text.parse_reason_field(text) == expected


def test_words_in_a_reason_that_look_like_fields_change_nothing(fake):
    evil = "NodeName=node2 State=IDLE Partitions=none"
    fake.prints(line(state="IDLE+DRAIN", reason=evil + NOTE) + "\n")
    view = fake.client().read_node()
    assert (view.name, view.flags, view.reason) == ("node1", {"IDLE", "DRAIN"}, evil)


@pytest.mark.parametrize("end", ["\n", "\n\n", "\r\n", "\v", "\u2028"])
def test_a_comment_of_several_lines_leaves_every_node_and_whose_its_drain_is(fake, end):
    """As Slurm prints comments (seen with 22.05): with the line ends that they were written with."""
    comment = f"rack{end}State=DOWN{end}Reason=none Partitions=x"
    of_ours = line(SLURM_2311, state="IDLE+DRAIN", reason=REASON + NOTE).replace("rack 7", comment)
    fake.prints(f"{line(name='node0')} Comment={comment}\n{of_ours}\n{line(name='node2')}\n")
    (pool,) = fake.client().read_fleet()
    assert [(view.name, view.flags, view.reason) for view in pool.nodes] == [
        ("node0", {"IDLE"}, "none Partitions=x"),
        ("node1", {"IDLE", "DRAIN"}, REASON),
        ("node2", {"IDLE"}, None),
    ]


@pytest.mark.parametrize("printed", ["garbage\n", "\n", f"State=DOWN\n{line()}\n", "NodeName=node1\n"])
def test_what_does_not_begin_with_a_node_is_an_error(fake, printed):
    fake.prints(printed)
    with pytest.raises(SchedulerError, match=r"prints (something unknown|nothing)"):
        fake.client().read_fleet()


def test_pools_are_all_partitions_with_all_their_nodes(fake):
    fake.prints(
        line(state="IDLE+DRAIN", reason=REASON + NOTE, partitions="all,gpu")
        + "\n"
        + line(name="node2", partitions="all,gpu")
        + "\n"
        + line(name="node3", partitions="all")
        + "\n"
        + line(name="spare").replace(" Partitions=all ", " ")
        + "\n"
    )
    pools = {pool.name: [view.name for view in pool.nodes] for pool in fake.client().read_pools()}
    assert pools == {"all": ["node1", "node2", "node3"], "gpu": ["node1", "node2"]}
    assert fake.client().read_pools()[1].nodes[0].reason == REASON


def test_pools_without_this_node_are_an_error(fake):
    fake.prints(line(name="node2") + "\n")
    with pytest.raises(SchedulerError, match="node1 is not there"):
        fake.client().read_pools()


# ------------------------------------------------------------------------------------------------------ writing


def test_drain_and_undrain_are_the_only_writes_and_carry_one_argument_each(fake):
    fake.prints("")
    client = fake.client()
    client.drain(REASON)
    client.undrain()
    assert [arguments for arguments, _ in fake.calls()] == [
        ["update", "NodeName=node1", "State=DRAIN", f"Reason={REASON}"],
        ["update", "NodeName=node1", "State=UNDRAIN"],
    ]


def test_scontrol_gets_a_clean_environment(fake, tmp_path):
    conf = tmp_path / "slurm.conf"
    conf.touch()
    fake.prints(line() + "\n")
    noise = {
        "SLURM_JWT": "secret",
        "SLURM_CLUSTERS": "other",
        "SLURM_TIME_FORMAT": "relative",
        "LANG": "de_DE",
        "TZ": "Asia/Tokyo",
    }
    fake.client(environ={**noise, "SLURM_CONF": str(conf)}).read_node()
    fake.client(environ={**noise, "SLURM_CONF": "/nonexistent/slurm.conf"}).read_node()
    with_conf, without = (environ for _, environ in fake.calls())
    fixed = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
    assert fixed.items() <= with_conf.items()
    assert with_conf["SLURM_CONF"] == str(conf)
    assert not {"SLURM_JWT", "SLURM_CLUSTERS", "LANG"} & set(with_conf)
    assert "SLURM_CONF" not in without


# ------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "garbage\n",
        "NodeName=node1\n",
        "NodeName=node1 State=\n",
        line(name="node2") + "\n",
        line() + "\n" + line(name="node2") + "\n",
    ],
)
def test_an_answer_that_is_not_this_node_is_an_error_and_never_a_state(fake, text):
    fake.prints(text)
    with pytest.raises(SchedulerError):
        fake.client().read_node()


@pytest.mark.parametrize(
    ("errors", "forbidden", "general"),
    [
        ("slurm_update error: Invalid user id\n", True, False),
        ("slurm_update error: Access/permission denied\n", True, False),
        ("slurm_update error: Unable to contact slurm controller (connect failure)\n", False, True),
        ("slurm_update error: Socket timed out on send/recv operation\n", False, True),
        ("slurm_load_node error: Slurm backup controller in standby mode\n", False, True),
        (
            "error: Munge decode failed: Invalid credential\nslurm_load_node: Protocol authentication error\n",
            False,
            True,
        ),
        ("slurm_update error: Invalid node state specified\n", False, False),
        ("Node node1 not found\n", False, False),
        ("", False, False),
    ],
)
def test_a_failure_says_what_scontrol_said_and_whether_it_is_forbidden_or_in_general(fake, errors, forbidden, general):
    fake.prints("", status=1, errors=errors)
    with pytest.raises(SchedulerError) as caught:
        fake.client().drain(REASON)
    assert (caught.value.forbidden, caught.value.general) == (forbidden, general)
    assert (" ".join(errors.split()) or "it said nothing") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_command_is_one_line_that_says_what_to_set(tmp_path):
    with pytest.raises(SchedulerError, match=r"scontrol cannot be run; set slurm\.directory"):
        Slurm(SlurmConfig(node_name="node1", directory=str(tmp_path)), environ={}).read_node()


def test_the_command_is_looked_up_in_absolute_directories_of_path_only(fake, tmp_path, monkeypatch):
    fake.prints(line() + "\n")
    monkeypatch.chdir(tmp_path)
    found = Slurm(SlurmConfig(node_name="node1"), environ={"PATH": f".:{tmp_path}"})
    assert found.read_node().name == "node1"
    assert found._command("scontrol") == str(tmp_path / "scontrol")


def processes_of(group: int) -> list[int]:
    """Processes of a group that still run (zombies of others' children aside)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] != "Z":
                    found.append(int(entry.name))
    return found


def wait_until_gone(group: int) -> None:
    """They are killed when the call returns; how soon the kernel takes them away is its affair."""
    deadline = time.monotonic() + 20
    while processes_of(group):
        assert time.monotonic() < deadline
        time.sleep(0.01)


HANG = """
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])
open({pids!r}, 'w').write(str(os.getpid()))
{then}
"""


@pytest.mark.parametrize(
    "then",
    [
        "time.sleep(60)",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)",
        "os.close(1); os.close(2); time.sleep(60)",
    ],
)
def test_a_command_that_hangs_is_killed_with_its_children_after_the_deadline(fake, tmp_path, monkeypatch, then):
    pids = tmp_path / "pids"
    fake.script(HANG.format(pids=str(pids), then=then))
    monkeypatch.setattr(process, "time", TimeOfAScript(pids))
    started = time.monotonic()
    with pytest.raises(SchedulerError, match=r"no answer within 0\.6 s"):
        fake.client(timeout=0.6).read_node()
    assert time.monotonic() - started < 30  # it would sleep for a minute
    group = int(pids.read_text())
    wait_until_gone(group)
    with pytest.raises(ChildProcessError):
        os.waitpid(group, os.WNOHANG)  # reaped: no zombie is left


def test_a_child_that_outlives_scontrol_and_holds_its_output_is_not_waited_for_and_killed(fake, tmp_path):
    pids = tmp_path / "pids"
    fake.script(HANG.format(pids=str(pids), then=f"sys.stdout.write({line()!r}); sys.stdout.flush()"))
    started = time.monotonic()
    assert fake.client(timeout=40).read_node().name == "node1"
    assert time.monotonic() - started < 30
    wait_until_gone(int(pids.read_text()))


def test_endless_output_is_cut_off(fake, monkeypatch):
    monkeypatch.setattr(process, "MAX_OUTPUT", 1_000_000)
    fake.script("while True: sys.stdout.write('x' * 65536)")
    with pytest.raises(SchedulerError, match="wrote more than 1000000 bytes"):
        fake.client().read_node()


def test_a_large_answer_is_read_whole(fake):
    rows = [line(name=f"node{i}") for i in range(1, 3001)]
    (fake.directory / "rows").write_text("\n".join(rows) + "\n")
    fake.script(f"sys.stdout.write(open({str(fake.directory / 'rows')!r}).read())")
    (everyone,) = fake.client().read_pools()
    assert len(everyone.nodes) == 3000


def test_bytes_that_are_no_text_are_an_error_and_no_crash(fake):
    fake.script("sys.stdout.buffer.write(bytes(range(256)))")
    with pytest.raises(SchedulerError, match="unknown"):
        fake.client().read_node()


def test_a_command_that_dies_by_a_signal_is_an_error(fake):
    fake.script("os.kill(os.getpid(), 9)")
    with pytest.raises(SchedulerError, match="status -9"):
        fake.client().read_node()


# --------------------------------------------------------------------------------------------------- node name

KNOWN = """
nodes, aliases = {nodes!r}, {aliases!r}
what, name = sys.argv[-2:]
if what == 'aliases':
    print(aliases.get(name, ''))
elif name in nodes:
    print(nodes[name])
else:
    sys.stderr.write('Node %s not found\\n' % name)
    sys.exit(1)
"""


def knows(*names, **aliases):
    return KNOWN.format(nodes={name: line(name=name) for name in names}, aliases=aliases)


def test_the_configured_name_is_taken_and_then_that_of_slurmd(fake):
    assert fake.client(name="gpu7", environ={"SLURMD_NODENAME": "other"}).node_name == "gpu7"
    assert fake.client(name="", environ={"SLURMD_NODENAME": "gpu8"}).node_name == "gpu8"
    assert fake.calls() == []


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (knows("host-a", "host-a.example.org"), "host-a"),
        (knows(**{"host-a": "node9"}), "node9"),
        (knows("host-a.example.org"), "host-a.example.org"),
        (knows(**{"host-a.example.org": "node9"}), "node9"),
    ],
)
def test_else_slurm_is_asked_once_for_the_short_and_then_the_full_host_name(fake, script, expected):
    fake.script(script)
    client = fake.client(name="")
    assert client.node_name == expected
    asked = len(fake.calls())
    assert client.node_name == expected
    assert len(fake.calls()) == asked


@pytest.mark.parametrize("script", [knows(), knows("other"), knows(**{"host-a": "node1 node2"})])
def test_no_name_and_two_names_turn_actions_off(fake, script):
    fake.script(script)
    with pytest.raises(NodeNameError, match=r"set slurm\.node_name") as caught:
        fake.client(name="").read_node()
    assert caught.value.unnamed


def test_a_controller_that_does_not_answer_says_nothing_about_the_name(fake):
    fake.prints("", status=1, errors="slurm_load_node error: Unable to contact slurm controller (connect failure)")
    client = fake.client(name="")
    with pytest.raises(SchedulerError) as caught:
        client.read_node()
    assert not isinstance(caught.value, NodeNameError)
    fake.script(knows("node9", **{"host-a": "node9"}))
    assert client.read_node().name == "node9"


@pytest.mark.parametrize("name", ["node[1-4]", "node1,node2", "ALL nodes", "node1 State=DOWN", ""])
def test_a_name_that_could_mean_several_nodes_is_refused(fake, name):
    fake.prints("")
    with pytest.raises(NodeNameError):
        fake.client(name=name, environ={"SLURMD_NODENAME": name or "a,b"}).drain(REASON)
    assert fake.calls() == []


def test_the_host_name_is_the_machines_own_by_default():
    client = Slurm(SlurmConfig())
    assert (client._name._hostname, client._name._full_hostname) == (socket.gethostname, socket.getfqdn)
