"""ETHTOOL statistics of a network interface: names once, values in one call.

Owns the ioctl and its buffers. It changes nothing: the three commands used need no privilege (net/ethtool/ioctl.c).
Each call takes rtnl and on mlx5 reads tens of registers, so it belongs into the slow tier.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Callable
from typing import Final

from ibmon.sysfs import parse

_SIOCETHTOOL: Final = 0x8946
_GET_STRINGS: Final = 0x1B
_GET_STATISTICS: Final = 0x1D
_GET_SET_INFO: Final = 0x37
_STATISTICS_SET: Final = 1  # ETH_SS_STATS
_NAME_BYTES: Final = 32  # ETH_GSTRING_LEN

MAX_STATISTICS: Final = 65_536
"""More than any driver has; a count above it is taken for nonsense."""

_SLACK: Final = 4096
"""The kernel writes as many values as there are when it writes, whatever room was given; mlx5's number changes with
its channels. So the buffer is larger than the count asked for a moment before."""

Call = Callable[[str, "ctypes.Array[ctypes.c_char]"], None]
"""Carry out the command in a buffer for an interface; raises OSError."""


def ioctl(netdev: str, buffer: ctypes.Array[ctypes.c_char]) -> None:
    """SIOCETHTOOL on a socket of its own. Raises OSError: ENODEV, EOPNOTSUPP where the driver has no statistics."""
    request = struct.pack("16sP", netdev.encode()[:15], ctypes.addressof(buffer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, request)


class Ethtool:
    """Statistics of the live host's interfaces, as `ibmon.sysfs.columns.Statistics` wants them."""

    def __init__(self, call: Call = ioctl) -> None:
        self._call = call
        self._names: dict[str, tuple[str, ...]] = {}

    def names(self, netdev: str) -> tuple[str, ...]:
        """Names of an interface's statistics in the driver's order, asked again when their number changed.

        Raises:
            OSError: EOPNOTSUPP where there are none.
        """
        count = self._count(netdev)
        known = self._names.get(netdev, ())
        if len(known) != count:
            known = self._names[netdev] = self._strings(netdev, count)
        return known

    def values(self, netdev: str) -> tuple[int, ...]:
        """Values in the order of the names. Raises OSError."""
        count = self._count(netdev)
        buffer = _buffer(8 * count, struct.pack("=II", _GET_STATISTICS, count))
        self._call(netdev, buffer)
        (given,) = struct.unpack_from("=I", buffer, 4)
        return struct.unpack_from(f"={min(count, given)}Q", buffer, 8)

    def _count(self, netdev: str) -> int:
        """How many statistics there are now."""
        buffer = _buffer(4, struct.pack("=IIQ", _GET_SET_INFO, 0, 1 << _STATISTICS_SET))
        self._call(netdev, buffer)
        (present,) = struct.unpack_from("=Q", buffer, 8)
        (count,) = struct.unpack_from("=I", buffer, 16)
        if not present or not 0 < count <= MAX_STATISTICS:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), netdev)
        return int(count)

    def _strings(self, netdev: str, count: int) -> tuple[str, ...]:
        buffer = _buffer(_NAME_BYTES * count, struct.pack("=III", _GET_STRINGS, _STATISTICS_SET, count))
        self._call(netdev, buffer)
        (given,) = struct.unpack_from("=I", buffer, 8)
        raw = bytes(buffer)[12 : 12 + _NAME_BYTES * min(count, given)]
        fields = (raw[at : at + _NAME_BYTES].partition(b"\0")[0] for at in range(0, len(raw), _NAME_BYTES))
        return tuple(parse.text(field) or "" for field in fields)


def _buffer(size: int, head: bytes) -> ctypes.Array[ctypes.c_char]:
    """A command's memory: its head, room for the answer, and slack."""
    buffer = ctypes.create_string_buffer(len(head) + size + _SLACK * _NAME_BYTES)
    ctypes.memmove(buffer, head, len(head))
    return buffer
