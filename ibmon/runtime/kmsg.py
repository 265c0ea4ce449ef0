"""The kernel log of a running daemon: one thread that reads /dev/kmsg and posts the lines that are evidence.

Owns the descriptor, the thread and the note of how far the log was read. Which lines are evidence, and of what, is the
business of `ibmon.health.kernel_log`. No error of the log ends the thread, and a daemon without it works as well.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from ibmon.backoff import Backoff
from ibmon.health import kernel_log
from ibmon.messages import KernelLine
from ibmon.ports import Clock

log = logging.getLogger(__name__)

DEVICE: Final = Path("/dev/kmsg")
FILE: Final = "kernel-log.json"

UNAVAILABLE: Final = frozenset({errno.EPERM, errno.EACCES, errno.ENOENT, errno.ENXIO, errno.ENODEV})
"""What opening answers on a host that keeps the log from us. That does not change while a process runs."""

RETRY: Final = (1.0, 300.0)
"""Seconds of the first and the longest wait after a read that failed."""

_RECORD: Final = 16384
"""Bytes that hold any record (printk.c: CONSOLE_EXT_LOG_MAX is half of it); into fewer it is never read: EINVAL."""

_KERNEL: Final = 0  # the facility that only the kernel itself can write (printk.c:devkmsg_write)
_ESCAPE: Final = re.compile(rb"\\x([0-9a-f]{2})")


class Record(NamedTuple):
    """One record of the log: its number in this boot, the seconds since boot at which it was written, and its text."""

    sequence: int
    seconds: float
    facility: int
    text: str


def parse(raw: bytes) -> Record | None:
    r"""A record as /dev/kmsg gives it (Documentation/ABI/testing/dev-kmsg), or None for anything else.

    ``6,339,5140900,-;text`` with further fields before the semicolon and ``KEY=value`` lines after the text, which are
    left out. Bytes written as ``\x0a`` are decoded; several lines in one record become one.
    """
    head, semicolon, rest = raw.partition(b";")
    fields = head.split(b",")
    if not semicolon or len(fields) < 3 or not all(field.isdigit() and len(field) < 21 for field in fields[:3]):
        return None
    priority, sequence, microseconds = (int(field) for field in fields[:3])
    text = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), rest.partition(b"\n")[0])
    return Record(sequence, microseconds / 1e6, priority >> 3, " ".join(text.decode("utf-8", "replace").split("\n")))


class Cursor(msgspec.Struct, frozen=True):
    """The note on disk: the newest record whose evidence is saved, and the boot that counts it."""

    boot: str
    sequence: int


def read_cursor(path: Path, boot: str) -> int:
    """The newest record that is done with; -1 in a new boot, and where the note is absent or damaged."""
    try:
        cursor = msgspec.json.decode(path.read_bytes(), type=Cursor)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return -1
    return cursor.sequence if boot and cursor.boot == boot else -1


def write_cursor(path: Path, cursor: Cursor) -> None:
    """Replace the note in one step; unsynced, as no cursor outlives the kernel that counts it. Raises OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(msgspec.json.encode(cursor))
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


class KernelLog:
    """Follows the kernel log from where an earlier process of this boot left off, else from the oldest record kept.

    Args:
        post: takes the lines; called from the thread of this log and must not block.
        clock: time, for the age of a line.
        boot: the kernel's id of this boot.
        directory: where the note is kept; None for a process that saves nothing, which reads all that there is.
        device: what is read.
        retry: seconds of the first and the longest wait after a failure.
    """

    def __init__(
        self,
        post: Callable[[KernelLine], None],
        clock: Clock,
        boot: str,
        directory: Path | None,
        *,
        device: Path = DEVICE,
        retry: tuple[float, float] = RETRY,
    ) -> None:
        self._post = post
        self._clock = clock
        self._boot = boot
        self._note = directory / FILE if directory is not None and boot else None
        self._device = device
        self._backoff = Backoff(*retry)
        self._read = -1 if self._note is None else read_cursor(self._note, boot)
        self._posted = self._taken = self._saved = self._read
        self._fd = -1
        self._stopping = threading.Event()
        self._stop_read, self._stop_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------------------------------ from the daemon

    def start(self) -> bool:
        """Read from now on; whether the log can be read on this host. Where it cannot, one line says so."""
        try:
            self._fd = self._open()
        except OSError as error:
            if error.errno in UNAVAILABLE:
                log.info("event=no-kernel-log device=%s reason=%s", self._device, errno.errorcode[error.errno])
                return False
            self._failed(error)
        self._thread = threading.Thread(target=self._run, name="ibmon-kernel-log", daemon=True)
        self._thread.start()
        return True

    def committed(self) -> None:
        """The daemon has saved what it took in: what was posted before the previous call is done with.

        What was posted since may still be queued, so the note is one call behind, and a kill loses no line. A line that
        is read twice is the same evidence (`kernel_log.add`).
        """
        done, self._taken = self._taken, self._posted
        if self._note is None or done <= self._saved:
            return
        self._saved = done
        try:
            write_cursor(self._note, Cursor(self._boot, done))
        except OSError as error:
            log.warning("%s cannot be written: %s", self._note, error.strerror)

    def close(self) -> None:
        """Stop at once."""
        if self._stop_write < 0:
            return
        self._stopping.set()
        os.write(self._stop_write, b"x")
        if self._thread is not None:
            self._thread.join()
        self._close()
        os.close(self._stop_write)
        os.close(self._stop_read)
        self._stop_write = -1

    # ------------------------------------------------------------------------------------------ in the thread

    def _run(self) -> None:
        """Follow the log until `close`, whatever happens in between."""
        while not self._stopping.is_set():
            try:
                self._follow()
            except OSError as error:
                self._failed(error)
            except Exception:
                log.exception("reading the kernel log failed; it goes on")
            self._close()
            self._stopping.wait(self._backoff.next())

    def _follow(self) -> None:
        """Read what comes. Raises OSError when the device has to be opened anew; returns at the end only."""
        if self._fd < 0:
            self._fd = self._open()
        poll = select.poll()
        poll.register(self._stop_read, select.POLLIN)
        poll.register(self._fd, select.POLLIN)
        while not self._stopping.is_set():
            try:
                raw = os.read(self._fd, _RECORD)
            except BlockingIOError:
                if any(event & (select.POLLHUP | select.POLLNVAL) for _, event in poll.poll()):
                    raise OSError(errno.EIO, os.strerror(errno.EIO)) from None
                continue
            except BrokenPipeError:
                continue  # records were overwritten before they were read; the next read gives the oldest that is left
            if not raw:
                raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
            self._take(raw)

    def _take(self, raw: bytes) -> None:
        record = parse(raw)
        if record is None or record.sequence <= self._read:
            return
        self._read = record.sequence
        self._backoff.reset()
        age = max(0.0, self._clock.now().monotonic - record.seconds)
        if record.facility == _KERNEL and age <= kernel_log.WINDOW and kernel_log.match(record.text) is not None:
            self._post(KernelLine(record.text, age))
            self._posted = record.sequence

    def _failed(self, error: OSError) -> None:
        if self._backoff.failures == 0:
            log.warning("the kernel log cannot be read: %s; it is tried again", error.strerror)

    def _open(self) -> int:
        """The log from its oldest record on. Raises OSError."""
        return os.open(self._device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
