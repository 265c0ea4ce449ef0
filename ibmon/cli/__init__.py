"""The command line. This module starts it and turns an interrupt at any moment into exit code 130.

It imports nothing by itself, so that `ibmon check` is told apart, and answered, before click is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments (by default the process's) name; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "check" in words and "--gate" in words:
        return _gate(words)
    try:
        return _run(words)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(words: list[str]) -> int:
    if "check" in words:
        from ibmon.cli import quickcheck

        code = quickcheck.run(words)
        if code is not None:
            return code
    from ibmon.cli.app import run

    return run(words)


def _gate(words: list[str]) -> int:
    """A scheduler may drain the node for any other exit code than 0, so every mistake and every trouble is 0."""
    try:
        from ibmon.cli import quickcheck

        code = quickcheck.run(words)
        if code is not None:
            return code
        _run(words)  # says what is wrong with the call
    except BaseException as error:  # noqa: BLE001 - no trouble whatever may keep a job away
        try:
            sys.stderr.write(f"ibmon: the gate is open: {error!r}\n")
        except (OSError, ValueError, AttributeError):
            return 0  # nobody reads it
    return 0
