"""`ibmon inventory`: show, learn, accept, forget, export."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ibmon.cli.asking import ask, said
from ibmon.cli.common import Group, Settings, Trouble

if TYPE_CHECKING:
    from ibmon.controlclient import Action


@click.group("inventory", cls=Group, no_args_is_help=False)
def command() -> None:
    """Show which ports this node should have, and say which belong here."""


_ports = click.argument("ports", metavar="[PORT|DEVICE]...", nargs=-1)
_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@command.command()
@_ports
@_json
@click.pass_obj
def show(settings: Settings, ports: tuple[str, ...], as_json: bool) -> None:
    """Print slot, port, role, expected rate, and where the expectation comes from.

    declared: a [[port]] of the configuration. learned: seen ACTIVE here; it alerts, and drains only once accepted
    (unless the configuration trusts what was learned). A dash: not expected, so not a fault when it is gone.
    """
    from ibmon import inventorytext

    document = said(settings)
    inventory = settings.load().config.inventory
    rows = inventorytext.rows(_chosen(document["ports"], ports), trusting=inventory.trust == "learned")
    if as_json:
        click.echo(json.dumps({"node": document.get("node"), "ports": [row._asdict() for row in rows]}))
        return
    click.echo(f"{document.get('node')}: mode {inventory.mode}, trust {inventory.trust}")
    click.echo(inventorytext.table(rows, whole=bool(ports)), nl=False)


@command.command()
@_ports
@click.option(
    "--by",
    type=click.Choice(["name", "pci", "guid"]),
    default="name",
    help="What the tables call a port: its name, its slot, or its card.",
)
@_json
@click.pass_obj
def export(settings: Settings, ports: tuple[str, ...], by: str, as_json: bool) -> None:
    """Print [[port]] tables of the expected ports, ready for the configuration.

    By name, unless --by says otherwise; a port that has no slot or card to be called by keeps its name.
    """
    from ibmon import inventorytext

    document = said(settings)
    chosen = [row for row in _chosen(document["ports"], ports) if row.get("expected")]
    if not chosen:
        raise Trouble("no port is expected here, so there is nothing to export; 'ibmon inventory show' lists all")
    guids = {device["device"]: device.get("node_guid") for device in document["devices"]}
    entries = [inventorytext.entry(row, by, guids.get(row["device"])) for row in chosen]
    click.echo(json.dumps({"port": entries}) if as_json else inventorytext.toml(entries, chosen), nl=as_json)


def _change(action: Action, doc: str) -> None:
    """Add the command that asks the daemon for this."""

    def change(settings: Settings, ports: tuple[str, ...], as_json: bool) -> int:
        from ibmon.controlclient import Request

        return ask(settings, Request(action, ports), as_json=as_json)

    change.__doc__ = doc
    decorated: Callable[..., Any] = click.pass_obj(change)
    command.command(action)(_ports(_json(decorated)))


_change(
    "learn",
    """Begin anew: expect what is ACTIVE from now on.

    Of the ports named, else of all. Accepted ports stay, and so does what the configuration declares.
    """,
)
_change(
    "accept",
    """Say that ports belong here, at the rate they run at now.

    From then on their faults may drain the node. Of the ports named, else all that were ever ACTIVE.
    """,
)
_change(
    "forget",
    """Expect these ports no longer.

    One that is there is learned again when it is seen ACTIVE; what the configuration declares stays.
    """,
)


def _chosen(rows: list[dict[str, Any]], wanted: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows that are named, in their order; all where none is."""
    names = {name for row in rows for name in (row["device"], _name(row))}
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise Trouble(f"no such port or device: {', '.join(unknown)}; 'ibmon inventory show' lists them")
    return [row for row in rows if not wanted or row["device"] in wanted or _name(row) in wanted]


def _name(row: dict[str, Any]) -> str:
    return f"{row['device']}/{row['port']}"
