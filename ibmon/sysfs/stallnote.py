"""The note that outlives a restart: which devices a reader process is still out in.

Owns the file and the question whether its writer still is there. It decides nothing; who reads the note leaves those
devices alone, because each further read of a stuck device takes one more of the firmware's command slots
(mlx5/core/cmd.c:wait_func).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "stalled.json"
_START_TIME: Final = 19  # field 22 of /proc/PID/stat, counted after the closing parenthesis of the name
_PROC: Final = Path("/proc")


class Entry(msgspec.Struct, frozen=True):
    """Who is out in a device.

    Attributes:
        pid: the process.
        start_time: when it started, in clock ticks since boot, so that a reused number is not taken for it.
        since: wall time at which the read began.
    """

    pid: int
    start_time: int
    since: float


def entry(pid: int, since: float) -> Entry:
    """An entry of a process that is there."""
    return Entry(pid, start_time(pid) or 0, since)


def write(path: Path, entries: Mapping[str, Entry]) -> None:
    """Replace the note in one step. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(dict(entries)))
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def read(path: Path) -> dict[str, Entry]:
    """The note; empty where there is none or it is damaged (then nothing is known, and reading goes on)."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Entry])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


def still_out(path: Path, proc: Path = _PROC) -> dict[str, Entry]:
    """The entries of the note whose process still has a thread, by device; those of this process are none."""
    return {
        device: entry
        for device, entry in read(path).items()
        if entry.pid != os.getpid() and _is_there(entry, proc / str(entry.pid))
    }


def start_time(pid: int, proc: Path = _PROC) -> int | None:
    """When a process started, in clock ticks since boot; None where there is no such process."""
    fields = _stat(proc / str(pid))
    return None if fields is None else int(fields[_START_TIME])


def _is_there(entry: Entry, directory: Path) -> bool:
    fields = _stat(directory)
    if fields is None or int(fields[_START_TIME]) != entry.start_time:
        return False
    if fields[0] not in {"Z", "X"}:
        return True
    # A killed process is a zombie at once, but its thread in an uninterruptible read stays until that returns.
    try:
        tasks = [task for task in (directory / "task").iterdir() if task.name != str(entry.pid)]
    except OSError:
        return False
    return any(_is_alive(task) for task in tasks)


def _is_alive(task: Path) -> bool:
    fields = _stat(task)
    return fields is not None and fields[0] not in {"Z", "X"}


def _stat(directory: Path) -> list[str] | None:
    """The fields of a stat file behind the name, which may itself hold spaces and parentheses."""
    try:
        fields = (directory / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > _START_TIME else None
