"""The processes beside the daemon: a template that does nothing but copy itself, and its copies, which read sysfs.

A reader answers the daemon's questions, one after the other, until the daemon has gone. It holds nothing of the daemon
but its end of one socket: no listening socket, no store, no lock, no terminal. So a read that hangs in it, which not
even SIGKILL ends, keeps nothing from a successor of the daemon. It judges nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from ibmon.model import Device, Listing, Now, Reading
from ibmon.sysfs import wire
from ibmon.sysfs.ethtool import Ethtool
from ibmon.sysfs.files import FileTree
from ibmon.sysfs.source import LocalSource, Names

NAME: Final = "ibmon-reader"
"""What `ps` shows of both; at most 15 characters (include/linux/sched.h: TASK_COMM_LEN)."""

_PR_SET_PDEATHSIG: Final = 1  # include/uapi/linux/prctl.h

_LOOK: Final = 0.002
"""Seconds for which the daemon is taken to be there still: a read that takes longer is one that may hang."""

_RECEIVE: Final = 1 << 16  # a larger buffer would come from the kernel, and go back there, each time

PID: Final = struct.Struct("=i")
"""How the template answers: the new reader's process id, or 0 where none could be made."""

_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Meant for the daemon, when they reach a whole process group or control group; this process ends with the daemon."""


class _Clock:
    """The clocks of this host, which are the daemon's as well."""

    def now(self) -> Now:
        """This instant."""
        return Now(time.monotonic(), time.time())


class Server:
    """What the reader process knows: a source, and the devices it has met."""

    def __init__(self, setup: wire.Setup) -> None:
        self._source = LocalSource(
            os.getpid(),
            FileTree(setup.root),
            _Clock(),
            platform=setup.platform,
            ethtool=Ethtool() if setup.ethtool else None,
        )
        self._devices: dict[str, Device] = {}

    def take(self, request: wire.Request) -> bytes | None:
        """The answer to a request, whatever happens; None for what has no answer."""
        if isinstance(request, (wire.Know, wire.Drop)):
            self._learn(request)
            return None
        try:
            return wire.answer(self._answer(request))
        except Exception:  # noqa: BLE001 - it is told to the daemon, which logs it
            return wire.answer(fault=traceback.format_exc())

    def _learn(self, request: wire.Know | wire.Drop) -> None:
        if isinstance(request, wire.Know):
            self._devices[request.device.name] = request.device
        else:
            self._devices.pop(request.name, None)
            self._source.forget(request.name)

    def _answer(self, request: wire.Request) -> Listing | Device | Reading | None:
        if isinstance(request, wire.Fetch):
            return self._source.answer((self._devices[request.name], request.columns))
        if isinstance(request, wire.List):
            return self._source.answer(Names(request.include, request.exclude, request.functions, request.known))
        if isinstance(request, wire.Describe):
            device = self._source.discover(request.name, request.generation)
            if device is None:
                self._devices.pop(request.name, None)
            else:
                self._devices[request.name] = device
            return device
        raise TypeError(f"{request!r} is no question")


def serve(connection: socket.socket) -> None:
    """Answer until the daemon has gone, or asks for nothing more.

    What it still asked before is left then: it may have asked somebody else meanwhile.
    """
    ended = select.poll()
    ended.register(connection, select.POLLRDHUP)
    server: Server | None = None
    received = b""
    while more := connection.recv(_RECEIVE):
        requests, received = wire.take(received + more)
        looked = -math.inf
        for request in map(wire.decode, requests):
            if (now := time.monotonic()) - looked >= _LOOK:
                looked = now
                if ended.poll(0):
                    return
            if isinstance(request, wire.Setup):
                server = Server(request)
                connection.sendall(wire.answer())
            elif server is not None and (answer := server.take(request)) is not None:
                connection.sendall(answer)


def breed(control: socket.socket) -> None:
    """Make a reader of each socket that comes, until the daemon has gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a reader ended: the kernel buries it
    template = os.getpid()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            run(serve, socket.socket(fileno=descriptors[0]), template)
        os.close(descriptors[0])
        control.sendall(PID.pack(max(pid, 0)))


def run(life: Callable[[socket.socket], None], connection: socket.socket, parent: int | None = None) -> NoReturn:
    """Be a process from here on that lives only for a connection, whatever this process was before.

    It ends with `parent` as well, where one is named. That must have been its first thread that made this process: for
    the kernel the parent is a thread, and any other may end long before its process.
    """
    code = 1
    try:
        if parent is not None:
            _end_with(parent)
        _let_go(connection.fileno())
        with contextlib.suppress(OSError, msgspec.DecodeError):  # the daemon has gone, or talks like another version
            life(connection)
        code = 0
    finally:
        # Without the ways out of the process that this one may be a copy of: no handler, no buffer, no lock of it.
        os._exit(code)


def _end_with(parent: int) -> None:
    """Let the kernel end this process with its parent (prctl(2), PR_SET_PDEATHSIG): readers with the template.

    Without that a read that hangs would still be followed by those of the other files of its device, each of which may
    hang as long.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it had ended before that was said
        os._exit(0)


def _let_go(keep: int) -> None:
    """Drop what was inherited: signal handlers, descriptors, the terminal, the working directory."""
    signal.set_wakeup_fd(-1)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(NAME, encoding="ascii")
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:  # noqa: PTH208 - names are wanted
        if descriptor > 2 and descriptor != keep:
            with contextlib.suppress(OSError):  # the one of the listing itself
                os.close(descriptor)


def main() -> NoReturn:
    """The template as a program, of any thread of the daemon: its argument is the descriptor of its socket."""
    gc.freeze()
    run(breed, socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
