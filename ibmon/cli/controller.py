"""`ibmon controller`: the fleet controller itself, and what operators ask of a running one."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import click

from ibmon.cli.common import Failure, Group, Settings, as_duration
from ibmon.cli.reaching import as_json_option, connect, get, names, post, reaching

FITNESS = ("fit", "watch", "unfit", "unknown")

_nodes = click.option(
    "--nodes",
    "--node",
    "listed",
    metavar="NODE,...",
    multiple=True,
    help="Nodes by name or shell pattern, in quotes: 'gpu-1*'.",
)
_group = click.option("--group", metavar="LEAF", default="", help="The nodes on this leaf of the topology.")


@click.group("controller", cls=Group, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> int | None:
    """Run the fleet controller until SIGTERM; with a command below, ask a running one.

    It hears every node, drains and gives back through the scheduler under limits that hold for the whole fleet.
    """
    if ctx.invoked_subcommand is not None:
        return None
    from ibmon.controller import daemon

    code: int = daemon.run(ctx.ensure_object(Settings).load())
    return code


@command.command()
@click.option("--reason", metavar="TEXT", required=True, help="Why: others will ask.")
@reaching
@as_json_option
@click.pass_obj
def stop(settings: Settings, url: str | None, token_file: str | None, reason: str, as_json: bool) -> int:
    """Write nothing to any scheduler from now on, nor let any node do so, until `start`."""
    return post(connect(settings, url, token_file), "/v1/stop", {"reason": reason}, as_json=as_json)


@command.command()
@click.option("--reason", metavar="TEXT", default="", help="Why, for the log.")
@reaching
@as_json_option
@click.pass_obj
def start(settings: Settings, url: str | None, token_file: str | None, reason: str, as_json: bool) -> int:
    """End a stop."""
    return post(connect(settings, url, token_file), "/v1/start", {"reason": reason}, as_json=as_json)


@command.command()
@reaching
@as_json_option
@click.pass_obj
def status(settings: Settings, url: str | None, token_file: str | None, as_json: bool) -> None:
    """Show the fleet: how many are fit, limits, drains, fabric events, maintenance."""
    from ibmon.controller.values import Fleet

    fleet = get(connect(settings, url, token_file), "/api/v1/fleet", Fleet)
    if as_json:
        click.echo(json.dumps(fleet))
        return
    from ibmon.cli import fleettable

    fleettable.show_fleet(fleet)


@command.command()
@click.argument("patterns", metavar="[NODE]...", nargs=-1)
@click.option("--fitness", metavar="FITNESS,...", multiple=True, help=f"Only these: {', '.join(FITNESS)}.")
@reaching
@as_json_option
@click.pass_obj
def nodes(
    settings: Settings,
    url: str | None,
    token_file: str | None,
    patterns: tuple[str, ...],
    fitness: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show nodes in a line each; all, or those whose names fit shell patterns."""
    from fnmatch import fnmatchcase

    from ibmon.controller.values import NodeRow

    wanted = names(fitness)
    if unknown := [word for word in wanted if word not in FITNESS]:
        raise click.UsageError(f"there is no fitness {unknown[0]!r}; write {', '.join(FITNESS)}")
    rows = get(connect(settings, url, token_file), "/api/v1/nodes", list[NodeRow])
    chosen = [
        row
        for row in rows
        if (not wanted or row["fitness"] in wanted)
        and (not patterns or any(fnmatchcase(row["name"], pattern) for pattern in patterns))
    ]
    if as_json:
        click.echo(json.dumps(chosen))
        return
    from ibmon.cli import fleettable

    fleettable.show_nodes(chosen)


@command.command()
@click.argument("mode", type=click.Choice(["observe", "alert", "drain"]), required=False)
@click.option("--clear", is_flag=True, help="Take back what was said of these nodes; with --all, of any.")
@click.option("--all", "every", is_flag=True, help="With --clear: everything that was said.")
@_nodes
@click.option("--reason", metavar="TEXT", default="", help="Why, for the log.")
@reaching
@as_json_option
@click.pass_obj
def mode(
    settings: Settings,
    url: str | None,
    token_file: str | None,
    mode: str | None,
    clear: bool,
    every: bool,
    listed: tuple[str, ...],
    reason: str,
    as_json: bool,
) -> int:
    """Say how far the controller goes with some nodes, whatever the configuration says: a roll-out in waves.

    A node's own mode bounds it further: the lesser of both holds.
    """
    if clear == (mode is not None):
        raise click.UsageError("give a mode, or --clear")
    nodes = names(listed) if clear and every else _some(listed)
    body = {"mode": mode, "nodes": nodes, "all": every, "reason": reason}
    return post(connect(settings, url, token_file), "/v1/mode", body, as_json=as_json)


@command.group("maintenance", cls=Group, no_args_is_help=False)
def maintenance() -> None:
    """Say that somebody works on many nodes, until a time: none of them is drained or given back meanwhile."""


@maintenance.command("start")
@click.option(
    "--for", "seconds", metavar="TIME", callback=as_duration, required=True, help="For how long: 30m, 2h; at most 7d."
)
@click.option("--reason", metavar="TEXT", required=True, help="Why: others will ask.")
@_nodes
@_group
@reaching
@as_json_option
@click.pass_obj
def maintenance_start(
    settings: Settings,
    url: str | None,
    token_file: str | None,
    seconds: float,
    reason: str,
    listed: tuple[str, ...],
    group: str,
    as_json: bool,
) -> int:
    """Begin a window over the nodes named, or over a leaf."""
    body = {"seconds": seconds, "reason": reason, "nodes": _chosen(listed, group), "group": group}
    return post(connect(settings, url, token_file), "/v1/maintenance", body, as_json=as_json)


@maintenance.command("end")
@click.option("--all", "every", is_flag=True, help="Every window.")
@_nodes
@_group
@reaching
@as_json_option
@click.pass_obj
def maintenance_end(
    settings: Settings,
    url: str | None,
    token_file: str | None,
    every: bool,
    listed: tuple[str, ...],
    group: str,
    as_json: bool,
) -> int:
    """End the windows over the nodes named, over a leaf, or all."""
    chosen = names(listed) if every else _chosen(listed, group)
    body = {"nodes": chosen, "group": group, "all": every}
    return post(connect(settings, url, token_file), "/v1/maintenance/end", body, as_json=as_json)


@command.command()
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 10000), default=100, show_default=True, help="The newest N."
)
@reaching
@as_json_option
@click.pass_obj
def audit(settings: Settings, url: str | None, token_file: str | None, limit: int, as_json: bool) -> None:
    """Show who did what and what the controller decided, newest first."""
    from ibmon.cli import fleettable
    from ibmon.cli.shapes import AuditRow

    rows = get(connect(settings, url, token_file), f"/api/v1/audit?{urlencode({'limit': limit})}", list[AuditRow])

    for row in rows:
        click.echo(json.dumps(row) if as_json else fleettable.audit_line(row))


@command.command()
@click.argument("node")
@click.pass_obj
def key(settings: Settings, node: str) -> None:
    """Print the key of a node, for its key_file. It is made from controller.master_key_file, on this host.

    Who has it can speak for this node, and for no other.
    """
    import base64
    import re

    from ibmon.alert.signature import PREFIX, SecretError, SecretFile
    from ibmon.report import node_key

    if not re.fullmatch(r"[A-Za-z0-9._-]{1,253}", node):
        raise Failure(f"{node!r} is no name of a node")
    path = settings.load().config.controller.master_key_file
    if not path:
        raise Failure("controller.master_key_file is not configured; a node's key is made from it")
    try:
        newest = SecretFile(path).secrets()[0]
    except SecretError as error:
        raise Failure(str(error)) from None
    click.echo(PREFIX + base64.b64encode(node_key(newest, node)).decode())


def _some(listed: tuple[str, ...]) -> list[str]:
    found = names(listed)
    if not found:
        raise click.UsageError("name the nodes: --nodes gpu-1,gpu-2 or --nodes 'gpu-1*'")
    return found


def _chosen(listed: tuple[str, ...], group: str) -> list[str]:
    return names(listed) if group else _some(listed)
