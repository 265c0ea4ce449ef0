"""The verdict file: what `check`, hooks and `status` read instead of hardware or a socket."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from ibmon.exporter.status import StatusText
from ibmon.snapshot import Snapshot

FILE = "verdict.json"


class VerdictFile:
    """Replaces the file in one step with each snapshot, readable by everyone."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self._text = StatusText()
        self._beside = directory / f".{FILE}.{os.getpid()}"

    def write(self, snapshot: Snapshot) -> None:
        """Put the snapshot in place. Raises OSError; the old file then stays, and ages."""
        data = self._text.encode(snapshot)
        try:
            descriptor = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                if os.write(descriptor, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fchmod(descriptor, 0o644)  # whatever the umask
            finally:
                os.close(descriptor)
            os.replace(self._beside, self.path)  # noqa: PTH105 - no Path object for each tick
        except OSError:
            with contextlib.suppress(OSError):
                self._beside.unlink()
            raise
