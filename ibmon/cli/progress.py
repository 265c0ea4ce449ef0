"""How far something is that takes its time: a bar on a terminal's stderr, and nothing anywhere else."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

PATIENCE: Final = 1.0  # seconds that people wait without being told anything
_PAUSE: Final = 0.1  # seconds between two pictures


@contextlib.contextmanager
def progress(
    what: str, total: float | None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[float], None]]:
    """Gives a function to be called often with how much of `total` is done; None where nobody knows the end.

    The bar comes after `PATIENCE` and goes at the end. What is written to stderr meanwhile stands above it.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
    task = bar.add_task(what, total=total)
    due = clock() + PATIENCE
    started = False

    def done(amount: float) -> None:
        nonlocal due, started
        now = clock()
        if now < due:
            return
        due = now + _PAUSE
        if not started:
            started = True
            bar.start()
        bar.update(task, completed=amount, refresh=True)

    try:
        yield done
    finally:
        if started:
            bar.stop()
