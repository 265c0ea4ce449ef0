"""The list of commands, loaded when they are called, and the one place where errors become a line and an exit code.

Owns no command's work. Exit codes: 0 well, 1 the command's own no, 2 usage or configuration, 130 interrupted.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import click

from ibmon.cli import INTERRUPTED
from ibmon.cli.common import Settings, global_options, mute, say
from ibmon.configtree import ConfigError
from ibmon.nearest import nearest

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("run", "Run the daemon: watch this node, serve metrics, act as configured."),
    "check": ("check", "Say whether this node is fit, in one line and the exit code."),
    "wait": ("wait", "Wait until this node is fit, or the time is up."),
    "status": ("status", "Show the node, its ports and what is wrong with them."),
    "top": ("top", "Watch the ports live: health, throughput, errors."),
    "explain": ("explain", "Tell what a rule means, what causes it, what to do, and what clears it."),
    "rules": ("rules", "Show the rules in force, and where each value was written."),
    "events": ("events", "Show what has happened on this node, oldest first, in local time."),
    "clear": ("clear", "End findings by a person's word: the fault was repaired."),
    "inventory": ("inventory", "Show which ports this node should have, and say which belong here."),
    "maintenance": ("maintenance", "Say that somebody works on this node or its ports, until a time."),
    "release": ("release", "Give this node, or many, back to the scheduler, though findings may stand."),
    "controller": ("controller", "Run the fleet controller, or ask a running one to stop, show, release."),
    "metrics": ("metrics", "Read everything once and print it as Prometheus text."),
    "dashboards": ("dashboards", "Write dashboards for Grafana and rules for Prometheus."),
    "test-alert": ("test_alert", "Send one test to each Alertmanager and webhook, and print what came back."),
    "config": ("config", "Check, show or begin a configuration."),
    "record": ("record", "Record a node's sysfs tree and how it changes."),
    "replay": ("replay", "Play a recording through the daemon's engine in virtual time."),
    "demo": ("demo", "Watch a simulated node lose a port, be drained, and come back."),
    "version": ("version", "Print the version."),
}
"""Name to module below `ibmon.cli`, and the line in the help: known without importing the module."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called (the idiom of click's documentation)."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, imported now; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"ibmon.cli.{COMMANDS[cmd_name][0]}").command
        assert isinstance(command, click.Command)  # noqa: S101 - the table is wrong otherwise
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name where there is no such command."""
        name = args[0]
        if name in COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        close = nearest(name, COMMANDS, 0.5)
        hint = f"did you mean {close}?" if close else "'ibmon --help' lists them"
        raise click.UsageError(f"there is no command {name!r}; {hint}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from ibmon import __version__

        click.echo(f"ibmon {__version__}")
        ctx.exit()


@click.pass_context
def _root(ctx: click.Context) -> int | None:
    """Watch the RDMA ports of this node, publish what they say, and keep jobs away from a node that is not fit."""
    if ctx.invoked_subcommand is not None:
        return None
    click.echo(ctx.get_help(), err=True)
    return 2


GROUP = LazyGroup(
    name="ibmon",
    callback=_root,
    help=_root.__doc__,
    invoke_without_command=True,
    params=[
        *global_options(),
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version.",
        ),
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="'ibmon COMMAND --help' tells more of a command. The options above may stand before or after it.",
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code. Every error is one line on stderr that says what to do."""
    _prepare()
    try:
        result = GROUP.main(
            None if arguments is None else list(arguments), prog_name="ibmon", standalone_mode=False, obj=Settings()
        )
        sys.stdout.flush()
    except click.ClickException as error:
        return _refused(error)
    except ConfigError as error:
        for problem in error.problems:
            say(problem)
        return 2
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return _unread()
    except UnicodeEncodeError as error:
        say(f"a text of this call cannot be written as {error.encoding}; use UTF-8 throughout")
        return 2
    except OSError as error:
        say(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
        return _unread()
    except SystemExit as end:  # click's own end of a broken pipe
        return _unread() if end.code == 1 else _code(end.code)
    return _code(result)


def _prepare() -> None:
    """Make the most of a terminal that is short of something: of letters, of words about its size, or is not there."""
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names and reasons are of any language
    if not os.environ.get("COLUMNS", "").strip("0"):
        os.environ.pop("COLUMNS", None)  # no width at all: whoever set it did not know


def _nowhere() -> TextIO:
    """In place of an output that was closed before the start."""
    return Path(os.devnull).open("w", encoding="utf-8")


def _refused(error: click.ClickException) -> int:
    message = error.format_message().strip().removesuffix(".")
    if isinstance(error, click.UsageError) and error.ctx is not None and "--help" not in message:
        message = f"{message[:1].lower()}{message[1:]} ('{error.ctx.command_path} --help' tells how it is called)"
    say(" ".join(message.split()))
    return error.exit_code


def _unread() -> int:
    """Nobody takes our output any more."""
    mute()
    return 1


def _code(result: Any) -> int:
    return result if isinstance(result, int) else 0
