"""The live sysfs root: `ibmon.ports.Tree` on a real directory.

Owns the system calls, one each. It keeps nothing open and follows no link out of the root when it names a path.
"""

# A Path object for each of thousands of calls is what this room saves.
# ruff: noqa: PTH110, PTH115, PTH116, PTH123, PTH208

from __future__ import annotations

import errno
import os
from typing import Final

PAGE: Final = 4096
"""A sysfs attribute is at most one page, and must be read in one piece: a second read runs the driver again
(fs/seq_file.c:seq_read_iter)."""

_MOUNTS: Final = "/proc/self/mountinfo"


class FileTree:
    """A directory that holds `class/infiniband`: `/sys`, or a copy or simulation of it.

    Attributes:
        root: the directory as given, without a slash at its end.
    """

    def __init__(self, root: str | os.PathLike[str] = "/sys") -> None:
        self.root = os.fspath(root).rstrip("/") or "/"
        self._real = os.path.realpath(self.root)

    def path(self, path: str) -> str:
        """Where a path of the tree lies on this host."""
        return f"{self.root}/{path}" if path else self.root

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, unsorted; those that are no UTF-8 are left out, as nothing could print them."""
        return [name for name in os.listdir(self.path(path)) if not _undecodable(name)]

    def read(self, path: str) -> bytes:
        """The content of a file, at most a page, in one read. Raises OSError."""
        fd = os.open(self.path(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, PAGE)
        finally:
            os.close(fd)

    def readlink(self, path: str) -> str:
        """Target of a symbolic link as it is written. Raises OSError."""
        return os.readlink(self.path(path))

    def realpath(self, path: str) -> str:
        """The path with all links resolved, relative to the root.

        Raises:
            OSError: ENOENT where it dangles or leads out of the root.
        """
        real = os.path.realpath(self.path(path), strict=True)
        if real == self._real:
            return ""
        prefix = self._real.rstrip("/") + "/"
        if not real.startswith(prefix):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return real[len(prefix) :]

    def exists(self, path: str) -> bool:
        """Whether the path leads to something."""
        return os.path.exists(self.path(path))

    def is_sysfs(self) -> bool:
        """Whether the kernel's own sysfs is mounted here; False where that cannot be told."""
        try:
            device = os.stat(self._real).st_dev
            with open(_MOUNTS, encoding="utf-8", errors="replace") as mounts:
                return any(_is_sysfs_mount(line, f"{os.major(device)}:{os.minor(device)}") for line in mounts)
        except OSError:
            return False


def _is_sysfs_mount(line: str, device: str) -> bool:
    """Whether a line of mountinfo says that the file system on `device` is sysfs (Documentation/filesystems/proc)."""
    before, _, after = line.partition(" - ")
    fields = before.split()
    return len(fields) > 2 and fields[2] == device and after.split()[:1] == ["sysfs"]


def _undecodable(name: str) -> bool:
    return any("\udc80" <= char <= "\udcff" for char in name) if not name.isascii() else False
