"""Reading the columns of a device: the fast way with kept descriptors, and the plain way through any tree.

It decides neither what is read when nor what a value means for health. No error leaves it: each becomes the errno of
its column.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from ibmon.model import Column, Device, Layout, Level, Now, Reading
from ibmon.ports import Clock, Tree
from ibmon.sysfs import columns as places
from ibmon.sysfs import parse
from ibmon.sysfs.attributes import CLASS
from ibmon.sysfs.columns import Statistics
from ibmon.sysfs.descriptors import DEFAULT_BUDGET, Budget, Files
from ibmon.sysfs.files import FileTree
from ibmon.sysfs.traits import not_read

GONE: Final = frozenset({errno.ENODEV, errno.ENOENT})
"""What files of an unregistered device answer: an old descriptor the first, a path the second."""

_NEWLINE: Final = 10
_SHORT: Final = 64  # bytes that hold any number; asking for a page costs a tenth more of a pass
_MAX_PLANS: Final = 64  # of a device; the tiers together and apart, and what is left out of them for a while


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


class _Pass:
    """What one pass over a device gave so far: values in the order of the columns, and why some are None."""

    __slots__ = ("_device", "_rates", "_started", "_statistics", "_values_of", "errnos", "values", "words")

    def __init__(self, device: Device, started: Now, statistics: Statistics | None) -> None:
        self._device = device
        self._started = started
        self._statistics = statistics
        self._values_of: dict[int, dict[str, int]] = {}
        self._rates: dict[int, bytes | OSError] = {}
        self.values: list[int | None] = []
        self.errnos: dict[int, int] = {}
        self.words: dict[int, str] = {}

    def fail(self, index: int, code: int | None) -> None:
        """A column has no value, and why."""
        self.values.append(None)
        self.errnos[index] = code or errno.EIO

    def special(self, index: int, read: Callable[[], bytes]) -> int:
        """Value of a column that is more than a number in a file. Raises OSError and ParseError."""
        column = self._device.layout.columns[index]
        if column.level is Level.PHY:
            return self._statistic(column)
        if column.level is Level.ATTR and column.name in {"rate", "width"}:
            raw = self._rate(column.port, read)
            if column.name == "rate" and (word := parse.rate(raw).word) is not None:
                self.words[index] = word
            return parse.decoder(column)(raw)
        return parse.decoder(column)(read())

    def done(self, columns: tuple[int, ...], ended: Now) -> Reading:
        """The reading."""
        device = self._device
        if not_read(Level.HW, device.driver) is not None:
            self._leave_out_unread(columns)
        return Reading(
            device.name,
            device.layout.generation,
            columns,
            tuple(self.values),
            self.errnos,
            self.words,
            self._started,
            ended,
        )

    def gone(self, columns: tuple[int, ...], ended: Now) -> Reading:
        """The reading of a device that is not there any more, whatever was read before that showed."""
        return gone(self._device.name, self._device.layout.generation, columns, self._started, ended)

    def _leave_out_unread(self, columns: tuple[int, ...]) -> None:
        """Take for missing what the driver marks as not read by a value of its own (ionic)."""
        for at, index in enumerate(columns):
            mark = not_read(self._device.layout.columns[index].level, self._device.driver)
            if mark is not None and self.values[at] == mark:
                self.values[at] = None
                self.errnos[index] = errno.ENODATA

    def _rate(self, port: int, read: Callable[[], bytes]) -> bytes:
        """The one file that `rate` and `width` share: asked once, as it costs mlx5 five firmware commands."""
        if port not in self._rates:
            try:
                self._rates[port] = read()
            except OSError as error:
                if error.errno in GONE:
                    raise  # the reader may want to try again
                self._rates[port] = error
        found = self._rates[port]
        if isinstance(found, OSError):
            raise found
        return found

    def _statistic(self, column: Column) -> int:
        """A number out of the one answer that holds all ethtool statistics of the port's interface."""
        if column.port not in self._values_of:
            self._values_of[column.port] = {}  # asked once, also where that fails
            netdev = places.interface(self._device, column.port)
            if netdev is not None and self._statistics is not None:
                names, values = self._statistics.names(netdev), self._statistics.values(netdev)
                self._values_of[column.port] = dict(zip(names, values, strict=False))
        value = self._values_of[column.port].get(column.name)
        if value is None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))
        return value


def gone(name: str, generation: int, columns: tuple[int, ...], started: Now, ended: Now) -> Reading:
    """The reading of a device that is not there: ENODEV for every column."""
    errnos = dict.fromkeys(columns, errno.ENODEV)
    return Reading(name, generation, columns, (None,) * len(columns), errnos, {}, started, ended)


def is_number(column: Column) -> bool:
    """Whether a column's file is a plain decimal."""
    return column.level is not Level.PHY and parse.decoder(column) is parse.number


# ------------------------------------------------------------------------------------------------------- any tree


class TreeReader:
    """Reads through `ibmon.ports.Tree`: replay, simulation in memory. Keeps no file open."""

    def __init__(self, tree: Tree, clock: Clock, ethtool: Statistics | None = None) -> None:
        self._tree = tree
        self._clock = clock
        self._ethtool = ethtool
        self._paths: dict[str, tuple[Layout, tuple[str | None, ...]]] = {}

    def read(self, device: Device, columns: tuple[int, ...]) -> Reading:
        """The columns' values now; ENODEV for every one when the device has gone."""
        given = _Pass(device, self._clock.now(), self._ethtool)
        paths = self._paths_of(device)
        for index in columns:
            path = paths[index]
            try:
                given.values.append(given.special(index, lambda path=path: self._content(path)))  # type: ignore[misc]
            except parse.ParseError as error:
                given.fail(index, error.errno)
            except OSError as error:
                if error.errno in GONE and not self._tree.exists(f"{CLASS}/{device.name}/."):
                    return given.gone(columns, self._clock.now())
                given.fail(index, error.errno)
        return given.done(columns, self._clock.now())

    def forget(self, name: str) -> None:
        """Nothing is kept open; the paths are made anew."""
        self._paths.pop(name, None)

    def close(self) -> None:
        """Nothing is kept open."""
        self._paths.clear()

    def _content(self, path: str | None) -> bytes:
        if path is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return self._tree.read(path)

    def _paths_of(self, device: Device) -> tuple[str | None, ...]:
        known = self._paths.get(device.name)
        if known is None or known[0] is not device.layout:
            known = (device.layout, places.paths(self._tree, device))
            self._paths[device.name] = known
        return known[1]


def read_columns_tree(
    tree: Tree, device: Device, columns: tuple[int, ...], clock: Clock, ethtool: Statistics | None = None
) -> Reading:
    """One pass over some columns of a device through any tree."""
    return TreeReader(tree, clock, ethtool).read(device, columns)


# -------------------------------------------------------------------------------------------------- a real directory


class _Plan(NamedTuple):
    """One pass: column, slot of its file, and whether that holds a plain number; and the directories of the files."""

    steps: tuple[tuple[int, int, bool], ...]
    directories: tuple[str, ...]


class _Kept:
    """The files of one device generation, and by columns read together the plan of the pass."""

    __slots__ = ("files", "layout", "paths", "plans", "slots")

    def __init__(self, tree: FileTree, device: Device, budget: Budget, *, plain: bool) -> None:
        found = places.paths(tree, device)
        self.layout = device.layout
        first = {path: i for i, path in reversed(list(enumerate(found)))}  # `rate` and `width` share a file
        self.slots = [first[path] if path is not None else i for i, path in enumerate(found)]
        self.paths = [None if path is None else tree.path(path) for path in found]
        self.files = Files(tree.path(f"{CLASS}/{device.name}"), self.paths, budget, plain=plain)
        self.plans: dict[tuple[int, ...], _Plan] = {}

    def plan(self, columns: tuple[int, ...]) -> _Plan:
        """The plan of a pass over these columns."""
        plan = self.plans.get(columns)
        if plan is None:
            layout = self.layout.columns
            steps = tuple((i, self.slots[i], is_number(layout[i])) for i in columns)
            above = dict.fromkeys(path.rpartition("/")[0] for i in columns if (path := self.paths[i]) is not None)
            plan = _Plan(steps, tuple(above))
            if len(self.plans) >= _MAX_PLANS:
                self.plans.clear()
            self.plans[columns] = plan
        return plan


class FileReader:
    """Reads a real directory with kept descriptors: a `pread` at offset 0 runs the driver's function anew.

    Threads may read different devices at the same time. A device that was forgotten while a thread is stuck in it is
    closed by that thread when it comes back.
    """

    def __init__(
        self, tree: FileTree, clock: Clock, *, budget: int = DEFAULT_BUDGET, ethtool: Statistics | None = None
    ) -> None:
        self._tree = tree
        self._clock = clock
        self._ethtool = ethtool
        self._budget = Budget(budget)
        self._plain = not tree.is_sysfs()
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
            if kept is not None and kept.layout is not device.layout:
                _drop(kept.files)
                kept = None
            if kept is None:
                kept = _Kept(self._tree, device, self._budget, plain=self._plain)
                self._kept[device.name] = kept
            kept.files.busy = True
            return kept

    def _release(self, kept: _Kept) -> None:
        with self._lock:
            kept.files.busy = False
            if kept.files.dropped:
                kept.files.close()

    def _read(self, kept: _Kept, device: Device, columns: tuple[int, ...]) -> Reading:
        given = _Pass(device, self._clock.now(), self._ethtool)
        files, plan = kept.files, kept.plan(columns)
        files.refresh(plan.directories)
        fds, append, pread = files.fds, given.values.append, os.pread
        for index, slot, plain_number in plan.steps:
            fd = fds[slot]
            try:
                if not plain_number:
                    append(given.special(index, lambda slot=slot: files.read(slot)))  # type: ignore[misc]
                    continue
                raw = pread(fd, _SHORT, 0) if fd >= 0 else files.read(slot)
                if raw[:-1].isdigit() and raw[-1] == _NEWLINE and (value := int(raw)) <= parse.MAX_VALUE:
                    append(value)  # the usual line, without a call
                else:
                    append(parse.number(raw if len(raw) < _SHORT else files.read(slot)))
            except parse.ParseError as error:
                given.fail(index, error.errno)
            except OSError as error:
                if error.errno not in GONE:
                    given.fail(index, error.errno)
                elif not self._again(given, files, index, slot):
                    files.close()
                    return given.gone(columns, self._clock.now())
        return given.done(columns, self._clock.now())

    @staticmethod
    def _again(given: _Pass, files: Files, index: int, slot: int) -> bool:
        """Read a file that was lost once more by its path; False when its whole device was.

        Drivers answer ENODEV for other reasons too (a Soft-RoCE `state` whose interface has gone), and an interface
        can leave while its device stays.
        """
        files.drop(slot)
        if not files.same_device():
            return False
        try:
            given.values.append(given.special(index, lambda: files.read(slot)))
        except (parse.ParseError, OSError) as error:
            given.fail(index, error.errno)
        return True


def _drop(files: Files) -> None:
    files.dropped = True
    if not files.busy:
        files.close()


def reader(tree: Tree, clock: Clock, *, ethtool: Statistics | None = None, budget: int = DEFAULT_BUDGET) -> Reader:
    """The fastest reader there is for a tree."""
    if isinstance(tree, FileTree):
        return FileReader(tree, clock, budget=budget, ethtool=ethtool)
    return TreeReader(tree, clock, ethtool)
