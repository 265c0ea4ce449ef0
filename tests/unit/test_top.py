"""`ibmon top`: what it shows, in which order, and that a frame sends only what changed."""

from __future__ import annotations

import re

import pytest
from exporter_snapshots import bad
from status_documents import FINDING, GBPS, device, document, drain, port

from ibmon.cli import main
from ibmon.cli.screen import changes, keys
from ibmon.cli.top import _press
from ibmon.cli.topview import POINTS, SORTS, Look, Traffic, frame, ordered
from ibmon.exporter.status import status_document


def sums(at, gigabits_in=0.0, gigabits_out=0.0, errors=0):
    """Sums of a port that carried so much since time 0."""
    return {
        "at": at,
        "rcv_bytes": int(gigabits_in * GBPS * at),
        "xmit_bytes": int(gigabits_out * GBPS * at),
        "errors": errors,
    }


def node(*ports, **changes):
    return document(ports=list(ports), devices=[device(n) for n in range(12)], **changes)


def seen(*documents):
    traffic = Traffic()
    for one in documents:
        traffic.take(one)
    return traffic


def busy(at, *rates, **changes):
    """Ports that have carried so many Gb/s each, in and twice that out."""
    return node(*(port(n, totals=sums(at, rate, 2 * rate)) for n, rate in enumerate(rates)), **changes)


def plain(lines):
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]


def shown(one, traffic=None, **look):
    return plain(frame(one, traffic or Traffic(), Look(**look)))


def names(one, traffic, **look):
    return [f"{p['device']}" for p in ordered(one, traffic, Look(**look))]


def test_rates_come_from_two_reads():
    traffic = seen(busy(10, 100), busy(20, 100))
    assert shown(busy(20, 100), traffic)[3].split()[:6] == ["mlx5_0/1", "ok", "ACTIVE", "400/400", "100", "200"]


def test_one_read_gives_no_rate_and_the_same_read_twice_neither():
    assert shown(busy(10, 100), seen(busy(10, 100), busy(10, 100)))[3].split()[4:6] == ["-", "-"]


@pytest.mark.parametrize(
    "gone",
    [{"totals": None}, {"totals": {"at": 20, "rcv_bytes": None, "xmit_bytes": 0, "errors": None}}, {}],
    ids=["not-read", "unreadable", "older-daemon"],
)
def test_what_is_not_known_is_no_zero(gone):
    one = node({**port(), **gone})
    assert shown(one, seen(busy(10, 100), one))[3].split()[4] == "-"


def test_a_counter_that_was_reset_gives_no_rate():
    traffic = seen(busy(10, 100), node(port(totals=sums(20, 1))))
    assert traffic.now("mlx5_0/1").inward is None


def test_a_daemon_of_another_boot_begins_anew():
    traffic = seen(busy(100, 50), busy(110, 50), busy(5, 50))
    assert list(traffic.points("mlx5_0/1")) == []


def test_the_history_of_a_port_has_an_end():
    traffic = seen(*(busy(at, 1) for at in range(1, 100)))
    assert len(traffic.points("mlx5_0/1")) == POINTS


@pytest.mark.parametrize(
    ("sort", "reverse", "order"),
    [
        ("p", False, [0, 1, 2]),
        ("p", True, [2, 1, 0]),
        ("h", False, [2, 1, 0]),
        ("i", False, [1, 0, 2]),
        ("o", True, [2, 0, 1]),
        ("e", False, [2, 0, 1]),
    ],
)
def test_the_worst_and_the_most_come_first(sort, reverse, order):
    def at(t):
        moved = [{"port": 1, "counter": "symbol_error", "rise": 9}]
        rows = zip((50, 90, 10), ("ok", "warning", "failed"), ([], [], moved), strict=True)
        return node(*(port(n, totals=sums(t, r, r), health=h, moved=m) for n, (r, h, m) in enumerate(rows)))

    assert names(at(20), seen(at(10), at(20)), sort=sort, reverse=reverse) == [f"mlx5_{n}" for n in order]


def test_ignored_ports_are_shown_when_asked_for():
    one = node(port(0), port(1, role="ignored", expected=False), port(2, role="ignored"))
    assert names(one, Traffic()) == ["mlx5_0", "mlx5_2"]
    assert names(one, Traffic(), everything=True) == ["mlx5_0", "mlx5_1", "mlx5_2"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (60, 15), (40, 8), (20, 4)])
def test_a_frame_is_as_large_as_the_terminal(width, height):
    one = busy(20, *range(12), findings=[FINDING] * 9, drain=drain(wanted=True, reason="r" * 300), why="w" * 300)
    lines = shown(one, seen(busy(10, *range(12)), one), width=width, height=height)
    assert len(lines) == height
    assert max(map(len, lines)) <= width


def test_findings_and_drain_are_seen_beside_as_many_ports_as_fit():
    one = busy(20, *range(40), findings=[FINDING], drain=drain(wanted=True, reason="because"))
    lines = shown(one, height=15)
    assert "port-down mlx5_0/1" in lines[-2]
    assert "because" in lines[-3]
    assert sum(line.startswith("mlx5_") for line in lines) == 8
    assert "1-8 of 40" in lines[-1]


def test_what_does_not_fit_is_counted():
    lines = shown(busy(20, 1, findings=[FINDING] * 30), height=15)
    assert sum("port-down" in line for line in lines) + int(re.search(r"and (\d+) more", "\n".join(lines))[1]) == 30


def test_scrolling_ends_at_the_last_port():
    look = Look(height=15, scroll=1000)
    lines = plain(frame(busy(20, *range(40)), Traffic(), look))
    assert any(line.startswith("mlx5_39/1") for line in lines)
    for _ in range(3):
        _press("up", look)
    assert any(line.startswith("mlx5_36/1") for line in plain(frame(busy(20, *range(40)), Traffic(), look)))


def test_a_daemon_that_says_nothing_is_told_with_its_last_word_and_without():
    assert shown(None, note="no daemon runs here")[0] == "no daemon runs here"
    lines = shown(busy(1, 1), note="the daemon has said nothing for more than 60 s")
    assert "has said nothing" in lines[1]
    assert "as of" not in lines[1]
    assert lines[3].startswith("mlx5_0/1")


def test_the_real_document_has_all_that_is_shown():
    lines = shown(status_document(bad()), width=160)
    assert lines[0].startswith("node1 is unfit: port-down")
    assert any("missing" in line for line in lines)


def test_colours_go_where_nobody_wants_them(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[1;31m" in frame(busy(1, 1, fitness="unfit"), Traffic(), Look())[0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in "".join(frame(busy(1, 1, fitness="unfit"), Traffic(), Look()))


def test_each_key_that_sorts_is_in_the_foot_and_a_key_without_meaning_changes_nothing():
    look = Look(width=200)
    for key, name in SORTS.items():
        _press(key, look)
        assert look.sort == key
        assert f"{key} {name}" in shown(busy(1, 1), width=200)[-1]
    before = Look(**vars(look))
    for key in ("x", "", "resize", "é"):
        _press(key, look)
    assert look == before


# ------------------------------------------------------------------------------------------------ the terminal


def test_a_frame_sends_only_the_lines_that_changed():
    assert changes(["a", "b", "c"], ["a", "B", "c"]) == "\x1b[2;1HB\x1b[0m\x1b[K"
    assert changes(["a", "b"], ["a", "b"]) == ""
    assert changes(["a", "b"], ["a"]) == "\x1b[2;1H\x1b[0m\x1b[K"
    assert changes(None, ["a", "b"]) == "\x1b[H\x1b[2Ja\r\nb"


def test_a_quiet_second_takes_less_than_200_bytes():
    one, traffic = busy(20, *range(12)), seen(busy(10, *range(12)), busy(20, *range(12)))
    before, after = (frame(one, traffic, Look(age=age)) for age in (1.0, 2.0))
    assert 0 < len(changes(before, after).encode()) < 200


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ("q", ["q"]), ("ph", ["p", "h"]), ("\x1b[A\x1b[B", ["up", "down"]), ("\x1bOB", ["down"]), ("\x1b", ["\x1b"]),
        ("j\x1b[5~", ["j", "pageup"]), ("\x1b[99;5u", [""]), ("", []),
    ],
)  # fmt: skip
def test_keys_are_told_apart(data, wanted):
    assert list(keys(data)) == wanted


def test_without_a_terminal_it_says_what_to_do_instead(capsys):
    assert main(["top"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert (
        err == "ibmon: top needs a terminal; 'ibmon status' prints the same once, 'ibmon status --json' for programs\n"
    )
