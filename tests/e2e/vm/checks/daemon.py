"""Starts and stops the checkout's `ibmon run` on the guest's kernel, and reads sysfs beside it.

Owns the process and its configuration. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from checklib import CannotGoOnError, eventually
from exposition import serves
from rdma import INFINIBAND, read

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_HOST = "/usr/lib/ibvm/in-host"
_DIRECTORY = Path("/run/ibmon-e2e")  # in-host sees the guest's /run
_START_LIMIT = 60  # seconds; importing over 9p under emulation takes its time, and how long is not what is tested


class Daemon:
    """A running `ibmon run`.

    Args:
        more: Further sections of the configuration.
        sampling: Keys of [sampling] and their values.
    """

    def __init__(self, more: str = "", **sampling: str) -> None:
        _DIRECTORY.mkdir(exist_ok=True)
        config = _DIRECTORY / "ibmon.toml"
        keys = "\n".join(f'{key} = "{value}"' for key, value in sampling.items())
        config.write_text(f"""
            [sampling]
            {keys}
            [exporter]
            listen = "127.0.0.1:19315"
            [state]
            directory = "{_DIRECTORY}/state"
            runtime_directory = "{_DIRECTORY}/runtime"
            {more}
        """)
        for name in ("state", "runtime"):
            (_DIRECTORY / name).mkdir(exist_ok=True)
        self.process = subprocess.Popen([*command(), "--config", str(config), "run"])
        try:
            eventually(self._is_up, within=_START_LIMIT, what="ibmon run answers a scrape")
        except BaseException:
            self.process.kill()
            raise

    def _is_up(self) -> bool:
        if self.process.poll() is not None:
            raise CannotGoOnError(f"ibmon run ended with exit code {self.process.returncode}")
        return serves()

    def stop(self, timeout: float = 20) -> int:
        """Its exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        finally:
            self.process.kill()


@contextlib.contextmanager
def daemon(**sampling: str) -> Iterator[Daemon]:
    """A daemon for the time of the block."""
    running = Daemon(**sampling)
    try:
        yield running
    finally:
        running.stop()


def command() -> list[str]:
    """The checkout's ibmon, in this machine's file system and on the guest's kernel."""
    return [IN_HOST, os.environ["IBMON"]]


def one_pass() -> str:
    """The output of `ibmon metrics`."""
    return subprocess.run([*command(), "metrics"], stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout


def expected_of_counters(device: str, port: str = "1") -> dict[str, int]:
    """Metric names and values of a port's counters, from the files, by the naming rule of the documentation."""
    directory = INFINIBAND / device / "ports" / port
    expected = {}
    for subdirectory, prefix in (("counters", "ibmon_port_"), ("hw_counters", "ibmon_port_hw_")):
        for path in sorted((directory / subdirectory).glob("*")):
            if path.name == "lifespan":  # a setting, not a counter
                continue
            name = re.sub(r"\W", "_", path.name.removeprefix("port_")).lower()
            value = int(read(path))
            if name in {"xmit_data", "rcv_data"} and subdirectory == "counters":
                name, value = f"{name}_bytes", value * 4  # the kernel counts words of 32 bits
            expected[f"{prefix}{name}_total"] = value
    return expected
