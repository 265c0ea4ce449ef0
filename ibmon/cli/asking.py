"""What the commands share that ask the running daemon for a change: the call, and how its answer is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ibmon.cli.common import Settings, Trouble, say

if TYPE_CHECKING:
    from ibmon.controlclient import Reply, Request


def said(settings: Settings) -> dict[str, Any]:
    """The running daemon's last word."""
    from ibmon.cli import verdictfile

    verdict = verdictfile.read(Path(settings.load().config.state.runtime_directory))
    if verdict.document is None:
        raise Trouble(verdict.why)
    return verdict.document


def put(settings: Settings, request: Request) -> Reply:
    """Ask the running daemon; its answer."""
    from ibmon import controlclient

    path = Path(settings.load().config.state.runtime_directory) / controlclient.SOCKET
    try:
        return controlclient.ask(path, request)
    except controlclient.ControlError as error:
        raise Trouble(str(error)) from error


def ask(settings: Settings, request: Request, *, as_json: bool) -> int:
    """Ask, print what came of it, and return the exit code: 0 done, 1 refused."""
    reply = put(settings, request)
    if as_json:
        click.echo(json.dumps({"done": reply.done, "text": reply.text}))
    elif reply.done:
        click.echo(reply.text)
    else:
        say(reply.text)
    return 0 if reply.done else 1
