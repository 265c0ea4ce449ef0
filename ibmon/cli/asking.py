"""What the commands share that ask the running daemon for a change: the call, and how its answer is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ibmon.cli.common import Settings, Trouble, say

if TYPE_CHECKING:
    from ibmon.controlclient import Request


def ask(settings: Settings, request: Request, *, as_json: bool) -> int:
    """Ask, print what came of it, and return the exit code: 0 done, 1 refused."""
    from ibmon import controlclient

    path = Path(settings.load().config.state.runtime_directory) / controlclient.SOCKET
    try:
        reply = controlclient.ask(path, request)
    except controlclient.ControlError as error:
        raise Trouble(str(error)) from error
    if as_json:
        click.echo(json.dumps({"done": reply.done, "text": reply.text}))
    elif reply.done:
        click.echo(reply.text)
    else:
        say(reply.text)
    return 0 if reply.done else 1
