"""Evidence of trouble in kernel log lines: patterns as data, and what a line says of which PCI function. Pure.

A line is evidence only where it names a function; what its evidence is worth is decided in `checks.py`.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

import msgspec

from ibmon.health.windows import Moment
from ibmon.model import Now

WINDOW: Final = 3600.0
"""Seconds for which a line is evidence."""

SAME: Final = 60.0
"""Seconds within which lines of one kind are one piece of evidence: one trouble writes many lines, and a line that is
read again after a restart is the one that was read before."""

MAX_LINES: Final = 16

Kind = Literal["timeout", "health", "unrecoverable", "power", "queue", "temperature"]
"""What a line tells: a firmware command without an answer; the driver found the card ill; it gave the card up; the slot
feeds the card poorly; an Ethernet queue stood still; the card or its module is too hot."""

FAULTS: Final = frozenset({"timeout", "health", "unrecoverable"})
"""Kinds that say that the device does not work. The others warn at most."""


class Pattern(NamedTuple):
    """A regular expression for a message of the driver, the kind of evidence that it is, and what it means."""

    text: str
    kind: Kind
    meaning: str


# Messages of drivers/net/ethernet/mellanox/mlx5/core (Linux 4.18 to 6.12), by the file that prints them. The first
# pattern that fits counts. What is not here is no evidence, on purpose: plugged and unplugged cables, modules of other
# makers, ACCESS_REG and other commands that the firmware refused (often a user's own error), completion queues that
# an application broke, corrected bus errors, and resets that somebody asked for.
PATTERNS: Final[tuple[Pattern, ...]] = (
    # health.c
    Pattern("unrecoverable hardware error", "unrecoverable", "the card reports an unrecoverable hardware error"),
    Pattern("health recovery failed", "unrecoverable", "the driver could not recover the card"),
    Pattern("PCI reads still not working", "unrecoverable", "the card does not answer on the bus"),
    Pattern(r"Driver is in error state\. Unloading", "unrecoverable", "the driver gave the card up"),
    Pattern("Health issue observed, High temperature", "temperature", "the card is too hot"),
    Pattern(r"Health issue observed, .*severity\([0-3]\)", "health", "the firmware reports an error of its own"),
    Pattern("device's health compromised - reached miss count", "health", "the firmware stopped ticking"),
    Pattern(r"Fatal error \d+ detected", "health", "the driver found the card dead or about to be reset"),
    Pattern("handling bad device here", "health", "the driver found the card broken"),
    Pattern("starting health recovery flow", "health", "the driver recovers the card"),
    Pattern("PCI slot is unavailable", "health", "the card does not answer on the bus"),
    Pattern("PCI channel offline", "health", "the bus has cut the card off"),
    Pattern(r"mlx5_error_sw_reset\b.*\bstart", "health", "the driver resets the card after an error"),
    Pattern("Issuing FW Reset", "health", "the driver resets the card's firmware after an error"),
    # cmd.c
    Pattern("Will cause a leak of a command resource", "timeout", "a firmware command timed out"),
    Pattern("No done completion", "timeout", "a firmware command did not complete"),
    Pattern("recovered after timeout", "timeout", "a firmware command was answered, but nobody was told"),
    Pattern("canceled on out of queue timeout", "timeout", "a firmware command waited too long for its turn"),
    Pattern("timed out while waiting for a slot", "timeout", "no firmware command slot is free"),
    Pattern("timeout while waiting for command semaphore", "timeout", "no firmware command slot is free"),
    Pattern("Command completion arrived after timeout", "timeout", "a firmware command was answered too late"),
    Pattern(r"Recovered \d+ EQEs on cmd_eq", "timeout", "answers of the firmware had been lost"),
    # main.c
    Pattern(r"Firmware over \d+ MS in .* state, aborting", "health", "the firmware did not start"),
    Pattern(r"Waiting for FW .*timeout abort", "health", "the firmware is slow to start"),
    # events.c
    Pattern("High temperature on sensors with bit set", "temperature", "the card is too hot"),
    Pattern(r"Port module event.*High Temperature", "temperature", "the module is too hot"),
    Pattern("Detected insufficient power on the PCIe slot", "power", "the slot gives the card too little power"),
    Pattern("insufficient/unadvertised power", "power", "ports are off because the slot gives too little power"),
    Pattern("Power budget exceeded", "power", "the module wants more power than the port may give"),
    # en_main.c, net/sched/sch_generic.c
    Pattern("TX timeout detected", "queue", "a transmit queue stood still"),
    Pattern("RX timeout on channel", "queue", "a receive queue stood still"),
    Pattern(r"NETDEV WATCHDOG: .*transmit queue \d+ timed out", "queue", "a transmit queue stood still"),
    # drivers/pci/pcie/aer.c
    Pattern(r"PCIe Bus Error: severity=Uncorrect", "health", "the bus lost what the card sent or should have got"),
)

_COMPILED: Final = tuple((re.compile(pattern.text), pattern) for pattern in PATTERNS)
_ADDRESS: Final = re.compile(r"\bmlx[45]_(?:core|ib) ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b", re.IGNORECASE)


class Line(msgspec.Struct, frozen=True, array_like=True):
    """One piece of evidence: when it was written, and its kind."""

    at: Moment
    kind: str


def match(text: str) -> tuple[str, Pattern] | None:
    """The PCI address that a kernel line speaks of and the pattern that it fits, or None."""
    address = _ADDRESS.search(text)
    if address is None:
        return None
    found = next((pattern for compiled, pattern in _COMPILED if compiled.search(text, address.end())), None)
    return None if found is None else (address.group(1).lower(), found)


def add(lines: tuple[Line, ...], kind: str, now: Now, boot: str, age: float = 0.0) -> tuple[Line, ...]:
    """The evidence with one more line, written `age` seconds ago, and without what is too old."""
    kept = tuple(line for line in lines if line.at.boot == boot and line.at.age(now, boot) <= WINDOW)
    known = any(line.kind == kind and abs(line.at.age(now, boot) - age) < SAME for line in kept)
    if known or age > WINDOW:
        return kept
    line = Line(Moment(now.monotonic - age, now.wall - age, boot), kind)
    return tuple(sorted((*kept, line), key=lambda one: one.at.monotonic))[-MAX_LINES:]


def kinds(lines: tuple[Line, ...], now: Now, boot: str) -> tuple[str, ...]:
    """The kinds of the evidence that still counts; a new boot starts clean."""
    return tuple(line.kind for line in lines if line.at.boot == boot and line.at.age(now, boot) <= WINDOW)
