"""`ibmon rules`."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ibmon.cli import verdictfile
from ibmon.cli.common import Command, Settings, say

if TYPE_CHECKING:
    from ibmon.config import Config
    from ibmon.model import PortId, Role


@click.command("rules", cls=Command)
@click.option("--port", metavar="DEVICE/PORT", help="What holds for this port, with the overrides that fit it.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, durations in seconds.")
@click.pass_obj
def command(settings: Settings, port: str | None, as_json: bool) -> None:
    """Show the rules in force: holds, limits, actions, and where each value was written."""
    from ibmon.health import explain
    from ibmon.health.rules import RULES
    from ibmon.model import PortId

    loaded = settings.load()
    config, origins = loaded.config, loaded.origins
    if port is None:
        rows = [(r, explain.in_force(config, origins, r), explain.changes(config, origins, r)) for r in RULES]
        role = None
    else:
        try:
            asked = PortId.parse(port)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--port") from error
        role = _role(config, asked)
        rows = [(r, explain.in_force(config, origins, r, asked, role), ()) for r in RULES]
    if as_json:
        found = [
            {
                "rule": rule.id,
                "limits": explain.as_values(limits),
                "overrides": [{"for": one.subject, "limits": explain.as_values(one.limits)} for one in changed],
            }
            for rule, limits, changed in rows
        ]
        click.echo(json.dumps({"port": port, "role": role.value if role else None, "rules": found}, indent=2))
        return
    if role is not None:
        click.echo(f"{port} ({role.value})")
    click.echo("\n".join(explain.table(rows)))


def _role(config: Config, port: PortId) -> Role:
    """The port's role: as the running daemon knows it, as the configuration says, else compute, and it is said so."""
    from ibmon.model import Role

    for row in verdictfile.read(Path(config.state.runtime_directory)).rows("ports"):
        if (row.get("device"), row.get("port")) == (port.device, port.port) and row.get("role") in set(Role):
            return Role(row["role"])
    for entry in config.port:
        if fnmatchcase(str(port), entry.match):
            return entry.role
    say(f"nobody knows {port}: no daemon tells of it and no [[port]] names it; shown as for a compute port")
    return Role.COMPUTE
