"""The newest events, kept in memory for /api/v1/events, and how a page of them is asked for.

A request touches neither the store nor a disk: the daemon fills this at its start and adds what it logs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from ibmon.store import EventRow

LENGTH: Final = 1000
"""Events kept: some hundred kilobytes; the store keeps ten times as many."""

_DEFAULT_LIMIT: Final = 100
_LARGEST: Final = 2**63 - 1  # SQLite's largest sequence number


class EventRing:
    """The newest events, oldest first. Every method may be called from any thread and waits for nothing slow."""

    def __init__(self, length: int = LENGTH) -> None:
        self._rows: deque[EventRow] = deque(maxlen=length)
        self._last = 0
        self._lock = threading.Lock()

    def fill(self, rows: Iterable[EventRow]) -> None:
        """Begin with what the store holds; the numbers go on from there."""
        with self._lock:
            self._rows.extend(rows)
            self._last = self._rows[-1].seq if self._rows else 0

    def add(self, at: float, level: str, event: str, fields: dict[str, Any]) -> None:
        """One more event; `at` is wall time."""
        with self._lock:
            self._last += 1
            self._rows.append(EventRow(self._last, at, level, event, fields))

    def page(self, since: int | None, limit: int) -> tuple[list[EventRow], int]:
        """Events after the number `since`, or without it the newest, at most `limit`; and the number to go on from."""
        with self._lock:
            rows, last = list(self._rows), self._last
        chosen = rows[-limit:] if since is None else [row for row in rows if row.seq > since][:limit]
        return chosen, chosen[-1].seq if chosen else last


def page_of(ring: EventRing, query: str) -> bytes:
    """The answer to ``since=SEQ&limit=N`` as JSON. Raises ValueError with a line for whoever asked."""
    given = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(given.keys() - {"since", "limit"})
    if unknown:
        raise ValueError(f"there is no parameter {unknown[0]}; there are since and limit")
    since = _number(given, "since", 0, _LARGEST)
    limit = _number(given, "limit", 1, LENGTH)
    rows, following = ring.page(since, _DEFAULT_LIMIT if limit is None else limit)
    return msgspec.json.encode({"events": [row._asdict() for row in rows], "next": following}) + b"\n"


def _number(given: dict[str, str], name: str, least: int, most: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and least <= int(text) <= most):
        raise ValueError(f"{name} is a whole number from {least} to {most}")
    return int(text)
