"""The two programs under measurement, ibmon and node_exporter, as processes of their own on one tree.

Owns starting them, asking them as Prometheus does, and the kernel's account of what they used.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from services.debian import unpacked
from services.processes import LOOPBACK, Process, ServiceError, free_ports, tail, wait_for

from bench import bareloop, tree
from ibmon.sysfs import columns
from ibmon.sysfs.files import FileTree

ROOT = Path(__file__).parents[1]
if TYPE_CHECKING:
    from collections.abc import Sequence

NODE_EXPORTER = "prometheus-node-exporter"

HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "User-Agent": "Prometheus/2.42.0",
}
"""What Prometheus sends with each scrape."""

_CPUCLOCK_SCHED = 2  # include/linux/posix-timers.h: nanoseconds of all threads, also of those that have ended


@dataclass
class Program:
    """A running program: its process id, and where it answers."""

    name: str
    process: Process
    port: int
    _connection: http.client.HTTPConnection | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return int(self.process.pid)

    def family(self) -> tuple[int, ...]:
        """The process and those that it started, which read for it."""
        return (self.pid, *(child.pid for child in psutil.Process(self.pid).children(recursive=True)))

    def cpu(self) -> float:
        """CPU seconds that the kernel has accounted to the processes since their start, user and system."""
        return sum(time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED) for pid in self.family())

    def scrape(self, *, plain: bool = False, timeout: float = 60.0) -> bytes:
        """One scrape on a connection that is kept, as Prometheus keeps it; `plain` asks for text that can be read."""
        headers = {"Accept": "text/plain"} if plain else HEADERS
        for attempt in (0, 1):
            if self._connection is None:
                self._connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=timeout)
            try:
                self._connection.request("GET", "/metrics", headers=headers)
                return self._connection.getresponse().read()
            except (http.client.HTTPException, ConnectionError):
                self.disconnect()  # an idle connection that the server has closed: once more on a new one
                if attempt:
                    raise
            except OSError:
                self.disconnect()
                raise
        raise AssertionError

    def disconnect(self) -> None:
        """Close the kept connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def memory(self) -> list[dict[str, float]]:
        """MiB by the kernel's names (`Rss`, `Pss`) of the process, then of each that it started."""
        return [memory_of(pid) for pid in self.family()]


def memory_of(pid: int) -> dict[str, float]:
    """MiB by the kernel's names, of /proc/PID/smaps_rollup where there is one."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").replace("VmRSS", "Rss").splitlines()
    fields = (line.split() for line in lines)
    return {f[0].rstrip(":"): int(f[1]) / 1024 for f in fields if f and f[0] in {"Rss:", "Pss:"}}


@contextmanager
def node_exporter(sysfs: Path, scratch: Path, *, own_metrics: bool = True) -> Iterator[Program]:
    """Debian's node_exporter with its infiniband collector alone, and by default the metrics of its own process."""
    [port] = free_ports(1)
    argv: Sequence[str | Path] = (
        unpacked(NODE_EXPORTER) / "usr/bin" / NODE_EXPORTER,
        f"--path.sysfs={sysfs}",
        "--collector.disable-defaults",
        "--collector.infiniband",
        *(() if own_metrics else ("--web.disable-exporter-metrics",)),
        f"--web.listen-address={LOOPBACK}:{port}",
    )
    with _running("node_exporter", argv, port, scratch, "node_infiniband_state_id") as program:
        yield program


@contextmanager
def ibmon(
    sysfs: Path, scratch: Path, *, python: str = sys.executable, sampling: str = "", more: str = ""
) -> Iterator[Program]:
    """`ibmon run` with defaults. `sampling` and `more` are TOML for that section and for others.

    Its runtime directory lies in memory where the host has such a place, as /run does.
    """
    [port] = free_ports(1)
    state = scratch / f"state-{port}"
    state.mkdir()
    configuration = scratch / f"ibmon-{port}.toml"
    argv = (
        python, "-c", "import sys; from ibmon.cli import main; sys.exit(main())",
        "--config", configuration, "--sysfs", sysfs, "run",
    )  # fmt: skip
    with _in_memory(scratch, port) as runtime:
        configuration.write_text(
            f'[sampling]\n{sampling}\n[exporter]\nlisten = "{LOOPBACK}:{port}"\n'
            f'[state]\ndirectory = "{state}"\nruntime_directory = "{runtime}"\n{more}\n'
        )
        with _running("ibmon", argv, port, scratch, "ibmon_port_state{") as program:
            yield program


@contextmanager
def bare_loop(sysfs: Path, scratch: Path) -> Iterator[Program]:
    """`bench.bareloop` on the files that `ibmon run` reads of a tree."""
    [port] = free_ports(1)
    files, lines = FileTree(sysfs), []
    for device in tree.discovered(files):
        for column, path in zip(device.layout.columns, columns.paths(files, device), strict=True):
            if path is not None:
                lines.append(f"{column.tier:d} {files.path(path)}\n")
    listed = scratch / f"bareloop-{port}.txt"
    listed.write_text("".join(dict.fromkeys(lines)))
    with _in_memory(scratch, port) as runtime:
        argv = (sys.executable, "-m", bareloop.__name__, listed, runtime, str(port))
        with _running("bareloop", argv, port, scratch, "") as program:
            yield program


@contextmanager
def _in_memory(scratch: Path, port: int) -> Iterator[Path]:
    """A directory in memory where the host has such a place; what is left there goes with it."""
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else scratch
    directory = memory / f"ibmon-bench-{os.getpid()}-{port}"
    directory.mkdir()
    try:
        yield directory
    finally:
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()


@contextmanager
def _running(name: str, argv: Sequence[str | Path], port: int, scratch: Path, sign: str) -> Iterator[Program]:
    """A program that runs inside, from when a scrape shows `sign`."""
    process = Process(argv, scratch / f"{name}-{port}.log", env={**os.environ, "PYTHONPATH": str(ROOT)})
    program = Program(name, process, port)

    def answers() -> bool:
        process.must_run()
        try:
            return sign.encode() in program.scrape(plain=True)
        except OSError:
            return False

    try:
        wait_for(answers, within=60, what=f"{name} shows {sign}")
        yield program
    except ServiceError as error:
        raise ServiceError(f"{error}; the log of {name} ends:\n{tail(process.log)}") from error
    finally:
        program.disconnect()
        process.stop()


def node_exporter_version() -> str:
    """The version of the node_exporter that is measured, as it says itself."""
    program = unpacked(NODE_EXPORTER) / "usr/bin" / NODE_EXPORTER
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return (told.stdout or told.stderr).split("version ")[1].split()[0]
