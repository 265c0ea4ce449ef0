"""Running one command of a scheduler: no shell, a deadline, bounded output, and nothing left behind.

It knows no scheduler. The command gets its own process group, which is killed and reaped whatever happens.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

MAX_OUTPUT: Final = 24 * 1024 * 1024  # 20,000 nodes at about 1 KiB each; twice this must fit the unit's MemoryMax
MAX_INPUT: Final = 4096  # what every Linux pipe takes at once, also that of a user with many (pipe(7))
_CHUNK: Final = 65536
_POLL: Final = 0.05  # seconds between two looks whether the command has ended
_REAP: Final = 2.0  # seconds that a killed command gets to die; one in D state takes longer

# Killed commands that had not died in time: polled at each later call, so that they do not stay zombies.
_unreaped: list[subprocess.Popen[bytes]] = []


class Output(NamedTuple):
    """How a command ended: exit status (negative: the signal that killed it) and what it wrote."""

    status: int
    stdout: str
    stderr: str


class CommandError(Exception):
    """The command could not be started, outran its deadline or wrote too much; the text says which."""


def run(argv: Sequence[str], *, timeout: float, environment: Mapping[str, str], stdin: bytes = b"") -> Output:
    """Run a command to its end within `timeout` seconds; CommandError if it does not get there.

    `stdin` is what it may read, at most `MAX_INPUT` bytes.
    """
    _unreaped[:] = [child for child in _unreaped if child.poll() is None]
    source = _filled_pipe(stdin)
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
            cwd="/",
        )
    except OSError as error:
        raise CommandError(f"{argv[0]} does not start: {error.strerror}") from None
    finally:
        os.close(source)
    try:
        stdout, stderr = _collect(child, time.monotonic() + timeout)
    except TimeoutError:
        raise CommandError(f"{argv[0]} gave no answer within {timeout:g} s") from None
    except OverflowError:
        raise CommandError(f"{argv[0]} wrote more than {MAX_OUTPUT} bytes") from None
    finally:
        _end(child)
    return Output(child.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


def _filled_pipe(data: bytes) -> int:
    """The reading end of a pipe that holds these bytes and then ends: nobody need feed it while the command runs."""
    if len(data) > MAX_INPUT:
        raise ValueError(f"{len(data)} bytes do not fit into a pipe at once")
    reading, writing = os.pipe()
    try:
        os.write(writing, data)
    finally:
        os.close(writing)
    return reading


def _collect(child: subprocess.Popen[bytes], deadline: float) -> tuple[bytearray, bytearray]:
    """Both outputs until the command itself has ended; what its children still hold open is not waited for.

    TimeoutError after the deadline, OverflowError beyond the size.
    """
    written = (bytearray(), bytearray())
    with selectors.DefaultSelector() as selector:
        for pipe, text in zip((child.stdout, child.stderr), written, strict=True):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe.fileno(), selectors.EVENT_READ, text)
        ended = False
        while not ended:
            if time.monotonic() >= deadline:
                raise TimeoutError
            ended = _has_ended(child.pid)  # looked at before reading: nothing written before the end is missed
            for key, _ in selector.select(0 if ended else _POLL):
                if _read(key.fd, key.data, deadline):
                    selector.unregister(key.fd)
    return written


def _read(fd: int, text: bytearray, deadline: float) -> bool:
    """Take what a pipe has now; True at its end."""
    while time.monotonic() < deadline:
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            return True
        text += chunk
        if len(text) > MAX_OUTPUT:
            raise OverflowError
    return False


def _has_ended(pid: int) -> bool:
    """Whether the process is a zombie now; it stays one, so that its group's number is not given to another."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the whole group, the command's own children too, and reap the command."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    try:
        child.wait(_REAP)
    except subprocess.TimeoutExpired:
        _unreaped.append(child)
