"""What is said between the daemon and its reader process, and how it is framed.

Values and their bytes only. One end asks and waits, the other answers; nobody speaks unasked.
"""

from __future__ import annotations

import struct
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from ibmon.model import Device, Listing, Reading
from ibmon.sysfs import danger

_LENGTH: Final = struct.Struct("=I")


class Setup(msgspec.Struct, frozen=True, tag=True):
    """The first message: what is read. An answer that holds None says that the process is ready.

    Attributes:
        root: absolute path of the sysfs root.
        platform: the kernel that answers.
        ethtool: whether statistics of network interfaces are asked for.
    """

    root: str
    platform: danger.Platform
    ethtool: bool


class List(msgspec.Struct, frozen=True, tag=True):
    """Which devices are there? The answer is a Listing."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    functions: tuple[str, ...]
    known: tuple[str, ...]


class Describe(msgspec.Struct, frozen=True, tag=True):
    """What does not change of a device? The answer is a Device or None."""

    name: str
    generation: int


class Know(msgspec.Struct, frozen=True, tag=True):
    """A device that another reader process discovered. It has no answer."""

    device: Device


class Drop(msgspec.Struct, frozen=True, tag=True):
    """A device has gone. It has no answer."""

    name: str


class Fetch(msgspec.Struct, frozen=True, tag=True):
    """What do these columns hold? The answer is a Reading; the device was described or made known before."""

    name: str
    columns: tuple[int, ...]


Request: TypeAlias = Setup | List | Describe | Know | Drop | Fetch


_T = TypeVar("_T")


class Answer(msgspec.Struct, Generic[_T], frozen=True, array_like=True):
    """The one answer to a question: a Listing, Device, None or Reading.

    `fault` is the trace of an error of ours, in which case there is no value.
    """

    value: _T | None
    fault: str = ""


_ENCODER: Final = msgspec.msgpack.Encoder()
_REQUESTS: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)

Decoder: TypeAlias = msgspec.msgpack.Decoder[Answer[Any]]
"""Takes apart what answers a question of one kind."""

LISTING: Final[Decoder] = msgspec.msgpack.Decoder(Answer[Listing])
DEVICE: Final[Decoder] = msgspec.msgpack.Decoder(Answer[Device])
READING: Final[Decoder] = msgspec.msgpack.Decoder(Answer[Reading])


def request(message: Request) -> bytes:
    """A request as it is sent."""
    return _framed(_ENCODER.encode(message))


def answer(value: Listing | Device | Reading | None = None, fault: str = "") -> bytes:
    """An answer as it is sent."""
    return _framed(_ENCODER.encode(Answer(value, fault)))


def decode(message: bytes) -> Request:
    """A request that was sent. Raises msgspec.DecodeError."""
    return _REQUESTS.decode(message)


def _framed(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


def take(received: bytes) -> tuple[list[bytes], bytes]:
    """All messages that are whole, undecoded, and what follows them."""
    found, start, total = [], 0, len(received)
    while start + _LENGTH.size <= total:
        end = start + _LENGTH.size + _LENGTH.unpack_from(received, start)[0]
        if end > total:
            break
        found.append(received[start + _LENGTH.size : end])
        start = end
    return found, received[start:]
