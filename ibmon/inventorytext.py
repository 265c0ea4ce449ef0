"""The inventory in the two forms that people read: a table, and ``[[port]]`` tables for the configuration.

Works on the port rows of the status document (`ibmon/exporter/status.py`); reads and judges nothing. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ibmon.health.facts import GBPS

_PLAIN = re.compile(r"[\w.:@+-]+/\d+")  # a name that as a pattern means itself
HEAD = ("SLOT", "PORT", "ROLE", "RATE", "INVENTORY", "PRESENT")


class Row(NamedTuple):
    """One port of the inventory.

    `inventory` is ``declared``, ``accepted``, ``learned`` or None (not expected); `expected_rate` in bytes per second,
    None where any will do.
    """

    port: str
    slot: str
    role: str
    rail: int | None
    expected: bool
    inventory: str | None
    expected_rate: int | None
    present: bool


def rows(ports: Sequence[Mapping[str, Any]], *, trusting: bool) -> list[Row]:
    """The rows of the table. `trusting`: the site trusts what was learned, so that trust does not mean accepted."""
    return [
        Row(
            port=name(port),
            slot=port["slot"],
            role=port["role"],
            rail=port["rail"],
            expected=port["expected"],
            inventory=_source(port, trusting=trusting),
            expected_rate=port["expected_rate"],
            present=port["present"],
        )
        for port in ports
    ]


def name(port: Mapping[str, Any]) -> str:
    """``mlx5_3/1``."""
    return f"{port['device']}/{port['port']}"


def _source(port: Mapping[str, Any], *, trusting: bool) -> str | None:
    if not port["expected"]:
        return None
    if port["declared"]:
        return "declared"
    return "accepted" if port["trusted"] and not trusting else "learned"


def table(found: Sequence[Row], *, whole: bool) -> str:
    """The table with what to do about it. Unless `whole`, ports that are not judged are counted and left out."""
    shown = [row for row in found if whole or row.expected or row.role != "ignored"]
    cells = [HEAD, *map(_cells, shown)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEAD))]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
    if left_out := len(found) - len(shown):
        lines.append(f"({left_out} ignored port{'s' if left_out > 1 else ''} not shown; name a port to see it)")
    if any(row.inventory == "learned" and row.role == "compute" for row in shown):
        lines.append("Learned ports alert; 'ibmon inventory accept' makes them drain-capable.")
    return "".join(f"{line}\n" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    present = "yes" if row.present else "missing" if row.expected else "no"
    return (
        _printable(row.slot),
        _printable(row.port),
        row.role,
        _rate_text(row.expected_rate),
        row.inventory or "-",
        present,
    )


def _printable(text: str) -> str:
    """The text without what would steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _rate_text(rate: int | None) -> str:
    return "-" if rate is None else f"{rate / GBPS:g} Gb/s"


def entry(port: Mapping[str, Any], by: str, guid: str | None) -> dict[str, Any]:
    """One ``[[port]]`` table as plain values: called by ``name``, ``pci`` or ``guid`` where the port has that."""
    values = {
        "match": _match(port, by, guid),
        "role": port["role"],
        "rate": _gigabits(port["expected_rate"]),
        "rail": port["rail"],
    }
    return {key: value for key, value in values.items() if value is not None}


def _match(port: Mapping[str, Any], by: str, guid: str | None) -> str:
    number = "" if port["port"] == 1 else f"/{port['port']}"
    place = port["slot"].rpartition("/")[0]
    names: dict[str, str] = {}
    if _PLAIN.fullmatch(name(port)):
        names["name"] = name(port)
    if place.count(":") == 2 and "." in place:
        names["pci"] = f"pci:{place}{number}"
    if guid and guid.strip("0:"):  # a card without an own GUID shows zeros
        names["guid"] = f"guid:{guid}{number}"
    return names.get(by) or next(iter(names.values()), name(port))


def _gigabits(rate: int | None) -> float | int | None:
    """The shortest number of Gb/s that means these bytes per second."""
    if rate is None:
        return None
    exact = rate / GBPS
    return int(exact) if exact.is_integer() else exact


def toml(entries: Sequence[Mapping[str, Any]], ports: Sequence[Mapping[str, Any]]) -> str:
    """``[[port]]`` tables, each with a comment that tells what else its port is called."""
    return "\n".join(map(_table, entries, ports))


def _table(values: Mapping[str, Any], port: Mapping[str, Any]) -> str:
    other = [text for text in (name(port), f"slot {port['slot']}") if text != values["match"]]
    lines = [f"# {_quoted(', '.join(other))[1:-1]}", "[[port]]"]
    lines += [f"{key} = {_quoted(value)}" for key, value in values.items()]
    return "".join(f"{line}\n" for line in lines)


def _quoted(value: str | float) -> str:
    """The value as TOML has it, which is as JSON has it but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
