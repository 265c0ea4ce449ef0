"""`ibmon events`, the file it reads, and /api/v1/events: which events, in which order, from where."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request

import pytest

from ibmon.cli import INTERRUPTED, main
from ibmon.cli import events as cli_events
from ibmon.config import ExporterConfig
from ibmon.eventlog import EventLogError, Wanted, read_events
from ibmon.exporter.events import LENGTH, EventRing, page_of
from ibmon.exporter.server import Server
from ibmon.store import FILE_NAME, EventRow, Store

T0 = 1_790_000_000.0  # 2026-09-21T14:13:20Z

ROWS = [
    ("info", "device-found", {"device": "mlx5_3"}),
    ("warning", "finding", {"rule": "port-down", "port": "mlx5_3/1", "severity": "warning"}),
    ("warning", "finding", {"rule": "rate-low", "port": "mlx5_30/1", "observed": "200 Gb/s"}),
    ("error", "drain", {"outcome": "failed"}),
    ("info", "finding-cleared", {"rule": "port-down", "port": "mlx5_3/1"}),
]


def fill(store):
    for number, (level, event, fields) in enumerate(ROWS):
        store.add_event(T0 + 60 * number, level, event, fields)


@pytest.fixture
def store(tmp_path):
    """An open store with five events, a minute apart."""
    with contextlib.closing(Store(tmp_path, node="gpu-17")) as store:
        fill(store)
        yield store


@pytest.fixture
def ring():
    ring = EventRing()
    ring.fill(EventRow(n, T0 + 60 * (n - 1), *row) for n, row in enumerate(ROWS, 1))
    return ring


@pytest.fixture
def ibmon(tmp_path, capsys):
    """Runs a command line with a state directory of its own, in UTC: exit code, standard output, standard error."""
    config(tmp_path)

    def call(*words):
        code = main([*words, "--config", str(tmp_path / "c.toml")])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def config(directory, listen="127.0.0.1:0"):
    text = f'[exporter]\nlisten = "{listen}"\n[state]\ndirectory = "{directory}"\n'
    (directory / "c.toml").write_text(text)


@pytest.fixture
def in_utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def numbers(rows):
    return [row.seq for row in rows]


# ------------------------------------------------------------------------------------- the file


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(), [1, 2, 3, 4, 5]),
        (Wanted(since=T0 + 60), [2, 3, 4, 5]),
        (Wanted(since=T0 + 1000), []),
        (Wanted(rule="port-down"), [2, 5]),
        (Wanted(port="mlx5_3/1"), [1, 2, 5]),
        (Wanted(port="mlx5_3"), [1, 2, 5]),
        (Wanted(port="mlx5_30/1"), [3]),
        (Wanted(port="mlx5_3/2"), [1]),
        (Wanted(level="info"), [1, 2, 3, 4, 5]),
        (Wanted(level="warning"), [2, 3, 4]),
        (Wanted(level="error"), [4]),
        (Wanted(rule="port-down", level="warning"), [2]),
    ],
)
def test_the_file_gives_what_is_wanted_oldest_first(store, wanted, found):
    assert numbers(read_events(store.path, wanted)) == found


def test_the_newest_are_given_and_only_those_after_a_number(store):
    assert numbers(read_events(store.path, limit=2)) == [4, 5]
    assert numbers(read_events(store.path, after=3)) == [4, 5]
    assert numbers(read_events(store.path, Wanted(rule="port-down"), limit=1)) == [5]
    assert read_events(store.path, limit=1) == store.events(1)


def test_a_daemon_writes_on_while_it_is_read(store):
    for number in range(6, 10):
        store.add_event(T0, "info", "more", {})
        assert numbers(read_events(store.path, limit=1)) == [number]


def test_after_a_clean_stop_it_is_read_and_nothing_is_left_beside_it(tmp_path, store):
    store.close()
    before = sorted(tmp_path.iterdir())
    assert len(read_events(store.path)) == 5
    assert sorted(tmp_path.iterdir()) == before


def test_after_a_kill_what_lies_in_the_wal_is_read(tmp_path, store):
    killed = tmp_path / "killed"
    killed.mkdir()
    for end in ("", "-wal", "-shm"):
        (killed / f"{FILE_NAME}{end}").write_bytes((tmp_path / f"{FILE_NAME}{end}").read_bytes())
    assert len(read_events(killed / FILE_NAME)) == 5


def test_reading_writes_nothing(store):
    with contextlib.closing(sqlite3.connect(store.path)) as other:
        before = other.execute("PRAGMA data_version").fetchone()
        read_events(store.path)
        assert other.execute("PRAGMA data_version").fetchone() == before


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "there is no history here"), (b"", "no such table"), (b"x" * 5000, "not a database")],
)
def test_a_file_that_cannot_serve_is_told_and_left_as_it_is(tmp_path, content, why):
    path = tmp_path / FILE_NAME
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EventLogError, match=why):
        read_events(path)
    assert (path.read_bytes() if content is not None else None) == content


def test_no_permission_is_told(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(EventLogError, match="cannot be read: Permission denied"):
        read_events(tmp_path / FILE_NAME)


# ------------------------------------------------------------------------------------- the ring and its page


def page(ring, query=""):
    document = json.loads(page_of(ring, query))
    assert set(document) == {"events", "next"}
    return [row["seq"] for row in document["events"]], document["next"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ([1, 2, 3, 4, 5], 5)),
        ("limit=2", ([4, 5], 5)),
        ("since=0", ([1, 2, 3, 4, 5], 5)),
        ("since=0&limit=2", ([1, 2], 2)),
        ("since=2&limit=2", ([3, 4], 4)),
        ("since=5", ([], 5)),
        ("since=99", ([], 5)),
    ],
)
def test_a_page_goes_on_where_the_last_one_ended(ring, query, found):
    assert page(ring, query) == found


def test_an_event_has_these_keys(ring):
    assert json.loads(page_of(ring, "since=1&limit=1"))["events"] == [
        {"seq": 2, "at": T0 + 60, "level": "warning", "event": "finding", "fields": ROWS[1][2]}
    ]


def test_numbers_go_on_from_the_stored_ones(ring):
    ring.add(T0, "info", "start", {})
    assert page(ring, "since=5") == ([6], 6)


def test_the_ring_is_bounded():
    ring = EventRing()
    for _ in range(3 * LENGTH):
        ring.add(T0, "info", "x", {})
    assert page(ring, f"limit={LENGTH}") == (list(range(2 * LENGTH + 1, 3 * LENGTH + 1)), 3 * LENGTH)
    assert page(ring, "since=5&limit=1") == ([2 * LENGTH + 1], 2 * LENGTH + 1)


def test_before_anything_happened_the_page_is_empty():
    assert page(EventRing()) == ([], 0)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("since=-1", "since is a whole number"),
        ("since=x", "since is a whole number"),
        ("since=", "since is a whole number"),
        ("since=1e3", "since is a whole number"),
        ("since=" + "9" * 4000, "since is a whole number"),
        ("since=²", "since is a whole number"),
        ("limit=0", "limit is a whole number from 1 to 1000"),
        ("limit=1001", "limit is a whole number from 1 to 1000"),
        ("offset=3", "there is no parameter offset"),
    ],
)
def test_a_query_that_means_nothing_is_refused(ring, query, why):
    with pytest.raises(ValueError, match=why):
        page_of(ring, query)


@pytest.fixture
def server(ring):
    server = Server(ExporterConfig(listen="127.0.0.1:0"), lambda: None, events=ring)
    server.start()
    yield server
    server.close()


def test_the_page_is_served(server):
    with urllib.request.urlopen(f"{server.url}api/v1/events?since=3") as answer:
        assert answer.headers["Content-Type"] == "application/json"
        assert [row["seq"] for row in json.load(answer)["events"]] == [4, 5]


def test_a_bad_query_is_the_client_s_mistake(server):
    with pytest.raises(urllib.error.HTTPError, match="400") as caught:
        urllib.request.urlopen(f"{server.url}api/v1/events?since=now")
    with caught.value as answer:
        assert answer.read().startswith(b"since is a whole number")


# ------------------------------------------------------------------------------------- the command


def test_events_are_lines_in_local_time(store, ibmon, in_utc):
    code, out, err = ibmon("events")
    assert (code, err) == (0, "")
    assert out.splitlines()[2] == (
        '2026-09-21 14:15:20  warning  finding          rule=rate-low port=mlx5_30/1 observed="200 Gb/s"'
    )


def test_local_time_is_that_of_the_host(store, ibmon, in_utc, monkeypatch):
    monkeypatch.setenv("TZ", "XXX-2")
    time.tzset()
    assert ibmon("events", "--limit", "1")[1].startswith("2026-09-21 16:17:20")


def test_json_has_the_time_twice(store, ibmon):
    lines = ibmon("events", "--json", "--limit", "1")[1].splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "seq": 5,
            "at": T0 + 240,
            "time": "2026-09-21T14:17:20.000Z",
            "level": "info",
            "event": "finding-cleared",
            "fields": {"rule": "port-down", "port": "mlx5_3/1"},
        }
    ]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["--rule", "port-down"], 2),
        (["--port", "mlx5_3"], 3),
        (["--level", "error"], 1),
        (["--limit", "3"], 3),
        (["--rule", "port-down", "--level", "warning"], 1),
    ],
)
def test_filters_hold_together(store, ibmon, words, count):
    assert len(ibmon("events", *words)[1].splitlines()) == count


def test_since_counts_back_from_now(store, ibmon, monkeypatch):
    monkeypatch.setattr(cli_events.time, "time", lambda: T0 + 300)
    assert len(ibmon("events", "--since", "3m")[1].splitlines()) == 3


def test_no_event_is_told(store, ibmon):
    assert ibmon("events", "--port", "mlx5_9/1") == (0, "", "ibmon: no such event\n")
    gone = "ibmon: no event of {}; there is no such rule now"
    assert ibmon("events", "--rule", "port-dwon")[2] == f"{gone.format('port-dwon')}; did you mean port-down?\n"
    assert ibmon("events", "--rule", "xyz")[2] == f"{gone.format('xyz')}\n"


def test_what_is_left_out_is_told_unless_a_limit_was_given(store, ibmon):
    for _ in range(100):
        store.add_event(T0, "info", "more", {})
    _, out, err = ibmon("events")
    assert len(out.splitlines()) == 100
    assert err == "ibmon: older events are left out; --limit shows more than 100\n"
    assert ibmon("events", "--limit", "100")[2] == ""


def test_without_a_file_the_running_daemon_is_asked(tmp_path, server, ibmon):
    config(tmp_path, listen=f":{server.address.port}")
    code, out, err = ibmon("events", "--rule", "port-down", "--json")
    assert (code, err) == (0, "")
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [2, 5]


def test_without_both_there_is_one_line_with_both_causes(tmp_path, ibmon):
    config(tmp_path, listen="127.0.0.1:1")
    code, out, err = ibmon("events")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "there is no history here" in err
    assert "http://127.0.0.1:1/api/v1/events does not answer: Connection refused" in err


@pytest.mark.parametrize("end", ["", "api/v1/events"])
def test_another_daemon_is_asked_by_its_url(server, ibmon, end):
    assert len(ibmon("events", "--url", server.url + end, "--limit", "2")[1].splitlines()) == 2


def test_what_is_no_ibmon_is_told(server, ibmon):
    code, _, err = ibmon("events", "--url", f"{server.url}metrics")
    assert (code, err.count("\n")) == (1, 1)
    assert "answers 404" in err


@pytest.mark.parametrize("odd", [{"at": 1e300}, {"at": "now"}, {"fields": []}, {"seq": "1"}, {"level": None}])
def test_events_of_another_form_are_no_events(server, ibmon, monkeypatch, odd):
    row = {"seq": 1, "at": T0, "level": "info", "event": "start", "fields": {}, **odd}
    page = {"events": [row], "next": 1}
    monkeypatch.setattr("ibmon.exporter.site.page_of", lambda *_: json.dumps(page).encode())
    code, out, err = ibmon("events", "--url", server.url)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "is that an ibmon?" in err


def test_what_others_wrote_steers_no_terminal(store, ibmon):
    store.add_event(T0, "info\x1b[2J", "odd\x1b[2J", {"reason": "x\x1b]0;y\x07"})
    assert ibmon("events", "--limit", "1")[1].rstrip("\n").isprintable()


@pytest.mark.parametrize("words", [["--url", "gpu-17"], ["--since", "2"], ["--limit", "0"], ["--level", "bad"]])
def test_a_call_that_is_wrong_is_exit_code_2(ibmon, words):
    assert ibmon("events", *words)[0] == 2


# ------------------------------------------------------------------------------------- following


@pytest.fixture
def polls(monkeypatch):
    """What happens between two looks of --follow: a list of functions, then the person interrupts."""
    left = []

    def sleep(_seconds):
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    monkeypatch.setattr(cli_events.time, "sleep", sleep)
    return left


def test_following_goes_on_with_what_comes_each_once(store, ibmon, polls):
    def more():
        store.add_event(T0, "info", "new", {"rule": "rate-low"})

    polls += [more, lambda: None, lambda: [more(), more()]]
    code, out, _ = ibmon("events", "--follow", "--json", "--limit", "1")
    assert code == INTERRUPTED
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [5, 6, 7, 8]


def test_following_filters_what_comes(store, ibmon, polls):
    polls += [lambda: fill(store)]
    _, out, _ = ibmon("events", "-f", "--json", "--level", "error")
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [4, 9]


def test_following_survives_a_file_that_is_set_aside(tmp_path, store, ibmon, polls):
    def anew():
        store.close()
        (tmp_path / FILE_NAME).rename(tmp_path / "old")

    with contextlib.closing(Store(tmp_path, node="gpu-17")) as successor:
        polls += [anew, lambda: successor.add_event(T0, "info", "first", {})]
        code, out, err = ibmon("events", "-f", "--json", "--limit", "1")
    assert code == INTERRUPTED
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [5, 1]
    assert err.count("waiting for it") == 1


def test_following_a_daemon_goes_on_with_what_comes(server, ring, ibmon, polls):
    polls += [lambda: ring.add(T0, "info", "new", {}), lambda: None]
    _, out, _ = ibmon("events", "-f", "--json", "--limit", "1", "--url", server.url)
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [5, 6]


def test_a_follower_behind_a_pipe_gets_each_line_at_once_and_ends_by_an_interrupt(tmp_path, store, ibmon):
    words = ["events", "-f", "--limit", "1", "--config", str(tmp_path / "c.toml")]
    command = [sys.executable, "-m", "ibmon", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TZ": "UTC"}) as process:
        assert process.stdout.readline().startswith(b"2026-09-21 14:17:20")
        store.add_event(T0, "info", "new", {})
        assert b"new" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b""
    assert process.returncode == INTERRUPTED
