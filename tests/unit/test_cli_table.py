"""The status table: one row a port, what is wrong at a glance, whole at 80 columns."""

import io

import pytest
from rich.console import Console
from status_documents import FINDING, GBPS, device, document, drain, port

from ibmon.cli.table import WIDE, of_snapshot, render, show, text


def row(**changes):
    (found,) = [line for line in text(document(ports=[port(**changes)])).splitlines() if line.startswith("mlx5_0/1")]
    return found.split()


def test_a_good_port_is_one_row():
    assert row() == ["mlx5_0/1", "compute", "ACTIVE", "400/400", "gen5", "x16", "ib0", "ok"]


@pytest.mark.parametrize(
    ("changes", "column", "want"),
    [
        ({"state": "DOWN", "physical_state": "Polling"}, 2, "DOWN/Polling"),
        ({"state": "INIT", "physical_state": "LinkUp"}, 2, "INIT/LinkUp"),
        ({"state": None}, 2, "?"),
        ({"present": False}, 2, "missing"),
        ({"rate": 200 * GBPS}, 3, "200/400"),
        ({"rate": None}, 3, "?/400"),
        ({"expected_rate": None}, 3, "400"),
        ({"rate": GBPS * 5 // 2, "expected_rate": None}, 3, "2.5"),
        ({"role": "management"}, 1, "mgmt"),
        ({"netdev": None}, 6, "-"),
        ({"health": "failed"}, 7, "failed"),
    ],
)
def test_a_port_says(changes, column, want):
    assert row(**changes)[column] == want


@pytest.mark.parametrize(
    ("pci", "want"),
    [
        ({"speed": 16_000_000_000, "width": 8}, "gen4 x8 of gen5 x16"),
        ({"speed": None, "width": None}, "  -  "),
        ({"speed": None, "width": 8}, "? x8 of gen5 x16"),
        ({"expected_speed": None, "expected_width": None}, "gen5 x16  ib0"),
        ({"speed": 3_000_000_000, "expected_speed": None}, "3GT/s x16"),
    ],
)
def test_the_pcie_link_is_told_with_what_it_could_be(pci, want):
    assert want in text(document(devices=[device(pci=pci)]))


def test_a_device_without_pci_or_that_is_absent_has_no_link():
    for devices in ([{**device(), "pci": None}], []):
        assert "  400/400  -     ib0     ok\n" in text(document(devices=devices))


def test_a_device_that_hangs_is_named():
    out = text(document(devices=[device(stalled=True)]))
    assert "stalled" in out
    assert "reads do not come back from mlx5_0" in out


def test_no_device_and_no_sight_are_told_apart():
    assert "no RDMA device" in text(document(ports=[], devices=[]))
    assert "cannot be read: EACCES" in text(document(ports=[], devices=[], up=False, listing_errno="EACCES"))


def test_findings_stand_below_the_ports():
    assert "critical  port-down mlx5_0/1  DOWN/Polling 62s>60s" in text(document(findings=[FINDING]))
    assert "port-down mlx5_0  D" in text(document(findings=[{**FINDING, "port": 0}]))
    assert "port-down node  D" in text(document(findings=[{**FINDING, "port": 0, "device": ""}]))
    assert "recovering" in text(document(findings=[{**FINDING, "recovering": True}]))


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"wanted": True, "active": True, "owned": {"reason": "ibmon: x [id 1]"}}, "drained by ibmon: ibmon: x [id 1]"),
        ({"wanted": True, "blocked": "limit_nodes", "reason": "r"}, "drain wanted, withheld: limit nodes: r"),
        ({"wanted": True, "reason": "r"}, "drain wanted: r"),
        ({"overridden": True}, "an operator resumed this node"),
        ({"orphaned": True}, "no record of"),
    ],
)
def test_the_drain_is_told(changes, want):
    assert want in text(document(drain=drain(**changes)))


def test_what_is_wrong_stands_above_what_has_moved():
    """A terminal of 24 lines has room for no more than one of them."""
    moved = [{"port": 1, "counter": "symbol_error", "rise": 12}]
    lines = text(document(ports=[port(moved=moved)], findings=[FINDING]), 80).splitlines()
    assert lines.index("critical  port-down mlx5_0/1  DOWN/Polling 62s>60s") < lines.index("moved in an hour")


@pytest.mark.parametrize("width", [60, 80, WIDE, 160])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_lost(width):
    moved = [{"port": 1, "counter": "symbol_error", "rise": 12}, {"port": 1, "counter": "link_downed", "rise": 1}]
    ports = [port(n, moved=moved if n == 3 else [], state="DOWN", physical_state="Polling") for n in range(12)]
    out = text(document(ports=ports, devices=[device(n) for n in range(12)], findings=[FINDING]), width)
    assert max(map(len, out.splitlines())) <= width
    for n in range(12):
        assert f"mlx5_{n}/1" in out
    assert "symbol_error +12" in out
    assert "\x1b" not in out


def test_at_80_columns_a_row_stays_a_line():
    ports = [port(n, state="DOWN", physical_state="Polling", role="management", health="recovering") for n in range(3)]
    lines = text(document(ports=ports, devices=[device(n) for n in range(3)]), 80).splitlines()
    rows = [line for line in lines if line.startswith("mlx5_")]
    assert [line.rstrip().endswith("recovering") for line in rows] == [True] * 3


def test_colour_is_for_terminals_that_want_it(monkeypatch):
    def shown(**kwargs):
        console = Console(file=io.StringIO(), width=100, highlight=False, **kwargs)
        show(document(fitness="unfit"), console)
        return console.file.getvalue()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31m" in shown(force_terminal=True)
    assert "\x1b" not in shown(force_terminal=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in shown(force_terminal=True)


def test_one_look_does_not_speak_of_who_acts():
    console = Console(file=io.StringIO(), width=100, highlight=False)
    show(document(actions_enabled=False), console, from_daemon=False)
    out = console.file.getvalue()
    assert "one look, without history" in out
    assert "another daemon" not in out
    assert "another daemon acts" in text(document(actions_enabled=False))


def test_names_and_reasons_cannot_steer_the_terminal():
    out = text(document(node="a\x1b[2J", why="b\x07\u202e", ports=[port(netdev="\x9b1m")]))
    assert "a?[2J is fit: b??" in out
    assert "?1m" in out


def test_marks_of_rich_in_names_are_only_text():
    assert "[bold]x[/bold]" in text(document(node="[bold]x[/bold]"))


def test_the_real_document_has_all_that_the_table_asks_for():
    from ibmon.model import Intent, Mode, NodeFitness, Now, PortHealth, PortId, Role
    from ibmon.snapshot import DrainView, PortView, Snapshot

    snapshot = Snapshot(
        sequence=1, at=Now(1, 1), node="n", boot_id="b", mode=Mode.OBSERVE, fitness=NodeFitness.FIT, up=True,
        listing_errno=None, devices=(), devices_expected=0, findings=(), drain=DrainView(Intent(False)),
        ports=(PortView(PortId("mlx5_0", 1), Role.COMPUTE, PortHealth.OK),),
    )  # fmt: skip
    console = Console(file=io.StringIO(), width=100)
    console.print(of_snapshot(snapshot, 100))
    assert "mlx5_0/1" in console.file.getvalue()
    assert render(document(), 80)
