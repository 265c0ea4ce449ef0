"""Log lines: key=value on standard error, with a syslog priority in front where journald reads them.

What others have written (a scheduler's reason, a label of an alert) stands in them, and must steer no terminal.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from typing import Any

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,<>=\-\[\]]+")
_PRIORITY = {logging.ERROR: "<3>", logging.WARNING: "<4>", logging.INFO: "<6>", logging.DEBUG: "<7>"}


def value(item: Any) -> str:
    """One value: bare where no reader can mistake it, else quoted."""
    if isinstance(item, list | tuple):
        item = ",".join(map(str, item))
    text = "true" if item is True else "false" if item is False else str(item)
    if _PLAIN.fullmatch(text) and "=" not in text:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{shown(escaped)}"'


def shown(text: str, keep: str = "") -> str:
    """A text whose control characters are written as escapes, but for those to `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def line(event: str, fields: dict[str, Any]) -> str:
    """``event=NAME key=value …``."""
    return " ".join([f"event={event}", *(f"{k}={value(v)}" for k, v in fields.items())])


class _Formatter(logging.Formatter):
    def __init__(self, *, journal: bool) -> None:
        super().__init__("%(message)s" if journal else "%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        text = shown(super().format(record), keep="\n\t")  # of a trace
        return _PRIORITY.get(record.levelno, "<5>") + text if self._journal else text


class Once(logging.Filter):
    """Drops a line that is the same as the one before it from the same logger: one cause, one line."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, str] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """False for a repetition."""
        text = record.getMessage()
        repeated = self._last.get(record.name) == text
        self._last[record.name] = text
        return not repeated


def setup() -> None:
    """Log to standard error, once."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(journal="JOURNAL_STREAM" in os.environ))
    handler.addFilter(Once())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
