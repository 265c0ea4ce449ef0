"""`ibmon replay`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import click

from ibmon.cli.common import Command, Failure, Settings, as_seconds, as_times


@click.command("replay", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--at", callback=as_times, metavar="T,T", help="Also say how things stand at these times.")
@click.option("--until", callback=as_seconds, metavar="T", help="Play up to this time, inclusive.")
@click.option("--json", "as_json", is_flag=True, help="JSON Lines; the rows have no other form.")
@click.option("--metrics-at", callback=as_seconds, metavar="T", help="Print the metrics of this time and nothing else.")
@click.pass_obj
def command(
    settings: Settings,
    *,
    file: Path,
    at: list[float],
    until: float | None,
    as_json: bool,  # noqa: ARG001 - JSON Lines are the only form, and --metrics-at prints none
    metrics_at: float | None,
) -> None:
    """Play a recording through the daemon's engine in virtual time.

    Nothing of this host is read: without --config the defaults hold, and the scheduler is a simulated one.
    """
    from ibmon.cli.progress import progress
    from ibmon.config import Config
    from ibmon.configfile import load
    from ibmon.recording import RecordingError
    from ibmon.runtime import replay

    config = load(settings.config, host=False).config if settings.config else Config()
    end = until if metrics_at is None or until is not None else metrics_at
    try:
        with contextlib.ExitStack() as stack:
            # On a terminal the lines themselves tell how far it is.
            told = None if sys.stdout.isatty() else stack.enter_context(progress("replaying", end))
            replay.main(file, config, at, until, metrics_at, sys.stdout, told)
    except RecordingError as error:
        raise Failure(str(error)) from error
