"""What the engine publishes after a step: one immutable picture that exporter, page, verdict file and table share.

Values only; how they are rendered is not decided here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ibmon.maintenance import Window
from ibmon.model import (
    BlockCode,
    Column,
    Device,
    Finding,
    Intent,
    Mode,
    NodeFitness,
    Now,
    Ownership,
    PersonRelease,
    PortHealth,
    PortId,
    Role,
    Sample,
)


class DeviceView(msgspec.Struct, frozen=True):
    """One present device with its newest values.

    While `stalled`, its counter, state and rate series end; age, stalled, health and findings stay. `sampled` is the
    end of the last complete read of its state, None before the first. `read_errors` counts failed reads by errno.
    `resets` and `saturated` go by column: decreases seen, and columns that stand at the maximum of their field.
    """

    device: Device
    sample: Sample
    stalled: bool = False
    sampled: Now | None = None
    read_errors: Mapping[int, int] = {}
    resets: Mapping[int, int] = {}
    saturated: Mapping[int, bool] = {}


class PortView(msgspec.Struct, frozen=True):
    """One port, present or expected. Rates in bytes per second; `state` and `physical_state` as the kernel numbers.

    `slot` is the port's identity; `declared` and `trusted` say who stands behind its being expected (trusted without
    declared: accepted, or the site trusts what is learned). `moved` are the error counters that rose within the last
    hour, by column, with the rise. `hold` is the number of seconds until each hold that runs now would end, by rule,
    and `onset` the wall time at which its condition was first seen.
    """

    id: PortId
    role: Role
    health: PortHealth
    present: bool = True
    expected: bool = False
    slot: str = ""
    declared: bool = False
    trusted: bool = False
    rail: int | None = None
    link_layer: str | None = None
    netdev: str | None = None
    state: int | None = None
    physical_state: int | None = None
    rate: int | None = None
    expected_rate: int | None = None
    speed_word: str | None = None
    width: int | None = None
    flaps: int = 0
    moved: tuple[tuple[Column, int], ...] = ()
    hold: Mapping[str, float] = {}
    onset: Mapping[str, float] = {}


class DrainView(msgspec.Struct, frozen=True):
    """Where the drain of this node stands. `would` counts drains that observe or alert mode did not make.

    `asks` is whether nothing on this node's own side bars the drain that is wanted. `asked` is the newest release that
    a person asked this process for, and what came of it.
    """

    intent: Intent
    owned: Ownership | None = None
    blocked: BlockCode | None = None
    would: int = 0
    overridden: bool = False
    asked: PersonRelease | None = None
    orphaned: bool = False
    action_errors: Mapping[str, int] = {}
    asks: bool = False


class Snapshot(msgspec.Struct, frozen=True, weakref=True):
    """The node at one instant. `sequence` grows with each; `devices` are sorted by name, `ports` as people count.

    `listing_errno` is set while class/infiniband cannot be read; `up` is whether the last pass could read it.
    `quarantined` are devices that are not even looked at, because a read of an earlier process hangs in them.
    """

    sequence: int
    at: Now
    node: str
    boot_id: str
    mode: Mode
    fitness: NodeFitness
    up: bool
    listing_errno: int | None
    devices: tuple[DeviceView, ...]
    ports: tuple[PortView, ...]
    devices_expected: int
    findings: tuple[Finding, ...]
    drain: DrainView
    actions_enabled: bool = True
    config_valid: bool = True
    config_hash: str = ""
    why: str = ""
    quarantined: tuple[str, ...] = ()
    maintenance: tuple[Window, ...] = ()
    rules_available: Mapping[str, bool] = {}
