"""`ibmon run`."""

from __future__ import annotations

import click

from ibmon.cli.common import SYSFS, Command, Settings


@click.command("run", cls=Command)
@click.pass_obj
def command(settings: Settings) -> int:
    """Run the daemon until SIGTERM; SIGHUP reads the configuration anew.

    Without a configuration it observes and serves metrics at port 19315.
    """
    from ibmon.runtime import live

    return live.run(settings.load(), settings.sysfs or SYSFS, settings.config)
