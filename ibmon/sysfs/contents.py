"""What the files of one device held last, and what that means: only what has changed is worked out anew.

Owns the way from contents and errnos to values. It opens no file. Most files of a healthy node hold the same for days,
and to see that they do is a tenth of the cost of parsing them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from itertools import compress
from operator import ne
from typing import Final, NamedTuple, TypeAlias

from ibmon.model import Column, Device, Level, Now, Reading
from ibmon.picking import Picker, picker
from ibmon.sysfs import columns as places
from ibmon.sysfs import parse
from ibmon.sysfs.columns import Statistics
from ibmon.sysfs.traits import not_read

Content: TypeAlias = bytes | int
"""What came of reading a file: its bytes, or the errno of the failure."""

_MAX_PASSES: Final = 64  # of a device; the tiers together and apart, and what is left out of them for a while


class Pass(NamedTuple):
    """Some columns of a device that are read together.

    A file is named by its slot, which is the first column that lies in it: `rate` and `width` share one.

    Attributes:
        columns: their indices, in reading order.
        slots: the files to read, in reading order, each once: `rate` costs mlx5 five firmware commands.
        files: picks these out of what is kept by slot.
        values: picks the columns out of what is kept by column.
        statistics: the columns among them that are ethtool statistics, and so lie in no file.
        rates: the columns among them that have a word beside their value.
        directories: where the files lie.
    """

    columns: tuple[int, ...]
    slots: tuple[int, ...]
    files: Picker
    values: Picker
    statistics: tuple[int, ...]
    rates: tuple[int, ...]
    directories: tuple[str, ...]


class Contents:
    """The newest contents of a device's files and its columns' values.

    Args:
        device: the device.
        paths: by column, where its file lies; None where it has none.
        statistics: where ethtool statistics come from, if from anywhere.
    """

    def __init__(self, device: Device, paths: Sequence[str | None], statistics: Statistics | None = None) -> None:
        self.device = device
        self.layout = device.layout
        self._paths = paths
        self._statistics = statistics
        columns = device.layout.columns
        first = {path: i for i, path in reversed(list(enumerate(paths))) if path is not None}
        self._slots = [i if path is None else first[path] for i, path in enumerate(paths)]
        self._fed: dict[int, list[int]] = {}
        for index, slot in enumerate(self._slots):
            self._fed.setdefault(slot, []).append(index)
        self._decoders = [parse.decoder(column) for column in columns]
        self._rates = frozenset(i for i, column in enumerate(columns) if _is_rate(column))
        self._marks = [not_read(column.level, device.driver) for column in columns]
        self._contents: list[Content | None] = [None] * len(columns)  # by slot
        self._values: list[int | None] = [None] * len(columns)
        self._errnos: dict[int, int] = {}
        self._words: dict[int, str] = {}
        self._passes: dict[tuple[int, ...], Pass] = {}

    def over(self, columns: tuple[int, ...]) -> Pass:
        """The pass over these columns."""
        known = self._passes.get(columns)
        if known is None:
            if len(self._passes) >= _MAX_PASSES:
                self._passes.clear()
            known = self._passes[columns] = self._pass(columns)
        return known

    def _pass(self, columns: tuple[int, ...]) -> Pass:
        of = self.layout.columns
        in_files = [i for i in columns if of[i].level is not Level.PHY]
        slots = tuple(dict.fromkeys(self._slots[i] for i in in_files))
        return Pass(
            columns,
            slots,
            picker(slots),
            picker(columns),
            tuple(i for i in columns if of[i].level is Level.PHY),
            tuple(i for i in in_files if i in self._rates),
            tuple(dict.fromkeys(path.rpartition("/")[0] for i in slots if (path := self._paths[i]) is not None)),
        )

    def take(self, made: Pass, found: Sequence[Content], started: Now, ended: Now) -> Reading:
        """What was found in the files of a pass, slot by slot, as a reading."""
        known = made.files(self._contents)
        for slot, content in compress(zip(made.slots, found, strict=True), map(ne, found, known)):
            self._contents[slot] = content
            for index in self._fed[slot]:
                self._decode(index, content)
        errnos, words = self._errnos, self._words
        return Reading(
            self.device.name,
            self.layout.generation,
            made.columns,
            made.values(self._values),
            {i: errnos[i] for i in made.columns if i in errnos} if errnos else {},
            {i: words[i] for i in made.rates if i in words},
            started,
            ended,
        )

    def take_statistics(self, made: Pass) -> None:
        """Ask for the ethtool statistics of a pass, of each interface once, also where that fails."""
        asked: dict[int, dict[str, int]] = {}
        for index in made.statistics:
            column = self.layout.columns[index]
            if column.port not in asked:
                asked[column.port] = {}
                try:
                    asked[column.port] = self._statistics_of(column.port)
                except OSError as error:
                    self._fail(index, error.errno)
                    continue
            value = asked[column.port].get(column.name)
            if value is None:
                self._fail(index, errno.ENODATA)
            else:
                self._set(index, value)

    def _statistics_of(self, port: int) -> dict[str, int]:
        netdev = places.interface(self.device, port)
        if netdev is None or self._statistics is None:
            return {}
        return dict(zip(self._statistics.names(netdev), self._statistics.values(netdev), strict=False))

    # ------------------------------------------------------------------------------------------ one column

    def _decode(self, index: int, content: Content) -> None:
        if isinstance(content, int):
            self._fail(index, content)
            return
        try:
            value = self._decoders[index](content)
        except parse.ParseError as error:
            self._fail(index, error.errno)
            return
        self._set(index, value)
        if index in self._rates:
            self._set_word(index, parse.rate(content).word)

    def _set(self, index: int, value: int) -> None:
        if value == self._marks[index]:  # not read, as the driver says by a value of its own (ionic)
            self._fail(index, errno.ENODATA)
            return
        self._values[index] = value
        if self._errnos:
            self._errnos.pop(index, None)

    def _set_word(self, index: int, word: str | None) -> None:
        if word is None:
            self._words.pop(index, None)
        else:
            self._words[index] = word

    def _fail(self, index: int, code: int | None) -> None:
        self._values[index] = None
        self._errnos[index] = code or errno.EIO
        self._words.pop(index, None)


def _is_rate(column: Column) -> bool:
    return column.level is Level.ATTR and column.name == "rate"


def gone(name: str, generation: int, columns: tuple[int, ...], started: Now, ended: Now) -> Reading:
    """The reading of a device that is not there: ENODEV for every column."""
    errnos = dict.fromkeys(columns, errno.ENODEV)
    return Reading(name, generation, columns, (None,) * len(columns), errnos, {}, started, ended)


def nowhere() -> FileNotFoundError:
    """What reading a file gives whose place is not known."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
