"""`ibmon check`, for the calls that `ibmon/cli/quickcheck.py` leaves: help, mistakes, a look at the hardware."""

from __future__ import annotations

from pathlib import Path

import click

from ibmon.cli import quickcheck, verdictfile
from ibmon.cli.common import Command, Settings
from ibmon.cli.quickcheck import FORMATS, Options
from ibmon.cli.verdictfile import Verdict
from ibmon.configtree import ConfigError


@click.command("check", cls=Command)
@click.option("--strict", is_flag=True, help="Exit 2 where the node's fitness is unknown.")
@click.option(
    "--gate", is_flag=True, help="For Prolog and health checks: exit 1 only while ibmon's own drain is in force."
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="For which monitoring system.")
@click.option("--direct", is_flag=True, help="Read the hardware once, whatever a daemon says.")
@click.option("--json", "as_json", is_flag=True, help="The verdict and its findings.")
@click.pass_obj
def command(settings: Settings, strict: bool, gate: bool, form: str, direct: bool, as_json: bool) -> int:
    """Say whether this node is fit, by the daemon's last word, in one line and the exit code.

    0: fit, to be watched, or unknown. 1: unfit. With --strict, 2: unknown. As nagios has it: 0 fit, 1 watch, 2 unfit,
    3 unknown. For node-problem-detector: 0 well, 1 unfit, 2 unknown. A word that is older than 60 s or from another
    boot is unknown. With --gate everything but ibmon's own drain, also a mistake in the call, is 0.

    Only /run/ibmon/verdict.json is read, or where --config FILE says. --direct looks at the hardware instead: that
    knows no history, so no hold has run and little can be called unfit.
    """
    options = Options(strict, gate, form, as_json)
    direct = direct or settings.sysfs is not None
    problem = quickcheck.contradiction(options)
    if gate and direct:
        problem = "--gate asks for a drain in force, which the hardware cannot tell; leave out --direct and --sysfs"
    if problem:
        raise click.UsageError(problem)
    try:
        verdict = _look(settings) if direct else verdictfile.read(directory(settings))
    except ConfigError as error:
        if form == "text":
            raise
        verdict = verdictfile.unknown(error.problems[0])
    return quickcheck.say(quickcheck.answer(options, verdict))


def directory(settings: Settings) -> Path:
    """Where the daemon leaves its verdict: /run/ibmon, or where the file of ``--config`` says. Raises ConfigError."""
    if settings.config is None:
        return verdictfile.DIRECTORY
    return Path(settings.load().config.state.runtime_directory)


def _look(settings: Settings) -> Verdict:
    """One pass over the hardware."""
    config, tree = settings.load().config, settings.tree()

    from ibmon.exporter.status import status_document
    from ibmon.runtime import once

    document = status_document(once.snapshot(config, tree))
    return Verdict(document["fitness"], document["why"], 0.0, document)
