"""A daemon in the foreground: signals become requests, and a start that fails one line. It knows no daemon by name."""

from __future__ import annotations

import logging
import signal
import sys
from types import FrameType
from typing import Final, Protocol

from ibmon.configfile import ConfigError, Loaded
from ibmon.exporter.errors import ExporterError

log = logging.getLogger(__name__)

EXIT_USAGE: Final = 2


class Startable(Protocol):
    """What runs until it is asked to stop."""

    def start(self) -> None:
        """Open everything; ConfigError or ExporterError where that cannot be."""

    def stop(self) -> None:
        """Ask it to end; safe in a signal handler."""

    def ask_reload(self) -> None:
        """Ask it to read files anew; safe in a signal handler."""


def begin(daemon: Startable, loaded: Loaded) -> int | None:
    """Start a daemon that SIGTERM and SIGINT stop and SIGHUP reloads; the exit code where it does not start."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        daemon.stop()

    def reload(_number: int, _frame: FrameType | None) -> None:
        daemon.ask_reload()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGHUP, reload)
    try:
        daemon.start()
    except (ExporterError, ConfigError) as error:
        sys.stderr.write(f"ibmon: {error}\n")
        return EXIT_USAGE
    tell_doubts(loaded)
    return None


def tell_doubts(loaded: Loaded) -> None:
    """What a configuration in force may not mean. One that is refused has its own line, and no others beside it."""
    for doubt in loaded.warnings:
        log.warning("%s", doubt)
