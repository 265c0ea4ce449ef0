"""What the commands share that ask the running daemon for a change: the call, and how its answer is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ibmon.cli.common import Settings, Trouble, say

if TYPE_CHECKING:
    from ibmon.cli.verdictfile import Verdict
    from ibmon.controlclient import Reply, Request


def said(settings: Settings) -> dict[str, Any]:
    """The running daemon's last word."""
    document, why = whole(Path(settings.load().config.state.runtime_directory))[1:]
    if document is None:
        raise Trouble(why)
    return document


def whole(directory: Path) -> tuple[Verdict, dict[str, Any] | None, str]:
    """The verdict in a directory, its document where all of it can be shown, and why there is none."""
    from ibmon.cli import shapes, verdictfile

    verdict = verdictfile.read(directory)
    if verdict.document is None:
        return verdict, None, verdict.why
    try:
        shapes.fit(verdict.document, shapes.Status)
    except ValueError as error:
        return verdict, None, f"{directory / verdictfile.FILE} holds no whole status document: {error}"
    return verdict, verdict.document, ""


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
