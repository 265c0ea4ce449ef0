"""`ibmon wait`: holds a boot back until the node is fit, and never for longer than it was told."""

from __future__ import annotations

import time

import click

from ibmon.cli import verdictfile
from ibmon.cli.check import directory
from ibmon.cli.common import Command, Settings, as_duration, mute
from ibmon.cli.verdictfile import Verdict
from ibmon.configvalues import duration_text

INTERVAL = 1.0  # seconds between two looks at the file
GOOD = ("fit", "watch")


@click.command("wait", cls=Command)
@click.option(
    "--for", "seconds", metavar="TIME", callback=as_duration, default="10m", help="How long at most; by default 10m."
)
@click.pass_obj
def command(settings: Settings, seconds: float) -> None:
    """Wait until the daemon calls this node fit, or the time is up.

    For a service that should start with a good fabric, such as slurmd: ExecStartPre=ibmon wait --for 10m. Exit 0 in
    both cases, with a line that says which: a node that stays bad is for the drain to keep away from jobs.
    """
    where = directory(settings)
    begin = time.monotonic()
    said: tuple[str, ...] = ()
    while True:
        verdict = verdictfile.read(where)
        waited = time.monotonic() - begin
        line = f"{verdict.node} is {verdict.fitness}" + (f": {verdict.why}" if verdict.why else "")
        if verdict.fitness in GOOD:
            _tell(f"{line} (waited {waited:.0f} s)")
            return
        if waited >= seconds:
            _tell(f"{line}; {duration_text(seconds)} are up, going on without a good verdict")
            return
        if _shape(verdict) != said:
            said = _shape(verdict)
            _tell(f"{line}; waiting")
        time.sleep(min(INTERVAL, seconds - waited))


def _tell(line: str) -> None:
    """Print it, if somebody takes it: that nobody does must not keep a service from its start."""
    try:
        click.echo(line)
    except OSError:
        mute()


def _shape(verdict: Verdict) -> tuple[str, ...]:
    """What of a verdict is worth a new line: the numbers in it run on with every second."""
    why = verdict.why.split()
    return (verdict.fitness, *(why if verdict.document is None else why[:2]))
