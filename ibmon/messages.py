"""What goes into the engine (events) and what comes out of it (effects).

Pure values. A runtime turns the outside world into events and carries effects out; the engine does neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ibmon.config import Config
from ibmon.model import (
    BlockCode,
    Device,
    Finding,
    Intent,
    Listing,
    Mode,
    NodeView,
    Ownership,
    Reading,
    Severity,
    Tier,
)

# ---------------------------------------------------------------------------------------------- events


class ListingDone(msgspec.Struct, frozen=True):
    """The class directory was listed."""

    listing: Listing


class Discovered(msgspec.Struct, frozen=True):
    """The static facts of a device were read; `device` is None when it vanished meanwhile."""

    name: str
    device: Device | None


class ReadDone(msgspec.Struct, frozen=True):
    """Some tiers of a device were read. A reading whose device has gone has ENODEV on every column."""

    reading: Reading
    tiers: tuple[Tier, ...]


class Poll(msgspec.Struct, frozen=True):
    """Time has passed: ask for the reads that are due, and give up those that are overdue."""


class Tick(msgspec.Struct, frozen=True):
    """Judge and act on all that came in; sent after each batch of events, and when time alone changes something."""


class DeviceFree(msgspec.Struct, frozen=True):
    """The read in which an earlier process was stuck has ended: the device may be read again."""

    device: str


class Hotplug(msgspec.Struct, frozen=True):
    """The kernel added, removed or renamed an RDMA device."""


class KernelLine(msgspec.Struct, frozen=True):
    """One line of the kernel log, written `age` seconds ago."""

    text: str
    age: float = 0.0


class Person(msgspec.Struct, frozen=True):
    """Somebody asked for something on the control socket; the answer carries the ticket.

    `subjects` are ports (``mlx5_3/1``) or devices; empty means all. `rules` narrows `clear`; `seconds` is how long a
    maintenance lasts; `dry_run` asks what a release would do.
    """

    ticket: int
    action: Literal["clear", "accept", "forget", "learn", "maintenance-start", "maintenance-stop", "release"]
    user: str
    subjects: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    dry_run: bool = False


class EffectDone(msgspec.Struct, frozen=True):
    """How a Drain or Release ended.

    `outcome` is what is true now: `done` (ours, read back), `gone` (not drained any more), `blocked` (not done,
    `code` says why), `failed` (not known; it will be tried again). A drain that is `open`, blocked or gone without
    having been seen, may still be made by whoever was asked, so its record stays. `unnamed` is whether the scheduler
    does not know this host by exactly one name, `general` whether it failed for a cause that is no single node's.
    `view` is the node as it was read last.
    """

    effect: Literal["drain", "release"]
    id: str
    outcome: Literal["done", "gone", "blocked", "failed"]
    code: BlockCode | None = None
    detail: str = ""
    view: NodeView | None = None
    open: bool = False
    unnamed: bool = False
    general: bool = False


class FleetWord(msgspec.Struct, frozen=True):
    """What the fleet controller said last: whether it has a stop in force, and how far it lets this node go."""

    stop: bool = False
    mode: Mode = Mode.DRAIN


class SchedulerSaw(msgspec.Struct, frozen=True):
    """What an Observe has read: this node at its scheduler, or (without a view) why it could not be read."""

    view: NodeView | None
    detail: str = ""
    unnamed: bool = False


class Troubles(msgspec.Struct, frozen=True):
    """All that is wrong with the daemon's own surroundings now, by the name of its notice (`ibmon.notices.WORDS`)."""

    found: Mapping[str, str]


class StopFile(msgspec.Struct, frozen=True):
    """The stop file appeared or went away."""

    present: bool


class Reloaded(msgspec.Struct, frozen=True):
    """A new valid configuration is in force."""

    config: Config


HostEvent: TypeAlias = ListingDone | Discovered | ReadDone | KernelLine | Hotplug | DeviceFree
Event: TypeAlias = (
    HostEvent | Poll | Tick | EffectDone | SchedulerSaw | FleetWord | Person | StopFile | Reloaded | Troubles
)

# --------------------------------------------------------------------------------------------- effects


class ReadListing(msgspec.Struct, frozen=True):
    """List the class directory, and look for these PCI functions (those of expected devices that are not listed)."""

    functions: tuple[str, ...] = ()


class Discover(msgspec.Struct, frozen=True):
    """Read the static facts of a device; the layout gets this generation."""

    device: str
    generation: int


class Read(msgspec.Struct, frozen=True):
    """Read some tiers of a device; `columns` are layout indexes in reading order."""

    device: str
    generation: int
    tiers: tuple[Tier, ...]
    columns: tuple[int, ...]


class Abandon(msgspec.Struct, frozen=True):
    """A read of this device is overdue: leave its thread to it and go on with the others."""

    device: str


class Forget(msgspec.Struct, frozen=True):
    """A device has gone: close what is kept open of it."""

    device: str


class Drain(msgspec.Struct, frozen=True):
    """Drain this node, after all gates have been read again."""

    intent: Intent


class Release(msgspec.Struct, frozen=True):
    """Give this node back, if it still is ours exactly as recorded.

    `by` is the person who asked for it. Without `owned` there is no record: that person's word is then enough for a
    drain whose reason has the form of ours.
    """

    owned: Ownership | None
    by: str = ""

    @property
    def id(self) -> str:
        """The drain's id, empty where there is no record of it."""
        return self.owned.id if self.owned else ""


class Observe(msgspec.Struct, frozen=True):
    """Read this node at its scheduler, once, and write nothing."""


class Send(msgspec.Struct, frozen=True):
    """Deliver a message to every webhook that subscribes to `topic`; a newer one of a subject replaces it."""

    topic: Literal["fitness", "finding"]
    subject: str
    body: dict[str, Any]


class Notice(msgspec.Struct, frozen=True):
    """Something that people must know and that is no finding: about ibmon's acting, not about a port.

    `since` is wall time; `text` is what is so, for the name's own sentence see `ibmon.notices.WORDS`.
    """

    name: str
    severity: Severity
    since: float
    text: str


class Alerts(msgspec.Struct, frozen=True):
    """The set of alerts that should be firing now, whole (desired state, not a change)."""

    firing: tuple[Finding, ...]
    notices: tuple[Notice, ...] = ()


class Save(msgspec.Struct, frozen=True):
    """Commit the engine's state before any later effect of the same step is carried out."""

    state: bytes


class Answer(msgspec.Struct, frozen=True):
    """What came of a Person's request: whether it was done, and one line that says what was."""

    ticket: int
    done: bool
    text: str


class Log(msgspec.Struct, frozen=True):
    """One line for people and one row of history: a change of state."""

    level: Literal["info", "warning", "error"]
    event: str
    fields: dict[str, Any]


OfReaders: TypeAlias = ReadListing | Discover | Read | Abandon | Forget
OF_READERS: Final = (ReadListing, Discover, Read, Abandon, Forget)
"""What is the business of those that read; it changes nothing."""

Effect: TypeAlias = OfReaders | Drain | Release | Observe | Send | Alerts | Save | Log | Answer
