"""A directory whose reads can be made to hang, for a daemon that must be shown a card that does not answer.

Owns the gate before the reads; files are `DirectoryTree`'s business. It knows no clock.
"""

from __future__ import annotations

import posixpath
import threading
from pathlib import Path

import msgspec

from ibmon.recording import Frame
from ibmon.simulate.directory import DirectoryTree
from ibmon.sysfs.files import FileTree


class GatedTree:
    """A directory that frames are applied to, and that is read (`ibmon.ports.Tree`) through a gate.

    A plain file cannot keep its reader waiting as a driver can, so a read of what a frame blocks waits here, in the
    reader's own thread, until a later frame unblocks it or `open` is called.
    """

    def __init__(self, root: Path) -> None:
        self._directory = DirectoryTree(root)
        self._files = FileTree(root)
        self._changed = threading.Condition()
        self._blocked: frozenset[str] = frozenset()

    def apply(self, frame: Frame) -> None:
        """Do what a frame says of files and of the gate. Raises RecordingError for any errno but ENOENT."""
        self._directory.apply(msgspec.structs.replace(frame, block=(), unblock=()))
        if frame.block or frame.unblock:
            self._set((self._blocked | set(frame.block)) - set(frame.unblock))

    def open(self) -> None:
        """Let every read go on, now and later."""
        self._set(frozenset())

    def _set(self, blocked: frozenset[str]) -> None:
        with self._changed:
            self._blocked = blocked
            self._changed.notify_all()

    def _pass(self, path: str) -> None:
        """Wait while the file lies at or below something that is blocked."""
        if not self._blocked:
            return
        above = {path := self._files.realpath(path)}
        while path:
            above.add(path := posixpath.dirname(path))
        with self._changed:
            self._changed.wait_for(lambda: not above & self._blocked)

    # ------------------------------------------------------------------------------------------------------- reading

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, unsorted. Raises OSError."""
        self._pass(path)
        return self._files.listdir(path)

    def read(self, path: str) -> bytes:
        """The content of a file. Raises OSError."""
        self._pass(path)
        return self._files.read(path)

    def readlink(self, path: str) -> str:
        """Target of a symbolic link. Raises OSError."""
        return self._files.readlink(path)

    def realpath(self, path: str) -> str:
        """The path with all links resolved, relative to the root. Raises OSError."""
        return self._files.realpath(path)

    def exists(self, path: str) -> bool:
        """Whether the path leads to something."""
        return self._files.exists(path)
