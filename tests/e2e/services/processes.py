"""Child processes of the tests: start, freeze, thaw, kill, stop, and waiting for what they do.

Owns: one process a `Process`, by its id. Must not: know any service, or end a process it did not start.
"""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from typing_extensions import Self

T = TypeVar("T")

LOOPBACK = "127.0.0.1"

# Below the kernel's default range for outgoing connections (ip_local_port_range 32768-60999), so that a port found free
# is not taken by some client's connection before the service binds it.
_PORT_RANGE = range(20000, 32000)


class ServiceError(Exception):
    """A service could not be started, or did not do in time what it must; the text carries the end of its log."""


def free_ports(count: int) -> list[int]:
    """Returns `count` different TCP ports that were free on 127.0.0.1 just now, outside the ephemeral range."""
    found: list[int] = []
    for port in random.sample(_PORT_RANGE, len(_PORT_RANGE)):
        if len(found) == count:
            break
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            found.append(port)
    return found


def wait_for(get: Callable[[], T | None], *, within: float, what: str, every: float = 0.05) -> T:
    """Returns the first result of `get` that is true; raises `ServiceError` naming `what` after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        result = get()
        if result:
            return result
        if time.monotonic() > deadline:
            raise ServiceError(f"{what}: not within {within:g} s (last seen: {result!r})")
        time.sleep(every)


def tail(path: Path, lines: int = 15) -> str:
    """Returns the last lines of a log, or a note that there is none."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return f"(no {path})"


class Process:
    """One child in the foreground, its output in a log file.

    The kernel ends it together with the thread that started it (PR_SET_PDEATHSIG), so that a killed test run leaves
    nothing behind.
    """

    def __init__(self, argv: Sequence[str | Path], log: Path, *, env: Mapping[str, str]) -> None:
        self.log = log
        self.name = Path(argv[0]).name
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *map(str, argv)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env),
            )

    @property
    def pid(self) -> int:
        """The process id; setpriv and the wrappers replace themselves, so it is the service's own."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative is the signal that ended it."""
        return self._popen.poll()

    def must_run(self) -> None:
        """Raises `ServiceError` with the end of the log when the process has ended."""
        if self.exit_code is not None:
            raise ServiceError(f"{self.name} ended with {self.exit_code}:\n{tail(self.log)}")

    def freeze(self) -> None:
        """Stops it without ending it: connections to it are still accepted by the kernel, and hang."""
        self._popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets a frozen process go on."""
        self._popen.send_signal(signal.SIGCONT)

    def kill(self) -> int:
        """Ends it with SIGKILL and returns the exit code."""
        self._popen.kill()
        return self._popen.wait(30)

    def wait(self, within: float) -> int:
        """Returns the exit code; raises `subprocess.TimeoutExpired` when it has not ended `within` seconds."""
        return self._popen.wait(within)

    def reload(self) -> None:
        """Sends SIGHUP."""
        self._popen.send_signal(signal.SIGHUP)

    def stop(self, within: float = 10.0) -> int:
        """Asks with SIGTERM, a frozen process too, and uses SIGKILL after `within` seconds; returns the exit code."""
        self.thaw()
        self._popen.terminate()
        try:
            return self._popen.wait(within)
        except subprocess.TimeoutExpired:
            return self.kill()


class Service(ABC):
    """What runs inside a `with` block. A start that fails is cleaned up as an end is."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """Stops all of it, also where only a part has started."""

    @abstractmethod
    def start(self) -> None:
        """Starts it; ServiceError where it does not answer in time."""


def stop_all(processes: Iterable[Process]) -> None:
    """Stops every process, in the order given, also when one of them makes trouble."""
    with contextlib.ExitStack() as stack:
        for process in reversed(list(processes)):
            stack.callback(process.stop)
