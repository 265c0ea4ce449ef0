"""`ibmon dashboards`: export."""

from __future__ import annotations

from pathlib import Path

import click

from ibmon.cli.common import Failure, Group, Settings, say


@click.group("dashboards", cls=Group, no_args_is_help=False)
def command() -> None:
    """Write dashboards for Grafana and rules for Prometheus."""


@command.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--runbook-url", metavar="URL", help="Where alerts look for their pages: a copy of docs/runbook.")
@click.pass_obj
def export(settings: Settings, directory: Path, runbook_url: str | None) -> None:
    """Write dashboards, rules and a provisioning example below DIR, and print the files.

    Rules tell the limits of this host's configuration, or of --config. Where that names an [[alertmanager]], nodes tell
    of their findings themselves: rules for findings are left out, and removed where an earlier export has left them,
    so that nobody hears of a fault twice.
    """
    from ibmon.boards import ExportError
    from ibmon.boards import export as write
    from ibmon.promrules.table import RUNBOOK_URL

    config = settings.load().config
    push = bool(config.alertmanager)
    configured = next((one.runbook_url for one in config.alertmanager if one.runbook_url), None)
    try:
        done = write(directory, config, push=push, runbook_url=runbook_url or configured or RUNBOOK_URL)
    except ExportError as error:
        raise Failure(str(error)) from error
    for file in done.written:
        click.echo(str(file))
    if push:
        say("[[alertmanager]] is configured: nodes tell of findings themselves, so rules for findings are left out")
    for file in done.removed:
        say(f"removed {file}: it would tell of each finding a second time")
