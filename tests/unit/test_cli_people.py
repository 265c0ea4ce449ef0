"""`ibmon clear` and `ibmon inventory` against a daemon on a simulated node: what a person asks, sees and pastes."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.request

import pytest
from livenode import small, until

from ibmon.cli import main
from ibmon.cli.verdictfile import FILE
from ibmon.configfile import loads
from ibmon.controlclient import SOCKET
from ibmon.eventlog import read_events
from ibmon.health.facts import GBPS
from ibmon.health.inventory import matches
from ibmon.inventorytext import entry, rows, table, toml
from ibmon.memory import load_memory
from ibmon.ports import StoreError
from ibmon.recording import Frame
from ibmon.runtime.live import Daemon
from ibmon.simulate.directory import DirectoryTree
from ibmon.simulate.tree import ACTIVE, DOWN, LINK_UP, POLLING, Pci, Port, device
from ibmon.store import FILE_NAME, Store

TWO = Pci(address="0000:5a:00.0", above="pci0000:59/0000:59:01.0")


class Node:
    """A daemon in this process, on a node with four cards of one port and one card of two."""

    def __init__(self, directory):
        self.directory = directory
        self.sys = DirectoryTree(directory / "sys")
        tree = small() | device("mlx5_4", ports=(Port(), Port(number=2, state=DOWN)), pci=TWO, index=4)
        self.sys.apply(tree.frame(0))
        for name in ("state", "run"):
            (directory / name).mkdir()
        self.file = directory / "c.toml"
        self.file.write_text(
            '[node]\nname = "gpu-17"\n[action]\nboot_grace = "0s"\n'
            '[sampling]\nstate_interval = "100ms"\n[rules.port-down]\nalert_hold = "0s"\nhold = "0s"\n'
            f'[exporter]\nlisten = "127.0.0.1:0"\n'
            f'[state]\ndirectory = "{directory}/state"\nruntime_directory = "{directory}/run"\n'
        )
        self.daemon = Daemon(loads(self.file.read_text()), directory / "sys")

    def __enter__(self):
        self.daemon.start()
        self.thread = threading.Thread(target=self.daemon.loop)
        self.thread.start()
        try:
            self.verdict(lambda d: sum(p["expected"] for p in d["ports"]) == 5)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.daemon.stop()
        self.thread.join()
        self.daemon.close()

    def verdict(self, condition=lambda _: True):
        """The first status document of which the condition is true."""

        def look():
            with contextlib.suppress(FileNotFoundError):
                document = json.loads((self.directory / "run" / FILE).read_text())
                return document if condition(document) else None

        return until(look)

    def port(self, device, number=1):
        return next(p for p in self.verdict()["ports"] if (p["device"], p["port"]) == (device, number))

    def link(self, device, state, physical):
        place = f"class/infiniband/{device}/ports/1"
        self.sys.apply(Frame(t=1, files={f"{place}/state": state, f"{place}/phys_state": physical}))


@pytest.fixture
def node(tmp_path):
    with Node(tmp_path) as node:
        yield node


@pytest.fixture
def ibmon(tmp_path, capsys):
    """Runs a command line with the node's configuration: exit code, standard output, standard error."""

    def call(*words):
        code = main([*words, "--config", str(tmp_path / "c.toml")])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_person_sees_accepts_forgets_and_learns_anew(node, ibmon):
    code, out, err = ibmon("inventory", "show")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "gpu-17: mode learn, trust accepted"
    assert lines[1].split() == ["SLOT", "PORT", "ROLE", "RATE", "INVENTORY", "PRESENT"]
    assert lines[2].split() == ["0000:18:00.0/1", "mlx5_0/1", "compute", "400", "Gb/s", "learned", "yes"]
    assert lines[7].split() == ["0000:5a:00.0/2", "mlx5_4/2", "compute", "-", "-", "yes"]
    assert "'ibmon inventory accept' makes them drain-capable" in lines[-1]

    assert ibmon("inventory", "accept", "mlx5_0", "mlx5_1/1") == (0, "accepted mlx5_0/1, mlx5_1/1\n", "")
    shown = json.loads(ibmon("inventory", "show", "--json")[1])
    assert [row["inventory"] for row in shown["ports"]] == [
        "accepted",
        "accepted",
        "learned",
        "learned",
        "learned",
        None,
    ]

    code, out, _ = ibmon("inventory", "forget", "mlx5_0/1", "--json")
    assert (code, json.loads(out)) == (0, {"done": True, "text": "forgot mlx5_0/1"})
    assert "INVENTORY" in ibmon("inventory", "show", "mlx5_0")[1]
    until(lambda: node.port("mlx5_0")["expected"])  # it is ACTIVE, so it is learned again
    assert not node.port("mlx5_0")["trusted"]

    assert ibmon("inventory", "learn") == (0, "learning 4 ports anew; accepted ones stay\n", "")


def test_what_was_answered_is_in_the_verdict_and_outlives_a_kill(node, ibmon):
    ibmon("inventory", "accept", "mlx5_2")
    assert node.port("mlx5_2")["trusted"]
    with contextlib.closing(Store(node.directory / "state", node="gpu-17")) as store:
        stored = load_memory(store.load())
    assert {slot for slot, known in stored.ports.items() if known.learned.accepted} == {node.port("mlx5_2")["slot"]}


def test_what_cannot_be_saved_is_done_and_said_to_be_forgotten_by_a_restart(node, ibmon, monkeypatch):
    def full(store, state):
        raise StoreError("no space left")

    monkeypatch.setattr("ibmon.store.Store.save", full)
    text = "accepted mlx5_2/1; not saved, so a restart forgets it: no space left\n"
    assert ibmon("inventory", "accept", "mlx5_2") == (0, text, "")
    assert node.port("mlx5_2")["trusted"]
    monkeypatch.undo()
    assert ibmon("inventory", "accept", "mlx5_2") == (0, "accepted mlx5_2/1\n", "")


def test_the_events_that_are_served_are_the_stored_ones_also_after_a_restart(node, ibmon):
    def served():
        with urllib.request.urlopen(f"{node.daemon.server.url}api/v1/events?limit=1000") as answer:
            return [(row["seq"], row["event"]) for row in json.load(answer)["events"]]

    def stored():
        return [(row.seq, row.event) for row in read_events(node.directory / "state" / FILE_NAME, limit=1000)]

    until(lambda: served() == stored())
    before = stored()
    node.__exit__()
    node.daemon = Daemon(loads(node.file.read_text()), node.directory / "sys")
    node.__enter__()
    ibmon("inventory", "learn")
    until(lambda: served() == stored())
    now = stored()
    assert now[: len(before)] == before
    assert [number for number, _ in now] == list(range(1, len(now) + 1))
    assert "person-learn" in {event for _, event in now[len(before) :]}


def test_clearing_ends_a_finding_and_is_history(node, ibmon):
    node.link("mlx5_3", DOWN, POLLING)
    node.verdict(lambda d: any(f["severity"] == "critical" for f in d["findings"]))
    node.link("mlx5_3", ACTIVE, LINK_UP)
    node.verdict(lambda d: any(f["recovering"] for f in d["findings"]))

    code, out, err = ibmon("clear", "mlx5_3/1", "--rule", "port-down", "--reason", "new cable")
    assert (code, err) == (0, "")
    assert out.startswith("cleared 1 finding on 1 port")
    assert node.verdict()["findings"] == []
    node.verdict(lambda d: d["fitness"] == "fit")
    events = [json.loads(line) for line in ibmon("events", "--json")[1].splitlines()]
    assert [e["fields"]["done"] for e in events if e["event"] == "person-clear"] == [True]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["clear", "mlx5_77"], "no such port or device: mlx5_77"),
        (["clear", "--rule", "port-dwon"], "there is no rule port-dwon; did you mean port-down?"),
        (["inventory", "accept", "mlx5_77/1"], "no such port or device: mlx5_77/1"),
        (["inventory", "accept", "mlx5_4/2"], "mlx5_4/2 was never ACTIVE here"),
        (["inventory", "forget"], "name the ports to forget"),
        (["inventory", "show", "mlx5_77"], "no such port or device: mlx5_77; 'ibmon inventory show' lists them"),
        (["inventory", "export", "mlx5_77"], "no such port or device: mlx5_77"),
        (["inventory", "export", "mlx5_4/2"], "no port is expected here"),
        (["clear", "x" * 200], "this is no request"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_1(node, ibmon, words, line):
    code, out, err = ibmon(*words)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert line in err


@pytest.mark.parametrize("by", ["name", "pci", "guid"])
def test_what_is_exported_loads_and_means_the_same_ports(node, ibmon, by):
    code, out, err = ibmon("inventory", "export", "--by", by)
    assert (code, err) == (0, "")
    entries = loads(out).config.port
    expected = [row for row in node.daemon.snapshot.ports if row.expected]
    devices = {view.device.name: view.device for view in node.daemon.snapshot.devices}
    assert len(entries) == len(expected) == 5
    for own, row in zip(entries, expected, strict=True):
        (port,) = [p for p in devices[row.id.device].ports if p.id == row.id]
        meant = [e for e in entries if matches(e, devices[row.id.device], port)]
        assert meant == [own]
        assert own.match.startswith({"name": "mlx5_", "pci": "pci:", "guid": "guid:"}[by])
        assert (own.role, own.rate * GBPS, own.rail) == (row.role, row.expected_rate, row.rail)


def test_an_export_as_json_has_the_same_tables(node, ibmon):
    tables = json.loads(ibmon("inventory", "export", "--json", "mlx5_1")[1])
    assert tables == {"port": [{"match": "mlx5_1/1", "role": "compute", "rate": 400, "rail": 1}]}


@pytest.mark.parametrize("words", [["clear"], ["inventory", "accept"], ["inventory", "learn"], ["inventory", "show"]])
def test_without_a_daemon_exit_code_1_says_so(tmp_path, ibmon, words):
    (tmp_path / "c.toml").write_text(f'[state]\nruntime_directory = "{tmp_path}/run"\n')
    code, out, err = ibmon(*words)
    assert (code, out) == (1, "")
    assert err.startswith("ibmon: no daemon runs here")


def test_the_socket_goes_with_the_daemon(tmp_path):
    with Node(tmp_path):
        assert (tmp_path / "run" / SOCKET).is_socket()
    assert not (tmp_path / "run" / SOCKET).exists()


# ------------------------------------------------------------------------------------- the two texts


def port(**changed):
    usual = {
        "device": "mlx5_0", "port": 1, "slot": "0000:1a:00.0/1", "role": "compute", "rail": 0, "expected": True,
        "declared": False, "trusted": False, "expected_rate": 400 * GBPS, "present": True,
    }  # fmt: skip
    return {**usual, **changed}


@pytest.mark.parametrize(
    ("changed", "trusting", "word"),
    [
        ({}, False, "learned"),
        ({"trusted": True}, False, "accepted"),
        ({"trusted": True}, True, "learned"),
        ({"trusted": True, "declared": True}, False, "declared"),
        ({"expected": False}, False, None),
        ({"expected": False, "declared": True, "role": "ignored"}, False, None),
    ],
)
def test_the_table_tells_where_an_expectation_comes_from(changed, trusting, word):
    (row,) = rows([port(**changed)], trusting=trusting)
    assert row.inventory == word


def test_an_expected_port_that_is_not_there_is_missing():
    shown = table(rows([port(present=False), port(present=False, expected=False)], trusting=False), whole=True)
    assert [line.split()[-1] for line in shown.splitlines()[1:3]] == ["missing", "no"]


def test_ignored_ports_are_counted_unless_named():
    found = rows([port(), port(device="vf", role="ignored", expected=False)], trusting=False)
    assert "(1 ignored port not shown; name a port to see it)" in table(found, whole=False)
    assert "vf/1" in table(found, whole=True)


@pytest.mark.parametrize(
    ("changed", "by", "guid", "match"),
    [
        ({}, "pci", None, "pci:0000:1a:00.0"),
        ({"port": 2, "slot": "0000:1a:00.0/2"}, "pci", None, "pci:0000:1a:00.0/2"),
        ({"slot": "rxe0/1", "device": "rxe0"}, "pci", None, "rxe0/1"),
        ({}, "guid", "a088:c203:0012:3456", "guid:a088:c203:0012:3456"),
        ({"port": 2}, "guid", "a088:c203:0012:3456", "guid:a088:c203:0012:3456/2"),
        ({}, "guid", "0000:0000:0000:0000", "mlx5_0/1"),
        ({}, "guid", None, "mlx5_0/1"),
        ({"device": "guid:a088:c203:0012:3456", "present": False}, "name", None, "guid:a088:c203:0012:3456/1"),
        ({"device": "pci:0000:1a:00.0", "present": False}, "guid", None, "pci:0000:1a:00.0/1"),
    ],
)
def test_a_port_is_called_as_asked_where_it_can_be(changed, by, guid, match):
    found = entry(port(**changed), by, guid)
    assert found["match"] == match
    assert loads(toml([found], [port(**changed)])).config.port[0].match == match


@pytest.mark.parametrize("rate", [400.0, 2.5, 25.78125, 14.0625, 53.125])
def test_a_rate_is_the_same_after_export_and_load(rate):
    exact = round(rate * GBPS)
    text = toml([entry(port(expected_rate=exact), "name", None)], [port()])
    assert round(loads(text).config.port[0].rate * GBPS) == exact


def test_what_is_not_known_is_left_out():
    found = entry(port(expected_rate=None, rail=None, role="storage"), "name", None)
    assert found == {"match": "mlx5_0/1", "role": "storage"}


@pytest.mark.parametrize("name", ["a b", 'q"x', "br[1]", "st*r", "back\\slash", "esc\x1b[31m"])
@pytest.mark.parametrize("by", ["name", "pci", "guid"])
def test_a_name_that_no_pattern_can_mean_is_told_by_its_slot(name, by):
    odd = port(device=name)
    text = toml([entry(odd, by, None)], [odd])
    assert loads(text).config.port[0].match == "pci:0000:1a:00.0"
    assert "\x1b" not in text + table(rows([odd], trusting=False), whole=True)


@pytest.mark.parametrize("name", ['q"x', "back\\slash"])
def test_without_a_slot_it_is_told_as_well_as_it_can_be(name):
    odd = port(device=name, slot=f"{name}/1")
    assert loads(toml([entry(odd, "name", None)], [odd])).config.port[0].match == f"{name}/1"
