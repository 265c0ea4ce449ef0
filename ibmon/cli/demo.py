"""`ibmon demo`."""

from __future__ import annotations

import click

from ibmon.cli.common import Command


@click.command("demo", cls=Command)
@click.option(
    "--listen", default="127.0.0.1:0", metavar="ADDRESS", help="Where the page is served; by default any port."
)
def command(listen: str) -> int:
    """Watch a simulated node lose a port, be drained, and come back.

    A node with twelve ports is made in a directory of its own, and the daemon runs on it with a simulated scheduler.
    Nothing of this host is touched. Ctrl-C ends it.
    """
    from ibmon.simulate import demo

    return demo.main(listen)
