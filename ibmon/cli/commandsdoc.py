"""Writes docs/commands.md from the commands themselves: ``python -m ibmon.cli.commandsdoc > docs/commands.md``.

Owns the layout of that page. What a command does is said in its own help, and here as there.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import Final

import click

from ibmon.cli.app import GROUP

_WIDTH: Final = 120
_SHARED: Final = frozenset({"config", "sysfs"})  # options of every command

_INTRO: Final = """\
# Commands

Every command with its options, as its `--help` shows them. This page is made from the commands themselves:
`python -m ibmon.cli.commandsdoc > docs/commands.md`.

- All take `--config FILE` (by default `/etc/ibmon/ibmon.toml` with `conf.d`), `--sysfs DIR` (the directory that holds
  `class/infiniband`; by default `/sys`) and `--help`, before or behind the command.
- Answers go to standard output, everything else to standard error, an error in one line.
- The **exit code** is 0 when it was done, 1 when the call was right and the answer is no, 2 when the call or the
  configuration is wrong, and 130 when it was interrupted. What a command has beyond that stands with it.
- What changes something on the node is for root and members of the group `ibmon`; what asks a fleet controller needs a
  [token](controller-api.md#who-may-do-what). Everybody may look.

| variable | what it does |
|---|---|
| `NODE_NAME` | the node's name where `node.name` is empty; a pod is told it so |
| `IBMON_TOKEN_FILE` | the file with your token for a controller, where `--token-file` names none |
| `NO_COLOR` | no colours |
| `COLUMNS` | the width of tables that go to a file or a pipe |
| `SSL_CERT_FILE` | whom to trust instead of the system's certificates, where the configuration names no `ca` |
"""


def page() -> str:
    """docs/commands.md."""
    context = click.Context(GROUP, info_name="ibmon")
    return "\n".join([_INTRO, *_sections(GROUP, context)])


def _sections(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:  # a name of the list always has one
            continue
        below = click.Context(command, info_name=name, parent=context)
        yield from _section(command, below)
        if isinstance(command, click.Group):
            yield from _sections(command, below)


def _section(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"## {context.command_path}\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield textwrap.fill(" ".join(paragraph.split()), _WIDTH, break_on_hyphens=False, break_long_words=False) + "\n"
    own = [parameter for parameter in command.params if parameter.name not in _SHARED]
    for argument in (one for one in own if isinstance(one, click.Argument)):
        yield f"It {'takes' if argument.required else 'may take'} `{argument.human_readable_name}`.\n"
    records = [one.get_help_record(context) for one in own if isinstance(one, click.Option)]
    rows = [f"| `{_cell(what)}` | {_cell(text)} |" for what, text in filter(None, records)]
    if rows:
        yield "\n".join(["| option | what it does |", "|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
