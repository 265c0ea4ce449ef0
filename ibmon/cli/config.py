"""`ibmon config`: check, show, example."""

from __future__ import annotations

import json

import click

from ibmon.cli.common import Group, Settings, say


@click.group("config", cls=Group, no_args_is_help=False)
def command() -> None:
    """Check, show or begin a configuration."""


@command.command()
@click.pass_obj
def check(settings: Settings) -> None:
    """Read the configuration and name every problem.

    Exit 2 when a daemon would not start with it; warnings alone are exit 0.
    """
    loaded = settings.load()
    for warning in loaded.warnings:
        say(f"warning: {warning}")
    where = ", ".join(map(str, loaded.files)) or "no file: the defaults"
    click.echo(f"ok ({where}; hash {loaded.hash})")


@command.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, durations in seconds.")
@click.pass_obj
def show(settings: Settings, as_json: bool) -> None:
    """Print the configuration in force and where each value came from."""
    from ibmon.configtext import to_builtins, to_toml

    loaded = settings.load()
    if as_json:
        found = {
            "config": to_builtins(loaded.config),
            "origins": dict(loaded.origins),
            "warnings": list(loaded.warnings),
            "hash": loaded.hash,
            "files": [str(file) for file in loaded.files],
        }
        click.echo(json.dumps(found, indent=2))
        return
    for warning in loaded.warnings:
        say(f"warning: {warning}")
    click.echo(to_toml(loaded.config, loaded.origins), nl=False)


@command.command()
def example() -> None:
    """Print a commented file with every key, to start from.

    As it stands it changes nothing: every value is the default.
    """
    from ibmon.configtext import example as text

    click.echo(text(), nl=False)
