"""Evidence of driver trouble in kernel log lines: patterns as data, and what they say of which PCI function. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from ibmon.health.windows import Moment
from ibmon.model import Now

WINDOW = 3600.0
"""Seconds for which a line is evidence."""

MAX_LINES = 16


class Pattern(NamedTuple):
    """A substring of mlx5_core's messages (drivers/net/ethernet/mellanox/mlx5/core) and what it means."""

    text: str
    kind: str
    meaning: str


PATTERNS: tuple[Pattern, ...] = (
    Pattern("Will cause a leak of a command resource", "timeout", "a firmware command timed out"),
    Pattern("No done completion", "timeout", "a firmware command did not complete"),
    Pattern("timeout while waiting for command semaphore", "timeout", "no firmware command slot is free"),
    Pattern("timed out while waiting for a slot", "timeout", "no firmware command slot is free"),
    Pattern("device's health compromised - reached miss count", "health", "the firmware stopped ticking"),
    Pattern("unrecoverable hardware error", "unrecoverable", "the card reports an unrecoverable hardware error"),
    Pattern("health recovery failed", "unrecoverable", "the driver could not recover the card"),
    Pattern("PCI reads still not working", "unrecoverable", "the card does not answer on the bus"),
    Pattern("Driver is in error state. Unloading", "unrecoverable", "the driver gave the card up"),
    Pattern("starting health recovery flow", "health", "the driver recovers the card"),
    Pattern("handling bad device here", "health", "the driver found the card broken"),
)

_ADDRESS = re.compile(r"\bmlx[45]_(?:core|ib) ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)


class Line(msgspec.Struct, frozen=True, array_like=True):
    """One piece of evidence: when it was seen, and its kind."""

    at: Moment
    kind: str


def match(text: str) -> tuple[str, Pattern] | None:
    """The PCI address that a kernel line speaks of and the pattern that it fits, or None."""
    address = _ADDRESS.search(text)
    if address is None:
        return None
    found = next((p for p in PATTERNS if p.text in text), None)
    return None if found is None else (address.group(1).lower(), found)


def add(lines: tuple[Line, ...], kind: str, now: Now, boot: str) -> tuple[Line, ...]:
    """The evidence with one more line, without what is too old."""
    kept = tuple(line for line in lines if line.at.boot == boot and line.at.age(now, boot) <= WINDOW)
    return (*kept, Line(Moment(now.monotonic, now.wall, boot), kind))[-MAX_LINES:]


def kinds(lines: tuple[Line, ...], now: Now, boot: str) -> tuple[str, ...]:
    """The kinds of the evidence that still counts; a new boot starts clean."""
    return tuple(line.kind for line in lines if line.at.boot == boot and line.at.age(now, boot) <= WINDOW)
