"""Who is at the other end of a Unix socket, as the kernel knows it, and whether a group includes them.

Asks the kernel and the user database only; what somebody may do is decided elsewhere.
"""

from __future__ import annotations

import os
import pwd
import socket
import struct
from typing import Final, NamedTuple

_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid (unix(7))
_SO_PEERGROUPS: Final = 59  # include/uapi/asm-generic/socket.h; Python has no name for it
_MOST: Final = 1024  # bytes that Python's getsockopt takes at most: 256 groups


class Peer(NamedTuple):
    """A process as it was when it connected. `user` is its name, or its number where it has none."""

    pid: int
    uid: int
    gid: int
    user: str
    groups: frozenset[int]


def peer_of(channel: socket.socket) -> Peer:
    """The process that connected. Raises OSError where the kernel does not tell."""
    data = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(data)
    user = _name(uid)
    return Peer(pid, uid, gid, user or f"uid {uid}", frozenset((gid, *_groups(channel, user, gid))))


def _name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _groups(channel: socket.socket, user: str | None, gid: int) -> list[int]:
    """The process's own supplementary groups; where they are too many to ask for, those that its user has."""
    try:
        data = channel.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST)
    except OSError:  # ERANGE for more than fit, ENOPROTOOPT before Linux 4.13
        return os.getgrouplist(user, gid) if user else []
    return list(struct.unpack(f"{len(data) // 4}I", data))
