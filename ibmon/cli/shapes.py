"""What the commands rely on in documents that others wrote: a status document, a page of events, a controller's answer.

Values only, and one function that holds a document against them. A document may say more than stands here; what it says
is not judged. `ibmon check` has its own, cheaper look (`ibmon.cli.verdictfile`).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Moment = Annotated[float, msgspec.Meta(gt=-1e11, lt=1e11)]
"""Unix seconds that a calendar can show: within three thousand years."""


def fit(value: Any, shape: Any) -> None:
    """Nothing, where the document can be shown.

    Raises:
        ValueError: something that a command shows is missing or of another kind; the text says where.
    """
    try:
        msgspec.convert(value, shape)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(str(error)) from None


# ---------------------------------------------------------------------------------------- of the status document


class Config(msgspec.Struct):
    """Whether the file that was read last is in force."""

    valid: bool


class Pci(msgspec.Struct):
    """The link of a card."""

    speed: float | None
    width: int | None
    expected_speed: float | None
    expected_width: int | None


class Device(msgspec.Struct):
    """A row of `devices`."""

    device: str
    stalled: bool
    pci: Pci | None
    node_guid: str | None = None


class Moved(msgspec.Struct):
    """An error counter that rose."""

    counter: str
    rise: float


class Totals(msgspec.Struct):
    """Sums of a port, of which `ibmon top` makes rates."""

    at: float
    rcv_bytes: float | None
    xmit_bytes: float | None
    errors: float | None


class Port(msgspec.Struct):
    """A row of `ports`."""

    device: str
    port: int
    role: str
    rail: int | None
    health: str
    present: bool
    expected: bool
    slot: str
    declared: bool
    trusted: bool
    netdev: str | None
    state: str | None
    physical_state: str | None
    rate: float | None
    expected_rate: float | None
    moved: list[Moved]
    totals: Totals | None = None


class Finding(msgspec.Struct):
    """A row of `findings`."""

    rule: str
    device: str
    port: int
    severity: str
    text: str
    recovering: bool


class Owned(msgspec.Struct):
    """A drain of ours."""

    reason: str


class Asked(msgspec.Struct):
    """What came of a person's `ibmon release`."""

    outcome: str | None
    code: str | None
    detail: str | None


class Drain(msgspec.Struct):
    """What is done about the node."""

    wanted: bool
    active: bool
    owned: Owned | None
    blocked: str | None
    reason: str
    overridden: bool
    orphaned: bool
    asked: Asked | None = None

    def __post_init__(self) -> None:
        if self.active and self.owned is None:
            raise ValueError("Expected `object` at `owned` of a drain that is active")


class Window(msgspec.Struct):
    """Announced work."""

    ports: list[str]
    until: Moment
    user: str
    reason: str


class Maintenance(msgspec.Struct):
    """All announced work."""

    windows: list[Window]


class Status(msgspec.Struct):
    """What `/api/v1/status` answers and `verdict.json` holds (`ibmon.exporter.status`)."""

    node: str
    wall: Moment
    mode: str
    fitness: str
    why: str
    up: bool
    listing_errno: str | None
    actions_enabled: bool
    config: Config
    devices: list[Device]
    ports: list[Port]
    findings: list[Finding]
    drain: Drain
    maintenance: Maintenance | None = None


# ------------------------------------------------------------------------------------------------- of others


class Event(msgspec.Struct):
    """One row of history."""

    seq: int
    at: Moment
    level: str
    event: str
    fields: dict[str, Any]


class Events(msgspec.Struct):
    """What `/api/v1/events` answers."""

    events: list[Event]
    next: int


class Told(msgspec.Struct):
    """What a controller says of a request that was granted."""

    text: str
    nodes: list[str]


class AuditRow(msgspec.Struct):
    """One row of a controller's audit log; its other keys are free."""

    at: Moment | None = None
    until: Moment | str | None = None
