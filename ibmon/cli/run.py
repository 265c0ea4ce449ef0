"""`ibmon run`."""

from __future__ import annotations

import click

from ibmon.cli.common import SYSFS, Command, Settings, say


@click.command("run", cls=Command)
@click.pass_obj
def command(settings: Settings) -> int:
    """Run the daemon until SIGTERM; SIGHUP reads the configuration anew.

    Without a configuration it observes and serves metrics at port 19315.
    """
    from ibmon.runtime import live

    loaded = settings.load()
    for warning in loaded.warnings:
        say(f"warning: {warning}")
    return live.run(loaded, settings.sysfs or SYSFS, settings.config)
