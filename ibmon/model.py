"""Value types that every room of ibmon speaks: identities, devices, samples, findings, health, intent.

Nothing here does I/O or knows a clock. A value that is not known is None; zero is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import NamedTuple, TypeVar

import msgspec

_T = TypeVar("_T")


class Now(NamedTuple):
    """One instant on both clocks: holds use the first, texts and records the second (both in seconds)."""

    monotonic: float
    wall: float


class PortId(NamedTuple):
    """A port as `rdma link` writes it: ``mlx5_3/1``."""

    device: str
    port: int

    def __str__(self) -> str:
        return f"{self.device}/{self.port}"

    @classmethod
    def parse(cls, text: str) -> PortId:
        """The port named by ``mlx5_3/1``; ValueError for any other shape."""
        device, slash, number = text.rpartition("/")
        if not slash or not device or not number.isdigit():
            raise ValueError(f"{text!r} is not a port; write device/port, as in mlx5_3/1")
        return cls(device, int(number))


class Tier(IntEnum):
    """How often a column is read (reference: `docs/architecture.md`, Reading)."""

    STATE = 0
    COUNTER = 1
    SLOW = 2


class Level(str, Enum):
    """Where in the device's directory a column's file lies."""

    ATTR = "attr"  # ports/N/{state,phys_state,rate,gids/0,pkeys/0}; `width` is the second number of `rate`
    COUNTERS = "counters"  # ports/N/counters
    COUNTERS_EXT = "counters_ext"  # ports/N/counters_ext of old out-of-tree stacks
    HW = "hw"  # ports/N/hw_counters
    DEVICE_HW = "device_hw"  # hw_counters of the device itself
    NET = "net"  # carrier counters of the port's netdev
    PHY = "phy"  # ethtool statistics of the port's netdev
    PCI = "pci"  # current link of the PCI function
    HWMON = "hwmon"  # temperatures of the modules in the device's cages, by label


class Column(NamedTuple):
    """One number of a device: the port (0 for the device itself), the level, and the kernel's file name.

    `maximum` is where a narrow counter sticks, `modulus` where it wraps (None: it does neither, or nobody knows);
    `counts` is False for gauges and settings; `error` marks counters whose rise a person wants to see.
    """

    port: int
    level: Level
    name: str
    tier: Tier
    maximum: int | None = None
    modulus: int | None = None
    counts: bool = True
    error: bool = False


class Layout(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """The columns of one device generation; shared by all its samples, compared by identity."""

    device: str
    generation: int
    columns: tuple[Column, ...]
    index: Mapping[tuple[int, Level, str], int]
    tiers: tuple[tuple[int, ...], ...]  # by Tier: the column indexes read in that tier, in reading order

    @classmethod
    def build(cls, device: str, generation: int, columns: tuple[Column, ...]) -> Layout:
        """A layout whose reading order within a tier is the order of `columns`."""
        index = {(c.port, c.level, c.name): i for i, c in enumerate(columns)}
        tiers = tuple(tuple(i for i, c in enumerate(columns) if c.tier is tier) for tier in Tier)
        return cls(device, generation, columns, index, tiers)

    def column(self, port: int, level: Level, name: str) -> int | None:
        """Index of a column, or None where this device has no such file."""
        return self.index.get((port, level, name))


class Pci(msgspec.Struct, frozen=True):
    """Static facts of the PCI function behind a device.

    Speeds are in transfers per second, widths in lanes. `slot_*` are the maxima of the upstream bridge.
    """

    address: str
    driver: str | None = None
    vendor: str | None = None
    numa_node: int | None = None
    max_speed: int | None = None
    max_width: int | None = None
    slot_max_speed: int | None = None
    slot_max_width: int | None = None

    @property
    def expected_speed(self) -> int | None:
        """What both ends of the link can do, or None where neither end says."""
        return min((s for s in (self.max_speed, self.slot_max_speed) if s), default=None)

    @property
    def expected_width(self) -> int | None:
        """What both ends of the link can do, or None where neither end says."""
        return min((w for w in (self.max_width, self.slot_max_width) if w), default=None)


class Function(str, Enum):
    """What kind of RDMA function a device is."""

    PF = "pf"
    VF = "vf"
    SF = "sf"
    BOND = "bond"
    SMI = "smi"  # multiplane management child
    REPRESENTOR = "representor"
    VIRTUAL = "virtual"  # no PCI function behind it (rxe, siw)


class Port(msgspec.Struct, frozen=True):
    """Static facts of a port. `link_layer` is the kernel's word (InfiniBand, Ethernet, Unknown) or None."""

    id: PortId
    link_layer: str | None = None
    netdev: str | None = None


class Device(msgspec.Struct, frozen=True):
    """One directory of class/infiniband and what does not change while it is there."""

    name: str
    layout: Layout
    ports: tuple[Port, ...]
    function: Function = Function.PF
    driver: str | None = None
    node_guid: str | None = None
    sys_image_guid: str | None = None
    board_id: str | None = None
    hca_type: str | None = None
    firmware_version: str | None = None
    pci: Pci | None = None
    uverbs: str | None = None  # name of its character device, None where there is none

    def slot(self, port: int) -> str:
        """Key of what is expected: the PCI address, without PCI the name, and the port number."""
        return f"{self.pci.address if self.pci else self.name}/{port}"

    def card(self, port: int) -> str:
        """Key of history: the node GUID, without one the slot, and the port number."""
        return f"{self.node_guid}/{port}" if self.node_guid else self.slot(port)


class Reading(msgspec.Struct, frozen=True):
    """What one pass over some columns of one device gave.

    `values[i]` belongs to layout column `columns[i]`: an integer in the unit of the kernel's file, except `rate`
    (bytes per second), `width` (lanes), PCI speed (transfers per second) and `gid0` (1 if set, 0 if all zero). It is
    None where nothing was read.
    `errnos` holds, by column, why (ENODATA: the kernel printed words for "no such counter"; EBADMSG: no number).
    `words` holds the speed word of a `rate` (``NDR``), by column.
    """

    device: str
    generation: int
    columns: tuple[int, ...]
    values: tuple[int | None, ...]
    errnos: Mapping[int, int]
    words: Mapping[int, str]
    started: Now
    ended: Now


class Listing(msgspec.Struct, frozen=True):
    """The names below class/infiniband that the configuration includes; names is None when it was unreadable.

    An absent directory is an empty listing when `class/` itself can be read. `functions` holds, for the PCI addresses
    that were asked for, the name of the bound driver ("" for none), or None where there is no such function; it is
    None as a whole where the tree tells nothing of PCI.
    """

    names: tuple[str, ...] | None
    errno: int | None
    at: Now
    functions: Mapping[str, str | None] | None = None


def _laid_over(old: Mapping[int, _T], new: Mapping[int, _T], read: tuple[int, ...]) -> Mapping[int, _T]:
    """What holds of all columns by `old`, and of those that were `read` by `new`."""
    if old == new or (not new and old.keys().isdisjoint(read)):
        return old
    columns = set(read)
    return {**{i: x for i, x in old.items() if i not in columns}, **new}


class Sample(msgspec.Struct, frozen=True):
    """The newest value of every column of a device, pieced together from readings."""

    layout: Layout
    values: tuple[int | None, ...]
    errnos: Mapping[int, int]
    words: Mapping[int, str]
    read_at: tuple[Now | None, ...]  # by Tier

    @classmethod
    def empty(cls, layout: Layout) -> Sample:
        """A sample in which nothing was read yet."""
        return cls(layout, (None,) * len(layout.columns), {}, {}, (None,) * len(Tier))

    def merge(self, reading: Reading, tiers: tuple[Tier, ...], changed: Mapping[int, int | None]) -> Sample:
        """This sample with a newer reading of those tiers laid over it, which gave `changed` columns other values."""
        read_at = list(self.read_at)
        for tier in tiers:
            read_at[tier] = reading.ended
        values = self.values
        if changed:
            merged = list(values)
            for i, value in changed.items():
                merged[i] = value
            values = tuple(merged)
        errnos = _laid_over(self.errnos, reading.errnos, reading.columns)
        words = _laid_over(self.words, reading.words, reading.columns)
        return Sample(self.layout, values, errnos, words, tuple(read_at))

    def get(self, port: int, level: Level, name: str) -> int | None:
        """The value of a column, or None where it is absent or could not be read."""
        i = self.layout.index.get((port, level, name))
        return None if i is None else self.values[i]

    def errno(self, port: int, level: Level, name: str) -> int | None:
        """Why the value of a column is None, or None where it was read or does not exist."""
        i = self.layout.index.get((port, level, name))
        return None if i is None else self.errnos.get(i)

    def word(self, port: int) -> str | None:
        """The speed word of the port's rate."""
        i = self.layout.index.get((port, Level.ATTR, "rate"))
        return None if i is None else self.words.get(i)


class PortState(IntEnum):
    """Logical port state, the kernel's numbers (drivers/infiniband/core/sysfs.c, enum ib_port_state)."""

    NOP = 0
    DOWN = 1
    INIT = 2
    ARMED = 3
    ACTIVE = 4
    ACTIVE_DEFER = 5


class PhysicalState(IntEnum):
    """Physical port state, the kernel's numbers (drivers/infiniband/core/sysfs.c, phys_state_to_str)."""

    SLEEP = 1
    POLLING = 2
    DISABLED = 3
    PORT_CONFIGURATION_TRAINING = 4
    LINK_UP = 5
    LINK_ERROR_RECOVERY = 6
    PHY_TEST = 7


PORT_STATE_TEXT: Mapping[int, str] = {s.value: s.name for s in PortState}
PHYSICAL_STATE_TEXT: Mapping[int, str] = {
    1: "Sleep",
    2: "Polling",
    3: "Disabled",
    4: "PortConfigurationTraining",
    5: "LinkUp",
    6: "LinkErrorRecovery",
    7: "Phy Test",
}


class Role(str, Enum):
    """What a port is for; only a compute port can make the node unfit."""

    COMPUTE = "compute"
    STORAGE = "storage"
    MANAGEMENT = "management"
    IGNORED = "ignored"


class Severity(str, Enum):
    """How bad a finding is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Order of severities, the worst highest."""
        return ("info", "warning", "critical").index(self.value)


class PortHealth(str, Enum):
    """The verdict on one port."""

    OK = "ok"
    WARNING = "warning"
    DEGRADED = "degraded"
    FAILED = "failed"
    RECOVERING = "recovering"
    UNKNOWN = "unknown"
    IGNORED = "ignored"


class NodeFitness(str, Enum):
    """The verdict on the node: is it fit for multi-node jobs?"""

    FIT = "fit"
    WATCH = "watch"
    UNFIT = "unfit"
    UNKNOWN = "unknown"


class Mode(str, Enum):
    """How far ibmon may go; each includes the one before."""

    OBSERVE = "observe"
    ALERT = "alert"
    DRAIN = "drain"

    @property
    def rank(self) -> int:
        """Order of modes, the one that may do most highest."""
        return ("observe", "alert", "drain").index(self.value)


class Finding(msgspec.Struct, frozen=True):
    """A rule that holds for a port (or device, or node: empty port or device) now.

    `observed` and `limit` are numbers in the rule's unit or the kernel's words; `text` is both as the drain reason
    and the table print them, such as ``DOWN/Polling 62s>60s``. `onset` is wall time. `drains` says whether the
    finding may drain the node under the configuration in force; `maintenance` whether its subject is in a window in
    which it does not.
    """

    rule: str
    device: str
    port: int
    counter: str
    severity: Severity
    onset: float
    observed: float | str | None
    limit: float | str | None
    text: str
    recovering: bool = False
    alerts: bool = True
    drains: bool = False
    trusted: bool = True
    maintenance: bool = False

    @property
    def subject(self) -> str:
        """The port, device or node that the finding is about: ``mlx5_3/1``, ``mlx5_3``, or empty."""
        return f"{self.device}/{self.port}" if self.port else self.device


class BlockCode(str, Enum):
    """Why a drain that is due is not made now."""

    MODE = "mode"
    STOP = "stop"
    MAINTENANCE = "maintenance"
    BOOT_GRACE = "boot_grace"
    LIMIT_NODES = "limit_nodes"
    LIMIT_RATE = "limit_rate"
    LIMIT_UNREADABLE = "limit_unreadable"
    MAX_UNAVAILABLE = "max_unavailable"
    FOREIGN_DRAIN = "foreign_drain"
    SCHEDULER_STATE = "scheduler_state"
    SCHEDULER_UNREACHABLE = "scheduler_unreachable"
    FORBIDDEN = "forbidden"
    FABRIC_EVENT = "fabric_event"
    OVERRIDE = "override"
    INVENTORY_UNCONFIRMED = "inventory_unconfirmed"


class Intent(msgspec.Struct, frozen=True):
    """What ibmon wants of the scheduler for this node: a level, not an edge."""

    drain: bool
    id: str = ""
    reason: str = ""
    since: float = 0.0


class Ownership(msgspec.Struct, frozen=True):
    """The node's own record of a drain: `held` once it was read back at the scheduler, until then only asked.

    `gone` is what is left of one that was held and that somebody took away while it was due, until the next is asked.
    """

    id: str
    reason: str
    asked: float
    held: bool = False
    gone: bool = False


class PersonRelease(msgspec.Struct, frozen=True):
    """A person asked for the node to be given back. `outcome` is None until the scheduler has answered."""

    user: str
    asked: float
    outcome: str | None = None
    code: BlockCode | None = None
    detail: str = ""


class NodeView(msgspec.Struct, frozen=True):
    """A node as its scheduler shows it. `flags` are upper-case state words, the base state among them.

    `user` and `since` (wall time) say who set the reason and when, as far as the scheduler tells.
    """

    name: str
    flags: frozenset[str]
    reason: str | None = None
    user: str | None = None
    since: float | None = None

    @property
    def drained(self) -> bool:
        """Whether the scheduler gives this node no new work because somebody asked so."""
        return "DRAIN" in self.flags or "FAIL" in self.flags
