"""`ibmon top`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ibmon.cli.asking import whole
from ibmon.cli.common import Command, Failure, Settings

if TYPE_CHECKING:
    from ibmon.cli.screen import Screen
    from ibmon.cli.topview import Look

TURN = 1.0  # seconds between two looks at the daemon's word


@click.command("top", cls=Command)
@click.pass_obj
def command(settings: Settings) -> None:
    """Watch the ports of this node live: health, throughput, errors.

    What the running daemon says, as in `ibmon status`; the hardware is not read. Keys: p h i o e sort, r turns the
    order, a shows ignored ports too, arrows scroll, space pauses, q quits.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure("top needs a terminal; 'ibmon status' prints the same once, 'ibmon status --json' for programs")
    directory = Path(settings.load().config.state.runtime_directory)

    from ibmon.cli.screen import Screen

    sys.stdout.flush()
    with Screen(sys.stdin.fileno(), sys.stdout.fileno()) as screen:
        _watch(screen, directory)


def _watch(screen: Screen, directory: Path) -> None:
    """Show what stands in the directory until a person ends it."""
    from ibmon.cli.table import printable
    from ibmon.cli.topview import Look, Traffic, frame

    look, traffic = Look(), Traffic()
    document: dict[str, Any] | None = None
    due = 0.0
    while True:
        now = time.monotonic()
        if now >= due and not look.paused:
            verdict, read, look.note = whole(directory)
            look.age = verdict.age if verdict.age is not None else look.age
            if read is not None:
                document = printable(read)
                traffic.take(document)
            due = now + TURN
        look.width, look.height = screen.size
        screen.show(frame(document, traffic, look))
        key = screen.wait(max(0.0, due - time.monotonic()) if not look.paused else TURN)
        if key in {"q", "Q", "\x1b", "\x03", "\x04"}:
            return
        _press(key, look)


def _press(key: str, look: Look) -> None:
    from ibmon.cli.topview import SORTS

    if key in SORTS:
        look.sort, look.scroll = key, 0
    elif key == "r":
        look.reverse = not look.reverse
    elif key == "a":
        look.everything = not look.everything
    elif key == " ":
        look.paused = not look.paused
    elif key in {"up", "k"}:
        look.scroll -= 1
    elif key in {"down", "j"}:
        look.scroll += 1
    elif key in {"pageup", "home"}:
        look.scroll -= look.height if key == "pageup" else 1_000_000
    elif key in {"pagedown", "end"}:
        look.scroll += look.height if key == "pagedown" else 1_000_000
