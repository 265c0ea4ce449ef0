"""`ibmon maintenance`: start, stop, show."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from ibmon.cli.asking import ask, said
from ibmon.cli.common import Group, Settings, as_duration


@click.group("maintenance", cls=Group, no_args_is_help=False)
def command() -> None:
    """Say that somebody works on this node or on some of its ports, until a time.

    Meanwhile nothing of it alerts, counts, drains or gives the node back; all is read, shown and recorded. When the
    time is up, or at stop, holds begin anew. A window outlives restarts and boots, and its end is logged.
    """


_json = click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")
_option = click.option(
    "--ports",
    "listed",
    metavar="PORT,...",
    multiple=True,
    help="Only these ports or devices; by default the whole node.",
)
_ports = click.argument("ports", metavar="[PORT|DEVICE]...", nargs=-1)


@command.command()
@click.option(
    "--for", "seconds", metavar="TIME", callback=as_duration, required=True, help="For how long: 30m, 2h; at most 7d."
)
@click.option("--reason", metavar="TEXT", required=True, help="Why: others will ask.")
@_option
@_ports
@_json
@click.pass_obj
def start(
    settings: Settings, seconds: float, reason: str, listed: tuple[str, ...], ports: tuple[str, ...], as_json: bool
) -> int:
    """Begin a window. One for the same ports takes the place of the one before.

    For root and members of group ibmon.
    """
    from ibmon.controlclient import Request

    request = Request("maintenance-start", _subjects(listed, ports), reason=reason, seconds=seconds)
    return ask(settings, request, as_json=as_json)


@command.command()
@_option
@_ports
@_json
@click.pass_obj
def stop(settings: Settings, listed: tuple[str, ...], ports: tuple[str, ...], as_json: bool) -> int:
    """End the windows of the ports named, else all."""
    from ibmon.controlclient import Request

    return ask(settings, Request("maintenance-stop", _subjects(listed, ports)), as_json=as_json)


@command.command()
@_json
@click.pass_obj
def show(settings: Settings, as_json: bool) -> None:
    """Print the windows in force: what, until when in local time, who began it, and why."""
    windows = (said(settings).get("maintenance") or {}).get("windows", [])
    if as_json:
        click.echo(json.dumps({"windows": windows}))
        return
    for window in windows:
        click.echo(_line(window))
    if not windows:
        click.echo("no maintenance")


def _line(window: dict[str, Any]) -> str:
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(window["until"]))
    return f"{', '.join(window['ports']) or 'the whole node'} until {until} by {window['user']}: {window['reason']}"


def _subjects(listed: tuple[str, ...], ports: tuple[str, ...]) -> tuple[str, ...]:
    """Ports between commas, in repeated options, and behind them."""
    return tuple(name for text in (*listed, *ports) for name in text.split(",") if name)
