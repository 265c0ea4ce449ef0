"""A store that lives in memory, for replays and simulated nodes."""

from __future__ import annotations

from typing import Any

from ibmon.model import Ownership


class MemoryStore:
    """`ibmon.ports.Store` that outlives an engine but not the process."""

    def __init__(self) -> None:
        self._state: bytes | None = None
        self._owned: Ownership | None = None
        self.events: list[tuple[float, str, str, dict[str, Any]]] = []

    def load(self) -> bytes | None:
        """The engine's state as saved last."""
        return self._state

    def save(self, state: bytes) -> None:
        """Keep the engine's state."""
        self._state = state

    def ownership(self) -> Ownership | None:
        """The record of a drain."""
        return self._owned

    def record(self, owned: Ownership | None) -> None:
        """Keep or drop the record of a drain."""
        self._owned = owned

    def add_event(self, at: float, level: str, event: str, fields: dict[str, Any]) -> None:
        """One row of history."""
        self.events.append((at, level, event, fields))
