"""The open files of one device, and the budget that all devices share.

Owns opening, reading at offset 0 and closing. It neither parses nor catches what the kernel answers.

A kept descriptor costs a sixth of opening anew and keeps no device from being removed: kernfs holds no reference
between two calls (fs/kernfs/file.c). After a removal it gives ENODEV for ever, also when the name returns.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Final

from ibmon.sysfs.files import PAGE

DEFAULT_BUDGET: Final = 20_000
"""Descriptors to keep; 256 devices with 60 files each need 15,360. The unit allows 65,536."""

RESERVED: Final = 256
"""Descriptors left to connections, the store and libraries where the process may not open many."""

_READ: Final = os.O_RDONLY | os.O_CLOEXEC
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_COARSE_NS: Final = 20_000_000  # two changes of a directory within a clock tick (at most 10 ms) bear the same time
_Stamp = tuple[int, int, int]
_NO_STAMP: Final = (-1, -1, -1)


class Budget:
    """How many descriptors may be kept, over all devices; what the rest of the process needs is left free."""

    def __init__(self, limit: int = DEFAULT_BUDGET) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        room = limit if soft == resource.RLIM_INFINITY else max(soft - RESERVED, soft // 2)
        self.limit = min(limit, room)
        self.used = 0
        self._lock = threading.Lock()

    def take(self) -> bool:
        """One more, if there is room."""
        with self._lock:
            room = self.used < self.limit
            self.used += room
            return room

    def give_back(self, count: int) -> None:
        """So many were closed."""
        with self._lock:
            self.used -= count


class Files:
    """The files of one device: opened when first read, kept while the budget has room.

    Attributes:
        fds: by slot, the kept descriptor or -1. The reader's loop reads them directly.
        busy: a read uses them now (its thread may be stuck in it), so nobody else may close them.
        dropped: to be closed by the read that uses them.
    """

    def __init__(self, base: str, paths: Sequence[str | None], budget: Budget, *, plain: bool) -> None:
        """Files below the directory `base` or elsewhere; `plain` where the file system is not the kernel's sysfs."""
        self._base = base
        self._paths = paths
        self._budget = budget
        self._directory = -1
        self._stamps: dict[str, _Stamp | None] | None = {} if plain else None
        self.identity = identity(base)
        self.fds = [-1] * len(paths)
        self.busy = False
        self.dropped = False

    def read(self, slot: int) -> bytes:
        """The content of a file now. Raises OSError as the kernel gives it; ENOENT for what has no path."""
        fd = self.fds[slot]
        if fd >= 0:
            return os.pread(fd, PAGE, 0)
        fd = self._open(slot)
        if self._budget.take():
            self.fds[slot] = fd
            return os.pread(fd, PAGE, 0)
        try:
            return os.pread(fd, PAGE, 0)
        finally:
            os.close(fd)

    def same_device(self) -> bool:
        """Whether the device's directory is the one whose files are kept (an inode of kernfs is never used again)."""
        return self.identity is not None and identity(self._base) == self.identity

    def drop(self, slot: int) -> None:
        """Close one file; the next read opens it anew."""
        if self.fds[slot] >= 0:
            os.close(self.fds[slot])
            self.fds[slot] = -1
            self._budget.give_back(1)

    def refresh(self, directories: Iterable[str]) -> None:
        """Where files can be replaced (a copied or simulated tree), close all when one of these directories changed."""
        stamps = self._stamps
        if stamps and any(path in stamps and _stamp(path) != stamps[path] for path in directories):
            self.close()

    def close(self) -> None:
        """Close all; a later read opens anew."""
        kept = [fd for fd in self.fds if fd >= 0]
        self.fds[:] = [-1] * len(self.fds)
        self._budget.give_back(len(kept))
        if self._directory >= 0:
            kept.append(self._directory)
            self._directory = -1
        if self._stamps is not None:
            self._stamps.clear()
        for fd in kept:
            os.close(fd)

    def _open(self, slot: int) -> int:
        path = self._paths[slot]
        if path is None:
            raise FileNotFoundError(2, os.strerror(2))
        if self._stamps is not None:
            directory = os.path.dirname(path)  # noqa: PTH120 - no Path object for each file
            if directory not in self._stamps:
                self._stamps[directory] = _trusted_stamp(directory)
        if self._budget.used < self._budget.limit or not path.startswith(f"{self._base}/"):
            return os.open(path, _READ)
        if self._directory < 0:
            self._directory = os.open(self._base, _DIRECTORY)
        return os.open(path[len(self._base) + 1 :], _READ, dir_fd=self._directory)


def identity(path: str) -> tuple[int, int] | None:
    """What makes a directory itself and not another of the same name; None where there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - no Path object for each pass
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - no Path object for each pass
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _trusted_stamp(path: str) -> _Stamp | None:
    """The stamp of a directory, or one that equals none where a later change could bear the same time."""
    stamp = _stamp(path)
    return _NO_STAMP if stamp is not None and time.time_ns() - stamp[2] < _COARSE_NS else stamp
