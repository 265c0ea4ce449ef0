"""The file that says what Alertmanager was told, so that the next process can end what is over by then.

It is written before anything is sent. Without it nothing is wrong for long: what nobody repeats ends by itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from ibmon.alert.alerts import Alert

log = logging.getLogger(__name__)

FILE_NAME: Final = "alerts.json"
_FORM: Final = 1


class Row(msgspec.Struct, frozen=True):
    """An alert that an Alertmanager may hold, and the wall time at which it was over, if it is."""

    alert: Alert
    ended: float | None = None


class _Body(msgspec.Struct, frozen=True):
    v: int
    node: str
    alerts: tuple[Row, ...]


class AlertRecord:
    """The file in the state directory; without a directory nothing is kept, and what was told ends by itself.

    What stands there of another node (a cloned image) is not used: this node must not end that one's alerts.
    """

    def __init__(self, directory: str | Path | None, node: str) -> None:
        self.path = None if directory is None else Path(directory) / FILE_NAME
        self._node = node

    def load(self) -> tuple[Row, ...]:
        """What an earlier process told; nothing where the file is not there, not readable or not of this node."""
        if self.path is None:
            return ()
        try:
            body = msgspec.json.decode(self.path.read_bytes(), type=_Body)
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not of its form"
            log.warning("%s: %s; alerts of an earlier process end by themselves", self.path, why)
            return ()
        return body.alerts if (body.v, body.node) == (_FORM, self._node) else ()

    def save(self, rows: Iterable[Row]) -> None:
        """Replace the file as a whole; OSError where that cannot be done."""
        if self.path is None:
            return
        data = msgspec.json.encode(_Body(_FORM, self._node, tuple(rows)))
        beside = self.path.with_suffix(".new")
        try:
            beside.write_bytes(data)
            os.replace(beside, self.path)  # noqa: PTH105 - os.replace is the one that is atomic by its name
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
