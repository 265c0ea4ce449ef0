"""What the daemon last said of this node, from its verdict file, and whether that can still be believed.

Loads nothing but the standard library, because `ibmon check` runs before every job. It reads no hardware and never
raises: what cannot be read is unknown.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

DIRECTORY: Final = Path("/run/ibmon")
"""The default of ``[state] runtime_directory``."""

FILE: Final = "verdict.json"
VERSION: Final = 1
MAX_AGE: Final = 60.0
"""As in `ibmon.exporter.status` (VERSION, TTL), which is too dear to load here; a test holds them equal."""

CLOCK_SLACK: Final = 1.0  # seconds that a verdict may seem to come from the future
FITNESS: Final = frozenset({"fit", "watch", "unfit", "unknown"})
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Verdict(NamedTuple):
    """A node's fitness and the line that says why.

    `document` is the whole status document where it can be believed, else None; `age` its age in seconds.
    """

    fitness: str
    why: str
    age: float | None = None
    document: dict[str, Any] | None = None

    @property
    def node(self) -> str:
        """The node's name, as far as somebody told it."""
        name = self.document.get("node") if self.document else None
        return name if isinstance(name, str) and name else "this node"

    def rows(self, part: str) -> list[dict[str, Any]]:
        """The `ports` or `findings` of the document, without what is none."""
        found = self.document.get(part) if self.document else None
        return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def unknown(why: str) -> Verdict:
    """A verdict that nothing is known, and why."""
    return Verdict("unknown", why)


def directory_of(config: Path) -> Path | None:
    """The ``[state] runtime_directory`` that a configuration file names; None where it cannot be made out."""
    try:
        state = _toml(config.read_text(encoding="utf-8")).get("state", {})
    except (OSError, ValueError, RecursionError):  # text that is no UTF-8 or no TOML is a ValueError too
        return None
    directory = state.get("runtime_directory", str(DIRECTORY)) if isinstance(state, dict) else None
    return Path(directory) if isinstance(directory, str) and directory.startswith("/") else None


def _toml(text: str) -> dict[str, Any]:
    parser = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    found: dict[str, Any] = parser.loads(text)
    return found


def read(directory: Path) -> Verdict:
    """The verdict that stands in the directory. One that is older than a minute, or of another boot, is unknown."""
    path = directory / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return unknown(f"no daemon runs here: {path} is not there")
    except (OSError, ValueError) as error:
        return unknown(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return unknown(f"{path} holds no JSON")
    return believe(document, str(path), boot_id(), time.monotonic())


def boot_id() -> str:
    """The kernel's id of this boot; empty where it cannot be read."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def believe(document: Any, path: str, boot: str, monotonic: float) -> Verdict:
    """The verdict of a status document in this boot at this monotonic time (seconds)."""
    if not isinstance(document, dict):
        return unknown(f"{path} holds no status document")
    if document.get("v") != VERSION:
        return unknown(f"{path} is of version {document.get('v')!r:.20}; this ibmon reads version {VERSION}")
    if document.get("boot_id") != boot:
        return unknown(f"{path} is from another boot")
    at, fitness, why = document.get("monotonic"), document.get("fitness"), document.get("why")
    if not isinstance(at, float | int) or isinstance(at, bool) or abs(at) > 1e15:
        return unknown(f"{path} does not say when it was written")
    age = monotonic - at
    if not -CLOCK_SLACK <= age <= MAX_AGE:
        return unknown(f"the daemon has said nothing for more than {MAX_AGE:g} s; 'systemctl status ibmon' tells why")
    if not isinstance(fitness, str) or fitness not in FITNESS:
        return unknown(f"{path} names no fitness that this ibmon knows")
    return Verdict(fitness, why if isinstance(why, str) else "", max(0.0, age), document)
