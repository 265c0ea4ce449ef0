"""The control socket: who may use it, what it answers whatever it is sent, and that it holds nobody up."""

from __future__ import annotations

import contextlib
import grp
import json
import logging
import os
import socket
import stat
import threading
from pathlib import Path

import msgspec
import pytest

from ibmon.controlclient import MAX_LINE, ControlError, Reply, Request, ask
from ibmon.messages import Answer, Person
from ibmon.runtime import control
from ibmon.runtime.control import CONNECTIONS, ControlServer
from ibmon.runtime.peer import Peer, peer_of


class Desk:
    """A server, and an engine behind it that answers at once, unless a test says otherwise."""

    def __init__(self, path: Path, **options):
        self.asked: list[Person] = []
        self.reply = Answer(0, done=True, text="well")
        self.heard = threading.Semaphore(0)
        self.server = ControlServer(path, self.post, **options)

    def post(self, person):
        self.asked.append(person)
        if self.reply is not None:
            self.server.hold(msgspec.structs.replace(self.reply, ticket=person.ticket))
            self.server.release()
        self.heard.release()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "control.sock"


@pytest.fixture
def desks(path):
    """Makes desks that listen at `path`, and ends them."""
    made = []

    def make(**options):
        made.append(Desk(path, **options))
        return made[-1]

    yield make
    for desk in made:
        desk.server.close()


@pytest.fixture
def desk(desks):
    desk = desks()
    assert desk.server.start()
    return desk


def connected(path):
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    channel.settimeout(10)
    channel.connect(str(path))
    return channel


def answer_to(channel):
    """The one line that the server answers, and that nothing follows it."""
    data = b""
    try:
        while piece := channel.recv(65536):
            data += piece
    except ConnectionResetError:
        pass  # it closed with bytes of ours unread
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    return json.loads(data)


def said(path, data: bytes):
    with connected(path) as channel:
        try:
            channel.sendall(data)
            channel.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return answer_to(channel)


# ------------------------------------------------------------------------------------------- asking


def test_a_request_reaches_the_engine_with_the_name_of_who_asked(desk, path):
    reply = ask(path, Request("clear", ("mlx5_3/1",), ("port-down",), "new cable"))

    assert reply == Reply(done=True, text="well")
    me = peer_of_this_process()
    assert desk.asked == [Person(1, "clear", me, ("mlx5_3/1",), ("port-down",), "new cable")]


def peer_of_this_process():
    here, there = socket.socketpair()
    with here, there:
        return peer_of(here).user


def test_a_refusal_of_the_engine_is_an_answer(desk, path):
    desk.reply = Answer(0, done=False, text="no such port")
    assert ask(path, Request("accept", ("x",))) == Reply(done=False, text="no such port")


def test_each_request_has_a_ticket_of_its_own(desk, path):
    for _ in range(3):
        ask(path, Request("learn"))
    assert [person.ticket for person in desk.asked] == [1, 2, 3]


def test_an_answer_waits_until_it_is_released(desks, path):
    desk = desks()
    desk.reply = None
    desk.server.start()
    with connected(path) as channel:
        channel.sendall(b'{"action": "learn"}\n')
        desk.heard.acquire()
        desk.server.hold(Answer(1, done=True, text="saved"))
        channel.settimeout(0.05)
        with pytest.raises(TimeoutError):
            channel.recv(1)
        desk.server.release()
        channel.settimeout(10)
        assert answer_to(channel) == {"done": True, "text": "saved"}


def test_an_answer_that_nobody_waits_for_any_more_is_dropped(desk):
    desk.server.hold(Answer(99, done=True, text="late"))
    desk.server.release()


def test_words_are_made_fit_for_a_log_line(desk, path):
    ask(path, Request("clear", ("mlx5\x1b[0m",), (), "new\ncable\x07"))
    assert desk.asked[0].subjects == ("mlx5?[0m",)
    assert desk.asked[0].reason == "new cable?"


def test_who_asked_for_what_and_why_is_logged(desk, path, caplog):
    caplog.set_level(logging.INFO)
    ask(path, Request("clear", (), (), "new cable"))
    assert f"uid={os.getuid()} pid={os.getpid()} action=clear subjects=all" in caplog.text
    assert 'reason="new cable"' in caplog.text


# ----------------------------------------------------------------------------------- what is no request


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"garbage\n", "this is no request"),
        (b"\xff\xfe\n", "this is no request"),
        (b"[]\n", "this is no request"),
        (b"{}\n", "`action`"),
        (b'{"action": "drain"}\n', "'drain'"),
        (b'{"action": "clear", "subjects": "mlx5_0"}\n', "subjects"),
        (b'{"action": "clear", "subject": []}\n', "`subject`"),
        (b'{"action": "clear", "subjects": [""]}\n', "subjects"),
        (b'{"action": "clear", "reason": "' + b"x" * 600 + b'"}\n', "reason"),
        (b'{"action": "clear", "rules": ["port-dwon"]}\n', "there is no rule port-dwon; did you mean port-down?"),
        (b"[" * 50_000 + b"\n", "this is no request"),
        (b"x" * (MAX_LINE + 1), "longer than"),
        (b'{"action": "clear"', "this is no request"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "this is no request"),
    ],
)
def test_what_is_no_request_is_answered_in_one_line_and_reaches_nobody(desk, path, data, why):
    reply = said(path, data)

    assert reply["done"] is False
    assert why in reply["text"]
    assert "\n" not in reply["text"]
    assert desk.asked == []
    assert ask(path, Request("learn")).done  # and the next is served


@pytest.mark.parametrize("data", [b"", b"\n", b"  \n"])
def test_nothing_asked_is_nothing_answered(desk, path, data):
    with connected(path) as channel:
        channel.sendall(data)
        channel.shutdown(socket.SHUT_WR)
        assert channel.recv(100) == b""
    assert desk.asked == []


# ----------------------------------------------------------------------------------------- limits


def test_a_request_that_does_not_come_whole_is_given_up(desks, path):
    desk = desks(seconds=0.05)
    desk.server.start()
    with connected(path) as channel:
        channel.sendall(b'{"action": "cl')
        assert "no whole line came within 0.05 s" in answer_to(channel)["text"]


def test_an_engine_that_does_not_answer_is_told_of(desks, path):
    desk = desks()
    desk.server._post = lambda _: setattr(desk.server, "_seconds", 0.05)  # not before it was asked
    desk.server.start()
    reply = ask(path, Request("clear"))
    assert not reply.done
    assert "did not answer within 0.05 s" in reply.text


def test_one_more_than_can_be_served_is_told_so(desk, path):
    silent = [connected(path) for _ in range(CONNECTIONS)]
    try:
        assert "8 others are asking" in said(path, b'{"action": "learn"}\n')["text"]
    finally:
        for channel in silent:
            channel.close()


def test_places_are_given_back(desk, path):
    for _ in range(3 * CONNECTIONS):
        assert ask(path, Request("learn")).done


def test_a_client_that_goes_away_costs_nothing(desk, path):
    for _ in range(2 * CONNECTIONS):
        with connected(path) as channel:
            channel.sendall(b'{"action": "learn"}\n')
        desk.heard.acquire(timeout=10)
    assert len(desk.asked) == 2 * CONNECTIONS


def test_who_waits_when_the_daemon_ends_is_told(desks, path):
    desk = desks()
    desk.reply = None
    desk.server.start()
    with connected(path) as channel:
        channel.sendall(b'{"action": "learn"}\n')
        desk.heard.acquire()
        desk.server.close()
        assert "ended before it answered" in answer_to(channel)["text"]


# ------------------------------------------------------------------------------------------- who may


@pytest.mark.parametrize(
    ("peer", "served"),
    [
        (Peer(7, 0, 5, "root", frozenset({5})), True),
        (Peer(7, 1000, 5, "ann", frozenset({5})), False),
        (Peer(7, 1000, 5, "ann", frozenset({5, 4242})), True),
        (Peer(7, 1000, 4242, "ann", frozenset({4242})), True),
    ],
)
def test_only_root_and_the_group_are_served(desk, path, monkeypatch, caplog, peer, served):
    monkeypatch.setattr(control, "peer_of", lambda _: peer)
    monkeypatch.setattr(desk.server, "_group", 4242)
    reply = ask(path, Request("clear"))

    assert reply.done is served
    assert [person.user for person in desk.asked] == ([peer.user] if served else [])
    assert ("permission denied: only root and members of group 4242" in reply.text) is not served
    assert ("event=control-refused user=ann uid=1000 pid=7" in caplog.text) is not served


def test_the_kernel_tells_who_the_peer_is():
    here, there = socket.socketpair()
    with here, there:
        peer = peer_of(here)
    assert (peer.pid, peer.uid, peer.gid) == (os.getpid(), os.getuid(), os.getgid())
    assert peer.groups == {os.getgid(), *os.getgroups()}


def test_the_groups_of_the_user_stand_in_where_the_kernel_does_not_tell(monkeypatch):
    monkeypatch.setattr("ibmon.runtime.peer._SO_PEERGROUPS", 9999)
    monkeypatch.setattr(os, "getgrouplist", lambda user, gid: [gid, 77])
    here, there = socket.socketpair()
    with here, there:
        assert peer_of(here).groups == {os.getgid(), 77}


def test_a_user_without_a_name_has_a_number(monkeypatch):
    def nobody(uid):
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert peer_of_this_process() == f"uid {os.getuid()}"


@pytest.mark.parametrize("allowed", [True, False])
def test_the_socket_is_the_group_s_where_it_can_be_given_to_it(desks, path, monkeypatch, allowed):
    given = []

    def chown(_path, _uid, gid):
        given.append(gid)
        if gid == 4242 and not allowed:
            raise PermissionError

    monkeypatch.setattr(grp, "getgrnam", lambda _: grp.struct_group(("ibmon", "x", 4242, [])))
    monkeypatch.setattr(os, "chown", chown)
    desk = desks()
    assert desk.server.start()
    assert given == [4242], "the process's own group is not asked for: the service may not change groups"
    assert desk.server._group == (4242 if allowed else os.getegid())


def test_without_the_group_the_process_s_own_may(desks, path, monkeypatch):
    def unknown(name):
        raise KeyError(name)

    monkeypatch.setattr(grp, "getgrnam", unknown)
    desk = desks()
    assert desk.server.start()
    status = path.stat()
    assert stat.S_IMODE(status.st_mode) == 0o660
    assert status.st_gid == os.getegid()


# ------------------------------------------------------------------------------------- the socket's file


def test_the_file_of_a_dead_daemon_is_replaced(desks, path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    assert path.is_socket()
    desk = desks()
    assert desk.server.start()
    assert ask(path, Request("learn")).done


def test_that_of_a_living_one_is_not(desk, desks, path, caplog):
    second = desks()
    assert not second.server.start()
    assert "another daemon listens there" in caplog.text
    second.server.close()
    assert ask(path, Request("learn")).done
    assert len(desk.asked) == 1


def test_one_too_busy_to_accept_is_alive(desks, path):
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(0)
        with connected(path):
            assert not desks().server.start()


def test_a_file_that_is_no_socket_is_left_alone(desks, path, caplog):
    path.write_text("mine")
    assert not desks().server.start()
    assert "is no socket" in caplog.text
    assert path.read_text() == "mine"


@pytest.mark.parametrize("directory", ["nothing", "x" * 120])
def test_where_it_cannot_listen_a_line_says_so_and_the_daemon_goes_on(tmp_path, caplog, directory):
    if len(directory) > 100:
        (tmp_path / directory).mkdir()
    server = ControlServer(tmp_path / directory / "control.sock", lambda _: None)
    assert not server.start()
    assert "cannot be asked for changes" in caplog.text
    server.close()


def test_nothing_is_left_in_the_directory(desk, path):
    assert [file.name for file in path.parent.iterdir()] == ["control.sock"]
    desk.server.close()
    assert list(path.parent.iterdir()) == []


def test_the_socket_of_a_successor_stays(desk, desks, path):
    path.unlink()
    successor = desks()
    assert successor.server.start()
    desk.server.close()
    assert ask(path, Request("learn")).done


# ----------------------------------------------------------------------------------------- the client


def test_no_daemon_is_told(tmp_path):
    with pytest.raises(ControlError, match=r"no daemon runs here: there is no .*control\.sock"):
        ask(tmp_path / "control.sock", Request("clear"))


def test_a_dead_daemon_is_told(path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(ControlError, match="no daemon runs here: nobody listens"):
        ask(path, Request("clear"))


def test_no_permission_is_told_with_the_group_that_has_it(desk, path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    group = grp.getgrgid(path.stat().st_gid).gr_name
    with pytest.raises(ControlError, match=f"permission denied .*: only root and members of group {group} may"):
        ask(path, Request("clear"))


def test_a_daemon_that_hangs_is_told(path):
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(path))
        hung.listen()
        with pytest.raises(ControlError, match="does not answer"):
            ask(path, Request("clear"), patience=0.05)


@pytest.mark.parametrize("line", [b"", b"\n", b"what?\n", b'{"done": 1}\n', b"x" * (MAX_LINE + 100)])
def test_an_answer_that_is_none_is_told(path, line):
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()

        def serve():
            channel, _ = other.accept()
            with channel:
                channel.recv(100)
                channel.settimeout(5)
                with contextlib.suppress(OSError):
                    channel.sendall(line)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(ControlError, match="gave no answer"):
                ask(path, Request("clear"))
        finally:
            thread.join()
