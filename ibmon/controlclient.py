"""The control socket as its users see it: how a request and an answer are written, and a client that asks.

Owns the wire form: one JSON object in a line each way. What a request does is the daemon's business.
"""

from __future__ import annotations

import grp
import socket
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

SOCKET: Final = "control.sock"
"""Name below ``[state] runtime_directory``."""

GROUP: Final = "ibmon"
MAX_LINE: Final = 64 * 1024  # bytes of a request or an answer
PATIENCE: Final = 15.0  # seconds for an answer: longer than the daemon takes for one that says "too late"

Action = Literal["clear", "accept", "forget", "learn", "maintenance-start", "maintenance-stop", "release"]
_Word = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Words = Annotated[tuple[_Word, ...], msgspec.Meta(max_length=1024)]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody asks for. `subjects` are ports or devices, none means all; `rules` narrows `clear`.

    `seconds` is how long a maintenance lasts; `dry_run` asks what a release would do.
    """

    action: Action
    subjects: _Words = ()
    rules: _Words = ()
    reason: Annotated[str, msgspec.Meta(max_length=500)] = ""
    seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    dry_run: bool = False


class Reply(msgspec.Struct, frozen=True):
    """Whether it was done, and one line that says what was, or why not."""

    done: bool
    text: str


class ControlError(Exception):
    """The daemon could not be asked, or did not answer; the text says why and what to do."""


def ask(path: Path, request: Request, patience: float = PATIENCE) -> Reply:
    """Ask the daemon that listens at `path`, and wait so many seconds for its answer.

    Raises:
        ControlError: no daemon runs, this user may not ask, or no answer came.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as channel:
        channel.settimeout(patience)
        try:
            channel.connect(str(path))
            _send(channel, msgspec.json.encode(request) + b"\n")
            line = _line(channel)
        except OSError as error:
            raise ControlError(_why(path, error)) from error
    try:
        return msgspec.json.decode(line, type=Reply)
    except msgspec.DecodeError as error:
        raise ControlError(f"{path}: the daemon gave no answer; its log may say why") from error


def _send(channel: socket.socket, data: bytes) -> None:
    try:
        channel.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        return  # it had heard enough to say no, and that answer waits to be read


def _line(channel: socket.socket) -> bytes:
    data = b""
    while b"\n" not in data and len(data) <= MAX_LINE:
        try:
            piece = channel.recv(4096)
        except ConnectionResetError:
            break
        if not piece:
            break
        data += piece
    return data.partition(b"\n")[0]


def _why(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"no daemon runs here: there is no {path}; 'systemctl start ibmon' starts it"
    if isinstance(error, ConnectionRefusedError):
        return f"no daemon runs here: nobody listens at {path}; 'systemctl start ibmon' starts it"
    if isinstance(error, PermissionError):
        return f"permission denied at {path}: {who_may(_group_of(path))}"
    if isinstance(error, TimeoutError | BlockingIOError):
        return f"the daemon at {path} does not answer; 'systemctl status ibmon' tells why"
    return f"{path}: {error.strerror or error}"


def who_may(group: str) -> str:
    """The sentence that tells who may ask for changes."""
    return f"only root and members of group {group} may ask the daemon for changes"


def _group_of(path: Path) -> str:
    try:
        return group_name(path.stat().st_gid)
    except OSError:
        return GROUP


def group_name(gid: int) -> str:
    """The group's name, or its number where it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
