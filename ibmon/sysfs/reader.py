"""Reading the columns of a device: the fast way with kept descriptors, and the plain way through any tree.

It decides neither what is read when nor what a value means. No error leaves it: each becomes the errno of its column.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from itertools import repeat
from typing import Final, Protocol

from ibmon.model import Device, Reading
from ibmon.ports import Clock, Tree
from ibmon.sysfs import columns as places
from ibmon.sysfs.attributes import CLASS
from ibmon.sysfs.columns import Statistics
from ibmon.sysfs.contents import Content, Contents, gone, nowhere
from ibmon.sysfs.descriptors import DEFAULT_BUDGET, Budget, Files
from ibmon.sysfs.files import FileTree

GONE: Final = frozenset({errno.ENODEV, errno.ENOENT})
"""What files of an unregistered device answer: an old descriptor the first, a path the second."""

_SHORT: Final = 64  # bytes that hold any value; asking for a page costs a tenth more of a pass


class Reader(Protocol):
    """Reads columns of devices. One device is never read twice at once; different ones may be."""

    def read(self, device: Device, columns: tuple[int, ...]) -> Reading:
        """The columns' values now; ENODEV for every one when the device has gone or is another one by now."""
        ...

    def forget(self, name: str) -> None:
        """Close what is kept of a device."""
        ...

    def close(self) -> None:
        """Close all that no read in progress uses."""
        ...


# ------------------------------------------------------------------------------------------------------- any tree


class TreeReader:
    """Reads through `ibmon.ports.Tree`: replay, simulation in memory. Keeps no file open."""

    def __init__(self, tree: Tree, clock: Clock, ethtool: Statistics | None = None) -> None:
        self._tree = tree
        self._clock = clock
        self._ethtool = ethtool
        self._known: dict[str, tuple[Contents, tuple[str | None, ...]]] = {}

    def read(self, device: Device, columns: tuple[int, ...]) -> Reading:
        """The columns' values now; ENODEV for every one when the device has gone."""
        started = self._clock.now()
        contents, paths = self._contents_of(device)
        wanted = contents.over(columns)
        found: list[Content] = []
        for slot in wanted.slots:
            try:
                found.append(self._content(paths[slot]))
            except OSError as error:  # noqa: PERF203 - one file a round
                if error.errno in GONE and not self._tree.exists(f"{CLASS}/{device.name}/."):
                    return gone(device.name, device.layout.generation, columns, started, self._clock.now())
                found.append(error.errno or errno.EIO)
        contents.take_statistics(wanted)
        return contents.take(wanted, found, started, self._clock.now())

    def forget(self, name: str) -> None:
        """Nothing is kept open; the paths are made anew."""
        self._known.pop(name, None)

    def close(self) -> None:
        """Nothing is kept open."""
        self._known.clear()

    def _content(self, path: str | None) -> bytes:
        if path is None:
            raise nowhere()
        return self._tree.read(path)

    def _contents_of(self, device: Device) -> tuple[Contents, tuple[str | None, ...]]:
        known = self._known.get(device.name)
        if known is None or known[0].layout is not device.layout:
            paths = places.paths(self._tree, device)
            known = self._known[device.name] = (Contents(device, paths, self._ethtool), paths)
        return known


def read_columns_tree(
    tree: Tree, device: Device, columns: tuple[int, ...], clock: Clock, ethtool: Statistics | None = None
) -> Reading:
    """One pass over some columns of a device through any tree."""
    return TreeReader(tree, clock, ethtool).read(device, columns)


# -------------------------------------------------------------------------------------------------- a real directory


class _Kept:
    """The files of one device generation, and what they held last."""

    __slots__ = ("contents", "files")

    def __init__(
        self, tree: FileTree, device: Device, budget: Budget, statistics: Statistics | None, *, plain: bool
    ) -> None:
        paths = [None if path is None else tree.path(path) for path in places.paths(tree, device)]
        self.contents = Contents(device, paths, statistics)
        self.files = Files(tree.path(f"{CLASS}/{device.name}"), paths, budget, plain=plain)


class FileReader:
    """Reads a real directory with kept descriptors: a `pread` at offset 0 runs the driver's function anew.

    Threads may read different devices at the same time. A device that was forgotten while a thread is stuck in it is
    closed by that thread when it comes back.
    """

    def __init__(
        self,
        tree: FileTree,
        clock: Clock,
        *,
        budget: int = DEFAULT_BUDGET,
        ethtool: Statistics | None = None,
        plain: bool | None = None,
    ) -> None:
        """A reader of a directory; `plain` where its files can be replaced, by default wherever it is no sysfs."""
        self._tree = tree
        self._clock = clock
        self._ethtool = ethtool
        self._budget = Budget(budget)
        self._plain = not tree.is_sysfs() if plain is None else plain
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}

    @property
    def open_files(self) -> int:
        """How many descriptors are kept now."""
        return self._budget.used

    def read(self, device: Device, columns: tuple[int, ...]) -> Reading:
        """The columns' values now; ENODEV for every one when the device has gone or is another one by now."""
        kept = self._acquire(device)
        try:
            return self._read(kept, device, columns)
        finally:
            self._release(kept)

    def forget(self, name: str) -> None:
        """Close the files of a device, or leave that to the thread that is in them."""
        with self._lock:
            kept = self._kept.pop(name, None)
            if kept is not None:
                _drop(kept.files)

    def close(self) -> None:
        """Close all files that no read in progress uses."""
        with self._lock:
            for kept in self._kept.values():
                _drop(kept.files)
            self._kept.clear()

    def _acquire(self, device: Device) -> _Kept:
        with self._lock:
            kept = self._kept.get(device.name)
            if kept is not None and kept.contents.layout is not device.layout:
                _drop(kept.files)
                kept = None
            if kept is None:
                kept = _Kept(self._tree, device, self._budget, self._ethtool, plain=self._plain)
                self._kept[device.name] = kept
            kept.files.busy = True
            return kept

    def _release(self, kept: _Kept) -> None:
        with self._lock:
            kept.files.busy = False
            if kept.files.dropped:
                kept.files.close()

    def _read(self, kept: _Kept, device: Device, columns: tuple[int, ...]) -> Reading:
        started = self._clock.now()
        files, contents = kept.files, kept.contents
        wanted = contents.over(columns)
        files.refresh(wanted.directories)
        slots, fds = wanted.slots, wanted.files(files.fds)
        raws: list[bytes] = []
        failed: dict[int, int] = {}
        answers = map(os.pread, fds, repeat(_SHORT), repeat(0))  # a failure ends one call, not the walk
        while len(raws) < len(fds):
            try:
                raws.extend(answers)  # what came before a failure stays
            except OSError as error:  # noqa: PERF203 - one file a round
                content = self._again(files, slots[len(raws)], error)
                if content is None:
                    files.close()
                    return gone(device.name, device.layout.generation, columns, started, self._clock.now())
                if isinstance(content, int):
                    failed[len(raws)] = content
                    content = b""
                raws.append(content)
        if max(map(len, raws), default=0) >= _SHORT:
            _read_long(files, slots, raws, failed)
        found = [failed.get(i, raw) for i, raw in enumerate(raws)] if failed else raws
        contents.take_statistics(wanted)
        return contents.take(wanted, found, started, self._clock.now())

    @staticmethod
    def _again(files: Files, slot: int, error: OSError) -> Content | None:
        """What a file gives that is not open yet, or that was lost; None where its whole device was.

        Drivers answer ENODEV for other reasons too (a Soft-RoCE `state` whose interface has gone), and an interface
        can leave while its device stays.
        """
        try:
            if files.fds[slot] < 0:
                return files.read(slot)
        except OSError as opened:
            error = opened
        if error.errno not in GONE:
            return error.errno or errno.EIO
        files.drop(slot)
        if not files.same_device():
            return None
        try:
            return files.read(slot)
        except OSError as lost:
            return lost.errno or errno.EIO


def _read_long(files: Files, slots: Sequence[int], raws: list[bytes], failed: dict[int, int]) -> None:
    """Read those anew and whole that hold more than was asked for."""
    for position, raw in enumerate(raws):
        if len(raw) >= _SHORT:
            try:
                raws[position] = files.read(slots[position])
            except OSError as error:
                failed[position] = error.errno or errno.EIO


def _drop(files: Files) -> None:
    files.dropped = True
    if not files.busy:
        files.close()


def reader(tree: Tree, clock: Clock, *, ethtool: Statistics | None = None, budget: int = DEFAULT_BUDGET) -> Reader:
    """The fastest reader there is for a tree."""
    if isinstance(tree, FileTree):
        return FileReader(tree, clock, budget=budget, ethtool=ethtool)
    return TreeReader(tree, clock, ethtool)
