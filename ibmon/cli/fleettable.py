"""The fleet for people: from the controller's documents to tables that rich prints, or to plain text.

Owns the look. It asks nothing and judges nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ibmon.cli.controller import FITNESS
from ibmon.cli.table import STYLES
from ibmon.runtime.logs import line

_PLAIN_WIDTH: Final = 160  # for a file or a pipe, where nothing limits a line


def show_fleet(fleet: Mapping[str, Any]) -> None:
    """Print GET /api/v1/fleet."""
    console = _console()
    for part in _fleet(fleet):
        console.print(part)


def show_nodes(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows of GET /api/v1/nodes."""
    if not rows:
        _console().print("no nodes")
        return
    table = _table("NODE", "FITNESS", "RAILS", "GROUP", "AGE", "NOT DRAINED BECAUSE OF")
    for row in rows:
        age = "never" if row["age"] is None else f"{row['age']:.0f}s"
        fitness = f"{row['fitness']}, missing" if row["missing"] else row["fitness"]
        style = STYLES.get(row["fitness"], "")
        cells = (row["rails"], row["group"], age, row["code"].replace("_", " "))
        table.add_row(_clean(row["name"]), Text(fitness, style), *map(_clean, cells))
    _console().print(table)


def audit_line(row: Mapping[str, Any]) -> str:
    """One line of the audit log: local time, what, and its fields."""
    fields = dict(row)
    at, event = fields.pop("at", None), str(fields.pop("event", "?"))
    when = "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S ", time.localtime(at))
    if isinstance(until := fields.get("until"), float):
        fields["until"] = _when(until)
    shown = {name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in fields.items()}
    return _clean(when + line(event, shown))


def _clean(text: str) -> str:
    """Text as a terminal may have it: what nodes and people wrote could hold control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _console() -> Console:
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PLAIN_WIDTH
    return console


def _fleet(fleet: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield _head(fleet)
    if fleet["stop"] is not None:
        stop = fleet["stop"]
        yield Text(f"STOP since {_when(stop['at'])} by {_clean(stop['by'])}: {_clean(stop['reason'])}", STYLES["unfit"])
    if fleet["pools"]:
        yield _pools(fleet["pools"])
    if fleet["drains"]:
        yield _drains(fleet["drains"])
    yield from (Text(_clean(_event(event)), STYLES["warning"]) for event in fleet["fabric_events"])
    yield from (Text(_clean(_window(window)), STYLES["warning"]) for window in fleet["maintenance"])


def _event(event: Mapping[str, Any]) -> str:
    rail = "" if event["rail"] is None else f" rail {event['rail']}"
    return (
        f"fabric event: {event['rule']} on {len(event['nodes'])} nodes of {event['group'] or 'the fleet'}{rail} "
        f"since {_when(event['began'])}; drains wait until {_when(event['until'])}"
    )


def _window(window: Mapping[str, Any]) -> str:
    nodes = ", ".join(window["nodes"][:5]) + (", ..." if len(window["nodes"]) > 5 else "")
    return f"maintenance of {nodes} until {_when(window['until'])} by {window['user']}: {window['reason']}"


def _head(fleet: Mapping[str, Any]) -> Text:
    head = Text.assemble((f"{sum(fleet['nodes'].get(word, 0) for word in FITNESS)} nodes", "bold"))
    for word in FITNESS:
        if count := fleet["nodes"].get(word, 0):
            head.append(", ")
            head.append(f"{count} {word}", STYLES[word])
    quorum = fleet["quorum"]
    state = "open" if quorum["open"] else "not reached: nothing is drained yet"
    head.append(f"\n{quorum['reported']} of {quorum['seen']} have reported, quorum {state}", "dim")
    if not fleet["leader"]:
        head.append("\nthis instance is not the leader", STYLES["warning"])
    return head


def _pools(pools: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("POOL", "NODES", "MAY BE DRAINED", "ARE", "AWAY AT ALL")
    for pool in pools:
        numbers = (str(pool[key]) for key in ("nodes", "allowed", "used", "unavailable"))
        table.add_row(_clean(pool["name"]), *numbers)
    return table


def _drains(drains: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("DRAIN OF", "STATE", "WHOSE", "SINCE", "REASON")
    for drain in drains:
        code = f" ({drain['code'].replace('_', ' ')})" if drain["code"] else ""
        since = "" if drain["since"] is None else _when(drain["since"])
        table.add_row(*map(_clean, (drain["node"], drain["state"] + code, drain["owner"], since, drain["reason"])))
    return table


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in heads:
        table.add_column(head)
    return table


def _when(wall: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall))
