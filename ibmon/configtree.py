"""Configuration files as trees whose values know the file and line they came from; several laid over one another.

Owns reading and parsing TOML and the merge. What the keys mean is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec


class ConfigError(Exception):
    """The configuration cannot be used. `problems` are complete lines, one each, in the order of the files."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Leaf(NamedTuple):
    """A value that is no table, and where it was written (``FILE:LINE``, or ``FILE``)."""

    value: Any
    origin: str


class Table(NamedTuple):
    """A table, its entries, and where it was written first."""

    entries: dict[str, Node]
    origin: str


Node = Leaf | Table | list[Table]

_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"\\]*"|'[^']*')"""
_DOTTED = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]")
_ASSIGN = re.compile(rf"\s*({_DOTTED})\s*=")
_PARTS = re.compile(_KEY)


def read(path: Path) -> Table:
    """The tree of one file.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: it cannot be read, or is no TOML.
    """
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError([f"{path}:{line}: this is no UTF-8 text"]) from error
    return parse(text, str(path))


def parse(text: str, file: str) -> Table:
    """The tree of a text; `file` is its name in origins.

    Raises:
        ConfigError: the text is no TOML.
    """
    try:
        data = msgspec.toml.decode(text)
    except msgspec.DecodeError as error:
        at = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error))
        line = at[2] if at and at[2] else str(text.count("\n") + 1)
        raise ConfigError([f"{file}:{line}: not valid TOML: {at[1] if at else error}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{file}: not valid TOML: it is nested too deeply"]) from error
    return _table(data, file, (), dict(_lines(text)), file)


def _lines(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Path and line of each key, as far as single lines tell; an array's entries have their number in the path.

    The parser does not tell positions. A miss here (a table in one line, say) only costs the number in a message.
    """
    seen: dict[tuple[str, ...], int] = {}
    section: tuple[str, ...] = ()
    numbers: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = tuple(_PARTS.findall(header[2]))
            section = tuple(part.strip("\"'") for part in section)
            if header[1] == "[[":
                numbers[section] = numbers.get(section, -1) + 1
                section = (*section, str(numbers[section]))
            path = section
        elif assign := _ASSIGN.match(line):
            path = (*section, *(part.strip("\"'") for part in _PARTS.findall(assign[1])))
        else:
            continue
        if path not in seen:
            seen[path] = number
            yield path, number


def _table(data: dict[str, Any], file: str, path: tuple[str, ...], lines: dict[tuple[str, ...], int], at: str) -> Table:
    entries: dict[str, Node] = {}
    here = f"{file}:{lines[path]}" if path in lines else at
    for key, value in data.items():
        below = (*path, key)
        origin = f"{file}:{lines[below]}" if below in lines else here
        if isinstance(value, dict):
            entries[key] = _table(value, file, below, lines, origin)
        elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            entries[key] = [_table(item, file, (*below, str(i)), lines, origin) for i, item in enumerate(value)]
        else:
            entries[key] = Leaf(value, origin)
    return Table(entries, here)


def merge(base: Table, over: Table) -> Table:
    """`over` laid over `base`: tables are merged, arrays of tables appended, all else is replaced."""
    entries = dict(base.entries)
    for key, node in over.entries.items():
        below = entries.get(key)
        if isinstance(below, Table) and isinstance(node, Table):
            entries[key] = merge(below, node)
        elif isinstance(below, list) and isinstance(node, list):
            entries[key] = [*below, *node]
        else:
            entries[key] = node
    return Table(entries, base.origin)
