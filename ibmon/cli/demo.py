"""`ibmon demo`."""

from __future__ import annotations

import click

from ibmon.cli.common import Command, Failure


@click.command("demo", cls=Command)
@click.argument("scenario", default="cable")
@click.option("--list", "listed", is_flag=True, help="Name the scenarios and end.")
@click.option(
    "--listen", default="127.0.0.1:0", metavar="ADDRESS", help="Where the page is served; by default any port."
)
def command(scenario: str, listed: bool, listen: str) -> int:
    """Watch a simulated node lose a port, be drained, and come back; or another scenario.

    A node with twelve ports is made in a directory of its own, and the daemon runs on it with a simulated scheduler.
    Nothing of this host is touched. Ctrl-C ends it. The exit code is 1 when a scenario did not end as it has to.
    """
    from ibmon.simulate import demo
    from ibmon.simulate.scenarios import SCENARIOS

    if listed:
        click.echo(demo.listing(), nl=False)
        return 0
    if scenario not in SCENARIOS:
        raise Failure(f"no scenario {scenario!r}; there are {', '.join(SCENARIOS)}")
    return demo.main(scenario, listen)
