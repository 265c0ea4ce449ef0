"""`ibmon record`."""

from __future__ import annotations

from pathlib import Path

import click

from ibmon.cli.common import Command, Failure, Settings, Trouble, as_duration, say


@click.command("record", cls=Command)
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="FILE.gz is compressed.")
@click.option(
    "--for", "seconds", default="10m", show_default=True, callback=as_duration, metavar="TIME", help="How long."
)
@click.option("--interval", callback=as_duration, metavar="TIME", help="How often; by default sampling.state_interval.")
@click.option("--force", is_flag=True, help="Write over a file that exists.")
@click.pass_obj
def command(settings: Settings, *, out: Path, seconds: float, interval: float | None, force: bool) -> int:
    """Record a node's sysfs tree and how it changes, for `ibmon replay`.

    The first frame is the whole tree as far as ibmon reads it, the others are what changed. Ctrl-C ends it early with a
    file that is whole. The file names devices, GUIDs and addresses of this host.
    """
    from ibmon.cli.progress import progress
    from ibmon.recording import RecordingError
    from ibmon.runtime import record

    if interval is not None and interval <= 0:
        raise click.BadParameter("write a time above zero, such as 5s", param_hint="--interval")
    if out.exists() and not force:
        raise Failure(f"{out} exists already; choose another name or add --force")
    config = settings.load().config
    try:
        with progress("recording", seconds) as passed:
            return record.record(settings.tree(), out, seconds, config, say, interval=interval, passed=passed)
    except RecordingError as error:
        raise Trouble(str(error)) from error
