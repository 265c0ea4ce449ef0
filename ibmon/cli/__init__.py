"""The command line. This module starts it and turns an interrupt at any moment into exit code 130.

It imports nothing by itself, so that a command that must be fast can be told apart before click is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments (by default the process's) name; returns the exit code."""
    try:
        from ibmon.cli.app import run

        return run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
