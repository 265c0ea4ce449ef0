"""The controller's page: files that a browser makes the fleet's picture from, with what they must be served with.

Owns which paths there are. The files are the same for everybody and hold nothing of the fleet: what is to be seen the
browser asks of the API, with a token where the API wants one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ibmon.exporter.page import HEADERS, HTML, ICON, SCRIPT, STYLE, icon
from ibmon.exporter.page import WEB as SHARED

_WEB: Final = Path(__file__).with_name("web")
_FILES: Final[Mapping[str, tuple[Path, str]]] = {
    "/": (_WEB / "index.html", HTML),
    "/style.css": (_WEB / "style.css", STYLE),
    "/app.js": (_WEB / "app.js", SCRIPT),
    "/matrix.js": (_WEB / "matrix.js", SCRIPT),
    "/tables.js": (_WEB / "tables.js", SCRIPT),
    "/base.css": (SHARED / "base.css", STYLE),
    "/ask.js": (SHARED / "ask.js", SCRIPT),
    "/elements.js": (SHARED / "elements.js", SCRIPT),
}


class File(NamedTuple):
    """A file as it is served: type, bytes, entity tag, further headers."""

    content_type: str
    body: bytes
    etag: str
    headers: Mapping[str, str]


def load() -> Mapping[str, File]:
    """Every file by its path, read now: a request must not wait for a file system."""
    found = {path: _file(kind, place.read_bytes()) for path, (place, kind) in _FILES.items()}
    return {**found, "/icon.svg": _file(ICON, icon(""))}


def _file(content_type: str, body: bytes) -> File:
    return File(content_type, body, f'"{hashlib.sha256(body).hexdigest()[:16]}"', HEADERS)
