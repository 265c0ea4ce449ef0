"""What the kernel's text means: numbers, states, rates, PCI links.

Pure and exact: bytes in, integers out, never a float. It opens nothing and knows no device.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from ibmon.model import Column, Level

MAX_VALUE: Final = 2**64 - 1
"""No kernel counter is wider: drivers/infiniband/core/sysfs.c prints u64 at most."""

MAX_LANES: Final = 32
"""The widest PCI Express link (PCIe base specification); a dead card answers all-ones, printed as 63."""

_BYTES_PER_SECOND_PER_GIGABIT: Final = 125_000_000  # 10**9 / 8

# core/sysfs.c:rate_show prints "%d%s Gb/sec (%dX%s)"; kernels before 3.x left out the word for SDR.
_RATE: Final = re.compile(rb"(\d{1,9})(?:\.(\d{1,9}))? Gb/sec(?: \((\d{1,3})X(?: ([A-Z0-9]+))?\))?")
# core/sysfs.c:state_show and phys_state_show print "%u: %s"; the number alone decides.
_ENUMERATED: Final = re.compile(rb"(\d{1,9})(?::.*)?", re.DOTALL)
# drivers/pci/pci-sysfs.c; kernels before 5.9 left out "PCIe".
_PCI_SPEED: Final = re.compile(rb"(\d{1,6})(?:\.(\d{1,3}))? GT/s(?: PCIe)?")
_GUID: Final = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){3}")
_GID: Final = re.compile(rb"[0-9a-f]{4}(?::[0-9a-f]{4}){7}", re.IGNORECASE)  # core/sysfs.c:_show_port_gid_attr, %pI6
_PKEY: Final = re.compile(rb"0x[0-9a-f]{1,4}", re.IGNORECASE)  # core/sysfs.c:show_port_pkey, 0x%04x
_MILLI: Final = re.compile(rb"-?\d{1,7}")
_NETDEV: Final = re.compile(r"[^/\s:]{1,15}")  # net/core/dev.c:dev_valid_name


class ParseError(ValueError):
    """A file was read and holds no value.

    Attributes:
        errno: ENODATA where the kernel says in words that there is none, EBADMSG for anything else.
    """

    def __init__(self, number: int, raw: bytes) -> None:
        super().__init__(number, raw)
        self.errno = number

    def __str__(self) -> str:
        why = "the kernel says there is no value" if self.errno == errno.ENODATA else "not what the kernel prints"
        return f"{self.args[1][:40]!r}: {why}"


class Rate(NamedTuple):
    """A port's rate: bytes per second, lanes (None where the text has none), and the kernel's word for the speed."""

    bytes_per_second: int
    width: int | None
    word: str | None


def _refuse(raw: bytes) -> ParseError:
    """Kernels before about 5.1 print `N/A (no PMA)` and report success (kernel reference §1.6)."""
    words = raw.strip().lower()
    return ParseError(errno.ENODATA if words.startswith((b"n/a", b"unknown")) else errno.EBADMSG, raw)


def number(raw: bytes) -> int:
    """The unsigned decimal in a counter file.

    Raises:
        ParseError: ENODATA for `N/A ...`, EBADMSG for an empty file, a sign, other text, or more than 64 bits.
    """
    text = raw.strip()
    if not text.isdigit():
        raise _refuse(raw)
    value = int(text)
    if value > MAX_VALUE:
        raise ParseError(errno.EBADMSG, raw)
    return value


@lru_cache(maxsize=64)
def enumerated(raw: bytes) -> int:
    """The number of a `4: ACTIVE` line; words behind it are not looked at, so unknown ones do no harm.

    Raises:
        ParseError: where the line starts with no number.
    """
    match = _ENUMERATED.fullmatch(raw.strip())
    if match is None:
        raise _refuse(raw)
    return int(match[1])


state = enumerated
"""Logical port state, 0 NOP to 5 ACTIVE_DEFER (include/rdma/ib_verbs.h, enum ib_port_state)."""

physical_state = enumerated
"""Physical port state, 1 Sleep to 7 Phy Test (include/rdma/ib_verbs.h, enum ib_port_phys_state)."""


@lru_cache(maxsize=256)
def rate(raw: bytes) -> Rate:
    """A port's `rate`, exactly: `2.5 Gb/sec (1X SDR)` is 312500000 bytes per second.

    Raises:
        ParseError: for any other shape, such as an empty line or a negative number.
    """
    match = _RATE.fullmatch(raw.strip())
    if match is None:
        raise _refuse(raw)
    whole, fraction, lanes, word = match.groups()
    return Rate(
        _scaled(whole, fraction, _BYTES_PER_SECOND_PER_GIGABIT),
        None if lanes is None else int(lanes),
        None if word is None else word.decode("ascii"),
    )


def rate_value(raw: bytes) -> int:
    """Bytes per second of a port's `rate`. Raises ParseError as `rate` does."""
    return rate(raw).bytes_per_second


def rate_width(raw: bytes) -> int:
    """Lanes of a port's `rate`. Raises ParseError as `rate` does, ENODATA where the line names no width."""
    width = rate(raw).width
    if width is None:
        raise ParseError(errno.ENODATA, raw)
    return width


@lru_cache(maxsize=64)
def pci_speed(raw: bytes) -> int:
    """Speed of a PCI link in transfers per second (`16.0 GT/s PCIe`, older kernels `16 GT/s`).

    Raises:
        ParseError: ENODATA for `Unknown`, which a card that fell off the bus shows.
    """
    match = _PCI_SPEED.fullmatch(raw.strip())
    if match is None:
        raise _refuse(raw)
    return _scaled(match[1], match[2], 10**9)


@lru_cache(maxsize=64)
def pci_width(raw: bytes) -> int:
    """Lanes of a PCI link.

    Raises:
        ParseError: ENODATA for 0 (reserved in virtual functions) and for more lanes than there can be.
    """
    lanes = number(raw)
    if not 0 < lanes <= MAX_LANES:
        raise ParseError(errno.ENODATA, raw)
    return lanes


def gid_is_set(raw: bytes) -> int:
    """1 where a GID has any bit set, 0 for an entry of the table that is empty.

    Raises:
        ParseError: for anything but eight groups of four hexadecimal digits.
    """
    text = raw.strip()
    if _GID.fullmatch(text) is None:
        raise _refuse(raw)
    return int(bool(text.strip(b"0:")))


def pkey(raw: bytes) -> int:
    """The number of a P_Key, membership bit (0x8000) and all. Raises ParseError for any other shape."""
    text = raw.strip()
    if _PKEY.fullmatch(text) is None:
        raise _refuse(raw)
    return int(text, 16)


def temperature(raw: bytes) -> int:
    """A temperature in thousandths of a degree Celsius (Documentation/hwmon/sysfs-interface).

    Raises:
        ParseError: for anything but a number of at most seven digits.
    """
    text = raw.strip()
    if _MILLI.fullmatch(text) is None:
        raise _refuse(raw)
    return int(text)


def numa_node(raw: bytes) -> int | None:
    """NUMA node of a PCI function; None for the kernel's -1 and for anything that is no number."""
    text = raw.strip()
    return int(text) if text.isdigit() and len(text) < 6 else None


def text(raw: bytes) -> str | None:
    """The words of an attribute; None for an empty line (drivers without firmware print one as `fw_ver`)."""
    return raw.replace(b"\0", b"").decode("utf-8", "replace").strip() or None


def guid(raw: bytes) -> str | None:
    """A GUID as the kernel writes it; None for all-zero, which means that nobody has set it yet."""
    words = text(raw)
    if words is None or _GUID.fullmatch(words) is None or not words.strip("0:"):
        return None
    return words


def netdev(raw: bytes) -> str | None:
    """A network interface's name; None for what cannot be one (and so never leads out of class/net)."""
    words = text(raw)
    if words is None or words in {".", ".."} or _NETDEV.fullmatch(words) is None:
        return None
    return words


def _scaled(whole: bytes, fraction: bytes | None, unit: int) -> int:
    """`whole.fraction` times a unit, rounded down to a whole number."""
    digits = fraction or b""
    scale: int = 10 ** len(digits)
    return int(whole + digits) * unit // scale


_ATTRIBUTES: Final[dict[tuple[Level, str], Callable[[bytes], int]]] = {
    (Level.ATTR, "state"): state,
    (Level.ATTR, "phys_state"): physical_state,
    (Level.ATTR, "rate"): rate_value,
    (Level.ATTR, "width"): rate_width,
    (Level.ATTR, "gid0"): gid_is_set,
    (Level.ATTR, "pkey0"): pkey,
    (Level.PCI, "current_link_speed"): pci_speed,
    (Level.PCI, "current_link_width"): pci_width,
}


def decoder(column: Column) -> Callable[[bytes], int]:
    """The function that turns the content of a column's file into its value; it raises ParseError."""
    if column.level is Level.HWMON:
        return temperature
    return _ATTRIBUTES.get((column.level, column.name), number)
