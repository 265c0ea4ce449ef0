"""What the rules may look at, and what they answer. Values only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import Literal, NamedTuple

from ibmon.health.windows import Moment, Window
from ibmon.model import PHYSICAL_STATE_TEXT, PORT_STATE_TEXT, Now, Pci, PortId, PortState, Role

GBPS = 125_000_000
"""Bytes per second of one Gb/s."""


class Verdict(Enum):
    """Whether a condition holds, by the newest read. UNKNOWN neither opens nor closes anything."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


class Condition(NamedTuple):
    """What a rule sees.

    `observed`, `limit` and `words` (``DOWN/Polling``) tell what is bad. `reach` is the highest severity that it
    justifies. `quiet` is the age of the last bad moment of a count (seconds): recovery counts from there; `expires` is
    the time (seconds) after which a count may change by age alone. A good value that is `near` its limit ends nothing.
    """

    verdict: Verdict
    observed: float | str | None = None
    limit: float | str | None = None
    words: str = ""
    reach: Literal["info", "warning", "critical"] = "critical"
    quiet: float = 0.0
    counter: str = ""
    expires: float = math.inf
    near: bool = False


VFIO = "vfio-pci"
"""The driver of a PCI function that was given to a virtual machine."""

GOOD = Condition(Verdict.GOOD)
UNKNOWN = Condition(Verdict.UNKNOWN)


class Outage(NamedTuple):
    """One time that the port was not ACTIVE, over: when it ended, its length (seconds), and whether rules count it."""

    ended: Moment
    seconds: float
    counted: bool = True


class DeviceFacts(NamedTuple):
    """A device as the rules see it. Speeds in transfers per second, widths in lanes.

    `siblings_answer` is whether another device of the node was read lately; `verbs_known` whether any device of the
    node has a verbs character device, so that a missing one says something.
    """

    uverbs: str | None = None
    verbs_known: bool = False
    pci: Pci | None = None
    pci_speed: int | None = None
    pci_width: int | None = None
    siblings_answer: bool = False
    temperatures: Mapping[str, float] = {}  # of the modules by label, in degrees Celsius
    kernel_log: tuple[str, ...] = ()  # kinds of kernel-log evidence of the last hour
    bound_to: str | None = None  # driver of an absent device's PCI function; "" none; None: no PCI told
    function_present: bool | None = None


NO_DEVICE = DeviceFacts()


class PortFacts(NamedTuple):
    """A port as the rules see it. Rates are in bytes per second; None is "not known".

    `listed` is whether the newest complete listing held the device; None before the first, or while it is unreadable.
    Where the device is there and this port of it is not, it is `lost`, and not listed either.
    `fresh` is whether the newest good read of `state` is young enough to believe. `windows`, `saturated`,
    `unreadable` and `present` go by counter key (``counters/symbol_error``).
    """

    id: PortId
    role: Role
    link_layer: str | None
    listed: bool | None
    stalled: bool
    state: int | None
    physical_state: int | None
    rate: int | None
    width: int | None
    speed_word: str | None
    expected_rate: int | None
    best_rate: int | None  # the best rate this boot has shown
    fresh: bool
    gid0: int | None = None  # 1: the first GID is set, 0: it is all zero
    pkey0: int | None = None  # the first P_Key
    now: Now = Now(0.0, 0.0)
    boot: str = ""
    state_errno: int | None = None
    failed_polls: int = 0
    active_for: float | None = None
    windows: Mapping[str, Window] = {}
    saturated: frozenset[str] = frozenset()
    unreadable: frozenset[str] = frozenset()
    present: frozenset[str] = frozenset()
    flaps: tuple[Moment, ...] = ()
    transitions: tuple[Moment, ...] = ()
    outages: tuple[Outage, ...] = ()
    retrained: tuple[Moment, ...] = ()  # when the link fell or came up, also where no rule counts that
    device: DeviceFacts = NO_DEVICE
    lost: bool = False
    explained: frozenset[str] = frozenset()  # rules that a finding of the whole node speaks for

    @property
    def active(self) -> bool:
        """Whether the port carries data."""
        return self.state in (PortState.ACTIVE, PortState.ACTIVE_DEFER)

    @property
    def given_away(self) -> bool:
        """Whether its device was given to a virtual machine on purpose, and so is not expected here."""
        return self.listed is False and self.device.bound_to == VFIO


def state_words(facts: PortFacts) -> str:
    """``DOWN/Polling``: the kernel's words, or its numbers where it has none."""
    logical = "?" if facts.state is None else PORT_STATE_TEXT.get(facts.state, str(facts.state))
    if facts.physical_state is None:
        return logical
    return f"{logical}/{PHYSICAL_STATE_TEXT.get(facts.physical_state, str(facts.physical_state))}"


def gbps(rate: int) -> str:
    """A rate in Gb/s without a trailing ``.0``."""
    return f"{rate / GBPS:g}"
