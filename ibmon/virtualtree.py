"""A sysfs tree in memory: frames of a recording go in, what a reader of sysfs would see comes out.

Owns the meaning of a frame's file keys, links, errnos and reads that hang. Knows no clock and touches no disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from ibmon.recording import ERRNO_NAMES, Frame, RecordingError

_MAX_LINKS = 40  # as Linux: include/linux/namei.h MAXSYMLINKS
_CLASS = "class/infiniband"


class ReadHangs(Exception):  # noqa: N818 - it is an event at a reader, not an error of the tree
    """A read of this path does not return now (`block`). No OSError: nothing may take it for an answer."""


class _Node:
    """A directory (`children`), a link (`target`) or a file (`data`)."""

    __slots__ = ("blocked", "children", "data", "error", "name", "parent", "target")

    def __init__(self, name: str, parent: _Node | None) -> None:
        self.name = name
        self.parent = parent
        self.children: dict[str, _Node] | None = None
        self.target: str | None = None
        self.data = b""
        self.error: int | None = None
        self.blocked = False


def _failure(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class VirtualTree:
    """The tree, with the reading calls of `ibmon.ports.Tree`; every path is relative to the sysfs root.

    Links are followed as the kernel does: `..` is the parent of where a link led to, an absolute target starts at the
    root of the tree, a chain of more than 40 is ELOOP. Nothing outside the tree exists (ENOENT).

    Attributes:
        version: rises by one with each frame that touches the tree.
        class_version: rises by one with each frame that changes what lies directly below class/infiniband: an entry
            that comes, goes or is another one of the same name. That is when the kernel sends an event.
    """

    def __init__(self) -> None:
        self._root = _Node("", None)
        self._root.children = {}
        self._found: dict[str, _Node | int] = {}  # path -> node or errno, until the structure changes
        self._may_hang = False
        self.version = 0
        self.class_version = 0

    # ------------------------------------------------------------------------------------------------------- reading

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted. Raises OSError, and ReadHangs where it would not return."""
        node = self._reading(path)
        if node.children is None:
            raise _failure(errno.ENOTDIR, path)
        return sorted(node.children)

    def read(self, path: str) -> bytes:
        """Content of a file. Raises OSError, and ReadHangs where it would not return."""
        node = self._reading(path)
        if node.children is not None:
            raise _failure(errno.EISDIR, path)
        return node.data

    def readlink(self, path: str) -> str:
        """Target of a link as it is written. Raises OSError: EINVAL where `path` is no link."""
        node = self._walk(self._root, path, follow=False)
        if node.target is None:
            raise _failure(errno.EINVAL, path)
        return node.target

    def realpath(self, path: str) -> str:
        """The path with all links resolved. Raises OSError where it leads nowhere."""
        return "/".join(reversed([node.name for node in _upwards(self._find(path))][:-1]))

    def exists(self, path: str) -> bool:
        """Whether the path leads to something."""
        try:
            self._find(path)
        except OSError:
            return False
        return True

    def isdir(self, path: str) -> bool:
        """Whether the path leads to a directory."""
        try:
            return self._find(path).children is not None
        except OSError:
            return False

    def islink(self, path: str) -> bool:
        """Whether the path itself is a link, dangling or not."""
        try:
            return self._walk(self._root, path, follow=False).target is not None
        except OSError:
            return False

    def is_blocked(self, path: str) -> bool:
        """Whether a read of the path would hang: it, or a directory that really holds it, is blocked.

        A path that only passes through a blocked device, as class/infiniband/X/device/numa_node, is not.
        """
        try:
            return self._may_hang and any(node.blocked for node in _upwards(self._find(path)))
        except OSError:
            return False

    def _reading(self, path: str) -> _Node:
        node = self._find(path)
        if self._may_hang and any(above.blocked for above in _upwards(node)):
            raise ReadHangs(path)
        if node.error is not None:
            raise _failure(node.error, path)
        return node

    def _find(self, path: str) -> _Node:
        found = self._found.get(path)
        if found is None:
            try:
                found = self._walk(self._root, path, follow=True)
            except OSError as error:
                found = error.errno or errno.ENOENT
            self._found[path] = found
        if isinstance(found, int):
            raise _failure(found, path)
        return found

    def _walk(self, start: _Node, path: str, *, follow: bool) -> _Node:
        node, left, links = start, path.split("/")[::-1], 0
        while left:
            part = left.pop()
            if node.children is None:
                raise _failure(errno.ENOTDIR, path)
            if part in {"", "."}:
                continue
            child = node.parent if part == ".." else node.children.get(part)
            if child is None:
                raise _failure(errno.ENOENT, path)
            if child.target is None or not (left or follow):
                node = child
                continue
            links += 1
            if links > _MAX_LINKS:
                raise _failure(errno.ELOOP, path)
            if child.target.startswith("/"):
                node = self._root
            left.extend(child.target.split("/")[::-1])
        return node

    # ------------------------------------------------------------------------------------------------------ changing

    def apply(self, frame: Frame) -> bool:
        """Do what a frame says of files, in the order of docs/recording.md; its other keys are the runtime's business.

        Returns:
            Whether something directly below class/infiniband changed.

        Raises:
            RecordingError: when a key does not fit the tree (a file where a directory is needed); the frame is then
                applied in part.
        """
        if not (
            frame.remove or frame.dirs or frame.links or frame.files or frame.errnos or frame.block or frame.unblock
        ):
            return False
        before = self._class_entries()
        try:
            for path in frame.remove:
                self._remove(path)
            for path in frame.dirs:
                self._mkdir(path)
            for path, target in frame.links.items():
                self._link(path, target)
            for path, text in frame.files.items():
                self._write(path, text)
            for path, name in frame.errnos.items():
                self._fail(path, name)
            self._set_blocks(frame)
        except OSError as error:
            raise RecordingError(f"frame at t={frame.t:g}: {error.filename}: {error.strerror}") from error
        self.version += 1
        changed = self._class_entries() != before
        self.class_version += changed
        return changed

    def _class_entries(self) -> Mapping[str, _Node]:
        try:
            return dict(self._find(_CLASS).children or {})
        except OSError:
            return {}

    def _above(self, path: str) -> tuple[_Node, str]:
        """The directory that holds `path`, made if need be, and the last name."""
        parts = path.split("/")
        node = self._root
        for part in parts[:-1]:
            assert node.children is not None  # noqa: S101 - the root is one, and so is what the loop leaves
            child = node.children.get(part)
            if child is None:
                child = self._add(node, part)
                child.children = {}
            elif child.target is not None:
                child = self._walk(node, part, follow=True)
            if child.children is None:
                raise _failure(errno.ENOTDIR, path)
            node = child
        return node, parts[-1]

    def _add(self, parent: _Node, name: str) -> _Node:
        assert parent.children is not None  # noqa: S101 - callers hold a directory
        node = parent.children[name] = _Node(name, parent)
        self._found.clear()
        return node

    def _remove(self, path: str) -> None:
        try:
            node = self._walk(self._root, path, follow=False)
        except OSError:
            return  # what is not there is removed
        if node.parent is not None and node.parent.children is not None:
            del node.parent.children[node.name]
            self._found.clear()

    def _mkdir(self, path: str) -> None:
        parent, name = self._above(path)
        node = (parent.children or {}).get(name)
        if node is None:
            self._add(parent, name).children = {}
        elif self._walk(parent, name, follow=True).children is None:
            raise _failure(errno.EEXIST, path)

    def _link(self, path: str, target: str) -> None:
        parent, name = self._above(path)
        node = (parent.children or {}).get(name)
        if node is not None and node.children is not None:
            raise _failure(errno.EISDIR, path)
        if node is None or node.target != target:
            self._add(parent, name).target = target

    def _file(self, path: str) -> _Node:
        """The file at a path, through links, made if need be."""
        parent, name = self._above(path)
        if name not in (parent.children or {}):
            return self._add(parent, name)
        return self._walk(parent, name, follow=True)

    def _write(self, path: str, text: str) -> None:
        found = self._found.get(path)
        node = found if isinstance(found, _Node) else self._file(path)
        if node.children is not None:
            raise _failure(errno.EISDIR, path)
        node.data = text.encode()

    def _fail(self, path: str, name: str | None) -> None:
        if name is not None:
            self._file(path).error = ERRNO_NAMES[name]
        elif self.exists(path):
            self._find(path).error = None

    def _set_blocks(self, frame: Frame) -> None:
        for path in frame.block:
            self._file(path).blocked = True
            self._may_hang = True
        for path in frame.unblock:
            if self.exists(path):
                _unblock(self._find(path))


def _upwards(node: _Node) -> list[_Node]:
    """A node and all that hold it, the root last."""
    chain = [node]
    while node.parent is not None:
        node = node.parent
        chain.append(node)
    return chain


def _unblock(node: _Node) -> None:
    node.blocked = False
    for child in (node.children or {}).values():
        _unblock(child)
