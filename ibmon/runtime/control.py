"""The control socket: root and a group of people ask the running daemon for something, one line in, one line out.

Owns the socket, who may use it, and the wait for the engine's answer. It must not know what a request does, and it
never holds up the engine: a request is queued for it, and its answer is handed over without waiting.
"""

from __future__ import annotations

import contextlib
import grp
import itertools
import logging
import os
import queue
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from ibmon.controlclient import GROUP, MAX_LINE, Reply, Request, group_name, who_may
from ibmon.health.rules import RULE_BY_ID
from ibmon.messages import Answer, Person
from ibmon.nearest import nearest
from ibmon.runtime import logs
from ibmon.runtime.peer import Peer, peer_of

log = logging.getLogger(__name__)

CONNECTIONS: Final = 8
"""Connections served at a time; one more is told so and closed."""

TIME: Final = 5.0
"""Seconds in which a request must have come whole, and in which the engine must have answered it."""

_MODE: Final = 0o660
_ACCEPT_PAUSE: Final = 0.1  # seconds after an accept that failed for want of descriptors


class _RefusedError(Exception):
    """A request that gets no further; the text is the answer."""


class ControlServer:
    """Listens at `path`; each request becomes a `Person` for `post`, and waits for its `Answer`.

    Args:
        path: the socket's file. Its group is `ibmon`, where there is such a group and this process may give a file to
            it, else the process's own.
        post: takes the engine's event; it must not block.
        seconds: the time limit of `TIME`.
    """

    def __init__(self, path: Path, post: Callable[[Person], None], *, seconds: float = TIME) -> None:
        self.path = path
        self._post = post
        self._seconds = seconds
        self._lock = threading.Lock()
        self._tickets = itertools.count(1)
        self._waiting: dict[int, queue.SimpleQueue[Answer | None]] = {}
        self._held: list[Answer] = []
        self._serving = 0
        self._group = -1
        self._listener: socket.socket | None = None
        self._inode: tuple[int, int] | None = None
        self._closed = threading.Event()

    # --------------------------------------------------------------------------------- start and stop

    def start(self) -> bool:
        """Listen. Where that cannot be, a log line says so and the daemon goes on: it only cannot be asked."""
        try:
            self._listener = self._listen()
        except OSError as error:
            log.warning("%s: %s; this daemon cannot be asked for changes", self.path, error.strerror or error)
            return False
        threading.Thread(target=self._accept, args=(self._listener,), name="ibmon-control", daemon=True).start()
        return True

    def close(self) -> None:
        """Take the socket away, if it still is ours, and tell those who wait that no answer will come."""
        self._closed.set()
        if self._listener is not None:
            with contextlib.suppress(OSError):
                status = self.path.lstat()
                if (status.st_dev, status.st_ino) == self._inode:
                    self.path.unlink()
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
            self._listener.close()
        with self._lock:
            waiting = list(self._waiting.values())
        for answers in waiting:
            answers.put(None)

    def _listen(self) -> socket.socket:
        """The listening socket, in place with its mode and group; OSError where it cannot be."""
        self._clear_way()
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        beside.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.bind(str(beside))
            self._group = _give(beside)
            beside.chmod(_MODE)
            listener.listen(CONNECTIONS)
            status = beside.lstat()
            self._inode = (status.st_dev, status.st_ino)
            beside.replace(self.path)  # a reader never finds it without its mode
        except OSError:
            listener.close()
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise
        return listener

    def _clear_way(self) -> None:
        """Raises OSError where another daemon listens, or where the file is none of a daemon."""
        try:
            if not stat.S_ISSOCK(self.path.lstat().st_mode):
                raise FileExistsError(None, "this is no socket, and is left alone; move it away")
        except FileNotFoundError:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
            probe.settimeout(0)
            try:
                probe.connect(str(self.path))
            except ConnectionRefusedError:
                return  # of a dead daemon: it is replaced
            except BlockingIOError:
                pass  # so many wait for it that one more has no place
        raise FileExistsError(None, "another daemon listens there")

    # --------------------------------------------------------------------------------- the engine's side

    def hold(self, answer: Answer) -> None:
        """Keep an answer until `release`, so that nobody hears "done" of what is not saved yet."""
        self._held.append(answer)

    def release(self, unsaved: str = "") -> None:
        """Hand over what was held, with why it is `unsaved` where it is. Never blocks."""
        held, self._held = self._held, []
        for answer in held:
            if unsaved and answer.done:
                text = f"{answer.text}; not saved, so a restart forgets it: {unsaved}"
                answer = msgspec.structs.replace(answer, text=text)  # noqa: PLW2901 - the same answer, said to its end
            with self._lock:
                answers = self._waiting.get(answer.ticket)
            if answers is not None:
                answers.put(answer)

    # --------------------------------------------------------------------------------- connections

    def _accept(self, listener: socket.socket) -> None:
        while not self._closed.is_set():
            try:
                channel, _ = listener.accept()
            except OSError:  # noqa: PERF203 - one client a round
                self._closed.wait(_ACCEPT_PAUSE)
            else:
                self._admit(channel)

    def _admit(self, channel: socket.socket) -> None:
        with self._lock:
            admitted = self._serving < CONNECTIONS
            self._serving += admitted
        if admitted:
            try:
                threading.Thread(target=self._serve, args=(channel,), name="ibmon-control-client", daemon=True).start()
            except RuntimeError:  # no more threads: this one must come again
                self._end(channel)
            return
        channel.settimeout(0)
        _say(channel, Reply(done=False, text=f"{CONNECTIONS} others are asking just now; try again in some seconds"))
        channel.close()

    def _end(self, channel: socket.socket) -> None:
        channel.close()
        with self._lock:
            self._serving -= 1

    def _serve(self, channel: socket.socket) -> None:
        try:
            reply = self._reply(channel)
            if reply is not None:
                channel.settimeout(self._seconds)
                _say(channel, reply)
        finally:
            self._end(channel)

    def _reply(self, channel: socket.socket) -> Reply | None:
        """What a connection is answered; None where it asked for nothing."""
        try:
            peer = peer_of(channel)
            self._check(peer)
            line = self._line(channel)
            return self._asked(_request(line), peer) if line else None
        except _RefusedError as refused:
            return Reply(done=False, text=str(refused))
        except OSError:
            return None  # it went away

    def _check(self, peer: Peer) -> None:
        if peer.uid == 0 or self._group in peer.groups:
            return
        log.warning(logs.line("control-refused", {"user": peer.user, "uid": peer.uid, "pid": peer.pid}))
        raise _RefusedError(f"permission denied: {who_may(group_name(self._group))}")

    def _line(self, channel: socket.socket) -> bytes:
        deadline = time.monotonic() + self._seconds
        data = bytearray()
        while b"\n" not in data:
            channel.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                piece = channel.recv(8192)
            except TimeoutError:
                raise _RefusedError(f"no whole line came within {self._seconds:g} s") from None
            if not piece:
                break
            data += piece
            if len(data) > MAX_LINE:
                raise _RefusedError(f"the request is longer than {MAX_LINE} bytes")
        return bytes(data).partition(b"\n")[0].strip()

    def _asked(self, request: Request, peer: Peer) -> Reply:
        """Queue the request, and wait for what the engine makes of it."""
        answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        with self._lock:
            ticket = next(self._tickets)
            self._waiting[ticket] = answers
        _note(request, peer)
        try:
            if self._closed.is_set():
                raise _RefusedError("the daemon is ending; nothing was done")
            self._post(
                Person(
                    ticket=ticket,
                    action=request.action,
                    user=peer.user,
                    subjects=request.subjects,
                    rules=request.rules,
                    reason=request.reason,
                    seconds=request.seconds,
                    dry_run=request.dry_run,
                )
            )
            answer = answers.get(timeout=self._seconds)
        except queue.Empty:
            raise _RefusedError(
                f"the daemon's loop did not answer within {self._seconds:g} s; it may still do it: see 'ibmon events'"
            ) from None
        finally:
            with self._lock:
                del self._waiting[ticket]
        if answer is None:
            raise _RefusedError("the daemon ended before it answered; ask again when it runs")
        return Reply(done=answer.done, text=answer.text)


def _request(line: bytes) -> Request:
    try:
        request = msgspec.json.decode(line, type=Request)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _RefusedError(f"this is no request: {' '.join(str(error).split())}") from None
    for rule in request.rules:
        if rule not in RULE_BY_ID:
            close = nearest(rule, RULE_BY_ID)
            raise _RefusedError(f"there is no rule {_plain(rule)}" + (f"; did you mean {close}?" if close else ""))
    return msgspec.structs.replace(
        request, subjects=tuple(map(_plain, request.subjects)), reason=_plain(" ".join(request.reason.split()))
    )


def _plain(text: str) -> str:
    """Text that can stand in a log line: what cannot be printed becomes a question mark."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _note(request: Request, peer: Peer) -> None:
    """One log line for each request: who asked, from which process, for what, and why."""
    fields = {
        "user": peer.user,
        "uid": peer.uid,
        "pid": peer.pid,
        "action": request.action,
        "subjects": ",".join(request.subjects) or "all",
        "rules": ",".join(request.rules),
        "reason": request.reason,
        "seconds": f"{request.seconds:g}" if request.seconds else "",
        "dry_run": "yes" if request.dry_run else "",
    }
    log.info(logs.line("control", {name: value for name, value in fields.items() if value != ""}))


def _give(path: Path) -> int:
    """Give the file to the group of the people who may ask; which group it has now."""
    try:
        group = grp.getgrnam(GROUP).gr_gid
        _give_to(path, group)
    except (KeyError, PermissionError):  # no such group, or this process is no member of it
        group = os.getegid()
        _give_to(path, group)  # a set-group-id directory gave it another
    return group


def _give_to(path: Path, group: int) -> None:
    """Set the group where it is another one: the service's system call filter allows no chown, and needs none."""
    if path.stat().st_gid != group:
        os.chown(path, -1, group)


def _say(channel: socket.socket, reply: Reply) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it any more
        channel.sendall(msgspec.json.encode(reply) + b"\n")
