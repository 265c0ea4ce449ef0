"""The verdict file: what `check`, hooks and `status` read instead of hardware or a socket."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from ibmon.exporter.status import status_document
from ibmon.snapshot import Snapshot

FILE = "verdict.json"
_ENCODER = msgspec.json.Encoder()


class VerdictFile:
    """Replaces the file in one step with each snapshot, readable by everyone."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self._beside = directory / f".{FILE}.{os.getpid()}"

    def write(self, snapshot: Snapshot) -> None:
        """Put the snapshot in place. Raises OSError; the old file then stays, and ages."""
        data = _ENCODER.encode(status_document(snapshot))
        try:
            descriptor = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                os.write(descriptor, data)
                os.fchmod(descriptor, 0o644)  # whatever the umask
            finally:
                os.close(descriptor)
            self._beside.replace(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                self._beside.unlink()
            raise
