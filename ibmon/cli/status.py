"""`ibmon status`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ibmon.cli.common import Command, Settings, Trouble, say

if TYPE_CHECKING:
    from ibmon.config import Config

_LATE = 15.0  # seconds; the daemon writes at each turn of its loop, at the latest every five


@click.command("status", cls=Command)
@click.option("--url", metavar="URL", help="Ask a daemon over HTTP: http://gpu-17:19315")
@click.option("--direct", is_flag=True, help="Read the hardware once, whatever a daemon says.")
@click.option("--json", "as_json", is_flag=True, help="The whole status document.")
@click.pass_obj
def command(settings: Settings, url: str | None, direct: bool, as_json: bool) -> None:
    """Show the node, its ports and what is wrong with them.

    What the running daemon last said; where none runs, one look at the hardware, which knows no history.
    """
    if url and (direct or settings.sysfs):
        raise click.UsageError("--url asks another daemon; --direct and --sysfs read here: give one of them")
    document = None
    if url:
        document = _asked(url)
    elif not direct and settings.sysfs is None:
        document, why = _said(settings.load().config)
        if document is None:
            say(f"{why}; reading the hardware once")
    from_daemon = document is not None
    if document is None:
        document = _look(settings)
    if as_json:
        click.echo(json.dumps(document))
        return
    from ibmon.cli.table import show

    show(document, from_daemon=from_daemon)


def _look(settings: Settings) -> dict[str, Any]:
    """One pass over the hardware."""
    config, tree = settings.load().config, settings.tree()

    from ibmon.exporter.status import status_document
    from ibmon.runtime import once

    return status_document(once.snapshot(config, tree))


def _said(config: Config) -> tuple[dict[str, Any] | None, str]:
    return _verdict(Path(config.state.runtime_directory) / "verdict.json")


def _verdict(path: Path) -> tuple[dict[str, Any] | None, str]:
    """The running daemon's last word, or why there is none."""
    from ibmon.exporter.status import TTL

    try:
        with path.open(encoding="utf-8") as file:
            age = time.time() - path.stat().st_mtime
            if not -TTL <= age <= TTL:
                return None, f"the daemon has said nothing for {age:.0f} s"
            document = _document(file.read())
    except FileNotFoundError:
        return None, "no daemon runs here"
    except (OSError, ValueError) as error:
        return None, f"{path} cannot be read ({getattr(error, 'strerror', None) or error})"
    if age > _LATE:
        say(f"the daemon said this {age:.0f} s ago; does it still run?")
    return document, ""


def _asked(url: str) -> dict[str, Any]:
    from ibmon.cli.distant import address, fetch

    target = address(url, "/api/v1/status")
    try:
        return _document(fetch(target))
    except ValueError as error:
        raise Trouble(f"{target}: {error}; is that an ibmon?") from error


def _document(text: str | bytes) -> dict[str, Any]:
    """Raises ValueError for anything but a status document of a version that this one understands."""
    from ibmon.cli import shapes
    from ibmon.exporter.status import VERSION

    try:
        document = json.loads(text)
    except RecursionError:
        document = None
    if not isinstance(document, dict) or "ports" not in document:
        raise ValueError("this is no status document")
    if document.get("v") != VERSION:
        raise ValueError(f"status document of version {document.get('v')}; this ibmon reads version {VERSION}")
    try:
        shapes.fit(document, shapes.Status)
    except ValueError as error:
        raise ValueError(f"this is no whole status document: {error}") from error
    return document
