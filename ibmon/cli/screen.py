"""A terminal taken over for a while: keys one by one, lines drawn where they changed, and all given back at the end.

Owns the modes of the terminal and the signals meanwhile. It must not know what is shown. What a frame does not change
is not sent again, so that it works over a slow line.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import termios
import tty
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Final

RESIZE: Final = "resize"
"""What `wait` returns when the picture must be drawn anew: another size, or the terminal was somebody else's."""

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J"  # the alternate screen, without a cursor, empty
_LEAVE: Final = "\x1b[0m\x1b[?25h\x1b[?1049l"
_SEQUENCES: Final = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down", "\x1b[5~": "pageup", "\x1b[6~": "pagedown",
    "\x1b[H": "home", "\x1b[F": "end",
}  # fmt: skip
_ENDS: Final = (signal.SIGTERM, signal.SIGHUP)


def changes(before: Sequence[str] | None, now: Sequence[str]) -> str:
    """What brings a screen that shows `before` to show `now`, one string a line; None: whatever it shows."""
    if before is None:
        return "\x1b[H\x1b[2J" + "\r\n".join(now)
    out = []
    for number in range(max(len(before), len(now))):
        line = now[number] if number < len(now) else ""
        if number >= len(before) or before[number] != line:
            out.append(f"\x1b[{number + 1};1H{line}\x1b[0m\x1b[K")
    return "".join(out)


def keys(text: str) -> Iterator[str]:
    """The keys that a terminal's bytes stand for: characters, and names for what has no character."""
    while text:
        name = next((s for s in _SEQUENCES if text.startswith(s)), "")
        yield _SEQUENCES.get(name, "" if text.startswith("\x1b") and len(text) > 1 else text[0])
        text = text[len(name) :] if name else "" if text.startswith("\x1b") else text[1:]


class Screen:
    """The terminal of this process; a context manager. SystemExit where it is told to end, with all given back."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._shown: list[str] | None = None
        self._waiting: list[str] = []
        self._modes: list[int | list[bytes | int]] = termios.tcgetattr(source)
        self._wake, self._woken = socket.socketpair()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Screen:  # noqa: PYI034 - Self came with Python 3.11
        for end in (self._wake, self._woken):
            end.settimeout(0)
            self._stack.callback(end.close)
        before = signal.set_wakeup_fd(self._woken.fileno(), warn_on_full_buffer=False)
        self._stack.callback(signal.set_wakeup_fd, before)
        for number, handler in (
            *((end, self._end) for end in _ENDS), (signal.SIGTSTP, self._stop), (signal.SIGWINCH, self._nothing)
        ):  # fmt: skip
            self._stack.callback(signal.signal, number, signal.signal(number, handler))
        self._stack.callback(self._give_back)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        try:
            found = os.get_terminal_size(self._target)
        except OSError:
            found = shutil.get_terminal_size()
        return found.columns, found.lines

    def show(self, lines: Sequence[str]) -> int:
        """Draw, one string a line without its end; returns the number of bytes that it took."""
        data = changes(self._shown, lines).encode("utf-8", "replace")
        self._shown = list(lines)
        self._write(data)
        return len(data)

    def wait(self, seconds: float) -> str:
        """The next key, `RESIZE`, or empty when the time is up."""
        if self._waiting:
            return self._waiting.pop(0)
        wake = self._wake.fileno()
        ready, _, _ = select.select([self._source, wake], [], [], seconds)
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                self._wake.recv(64)
            self._shown = None
            return RESIZE
        if not ready:
            return ""
        data = os.read(self._source, 1024)
        if not data:
            raise SystemExit(0)  # the terminal is gone
        self._waiting += [key for key in keys(data.decode("utf-8", "replace")) if key]
        return self._waiting.pop(0) if self._waiting else ""

    def _take(self) -> None:
        tty.setcbreak(self._source)
        self._shown = None
        self._write(_ENTER.encode())

    def _give_back(self) -> None:
        with contextlib.suppress(OSError):
            self._write(_LEAVE.encode())
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._source, termios.TCSADRAIN, self._modes)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._target, data) :]

    def _stop(self, number: int, _: FrameType | None) -> None:
        """Ctrl-Z: the shell gets its terminal back, and we take it again when we go on."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        del number
        self._take()

    @staticmethod
    def _end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    @staticmethod
    def _nothing(_: int, __: FrameType | None) -> None:
        """Being woken is all."""
