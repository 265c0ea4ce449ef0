"""The recording format: what one sysfs tree was, and what happened to it, as JSON Lines.

Owns the typed header and frames, their checks, and reading and writing them. It applies nothing: `ibmon.virtualtree`
does that in memory, the simulation in a directory.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gzip
import io
import math
import weakref
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Literal, cast

import msgspec

from ibmon.nearest import nearest

VERSION = 1
# The defaults of a header. Any fixed values would do: what matters is that a replay is the same on each host.
DEFAULT_BOOT_ID = "00000000-0000-4000-8000-000000000001"
DEFAULT_UPTIME = 864_000.0  # ten days, far outside any boot grace
DEFAULT_WALL = 1_767_225_600.0  # 2026-01-01T00:00:00Z
LAST = 1e9  # seconds, thirty years: so late is no recording, but somebody's Unix time
FARTHEST = 1e11  # seconds: three thousand years, which a calendar can still show

ERRNO_NAMES: Mapping[str, int] = {name: n for name, n in vars(errno).items() if name.startswith("E")}


class RecordingError(Exception):
    """A recording cannot be read, written or applied; the text is one line that says where, what and what to do."""


@functools.lru_cache(maxsize=1 << 16)
def check_path(path: str) -> None:
    """Raise ValueError unless `path` is a plain relative path below the sysfs root (no empty part, `.` or `..`)."""
    if not path or path.startswith("/") or "\0" in path or any(part in {"", ".", ".."} for part in path.split("/")):
        raise ValueError(f"{path!r} is no path below the sysfs root: write it relative, without '..' and empty parts")


class SchedulerAct(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something that happens at the scheduler and is not ours: an administrator's doing, or an outage."""

    do: Literal["drain", "resume", "hang", "down", "up"]
    by: str = "admin"
    reason: str | None = None


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: format version, and the host's boot id, uptime in seconds and wall clock (epoch) at t = 0."""

    ibmon_recording: int = VERSION
    boot_id: str = DEFAULT_BOOT_ID
    uptime: float = DEFAULT_UPTIME
    wall: float = DEFAULT_WALL

    def __post_init__(self) -> None:
        if self.ibmon_recording != VERSION:
            raise ValueError(f"format version {self.ibmon_recording}: this ibmon reads version {VERSION}")
        _check_boot_id(self.boot_id)
        _check_seconds("uptime", self.uptime)
        _check_seconds("wall", self.wall)


_KEYS = {"dirs": "dir", "links": "link", "files": "set", "errnos": "errno"}  # attribute -> key, where they differ


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, rename=_KEYS):
    """What happens at `t` seconds after the start, in the order of the fields.

    Attributes:
        remove: paths that go, each with all below it; parents stay.
        dirs: directories that come (key `dir`).
        links: symbolic links, path to target; a target may dangle (key `link`).
        files: file contents (key `set`).
        errnos: reads of these paths fail so, listings too; None ends it (key `errno`). A file that is not there comes.
        block: reads of these paths, and of all below them, do not return. A file that is not there comes.
        unblock: ends that for these paths and all below them.
        kmsg: lines of the kernel log.
        scheduler: something that happens at the scheduler.
        restart: the daemon is killed and started on the same store.
        boot_id: the host was rebooted and has this boot id now; `uptime` goes with it.
        wall_step: the wall clock is set forward (or back) by so many seconds.
        suspend: the host slept for so many seconds.
    """

    t: float
    remove: tuple[str, ...] = ()
    dirs: tuple[str, ...] = ()
    links: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    errnos: Mapping[str, str | None] = {}
    block: tuple[str, ...] = ()
    unblock: tuple[str, ...] = ()
    kmsg: tuple[str, ...] = ()
    scheduler: SchedulerAct | None = None
    restart: bool = False
    boot_id: str | None = None
    uptime: float | None = None
    wall_step: float | None = None
    suspend: float | None = None

    def __post_init__(self) -> None:
        _check_seconds("t", self.t, LAST)
        for paths in (self.remove, self.dirs, self.links, self.files, self.errnos, self.block, self.unblock):
            for path in paths:
                check_path(path)
        _check_values(self.links, self.errnos)
        if self.uptime is not None:
            if self.boot_id is None:
                raise ValueError("uptime stands without boot_id: a reboot gives both")
            _check_seconds("uptime", self.uptime)
        if self.suspend is not None:
            _check_seconds("suspend", self.suspend, LAST)
        if self.boot_id is not None:
            _check_boot_id(self.boot_id)
        if self.wall_step is not None:
            _check_seconds("wall_step", abs(self.wall_step))


def _check_values(links: Mapping[str, str], errnos: Mapping[str, str | None]) -> None:
    for path, target in links.items():
        if not target or "\0" in target:
            raise ValueError(f"the link {path!r} has no target")
    for path, name in errnos.items():
        if name is not None and name not in ERRNO_NAMES:
            raise ValueError(f"{path!r}: no errno is called {name!r}{_nearest(name, ERRNO_NAMES)}")


def _check_boot_id(text: str) -> None:
    if not text:
        raise ValueError("boot_id is empty: leave it out or give one")


def _check_seconds(key: str, value: float, most: float = FARTHEST) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{key} is {value}: give seconds, zero or more")
    if value > most:
        raise ValueError(f"{key} is {value:g}: that is too far, {most:g} seconds are the most")


def _nearest(word: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    close = nearest(word, known, 0.5)
    return f", perhaps {close!r}?" if close else ""


# ------------------------------------------------------------------------------------------------------------ reading

_header_decoder = msgspec.json.Decoder(Header)
_frame_decoder = msgspec.json.Decoder(Frame)


def _keys_of(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(struct))


def _explain(line: bytes, struct: type[Header | Frame], error: Exception) -> str:
    """What is wrong with a line, in words; unknown keys by name with the nearest known one."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as broken:
        return f"no JSON ({broken}): the line is damaged or cut off; remove it and what follows"
    if not isinstance(found, dict):
        return "no JSON object: each line of a recording is one"
    if struct is Header and "ibmon_recording" not in found:
        return 'not a recording: the first line must be a header, {"ibmon_recording": 1, ...}'
    scheduler = found.get("scheduler")
    for keys, known in ((found, _keys_of(struct)), (scheduler, _keys_of(SchedulerAct))):
        for key in keys if isinstance(keys, dict) else ():
            if key not in known:
                return f"unknown key {key!r}{_nearest(key, known)}"
    return str(error)


def _decode_header(line: bytes) -> Header:
    header = _header_decoder.decode(line)
    if "ibmon_recording" not in msgspec.json.decode(line):
        raise msgspec.ValidationError("no header")
    return header


def _lines(path: Path, stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The numbered, non-blank lines of an open recording."""
    number = 0
    while True:
        try:
            line = stream.readline()
        except EOFError:
            # A recorder that was killed leaves no end mark in a compressed file; its whole lines are there (`Writer`
            # flushes at each), so this is an end and not damage.
            return
        except (OSError, zlib.error) as error:
            raise RecordingError(f"{path}:{number + 1}: cannot be read: {error}") from error
        if not line:
            return
        number += 1
        if line.strip():
            yield number, line


def _frames(path: Path, lines: Iterator[tuple[int, bytes]], opened: IO[bytes]) -> Iterator[Frame]:
    last: float | None = None
    with opened:
        for number, line in lines:
            try:
                frame = _frame_decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise RecordingError(f"{path}:{number}: {_explain(line, Frame, error)}") from error
            if last is not None and frame.t < last:
                raise RecordingError(f"{path}:{number}: t is {frame.t:g} after {last:g}: sort the frames by time")
            last = frame.t
            yield frame
    if last is None:
        raise RecordingError(f"{path}: no frame follows the header; the first frame holds the whole tree")


def read(path: Path | str) -> tuple[Header, Iterator[Frame]]:
    """Open a recording (`.gz` or plain) and give its header, and its frames as they are read.

    Raises:
        RecordingError: at once for a bad header, else from the iterator at the bad line.
    """
    path = Path(path)
    try:
        plain = path.open("rb")
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror}") from error
    stream = cast("IO[bytes]", gzip.GzipFile(fileobj=plain)) if path.suffix == ".gz" else plain
    lines = _lines(path, stream)
    try:
        number, line = next(lines, (1, b""))
        try:
            header = _decode_header(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            what = _explain(line, Header, error) if line else "an empty file is no recording"
            raise RecordingError(f"{path}:{number}: {what}") from error
    except RecordingError:
        plain.close()
        raise
    frames = _frames(path, lines, plain)
    weakref.finalize(
        frames, plain.close
    )  # for a caller that wants the header alone: an unstarted generator runs no finally
    return header, frames


# ------------------------------------------------------------------------------------------------------------ writing


_GZIP = 31  # zlib's word for the gzip format with the largest window


def _write_all(raw: io.FileIO, data: bytes) -> None:
    """Write all of `data`; a disk that becomes full in its midst shows as a short write first."""
    rest = memoryview(data)
    while rest:
        rest = rest[raw.write(rest) :]


class Writer:
    """Writes a recording line by line; each is handed to the kernel before `write` returns.

    A failed write (a full disk) raises one RecordingError, cuts the file back to its last whole line and closes it;
    later calls do nothing, so that cleaning up cannot hide the cause behind a second error.
    """

    def __init__(self, path: Path | str, header: Header) -> None:
        self.path = Path(path)
        self.frames = 0
        try:
            self._raw: io.FileIO | None = io.FileIO(self.path, "w")
        except OSError as error:
            raise RecordingError(f"{self.path}: {error.strerror}: give another --out") from error
        self._deflate = zlib.compressobj(wbits=_GZIP) if self.path.suffix == ".gz" else None
        self._whole = 0  # bytes of the file up to the end of its last whole line
        self._put(header)

    def write(self, frame: Frame) -> None:
        """Append a frame.

        Raises:
            RecordingError: when it could not be written; the file holds the frames before it.
        """
        if self._raw is not None:
            self._put(frame)
            self.frames += 1

    def _put(self, what: Header | Frame) -> None:
        assert self._raw is not None  # noqa: S101 - both callers have looked
        line = msgspec.json.encode(what) + b"\n"
        try:
            if self._deflate is not None:
                line = self._deflate.compress(line) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
            _write_all(self._raw, line)
            self._whole = self._raw.tell()
        except OSError as error:
            self._abandon(error)

    def _abandon(self, error: OSError) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.truncate(self._whole)
            with contextlib.suppress(OSError):
                raw.close()
        raise RecordingError(
            f"{self.path}: {error.strerror}: recording stopped after {self.frames} frames; make room and record anew"
        ) from error

    def close(self) -> None:
        """Finish the file. Raises RecordingError where its end cannot be written."""
        if self._raw is None:
            return
        try:
            if self._deflate is not None:
                _write_all(self._raw, self._deflate.flush())
            self._raw.close()
            self._raw = None
        except OSError as error:
            self._abandon(error)

    def __enter__(self) -> Writer:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
