"""What the controller must not forget: stops, waves, windows, Alertmanager's drains, people's releases, names seen.

Owns the durable document and the version of its form. Where it is kept is the runtime's business. All else the
scheduler and the nodes know, and tell again after a start.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

import msgspec

from ibmon.controller.values import Stop
from ibmon.maintenance import LONGEST
from ibmon.model import Mode, Now

VERSION: Final = 1

_PATTERN: Final = frozenset("*?[")


class LedgerError(Exception):
    """The document cannot be used: damaged, or written by a newer version. Set it aside; its drains are orphans."""


class Names:
    """Names and shell patterns, made ready to look many nodes up in: a list may be as long as the fleet."""

    def __init__(self, listed: Iterable[str]) -> None:
        self._plain = frozenset(listed)
        patterns = sorted(one for one in self._plain if _PATTERN & set(one))
        self._patterns = re.compile("|".join(map(fnmatch.translate, patterns))) if patterns else None

    def __contains__(self, node: str) -> bool:
        return node in self._plain or (self._patterns is not None and self._patterns.match(node) is not None)


class Wave(msgspec.Struct, frozen=True, dict=True):
    """How far the controller goes with these nodes (names or shell patterns), whatever the configuration says."""

    nodes: tuple[str, ...]
    mode: Mode
    user: str
    at: float

    @cached_property
    def named(self) -> Names:
        """To look nodes up in."""
        return Names(self.nodes)


class Window(msgspec.Struct, frozen=True, dict=True):
    """Somebody works on these nodes (names or shell patterns) until a time on the wall clock."""

    id: str
    nodes: tuple[str, ...]
    reason: str
    user: str
    until: float

    @cached_property
    def named(self) -> Names:
        """To look nodes up in."""
        return Names(self.nodes)


class AlertDrain(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a drain that an alert asks for.

    `firing` are the alerts that fire, by Alertmanager's fingerprint, and since when. `asked` is when the scheduler was
    asked last (wall time; 0: never yet), `held` whether the drain was seen to stand, `resolved` when the last alert
    ended, and `respected` that somebody has taken the drain away.
    """

    node: str
    alert: str
    id: str
    reason: str
    since: float
    firing: dict[str, float] = {}
    asked: float = 0.0
    held: bool = False
    resolved: float | None = None
    respected: bool = False


class GivingBack(msgspec.Struct, frozen=True):
    """A person wants the drain of this id back."""

    id: str
    user: str
    at: float


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """The document. `seen` holds when a node reported last (wall time, whole seconds), for the quorum."""

    v: int = VERSION
    stop: Stop | None = None
    waves: tuple[Wave, ...] = ()
    windows: tuple[Window, ...] = ()
    alerts: dict[str, AlertDrain] = {}
    releases: dict[str, GivingBack] = {}
    seen: dict[str, int] = {}

    @classmethod
    def read(cls, data: bytes) -> Ledger:
        """The document in these bytes; LedgerError for damage, and for a version that this one does not know."""
        try:
            version = msgspec.json.decode(data, type=_Versioned).v
            if version > VERSION:
                raise LedgerError(f"the ledger has version {version}, newer than {VERSION}: run a newer ibmon")
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise LedgerError(f"the ledger is damaged: {error}") from None
        except UnicodeDecodeError as error:
            raise LedgerError(f"the ledger is damaged: {error}") from None


class _Versioned(msgspec.Struct):
    v: int


class Book:
    """The ledger while it is worked with.

    A window's end is on the wall clock, for the next process; this one counts the time that was left when it first saw
    the window, so that a clock that is set ends none.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.stop = ledger.stop
        self.waves = ledger.waves
        self.windows = ledger.windows
        self.alerts = dict(ledger.alerts)
        self.releases = dict(ledger.releases)
        self._modes: dict[str, Mode] = {}
        self._ends: dict[str, float] = {}  # of windows, monotonic
        self.revision = self._saved = 0

    @property
    def changed(self) -> bool:
        """Whether something must be saved before anybody relies on it."""
        return self.revision != self._saved

    def touch(self) -> None:
        """Something was changed."""
        self.revision += 1
        self._modes = {}

    def to_bytes(self, seen: Mapping[str, float]) -> bytes:
        """The document as it is now."""
        return msgspec.json.encode(
            Ledger(
                stop=self.stop,
                waves=self.waves,
                windows=self.windows,
                alerts=self.alerts,
                releases=self.releases,
                seen={name: int(wall) for name, wall in seen.items()},
            )
        )

    def saved(self, revision: int) -> None:
        """What `to_bytes` gave at this revision is safe now; what was changed since is not."""
        self._saved = max(self._saved, revision)

    def mode_of(self, node: str, default: Mode) -> Mode:
        """How far the controller goes with a node: the newest wave that has it, else `default`.

        Another thread may ask: what it finds out goes into the cache that it began with, which a change replaces.
        """
        modes, waves = self._modes, self.waves
        if not waves:
            return default
        mode = modes.get(node)
        if mode is None:
            mode = modes[node] = next((wave.mode for wave in reversed(waves) if node in wave.named), default)
        return mode

    def window_of(self, node: str, now: Now) -> Window | None:
        """The window that a node is in, the one that lasts longest."""
        open_now = [one for one in self.windows if self.end_of(one, now) > now.monotonic and node in one.named]
        return max(open_now, key=lambda window: window.until, default=None)

    def end_of(self, window: Window, now: Now) -> float:
        """Monotonic time at which a window ends."""
        end = self._ends.get(window.id)
        if end is None:
            end = self._ends[window.id] = now.monotonic + min(window.until - now.wall, LONGEST)
        return end

    def first_end(self, now: Now) -> float:
        """Monotonic time at which the next window ends, or infinity."""
        return min((self.end_of(window, now) for window in self.windows), default=math.inf)

    def end_windows(self, now: Now) -> list[Window]:
        """Remove the windows whose time is up, and return them."""
        over = [window for window in self.windows if self.end_of(window, now) <= now.monotonic]
        if over:
            self.windows = tuple(window for window in self.windows if window not in over)
            self._ends = {window.id: self.end_of(window, now) for window in self.windows}
            self.touch()
        return over
