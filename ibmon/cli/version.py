"""`ibmon version`."""

from __future__ import annotations

import json
import platform

import click

from ibmon import __version__
from ibmon.cli.common import Command


@click.command("version", cls=Command)
@click.option("--json", "as_json", is_flag=True, help="As JSON, with the interpreter and the kernel.")
def command(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        found = {"version": __version__, "python": platform.python_version(), "kernel": platform.release()}
        click.echo(json.dumps(found))
    else:
        click.echo(f"ibmon {__version__}")
