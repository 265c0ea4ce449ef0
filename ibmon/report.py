"""What a node tells the fleet controller, and what it is answered: version 1 of the wire, its keys and its signature.

Values and pure functions; who sends and who listens is not known here. Reports are levels: each tells everything that
matters now, so a lost one is made good by the next. What other versions add is not looked at.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from ibmon.model import Mode, NodeFitness, Severity

VERSION: Final = 1

INTERVAL: Final = 30.0
"""Seconds between two reports of a node about which nothing changes."""

SKEW: Final = 300.0
"""Seconds that a report's `sent` may differ from the controller's wall clock."""

MAX_BYTES: Final = 256 * 1024
"""Size of a report's body at most: 256 ports with a finding each stay far below it."""

PATH: Final = "/v1/report"
ID_HEADER, TIME_HEADER, SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9._-]+\Z")]
_Short = Annotated[str, msgspec.Meta(max_length=128)]
_Text = Annotated[str, msgspec.Meta(max_length=512)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Wall = Annotated[float, msgspec.Meta(ge=-62_135_596_800, lt=253_402_300_800)]  # the years 1 to 9999, as calendars have


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition that is seen and would become critical in `left` seconds; `onset` is wall time."""

    rule: _Short
    device: _Short
    port: _Count = 0
    rail: int | None = None
    onset: _Wall = 0.0
    left: float = 0.0


class FindingLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finding that stands. `drains` says whether this node wants to be drained for it; `onset` is wall time."""

    rule: _Short
    device: _Short
    port: _Count
    severity: Severity
    onset: _Wall
    rail: int | None = None
    guid: _Short | None = None
    observed: float | _Text | None = None
    limit: float | _Text | None = None
    drains: bool = False
    recovering: bool = False


class Wish(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the node wants of the scheduler.

    `drain`: with this id and text, which the node has saved before it says so. Not `drain` with an `id`: give the drain
    of this id back; `by` names the person who asked for that, if one did. Neither: nothing.
    """

    drain: bool = False
    id: Annotated[str, msgspec.Meta(max_length=32, pattern=r"^[0-9a-z]*\Z")] = ""
    reason: _Text = ""
    since: _Wall = 0.0
    by: _Short = ""


class Owned(msgspec.Struct, frozen=True, omit_defaults=True):
    """The node's stored record of its drain; `held` once it was seen to stand, `asked` in wall time."""

    id: Annotated[str, msgspec.Meta(min_length=4, max_length=32, pattern=r"^[0-9a-z]+\Z")]
    reason: _Text
    asked: _Wall = 0.0
    held: bool = False


class Working(msgspec.Struct, frozen=True, omit_defaults=True):
    """A maintenance window on the node: until when (wall time), why, who. No subjects: the whole node."""

    until: _Wall
    reason: _Text = ""
    user: _Short = ""
    subjects: tuple[_Short, ...] = ()


class Report(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One report. `seq` grows within a boot; `sent` is the node's wall clock; `mode` is the node's own.

    `rails` is the health of each compute port by rail, in the letters of `RAIL_LETTERS`.
    """

    v: Literal[1]
    node: _Name
    boot_id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    seq: _Count
    sent: float
    version: _Short
    config_hash: _Short
    mode: Mode
    fitness: NodeFitness
    why: _Text = ""
    rails: Annotated[str, msgspec.Meta(max_length=256)] = ""
    holds: Annotated[tuple[Hold, ...], msgspec.Meta(max_length=1024)] = ()
    findings: Annotated[tuple[FindingLine, ...], msgspec.Meta(max_length=1024)] = ()
    intent: Wish = Wish()
    owned: Owned | None = None
    maintenance: Working | None = None


RAIL_LETTERS: Final = {
    "ok": "o",
    "warning": "w",
    "degraded": "d",
    "failed": "f",
    "recovering": "r",
    "unknown": "u",
    "ignored": "-",
}
"""A port's health in one letter."""

Decision: TypeAlias = Literal["drained", "released", "blocked", "none"]


class Reply(msgspec.Struct, frozen=True):
    """What the controller knows of the node's wish.

    `drained`: the drain with the node's id stands. `released`: the recorded drain does not stand any more; while the
    node still wants it, a person took it away. `blocked`: not done, `code` says why. `none`: nothing to say, or not
    known yet. `stop`: no scheduler is written to at all. `mode`: how far the controller lets this node go.
    """

    decision: Decision = "none"
    code: str = ""
    stop: bool = False
    mode: Mode = Mode.OBSERVE


def node_key(master: bytes, node: str) -> bytes:
    """The key of one node: HMAC-SHA256 of its name under the fleet's master key. A node holds only its own."""
    return hmac.new(master, node.encode(), hashlib.sha256).digest()
