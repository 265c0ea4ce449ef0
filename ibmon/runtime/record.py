"""Recording a live tree: the whole of it first, then what changed at each interval.

Owns the pace, the deadline of each read, and the end by a signal. What is read is `ibmon/capture.py`'s business, how
it is written `ibmon/recording.py`'s. Nothing is judged.
"""

from __future__ import annotations

import errno
import os
import posixpath
import queue
import threading
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ibmon.capture import capture, difference
from ibmon.config import Config, DevicesConfig
from ibmon.ports import Tree
from ibmon.recording import Frame, Header, Writer
from ibmon.sysfs.files import FileTree

INTERRUPTED = 130  # 128 + SIGINT
_CLASS = "class/infiniband/"
_BEAT = 1.0  # seconds
_T = TypeVar("_T")


class _Worker:
    """One thread that reads for us and may be left behind in a read that does not return."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="record").start()

    def _run(self) -> None:
        while True:
            self._calls.get()()

    def call(self, function: Callable[[], _T], deadline: float) -> _T:
        """What the function returns or raises; TimeoutError when that takes longer than the deadline (seconds)."""
        answer: queue.SimpleQueue[tuple[_T | None, OSError | None]] = queue.SimpleQueue()

        def carry() -> None:
            try:
                answer.put((function(), None))
            except OSError as error:
                answer.put((None, error))

        self._calls.put(carry)
        try:
            value, error = answer.get(timeout=deadline)
        except queue.Empty:
            raise TimeoutError from None
        if error is not None:
            raise error
        return value  # type: ignore[return-value]  # without an error it is the function's own


class PatientTree:
    """A tree whose reads have a deadline. A path that outran it is `blocked`, and never touched again.

    Its device is left alone from then on: a second read would only lose a second thread.
    """

    def __init__(self, tree: Tree, deadline: float) -> None:
        self._tree = tree
        self._deadline = deadline
        self._worker = _Worker()
        self.blocked: set[str] = set()
        self._quarantined: set[str] = set()

    def read(self, path: str) -> bytes:
        """The file's content; OSError ETIMEDOUT when its device does not answer."""
        device = _device(path)
        if device in self._quarantined:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path)
        try:
            return self._worker.call(lambda: self._tree.read(path), self._deadline)
        except TimeoutError as error:
            self._worker = _Worker()  # the old one stays with the read
            self.blocked.add(self._place(path))
            self._quarantined.add(device)
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path) from error

    def _place(self, path: str) -> str:
        above, name = posixpath.split(path)
        return posixpath.join(self._tree.realpath(above), name)

    def listdir(self, path: str) -> list[str]:
        """Names in a directory."""
        return self._tree.listdir(path)

    def readlink(self, path: str) -> str:
        """Target of a symbolic link."""
        return self._tree.readlink(path)

    def realpath(self, path: str) -> str:
        """The path with links resolved."""
        return self._tree.realpath(path)

    def exists(self, path: str) -> bool:
        """Whether the path leads to something."""
        return self._tree.exists(path)


def _device(path: str) -> str:
    """What a read that hangs takes with it: the RDMA device, else the file alone."""
    return path.removeprefix(_CLASS).partition("/")[0] if path.startswith(_CLASS) else path


def keeps(devices: DevicesConfig, path: str) -> bool:
    """Whether the configuration lets us open a path: what is below an excluded device is never opened."""
    if not path.startswith(_CLASS):
        return True
    name = _device(path)
    included = any(fnmatchcase(name, pattern) for pattern in devices.include)
    return included and not any(fnmatchcase(name, pattern) for pattern in devices.exclude)


class Recorder:
    """Takes frames of a tree, each the difference to the one before."""

    def __init__(self, tree: Tree, config: Config) -> None:
        self.tree = PatientTree(tree, config.sampling.read_deadline)
        self._devices = config.devices
        self._last: Frame | None = None
        self._blocked: set[str] = set()

    def frame(self, t: float) -> Frame | None:
        """What changed by the time `t` (seconds from the start); the whole tree the first time; None for nothing."""
        now = capture(self.tree, t=t, keep=lambda path: keeps(self._devices, path))
        now = self._without_silence(now)
        change = now if self._last is None else difference(self._last, now)
        self._last = now
        fresh = tuple(sorted(self.tree.blocked - self._blocked))
        self._blocked |= set(fresh)
        if not fresh:
            return change
        return msgspec.structs.replace(change or Frame(t=t), block=fresh)

    def _without_silence(self, now: Frame) -> Frame:
        """A device that hangs keeps what was read of it; our own deadline is no answer of the kernel."""
        silent = {path for path, name in now.errnos.items() if name == "ETIMEDOUT"}
        if not silent:
            return now
        files, errnos = dict(now.files), {p: n for p, n in now.errnos.items() if p not in silent}
        for path in silent:
            if self._last is not None and path in self._last.files:
                files[path] = self._last.files[path]
            elif path in self.tree.blocked:
                files[path] = ""  # the file is there, and nobody has seen what it holds
        return msgspec.structs.replace(now, files=files, errnos=errnos)


def _header() -> Header:
    known: dict[str, Any] = {"wall": time.time()}
    try:
        known["boot_id"] = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        known["uptime"] = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError):
        known.pop("boot_id", None)
    return Header(**known)


def record(
    sysfs: Path,
    out: Path,
    seconds: float,
    config: Config,
    progress: Callable[[str], None],
    *,
    interval: float | None = None,
    passed: Callable[[float], None] = lambda _: None,
) -> int:
    """Record `sysfs` into `out` for so many seconds; returns the exit code.

    An interrupt ends it early with a whole file and code 130. `progress` gets lines for people, `passed` about once a
    second how many seconds have passed.

    Raises:
        RecordingError: the file cannot be written.
    """
    interval = interval or config.sampling.state_interval
    recorder = Recorder(FileTree(sysfs), config)
    start = time.monotonic()
    code = 0
    with Writer(out, _header()) as writer:
        try:
            while True:
                t = round(time.monotonic() - start, 3)
                frame = recorder.frame(t)
                if frame is not None:
                    writer.write(frame)
                    _tell(progress, writer, frame, out)
                due = (int(t / interval) + 1) * interval
                if due > seconds:
                    break
                while (left := start + due - time.monotonic()) > 0:
                    time.sleep(min(left, _BEAT))
                    passed(time.monotonic() - start)
        except KeyboardInterrupt:
            code = INTERRUPTED
    progress(f"{out}: {writer.frames} frames in {time.monotonic() - start:.0f} s")
    return code


def _tell(progress: Callable[[str], None], writer: Writer, frame: Frame, out: Path) -> None:
    if writer.frames == 1:
        files = len(frame.files)
        progress(f"recording to {out}; the first frame holds {files} files" + ("" if files else ": no RDMA device"))
    for path in frame.block:
        progress(f"{path} does not answer; its device is left alone from now on")
