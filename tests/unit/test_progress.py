"""The bar of what takes its time: on a terminal, after a second, and gone at the end."""

from __future__ import annotations

import io
import re

import pytest

from ibmon.cli.progress import PATIENCE, progress


class Terminal(io.StringIO):
    """A stderr that is one."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    found = Terminal()
    monkeypatch.setattr("sys.stderr", found)
    monkeypatch.setenv("TERM", "xterm-256color")
    return found


def run(*moments, total=100.0):
    """Tell at these times (seconds) that so much is done."""
    now = [0.0]
    with progress("replaying", total, lambda: now[0]) as done:
        for at, amount in moments:
            now[0] = at
            done(amount)


def test_a_bar_shows_how_far_it_is_and_is_taken_away(terminal):
    run((PATIENCE, 25.0), (PATIENCE + 1, 50.0))
    out = terminal.getvalue()
    assert "replaying" in out
    assert re.search(r"\x1b\[2K", out), "the line is cleared at the end"


def test_what_is_done_within_a_second_shows_nothing(terminal):
    run((0.0, 0.0), (PATIENCE - 0.1, 100.0))
    assert terminal.getvalue() == ""


def test_an_end_that_nobody_knows_is_no_obstacle(terminal):
    run((PATIENCE, 25.0), total=None)
    assert "replaying" in terminal.getvalue()


def test_where_there_is_no_terminal_nothing_is_written(monkeypatch):
    monkeypatch.setattr("sys.stderr", found := io.StringIO())
    run((PATIENCE, 25.0), (10.0, 50.0))
    assert found.getvalue() == ""
