"""What is said between the daemon and its reader process, and how it is framed.

Values and their bytes only. One end asks and waits, the other answers; nobody speaks unasked.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

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


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The one answer to a question: an encoded Listing, Device, None or Reading.

    `fault` is the trace of an error of ours, in which case the value means nothing.
    """

    value: msgspec.Raw
    fault: str = ""


_ENCODER: Final = msgspec.msgpack.Encoder()
_REQUESTS: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_ANSWERS: Final = msgspec.msgpack.Decoder(Answer)

LISTING: Final = msgspec.msgpack.Decoder(Listing)
DEVICE: Final[msgspec.msgpack.Decoder[Device | None]] = msgspec.msgpack.Decoder(Device | None)
READING: Final = msgspec.msgpack.Decoder(Reading)


def request(message: Request) -> bytes:
    """A request as it is sent."""
    return _framed(_ENCODER.encode(message))


def answer(value: Listing | Device | Reading | None = None, fault: str = "") -> bytes:
    """An answer as it is sent."""
    return _framed(_ENCODER.encode(Answer(msgspec.Raw(_ENCODER.encode(value)), fault)))


def take_request(received: bytes) -> tuple[Request, bytes] | None:
    """The first request and what follows it; None while it is not whole. Raises msgspec.DecodeError."""
    taken = _take(received)
    return None if taken is None else (_REQUESTS.decode(taken[0]), taken[1])


def take_answer(received: bytes) -> tuple[Answer, bytes] | None:
    """The first answer and what follows it; None while it is not whole. Raises msgspec.DecodeError."""
    taken = _take(received)
    return None if taken is None else (_ANSWERS.decode(taken[0]), taken[1])


def _framed(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


def _take(received: bytes) -> tuple[bytes, bytes] | None:
    if len(received) < _LENGTH.size:
        return None
    end = _LENGTH.size + _LENGTH.unpack_from(received)[0]
    return None if len(received) < end else (received[_LENGTH.size : end], received[end:])
