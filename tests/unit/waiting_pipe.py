"""A file whose reader waits in the kernel until the test lets it go on, as one of a card that does not answer."""

from __future__ import annotations

import os
from pathlib import Path


class WaitingPipe:
    """A pipe in a file's place: who opens it to read waits in open() until `answer`.

    What comes back then is ESPIPE, as a pipe has no place to read at.
    """

    def __init__(self, path: Path, aside: Path) -> None:
        """`aside` is a directory that nobody reads, on the same file system."""
        self.path = path
        self._before = aside / "pipe-before"
        self._next = aside / "pipe-next"

    def hang(self) -> None:
        """Put the pipe where the file is."""
        os.mkfifo(self._next)
        self._next.replace(self.path)

    def answer(self) -> None:
        """Let the reader that waits go on, and no other one.

        Who opens the file from now on meets another pipe. At the same one a reader that comes while this process has
        it open to write, which may be long on a busy machine, would not wait at all.
        """
        os.link(self.path, self._before)
        self.hang()
        try:
            # Not blocking: where nobody reads, the test is wrong and ends here.
            os.close(os.open(self._before, os.O_WRONLY | os.O_NONBLOCK))
        finally:
            self._before.unlink()


def waits(pid: int) -> bool:
    """Whether a process waits in open() of the pipe."""
    return Path(f"/proc/{pid}/wchan").read_text() in {"wait_for_partner", "fifo_open"}
