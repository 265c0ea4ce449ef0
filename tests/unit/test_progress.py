"""The bar of what takes its time: on a terminal, after a second, and gone at the end."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import pytest

from ibmon.cli.progress import PATIENCE, progress


class Terminal(io.StringIO):
    """A stderr that is one."""

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def colours(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")


def run(stderr, *moments, total=100.0):
    """Tell at these times (seconds) that so much is done; returns what was written."""
    now = [0.0]
    with redirect_stderr(stderr), progress("replaying", total, lambda: now[0]) as done:
        for at, amount in moments:
            now[0] = at
            done(amount)
    return stderr.getvalue()


def test_a_bar_shows_how_far_it_is_and_is_taken_away():
    out = run(Terminal(), (PATIENCE, 25.0), (PATIENCE + 1, 50.0))
    assert "replaying" in out
    assert out.endswith("\x1b[2K")


def test_what_is_done_within_a_second_shows_nothing():
    assert run(Terminal(), (0.0, 0.0), (PATIENCE - 0.1, 100.0)) == ""


def test_an_end_that_nobody_knows_is_no_obstacle():
    assert "replaying" in run(Terminal(), (PATIENCE, 25.0), total=None)


def test_where_there_is_no_terminal_nothing_is_written():
    assert run(io.StringIO(), (PATIENCE, 25.0), (10.0, 50.0)) == ""
