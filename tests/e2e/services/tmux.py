"""A terminal that a test types into and reads from: tmux with a server of its own.

Owns: one session of one window. Must not: touch anybody's tmux, or know what runs inside.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, final

from . import debian
from .processes import ServiceError, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PACKAGE = "tmux"


def _program(directory: Path) -> str:
    """The tmux of this host, else Debian's unpacked into the cache."""
    if found := shutil.which(PACKAGE):
        return found
    root = debian.unpacked(PACKAGE)
    launcher = directory / "tmux"
    debian.write_launcher(launcher, root / "usr/bin/tmux", root)
    return str(launcher)


@final
class Terminal:
    """A shell in a terminal of this size; a context manager."""

    def __init__(self, width: int, height: int, *, env: Mapping[str, str]) -> None:
        self._size = width, height
        self._env = {**env, "LC_ALL": "C.UTF-8", "PS1": "$ "}
        self._env.pop("TMUX", None)

    def __enter__(self) -> Terminal:
        self._directory = tempfile.TemporaryDirectory(prefix="ibmon-tmux-")
        scratch = Path(self._directory.name)
        self._program = _program(scratch)
        self._socket = scratch / "socket"
        width, height = map(str, self._size)
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height, "sh")
        self._tmux("set-option", "-g", "window-size", "manual")
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")
        self._directory.cleanup()

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._program, "-u", "-S", str(self._socket), *arguments],
            capture_output=True, text=True, timeout=20, check=False, env=self._env,
        )  # fmt: skip
        if done.returncode:
            raise ServiceError(f"tmux {shlex.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def run(self, argv: Sequence[str | Path]) -> None:
        """Type a command, and Enter."""
        self.press(shlex.join(map(str, argv)), "Enter")

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names; other text is typed."""
        self._tmux("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    @property
    def lines(self) -> list[str]:
        """What stands on the screen."""
        return self._tmux("capture-pane", "-p").splitlines()

    @property
    def alternate(self) -> bool:
        """Whether a program has taken the whole screen for itself."""
        return self._tmux("display-message", "-p", "#{alternate_on}").strip() == "1"

    def wait(self, text: str, *, within: float = 15.0) -> list[str]:
        """The lines once one of them holds this text."""

        def seen() -> list[str]:
            lines = self.lines
            return lines if any(text in line for line in lines) else []

        try:
            return wait_for(seen, within=within, what=f"{text!r} on the screen")
        except ServiceError as error:
            raise ServiceError("\n".join([str(error), *self.lines])) from error
