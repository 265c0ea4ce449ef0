"""Reader processes as the daemon sees them: made by a template, asked, buried, and replaced when they die.

Owns the processes and the sockets to them. What it does is in `ibmon/sysfs/child.py`; which device is given up when is
decided elsewhere. Why a process: a thread in an uninterruptible read keeps its whole process, and every socket and
lock that this holds, until the read returns, SIGKILL or not (measured: a successor waited for 24 s).
"""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from ibmon.backoff import Backoff
from ibmon.model import Device, Layout
from ibmon.sysfs import child, wire
from ibmon.sysfs.source import Answer, Names, Question, SourceError

log = logging.getLogger(__name__)

RETRY: Final = (1.0, 60.0)
"""Seconds before a process that died again is replaced: the shortest, the longest. The first death waits for none."""

GATHER: Final = 0.008
"""Seconds for which answers may gather. To be woken for each one costs more than to take it."""

_RECEIVE: Final = 1 << 16  # a larger buffer would come from the kernel, and go back there, each time

SETTLED: Final = 60.0
"""Seconds after which a process counts as one that works: its death is a first one again."""


class Child:
    """One reader process, and the daemon's end of the socket to it.

    Attributes:
        pid: its process id.
        started: monotonic time of its start.
    """

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.started = time.monotonic()
        self._connection = connection
        self._received = b""  # of an answer that is not whole yet
        self._answers: deque[bytes] = deque()

    def tell(self, messages: bytes) -> None:
        """Send. Raises OSError."""
        self._connection.sendall(messages)

    def retract(self) -> None:
        """Let it begin nothing more of what it was told."""
        with contextlib.suppress(OSError):  # it has gone
            self._connection.shutdown(socket.SHUT_WR)

    def answer(self, *, alone: bool) -> bytes | None:
        """Wait for the next answer, which may be followed by others if it is not `alone`.

        None when the process has gone. Raises OSError.
        """
        while not self._answers:
            if not alone:
                time.sleep(GATHER)
            more = self._connection.recv(_RECEIVE)
            if not more:
                return None
            self._take(more)
        return self._answers.popleft()

    def arrived(self, count: int) -> list[bytes]:
        """The answers that are here by now, `count` at most; nothing is waited for."""
        with contextlib.suppress(OSError):  # there is nothing more, or it has gone: whoever waits for more sees it
            while len(self._answers) < count and (more := self._connection.recv(_RECEIVE, socket.MSG_DONTWAIT)):
                self._take(more)
        return [self._answers.popleft() for _ in range(min(count, len(self._answers)))]

    def _take(self, more: bytes) -> None:
        whole, self._received = wire.take(self._received + more)
        self._answers.extend(whole)

    def end(self) -> None:
        """Close the socket, by which the process ends when it is not in a read."""
        self._connection.close()


class Template:
    """The process that all readers are copies of; made before this one has a second thread, as a copy of it.

    So a reader costs no start of an interpreter, for which a node whose file systems lie behind the card that hangs
    may wait in the kernel, and is of the same version as the daemon. Where this process has threads already, or the
    template has died, it is started as a program of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._started: _Started | None = _copy() if threading.active_count() == 1 else _program()

    def reader(self) -> Child:
        """A new reader process. Raises OSError."""
        with self._lock:
            if self._closed:
                raise OSError(errno.ESHUTDOWN, os.strerror(errno.ESHUTDOWN))
            if self._started is not None:
                try:
                    return _copied(self._started.control)
                except BlockingIOError:
                    raise  # it lives, and could not make one now
                except OSError as error:
                    log.error('event=reader-template-died error="%s"', error)
                    self._end()
            self._started = _program()
            return _copied(self._started.control)

    def close(self) -> None:
        """End it, and with it every reader that is in no read."""
        with self._lock:
            self._closed = True
            self._end()

    def _end(self) -> None:
        if self._started is not None:
            self._started.control.close()
            with contextlib.suppress(ChildProcessError):  # waited for by the kernel, where SIGCHLD is ignored
                self._started.wait()
            self._started = None


class _Started(NamedTuple):
    """The socket to a template, and what waits for its end."""

    control: socket.socket
    wait: Callable[[], object]


def _copied(control: socket.socket) -> Child:
    """A reader that a template made now. Raises OSError, which is BlockingIOError where the kernel makes none."""
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            socket.send_fds(control, [b"\0"], [theirs.fileno()])
        answer = control.recv(child.PID.size)
        if len(answer) < child.PID.size:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        (pid,) = child.PID.unpack(answer)
        if not pid:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    except OSError:
        ours.close()
        raise
    return Child(pid, ours)


def _copy() -> _Started:
    """A template that is a copy of this process, which must have one thread; it shares this one's memory."""
    ours, theirs = socket.socketpair()
    gc.collect()
    gc.freeze()  # else either collector writes into every object, and so into a page of its own
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        child.run(child.breed, theirs, parent)
    theirs.close()
    return _Started(ours, lambda: os.waitpid(pid, 0))


def _program() -> _Started:
    """A template that is a program of its own, for a process with threads, of which no copy may be made."""
    import subprocess

    ours, theirs = socket.socketpair()
    places = os.pathsep.join(str(Path(place).resolve()) for place in sys.path)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", child.__name__, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            cwd="/",  # -m looks there first; in the present directory anybody could have put a module
            env={**os.environ, "PYTHONPATH": places},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return _Started(ours, process.wait)


class _Asked(msgspec.Struct, frozen=True):
    """One question: what it is about in words, its message, and the device that the process must know for it."""

    what: str
    message: bytes
    decoder: wire.Decoder
    device: Device | None = None


def _asked(question: Question) -> _Asked:
    if isinstance(question, Names):
        return _Asked("listing devices", wire.request(wire.List(*question)), wire.LISTING)
    device, columns = question
    return _Asked(f"reading {device.name}", _fetch(device.name, columns), wire.READING, device)


@lru_cache(maxsize=4096)
def _fetch(name: str, columns: tuple[int, ...]) -> bytes:
    """The message that asks for columns of a device; the same are read again and again."""
    return wire.request(wire.Fetch(name, columns))


class ChildSource:
    """`ibmon.sysfs.source.Source` in a process of its own.

    The process starts when the source is opened. One that dies is replaced at once and asked again; one that dies soon
    after that is replaced at the first question after the backoff, and what is asked until then has no answer.

    Args:
        template: makes the processes.
        setup: what is read.
        clock: monotonic seconds.
    """

    def __init__(self, template: Template, setup: wire.Setup, clock: Callable[[], float] = time.monotonic) -> None:
        self._template = template
        self._setup = wire.request(setup)
        self._clock = clock
        self._known: dict[str, Device] = {}  # to the present process
        self._dropped: deque[str] = deque()
        self._backoff = Backoff(*RETRY)
        self._deaths = 0
        self._not_before = float("-inf")
        self._retracted = False
        self._asked: list[_Asked] = []  # what was asked and not waited for
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The process that reads; None where there is none now."""
        reader = self._child
        return None if reader is None else reader.pid

    def open(self) -> None:
        """Start the process unless there is one. Where that fails the next question tries again."""
        with contextlib.suppress(SourceError):
            self._living()

    def discover(self, name: str, generation: int) -> Device | None:
        """The static facts of a device, or None where there is none. Raises SourceError."""
        question = wire.Describe(name, generation)
        asked = _Asked(f"discovering {name}", wire.request(question), wire.DEVICE)
        found: Device | None = _value(asked, next(self._answers([asked])))
        self._known.pop(name, None)
        if found is None:
            return None
        self._known[name] = found = _compact(found)
        return found

    def answers(self, questions: Sequence[Question]) -> Iterator[Answer | None]:
        """What is so now, question by question; None where there is no answer."""
        asked = [_asked(question) for question in questions]
        return _values(asked, self._answers(asked))

    def ask(self, questions: Sequence[Question]) -> bool:
        """Ask without waiting for anything; False where there is no process, or one that has to be told more first."""
        reader = self._child
        if reader is None or self._retracted:
            return False
        asked = [_asked(question) for question in questions]
        if not all(one.device is None or self._known.get(one.device.name) is one.device for one in asked):
            return False
        try:
            self._tell(reader, asked)
        except OSError:
            return False
        self._asked = asked
        return True

    def arrived(self) -> list[Answer | None]:
        """Those of the first answers to what was asked that are here by now; None for one that could not be given."""
        reader = self._child
        found = [] if reader is None else reader.arrived(len(self._asked))
        answered, self._asked = self._asked[: len(found)], self._asked[len(found) :]
        return list(_values(answered, found))

    def rest(self) -> Iterator[Answer | None]:
        """The answers to what was asked that had not arrived yet; they are waited for."""
        asked, self._asked = self._asked, []
        return _values(asked, self._answers(asked, told=True))

    def retract(self) -> None:
        """Begin nothing more of what was asked."""
        self._retracted = True
        reader = self._child
        if reader is not None:
            reader.retract()

    def forget(self, name: str) -> None:
        """A device has gone: its files are closed before the next question."""
        self._dropped.append(name)

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            reader, self._child = self._child, None
            reader.end()

    # ------------------------------------------------------------------------------------------ the conversation

    def _answers(self, questions: Sequence[_Asked], *, told: bool = False) -> Iterator[bytes | None]:
        """An answer for each question, None where nobody could give one. All are asked before the first is taken.

        Where the present process was `told` of them already, only one that replaces it must hear of them.
        """
        left = deque(questions)
        while left:
            try:
                reader = self._living(told=told)
            except SourceError:
                yield from (None for _ in left)
                return
            with contextlib.suppress(OSError):  # it has died
                if not told:
                    self._tell(reader, left)
                told = False
                while left and (answer := reader.answer(alone=len(left) == 1)) is not None:
                    left.popleft()
                    yield answer
            if left:
                self._bury(reader, left[0].what)

    def _tell(self, reader: Child, questions: Iterable[_Asked]) -> None:
        """Send questions, with what must be heard before them. Raises OSError."""
        messages = []
        while self._dropped:
            name = self._dropped.popleft()
            self._known.pop(name, None)
            messages.append(wire.request(wire.Drop(name)))
        for question in questions:
            device = question.device
            if device is not None and self._known.get(device.name) is not device:
                self._known[device.name] = device
                messages.append(wire.request(wire.Know(device)))
            messages.append(question.message)
        reader.tell(b"".join(messages))

    def _living(self, *, told: bool = False) -> Child:
        """The process to be asked, or which was `told` already and still answers. Raises SourceError."""
        if told and self._child is not None:
            return self._child
        if self._child is None and not self._retracted and self._clock() >= self._not_before:
            self._begin()
        if self._child is None or self._retracted:
            raise SourceError("there is no reader process now")
        return self._child

    def _begin(self) -> None:
        """Start a process and wait until it is ready; there is none afterwards where that failed."""
        self._known.clear()
        try:
            reader = self._child = self._template.reader()
        except OSError as error:
            log.error('event=reader-not-started error="%s"', error)
            self._wait_longer()
            return
        with contextlib.suppress(OSError):  # it has died
            reader.tell(self._setup)
            if reader.answer(alone=True) is not None:
                return
        self._bury(reader, "starting")

    def _bury(self, reader: Child, what: str) -> None:
        """Say once what became of a process that has died; the next one starts at once, or after the backoff."""
        self._child = None
        reader.end()
        if self._retracted:
            return
        log.error('event=reader-died pid=%d asked="%s"', reader.pid, what)
        if self._clock() - reader.started > SETTLED:
            self._deaths = 0
            self._backoff.reset()
        self._deaths += 1
        if self._deaths > 1:
            self._wait_longer()

    def _wait_longer(self) -> None:
        self._not_before = self._clock() + self._backoff.next()


def _value(question: _Asked, answer: bytes | None) -> Any:
    """What an answer holds. Raises SourceError."""
    if answer is None:
        raise SourceError(question.what)
    try:
        told = question.decoder.decode(answer)
    except msgspec.DecodeError as error:
        log.error("%s failed: %s", question.what, error)
        raise SourceError(question.what) from error
    if told.fault:
        log.error("%s failed:\n%s", question.what, told.fault)
        raise SourceError(question.what)
    return told.value


def _values(asked: Sequence[_Asked], answers: Iterable[bytes | None]) -> Iterator[Answer | None]:
    """What the answers to questions hold, None where one holds nothing."""
    for question, answer in zip(asked, answers, strict=True):
        try:
            yield _value(question, answer)
        except SourceError:  # noqa: PERF203 - one question a round
            yield None


def _compact(device: Device) -> Device:
    """The same device with what its layout holds twice shared again, and each name of a column once in memory."""
    columns = tuple(column._replace(name=sys.intern(column.name)) for column in device.layout.columns)
    return msgspec.structs.replace(device, layout=Layout.build(device.name, device.layout.generation, columns))
