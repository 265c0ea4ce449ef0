"""`ibmon top` in a real terminal: tmux types, resizes and reads the screen."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from services.daemon import Daemon
from services.node import NodeTree
from services.processes import wait_for
from services.tmux import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> NodeTree:
    return NodeTree(tmp_path_factory.mktemp("node") / "sys")


@pytest.fixture(scope="module")
def daemon(tree: NodeTree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tree, tmp_path_factory.mktemp("daemon") / "ibmon", env=os.environ) as running:
        yield running


@pytest.fixture
def terminal(daemon: Daemon) -> Iterator[Terminal]:
    with Terminal(80, 24, env=daemon.env) as terminal:
        terminal.run(["stty", "-a"])
        terminal.wait("icanon")
        terminal.run(["clear"])
        terminal.run(daemon.argv("top"))
        terminal.wait("q quit")
        yield terminal


def ports(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line.startswith("mlx5_")]


def ended(terminal: Terminal) -> None:
    """The shell is back, with the screen as it was and the modes it had."""
    wait_for(lambda: not terminal.alternate, within=5, what="the old screen")
    terminal.run(["sh", "-c", "stty -a; echo code:$?"])
    lines = terminal.wait("code:0")
    assert any(" icanon" in line for line in lines)
    assert any(" echo " in line for line in lines)


def test_it_shows_the_node_live_sorts_by_keys_and_gives_the_terminal_back(terminal: Terminal, tree: NodeTree) -> None:
    assert terminal.alternate
    lines = terminal.wait("node1 is fit")
    assert ports(lines) == [f"mlx5_{n}/1" for n in range(4)]

    def carries() -> bool:
        tree.carry("mlx5_2", 25)
        row = next(line for line in terminal.lines if line.startswith("mlx5_2/1"))
        return row.split()[4] not in {"-", "0"}

    wait_for(carries, within=15, what="throughput", every=0.5)
    terminal.press("i")
    assert ports(terminal.wait("IN▼"))[0] == "mlx5_2/1"
    terminal.press("r")
    assert ports(terminal.wait("IN▲"))[-1] == "mlx5_2/1"

    tree.link_down("mlx5_3")
    try:
        terminal.press("r", "h")
        terminal.wait("is unfit: port-down mlx5_3/1")
        assert ports(terminal.wait("HEALTH▼"))[0] == "mlx5_3/1"
    finally:
        tree.link_up("mlx5_3")
    terminal.press("q")
    ended(terminal)


def test_it_fits_every_size_that_the_terminal_gets(terminal: Terminal) -> None:
    terminal.resize(130, 40)
    terminal.wait("MOVED IN AN HOUR")
    assert len(terminal.lines) == 40
    terminal.resize(60, 15)

    def narrow() -> bool:
        lines = terminal.lines
        return len(ports(lines)) == 4 and lines[-1].startswith("q quit") and "GB/S" not in "".join(lines)

    wait_for(narrow, within=5, what="the narrow table with all ports")


def test_ctrl_c_ends_it_cleanly(terminal: Terminal) -> None:
    terminal.press("C-c")
    ended(terminal)
    assert "Traceback" not in "".join(terminal.lines)


def test_ctrl_z_gives_the_terminal_back_and_it_goes_on_later(terminal: Terminal) -> None:
    terminal.press("C-z")
    wait_for(lambda: not terminal.alternate, within=5, what="the shell")
    terminal.run(["fg"])
    wait_for(lambda: terminal.alternate, within=5, what="top again")
    terminal.wait("q quit")
    terminal.press("q")
    ended(terminal)


def test_a_daemon_that_ends_is_told_beside_its_last_word(
    tree: NodeTree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("other") / "ibmon"
    with Daemon(tree, directory, env=os.environ) as daemon, Terminal(80, 24, env=daemon.env) as terminal:
        terminal.run(daemon.argv("top"))
        terminal.wait("node1 is fit")
        daemon.process.kill()
        (directory / "run/verdict.json").unlink()
        lines = terminal.wait("no daemon runs here")
        assert len(ports(lines)) == 4
