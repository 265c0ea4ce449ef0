"""What `ibmon top` shows: from status documents to lines of a terminal. Pure: no clock, no terminal.

Rates are taken from the sums of two documents; a sum that fell was reset, and gives none.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ibmon.cli import table

POINTS: Final = 24
"""Reads whose traffic the little curve shows."""
_RECENT: Final = 10.0  # seconds over which IN and OUT are taken, as long as the daemon by default lets pass
_BARS: Final = " ▁▂▃▄▅▆▇█"
_WORST: Final = ("failed", "degraded", "unknown", "recovering", "warning", "ok", "ignored")
_CURVE, _DETAILS, _MOVED = 76, 96, 130  # columns from which the terminal is wide enough for more
_FRAME: Final = 4  # lines of head, table head and foot


class Point(NamedTuple):
    """One read: bytes per second in and out, and how many errors came since the read before; None: not known."""

    at: float
    inward: float | None
    outward: float | None
    errors: int | None


_NOTHING: Final = Point(0.0, None, None, None)


class Traffic:
    """The last reads of each port."""

    def __init__(self) -> None:
        self._last: dict[str, Mapping[str, Any]] = {}
        self._points: dict[str, deque[Point]] = {}

    def take(self, document: Mapping[str, Any]) -> None:
        """Take in the sums of a document; one of the same read changes nothing."""
        for port in document["ports"]:
            sums, name = port.get("totals"), name_of(port)
            if not sums:
                self._last.pop(name, None)
                continue
            last = self._last.get(name)
            if last is None or sums["at"] < last["at"]:
                self._points[name] = deque(maxlen=POINTS)
            elif sums["at"] > last["at"]:
                self._points[name].append(_point(last, sums))
            self._last[name] = sums

    def points(self, name: str) -> Sequence[Point]:
        """The reads of a port, oldest first."""
        return self._points.get(name, ())

    def now(self, name: str) -> Point:
        """The newest reads, taken together; without one nothing is known."""
        points = self.points(name)
        recent = [point for point in points if point.at > points[-1].at - _RECENT]
        if not recent:
            return _NOTHING
        inward, outward = (_mean(values) for values in zip(*((p.inward, p.outward) for p in recent), strict=True))
        return Point(points[-1].at, inward, outward, recent[-1].errors)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _point(last: Mapping[str, Any], now: Mapping[str, Any]) -> Point:
    def rise(key: str) -> Any:
        return None if now[key] is None or last[key] is None or now[key] < last[key] else now[key] - last[key]

    span = now["at"] - last["at"]
    inward, outward = rise("rcv_bytes"), rise("xmit_bytes")
    return Point(
        now["at"],
        None if inward is None else inward / span,
        None if outward is None else outward / span,
        rise("errors"),
    )


@dataclass
class Look:
    """How it is looked at: the size of the terminal, the order, and what the person chose.

    `age` is that of the document in seconds, `note` what is wrong with it (empty: nothing).
    """

    width: int = 80
    height: int = 24
    sort: str = "p"
    reverse: bool = False
    everything: bool = False
    scroll: int = 0
    paused: bool = False
    age: float = 0.0
    note: str = ""


SORTS: Final[Mapping[str, str]] = {"p": "port", "h": "health", "i": "in", "o": "out", "e": "errors"}
"""The key that sorts, and what it sorts by."""


def name_of(port: Mapping[str, Any]) -> str:
    """The port as people write it."""
    return f"{port['device']}/{port['port']}"


def rose(port: Mapping[str, Any]) -> int:
    """Errors within the last hour."""
    return sum(moved["rise"] for moved in port["moved"])


def ordered(document: Mapping[str, Any], traffic: Traffic, look: Look) -> list[Mapping[str, Any]]:
    """The ports that are shown, in the chosen order: the worst and the most first."""
    ports = [p for p in document["ports"] if look.everything or p["role"] != "ignored" or p["expected"]]
    key: Callable[[Mapping[str, Any]], float] | None = {
        "h": lambda p: _WORST.index(p["health"]) if p["health"] in _WORST else -1,
        "i": lambda p: -(traffic.now(name_of(p)).inward or 0.0),
        "o": lambda p: -(traffic.now(name_of(p)).outward or 0.0),
        "e": lambda p: -rose(p),
    }.get(look.sort)
    if key is not None:
        ports.sort(key=key)
    return ports[::-1] if look.reverse else ports


def frame(document: Mapping[str, Any] | None, traffic: Traffic, look: Look) -> list[str]:
    """The lines of the screen, at most as many and as wide as it has."""
    console = Console(
        file=io.StringIO(), force_terminal=True, width=look.width, height=look.height, highlight=False, soft_wrap=False
    )
    if document is None:
        parts = [Text(look.note or "no word of the daemon yet", table.STYLES["critical"]), Text("q quits", "dim")]
        return _printed(console, parts)[: look.height]
    ports = ordered(document, traffic, look)
    below = table.below(document)
    space = max(1, look.height - _FRAME)
    for_below = min(len(below) + bool(below), max(space // 3, space - len(ports)))
    for_ports = max(1, space - for_below)
    look.scroll = max(0, min(look.scroll, len(ports) - for_ports))
    lines = _printed(console, _head(document, look))
    lines += _printed(console, [_ports(document, ports[look.scroll : look.scroll + for_ports], traffic, look)])
    if for_below:
        left = len(below) - (for_below - 1)
        lines += ["", *_printed(console, _cut(below, for_below - 1, left))]
    lines = lines[: look.height - 1]
    lines += [""] * (look.height - 1 - len(lines))
    return [*lines, *_printed(console, [_foot(len(ports), for_ports, look)])]


def _cut(below: list[Text], room: int, left: int) -> list[Text]:
    if left <= 0:
        return below
    return [*below[: room - 1], Text(f"and {left + 1} more lines: ibmon status", "dim")]


def _printed(console: Console, parts: Iterable[Text | Table]) -> list[str]:
    assert isinstance(console.file, io.StringIO)  # noqa: S101 - our own
    console.file.seek(0)
    console.file.truncate()
    for part in parts:
        console.print(part, no_wrap=True, overflow="ellipsis", crop=True)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def _head(document: Mapping[str, Any], look: Look) -> list[Text]:
    first = Text.assemble((document["node"] or "this node", "bold"), " is ", table.styled(document["fitness"]))
    if document["why"]:
        first.append(f": {document['why']}")
    judged = [port for port in document["ports"] if port["role"] != "ignored" or port["expected"]]
    good = sum(port["health"] == "ok" for port in judged)
    second = Text(f"{good} of {len(judged)} ports ok  mode {document['mode']}  ", "dim")
    if look.paused:
        second.append("paused  ", table.STYLES["warning"])
    second.append(look.note or f"as of {look.age:.0f} s ago", table.STYLES["critical"] if look.note else "")
    return [first, second]


class _Row(NamedTuple):
    """One port and what its cells are made of; `peak` is the most that any port took in, `room` that of the curve."""

    port: Mapping[str, Any]
    device: Mapping[str, Any] | None
    points: Sequence[Point]
    now: Point
    peak: float
    room: int


class _Column(NamedTuple):
    """One column: from which width of the terminal it is there, and the key that sorts by it."""

    title: str
    width: int
    cell: Callable[[_Row], Text]
    since: int = 0
    key: str = ""
    right: bool = False


_COLUMNS: Final = (
    _Column("PORT", 9, lambda row: Text(name_of(row.port)), key="p"),
    _Column("HEALTH", 10, lambda row: table.styled(row.port["health"]), key="h"),
    _Column("STATE", 12, lambda row: table.state(row.port, row.device)),
    _Column("GB/S", 7, lambda row: table.rate(row.port), since=_CURVE),
    _Column("IN", 5, lambda row: _gigabits(row.now.inward), key="i", right=True),
    _Column("OUT", 5, lambda row: _gigabits(row.now.outward), key="o", right=True),
    _Column("ERR/H", 6, lambda row: _errors(row.port), key="e", right=True),
    _Column("TRAFFIC", 6, lambda row: Text(_curve(row.points, row.peak, row.room), "cyan"), since=_CURVE),
    _Column("NETDEV", 8, lambda row: Text(row.port["netdev"] or "-"), since=_DETAILS),
    _Column("MOVED IN AN HOUR", 16, lambda row: Text(table.rises(row.port)), since=_MOVED),
)


def _ports(document: Mapping[str, Any], ports: list[Mapping[str, Any]], traffic: Traffic, look: Look) -> Table:
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = [column for column in _COLUMNS if look.width >= column.since]
    room = min(POINTS, max(6, look.width - _DETAILS))
    for column in columns:
        mark = ("▲" if look.reverse else "▼") if column.key == look.sort and column.key else ""
        found.add_column(
            Text(f"{column.title}{mark}", "bold" if mark else "dim"),
            no_wrap=True,
            min_width=room if column.title == "TRAFFIC" else column.width,
            justify="right" if column.right else "left",
        )
    devices = {device["device"]: device for device in document["devices"]}
    points = [traffic.points(name_of(port)) for port in ports]
    peak = max((point.inward or 0.0 for found in points for point in found), default=0.0)
    for port, seen in zip(ports, points, strict=True):
        row = _Row(port, devices.get(port["device"]), seen, traffic.now(name_of(port)), peak, room)
        found.add_row(*(column.cell(row) for column in columns))
    return found


def _errors(port: Mapping[str, Any]) -> Text:
    errors = rose(port)
    return Text(str(errors), "red" if errors else "dim")


def _gigabits(rate: float | None) -> Text:
    if rate is None:
        return Text("-", "dim")
    value = rate / table.GBPS
    return Text(f"{value:.0f}" if value >= 100 or value == 0 else f"{value:.1f}")


def _curve(points: Sequence[Point], peak: float, room: int) -> str:
    """What came in, one character a read, the newest to the right."""
    shown = [point.inward for point in points][-room:]
    steps = len(_BARS) - 1
    return "".join(
        "·" if value is None else _BARS[min(steps, -(-int(value * steps) // max(1, int(peak))))] for value in shown
    )


def _foot(total: int, room: int, look: Look) -> Text:
    sorts = " ".join(f"{key} {name}" for key, name in SORTS.items())
    parts = ["q quit", f"sort: {sorts}", "r turn", "a judged" if look.everything else "a all", "space pause"]
    if total > room:
        parts.insert(
            0, f"{look.scroll + 1}-{min(total, look.scroll + room)} of {total} \N{UPWARDS ARROW}\N{DOWNWARDS ARROW}"
        )
    return Text("  ".join(parts), "reverse")
