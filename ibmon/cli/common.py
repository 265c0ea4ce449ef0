"""What all commands share: the options that stand before or after a command, and how errors are said.

Imports as little as it can; a command imports what it uses when it is called.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ibmon.configvalues import LONGEST, duration

if TYPE_CHECKING:
    from ibmon.configfile import Loaded

SYSFS = Path("/sys")


@dataclass
class Settings:
    """The global options as given; None where they were not."""

    config: Path | None = None
    sysfs: Path | None = None

    def load(self) -> Loaded:
        """The configuration of this host, or of the file that was named. Raises ConfigError."""
        from ibmon.configfile import load

        return load(self.config)

    def tree(self) -> Path:
        """The sysfs root. A directory that was named must be there; the kernel's own may turn out unreadable."""
        if self.sysfs is None:
            return SYSFS
        if not self.sysfs.is_dir():
            raise Failure(f"{self.sysfs}: no such directory; --sysfs names one that holds class/infiniband")
        if not (self.sysfs / "class").is_dir():
            say(f"{self.sysfs} holds no class/; --sysfs names the directory above class/infiniband, such as /sys")
        return self.sysfs


class Failure(click.ClickException):
    """An end with one line and exit code 2: the call or the configuration is wrong."""

    exit_code = 2


class Trouble(click.ClickException):
    """An end with one line and exit code 1: the call was right, and what it asked for could not be done."""

    exit_code = 1


def say(line: str) -> None:
    """One line on stderr, as every message of ibmon's commands."""
    try:
        sys.stderr.write(f"ibmon: {line}\n")
    except OSError:
        return  # nobody reads it


def mute() -> None:
    """End standard output, which nobody takes any more: the interpreter's last flush must not try it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _keep(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    settings = ctx.ensure_object(Settings)
    if value is not None and parameter.name is not None:
        setattr(settings, parameter.name, value)


def global_options() -> list[click.Option]:
    """The options that every command takes, too."""
    path = click.Path(path_type=Path)
    return [
        click.Option(
            ["--config"], metavar="FILE", type=path, expose_value=False, callback=_keep,
            help="The configuration; by default /etc/ibmon/ibmon.toml with conf.d.",
        ),
        click.Option(
            ["--sysfs"], metavar="DIR", type=path, expose_value=False, callback=_keep,
            help="The directory that holds class/infiniband; by default /sys.",
        ),
    ]  # fmt: skip


class Command(click.Command):
    """A command that takes the global options as well."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options()


class Group(click.Group):
    """A command with commands below it, all of which take the global options."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options()


def as_duration(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Option callback: seconds of a duration such as ``10m``."""
    try:
        return None if value is None else duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from error


def as_seconds(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Option callback: a point in time in seconds, with or without a unit: ``50``, ``50s``, ``2m``."""
    if value is None:
        return None
    try:
        found = float(value)
    except ValueError:
        return as_duration(ctx, parameter, value)
    if found > LONGEST:
        raise click.BadParameter(f"{value} s are more than ten years", ctx, parameter)
    if not found >= 0:
        raise click.BadParameter(f"{value!r} is no time; write seconds, zero or more", ctx, parameter)
    return found


def as_times(ctx: click.Context, parameter: click.Parameter, value: str | None) -> list[float]:
    """Option callback: points in time between commas, in order."""
    times = (as_seconds(ctx, parameter, part.strip()) for part in value.split(",")) if value is not None else ()
    return sorted({t for t in times if t is not None})
