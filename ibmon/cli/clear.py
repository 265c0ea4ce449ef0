"""`ibmon clear`."""

from __future__ import annotations

import click

from ibmon.cli.asking import ask
from ibmon.cli.common import Command, Settings


@click.command("clear", cls=Command)
@click.argument("subjects", metavar="[PORT|DEVICE]...", nargs=-1)
@click.option("--rule", "rules", metavar="RULE", multiple=True, help="Only findings of this rule; may be repeated.")
@click.option("--reason", metavar="TEXT", default="", help="Why, for the log: what was repaired.")
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")
@click.pass_obj
def command(settings: Settings, subjects: tuple[str, ...], rules: tuple[str, ...], reason: str, as_json: bool) -> int:
    """End findings by a person's word: the fault was repaired.

    Of the ports and devices named, else of all. Counts and flap history begin anew. What is still bad is found again,
    after its hold. For root and members of group ibmon.
    """
    from ibmon.controlclient import Request

    return ask(settings, Request("clear", subjects, rules, reason), as_json=as_json)
