"""From the node's picture to its report for the fleet controller, and when a report says something new. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from ibmon.model import Mode, Ownership, PortId, Role
from ibmon.report import RAIL_LETTERS, FindingLine, Hold, Owned, Report, Wish, Working
from ibmon.snapshot import Snapshot

MOST: Final = 384
"""Findings, and holds, of one report, the worst first: so many of the longest fit into `ibmon.report.MAX_BYTES`."""

_SHORT, _TEXT, _RAILS, _VALUE = 128, 512, 256, 64


def report(
    snapshot: Snapshot,
    wish: Wish,
    record: Ownership | None,
    *,
    mode: Mode,
    version: str,
    boot_id: str,
    seq: int,
    sent: float,
) -> Report:
    """The whole of what the controller must know now.

    Args:
        snapshot: the node.
        wish: what is wanted of the scheduler.
        record: of a drain, as it is stored on this node.
        mode: of the node's own configuration.
        version: of ibmon.
        boot_id: of this boot; it must not be empty.
        seq: grows within a boot.
        sent: wall time.
    """
    rails = {port.id: port.rail for port in snapshot.ports}
    holds = sorted(_holds(snapshot), key=lambda hold: hold.left)
    return Report(
        v=1,
        node=snapshot.node,
        boot_id=boot_id,
        seq=seq,
        sent=sent,
        version=version[:_SHORT],
        config_hash=snapshot.config_hash,
        mode=mode,
        fitness=snapshot.fitness,
        why=snapshot.why[:_TEXT],
        rails=_letters(snapshot),
        holds=tuple(holds[:MOST]),
        findings=_findings(snapshot, rails),
        intent=wish,
        owned=Owned(record.id, record.reason[:_TEXT], record.asked, record.held) if record else None,
        maintenance=_maintenance(snapshot),
    )


def digest(told: Report) -> bytes:
    """What matters of a report: two that differ here are worth telling apart at once.

    Left out is what moves by itself: numbers, times, and texts that hold them.
    """
    window = told.maintenance
    kept = msgspec.structs.replace(
        told,
        seq=0,
        sent=0.0,
        why="",
        holds=tuple(sorted((Hold(h.rule, h.device, h.port, h.rail) for h in told.holds), key=str)),
        findings=tuple(sorted((msgspec.structs.replace(f, observed=None, limit=None) for f in told.findings), key=str)),
        # Its end is counted on the monotonic clock, so in wall time it wanders a little.
        maintenance=window and msgspec.structs.replace(window, until=float(round(window.until / 60))),
    )
    return msgspec.json.encode(kept)


def alike(one: Snapshot, other: Snapshot) -> bool:
    """Whether two pictures surely make the same report; quicker than making both."""
    return (
        one.ports is other.ports
        and one.findings is other.findings
        and one.fitness is other.fitness
        and one.drain == other.drain
        and one.maintenance is other.maintenance
        and one.config_hash == other.config_hash
        and one.mode is other.mode
    )


def _letters(snapshot: Snapshot) -> str:
    """The health of each compute port; those without a rail come last."""
    ports = [port for port in snapshot.ports if port.role is Role.COMPUTE]
    ports.sort(key=lambda port: (port.rail is None, port.rail or 0))
    return "".join(RAIL_LETTERS[port.health.value] for port in ports)[:_RAILS]


def _holds(snapshot: Snapshot) -> Iterator[Hold]:
    for port in snapshot.ports:
        for rule, left in port.hold.items():
            onset = port.onset.get(rule, snapshot.at.wall)
            yield Hold(rule, port.id.device, port.id.port, port.rail, onset=onset, left=left)


def _findings(snapshot: Snapshot, rails: Mapping[PortId, int | None]) -> tuple[FindingLine, ...]:
    guids = {view.device.name: view.device.node_guid for view in snapshot.devices}
    # A finding in a window, or on a port that nobody has confirmed, is told and asks for nothing.
    lines = [
        FindingLine(
            rule=f.rule,
            device=f.device,
            port=f.port,
            severity=f.severity,
            onset=f.onset,
            rail=rails.get(PortId(f.device, f.port)),
            guid=guids.get(f.device),
            observed=_value(f.observed),
            limit=_value(f.limit),
            drains=f.drains and f.trusted and not f.maintenance,
            recovering=f.recovering,
        )
        for f in snapshot.findings
    ]
    lines.sort(key=lambda line: (not line.drains, -line.severity.rank, line.onset))
    return tuple(lines[:MOST])


def _value(value: float | str | None) -> float | str | None:
    return value[:_VALUE] if isinstance(value, str) else value


def _maintenance(snapshot: Snapshot) -> Working | None:
    """The windows in force as one: a window over the whole node speaks for those over parts of it."""
    windows = [w for w in snapshot.maintenance if not w.subjects] or list(snapshot.maintenance)
    if not windows:
        return None
    last = max(windows, key=lambda window: window.left(snapshot.at, snapshot.boot_id))
    subjects = sorted({subject[:_SHORT] for window in windows for subject in window.subjects})
    until = snapshot.at.wall + last.left(snapshot.at, snapshot.boot_id)
    return Working(until, last.reason[:_TEXT], last.user[:_SHORT], tuple(subjects))
