"""What goes into the fleet's logic and what comes out of it. Pure values; the runtime turns the world into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from ibmon.config import LimitsConfig
from ibmon.drain.policy import Pool
from ibmon.messages import EffectDone
from ibmon.model import Intent, Mode, NodeView, Ownership


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says: the mode where no wave says otherwise, the limits, [controller]."""

    mode: Mode
    limits: LimitsConfig
    quorum: float = 0.9
    fabric_hold: float = 900.0
    drain_on: tuple[str, ...] = ()
    boot_grace: float = 600.0


# ------------------------------------------------------------------------------------------ from the outside


class FleetView(msgspec.Struct, frozen=True):
    """The whole scheduler at one instant: every node by its name there, every pool, and who hangs on which leaf.

    `began` is the monotonic time at which reading began, None where it is not told: then a view proves something
    about every write whose outcome was handed over before it.
    """

    nodes: Mapping[str, NodeView]
    pools: tuple[Pool, ...]
    groups: Mapping[str, str] = {}
    began: float | None = None


class Refused(msgspec.Struct, frozen=True):
    """A report that is not taken in: a word for metrics and one line for people."""

    code: Literal["replay", "skew"]
    text: str


class AlertSeen(msgspec.Struct, frozen=True):
    """One alert of an Alertmanager's webhook. `starts` is wall time; `fingerprint` is Alertmanager's own."""

    name: str
    node: str
    firing: bool
    fingerprint: str
    starts: float
    summary: str = ""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator asked for. Which fields count depends on `action`.

    `nodes` are names or shell patterns, `group` a leaf of the topology; `seconds` how long a maintenance lasts, or for
    a release how old a drain may be; `all` must be said where no other choice narrows a release.
    """

    action: Literal["stop", "start", "mode", "maintenance-start", "maintenance-stop", "release"]
    user: str
    nodes: tuple[str, ...] = ()
    group: str = ""
    rule: str = ""
    reason: str = ""
    seconds: float = 0.0
    mode: Mode | None = None
    all: bool = False
    dry_run: bool = False


class Told(msgspec.Struct, frozen=True):
    """What came of an operator's request: whether it was done, one line about it, and the nodes it is about."""

    done: bool
    text: str
    nodes: tuple[str, ...] = ()


# -------------------------------------------------------------------------------------------- to the outside


class DrainJob(msgspec.Struct, frozen=True):
    """Drain a node by `reconcile.drain`; `record` is what the node, or the ledger, has stored of the drain."""

    node: str
    intent: Intent
    record: Ownership | None


class ReleaseJob(msgspec.Struct, frozen=True):
    """Give a node back by `reconcile.release`. Without `owned` a person's word is enough: `reconcile.reclaim`."""

    node: str
    owned: Ownership | None
    by: str = ""


Job: TypeAlias = DrainJob | ReleaseJob


class Outcome(msgspec.Struct, frozen=True):
    """How a job ended."""

    node: str
    done: EffectDone


class Note(msgspec.Struct, frozen=True):
    """One line of the audit log: who did what to which node, and what the controller decided."""

    level: Literal["info", "warning", "error"]
    event: str
    fields: dict[str, Any]


# ----------------------------------------------------------------------------------------- for people to see


class Stop(msgspec.Struct, frozen=True):
    """A stop that is in force since `at` (wall time)."""

    by: str
    at: float
    reason: str = ""


class Quorum(msgspec.Struct, frozen=True):
    """How much of the fleet has reported since this start. Nothing is drained until it is open."""

    seen: int
    reported: int
    ratio: float
    open: bool


class PoolRow(msgspec.Struct, frozen=True):
    """A pool's limit: nodes that count, how many may be drained by ibmon, how many are, how many are away at all."""

    name: str
    nodes: int
    allowed: int
    used: int
    unavailable: int


class DrainRow(msgspec.Struct, frozen=True):
    """A drain that stands or is wanted. `owner`: whose record it rests on; `foreign` is of no ibmon."""

    node: str
    owner: Literal["node", "alertmanager", "orphan", "foreign"]
    state: Literal["held", "pending", "withheld"]
    id: str = ""
    reason: str = ""
    since: float | None = None
    code: str = ""


class FabricEvent(msgspec.Struct, frozen=True):
    """One fault that many nodes show at once: `began` and `until` in wall time; drains are withheld until then."""

    group: str
    rail: int | None
    rule: str
    nodes: tuple[str, ...]
    began: float
    until: float


class MaintenanceRow(msgspec.Struct, frozen=True):
    """A window over many nodes; `until` in wall time."""

    id: str
    nodes: tuple[str, ...]
    reason: str
    user: str
    until: float


class NodeRow(msgspec.Struct, frozen=True):
    """A node in one line: `rails` one letter each (`ibmon.report.RAIL_LETTERS`), `age` of its last report in seconds.

    `fitness` is `unknown` for a node that has not reported in time; `missing` says so.
    """

    name: str
    fitness: str
    group: str
    rails: str
    age: float | None
    code: str
    missing: bool


class Fleet(msgspec.Struct, frozen=True):
    """The fleet at one instant, as GET /api/v1/fleet shows it."""

    v: int
    at: float
    leader: bool
    stop: Stop | None
    quorum: Quorum
    nodes: dict[str, int]
    pools: tuple[PoolRow, ...]
    drains: tuple[DrainRow, ...]
    fabric_events: tuple[FabricEvent, ...]
    maintenance: tuple[MaintenanceRow, ...]


class Counts(msgspec.Struct, frozen=True):
    """What the controller's own metrics show. `nodes` by fitness; `drains` by owner and state.

    `decisions` counts every change of what a node is answered, by decision and code.
    """

    leader: bool
    stop: bool
    quorum: Quorum
    nodes: dict[str, int]
    missing: int
    unknown_names: int
    drains: dict[tuple[str, str], int]
    pools: tuple[PoolRow, ...]
    fabric_events: int
    fabric_events_total: int
    decisions: dict[tuple[str, str], int]
    view_age: float | None
