"""`ibmon metrics`."""

from __future__ import annotations

import click

from ibmon.cli.common import Command, Settings


@click.command("metrics", cls=Command)
@click.option("--compat", type=click.Choice(["node_exporter"]), help="Also the names of node_exporter's collector.")
@click.pass_obj
def command(settings: Settings, compat: str | None) -> None:
    """Read everything once and print it as Prometheus text.

    Fit for a textfile collector: write to a file beside the final one, then rename it.
    """
    loaded, tree = settings.load(), settings.tree()
    config = loaded.config

    import msgspec

    from ibmon.exporter.render import Renderer
    from ibmon.exporter.text import Format
    from ibmon.runtime import once

    node_exporter = bool(compat) or "node_exporter" in config.exporter.compat
    snapshot = msgspec.structs.replace(once.snapshot(config, tree), config_hash=loaded.hash)
    text = Renderer(node_exporter=node_exporter).render(snapshot, Format.TEXT, monotonic=snapshot.at.monotonic)
    click.echo(text, nl=False)
