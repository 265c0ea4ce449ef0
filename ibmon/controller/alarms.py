"""Drains that alerts of a Prometheus ask for. They rest on the ledger, since no node has a record of them.

An alert that ends gives nothing back: that takes a later report that says fit, or a person.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

import msgspec

from ibmon.controller.cases import Case
from ibmon.controller.fabric import ALERT, FabricDesk, Shown, alert_sign
from ibmon.controller.ledger import AlertDrain, Book
from ibmon.controller.room import Room
from ibmon.controller.values import AlertSeen, Note
from ibmon.drain import policy
from ibmon.model import Finding, NodeFitness, Now, Ownership, Severity
from ibmon.report import Report

MOST_NODES: Final = 10_000
"""Nodes with a drain that an alert asks for, at most: before the scheduler was read, any name may be one."""

MOST_ALERTS: Final = 1000
"""Alerts that fire on one node at most; more than these change nothing."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")


class AlarmDesk:
    """The cases that alerts have opened, in step with the ledger.

    Args:
        drain_on: names of the alerts that may drain.
    """

    def __init__(self, drain_on: tuple[str, ...], book: Book, fabric: FabricDesk, now: Now) -> None:
        self._drain_on = frozenset(drain_on)
        self._book, self._fabric = book, fabric
        self.cases = {node: _case_of(entry, now) for node, entry in book.alerts.items()}
        self._refused: set[str] = set()

    # ------------------------------------------------------------------------------------- alerts

    def seen(self, alert: AlertSeen, room: Room, fleet: int, now: Now) -> Note | None:
        """Take in one alert; returns what is worth a line in the audit log."""
        if alert.name not in self._drain_on:
            return None
        entry = self._book.alerts.get(alert.node)
        if not alert.firing:
            return self._ended(alert, entry, now) if entry is not None else None
        if not _NAME.fullmatch(alert.node) or (room.seq and alert.node not in room.nodes):
            return self._once("alert-unknown-node", alert.node, alert.name)
        if entry is None and len(self._book.alerts) >= MOST_NODES:
            return self._once("alerts-too-many", alert.node, alert.name)
        if entry is not None and entry.firing.get(alert.fingerprint, -1.0) >= alert.starts:
            return None  # told again, or an older one that comes late
        if entry is not None and alert.fingerprint not in entry.firing and len(entry.firing) >= MOST_ALERTS:
            return None
        if entry is None or entry.respected:
            self._open(alert, entry, now)
            note = Note("info", "alert-drain", self._fields(alert.node, alert=alert.name))
        else:
            firing = {**entry.firing, alert.fingerprint: alert.starts}
            self._write(msgspec.structs.replace(entry, firing=firing, resolved=None))
            case = self.cases[alert.node]
            case.wants, case.giving = True, False
            note = Note("info", "alert-firing", self._fields(alert.node, alert=alert.name))
        self._show(alert.node, room, fleet, now)
        return note

    def _open(self, alert: AlertSeen, before: AlertDrain | None, now: Now) -> None:
        seed = f"{alert.node}|{alert.name}|{alert.fingerprint}|{alert.starts}|{now.wall:.3f}"
        mark = hashlib.sha256(seed.encode()).hexdigest()[:6]
        cause = Finding(
            alert.name, alert.node, 0, "", Severity.CRITICAL, alert.starts, None, None, alert.summary, drains=True
        )
        firing = {**(before.firing if before else {}), alert.fingerprint: alert.starts}
        entry = AlertDrain(
            node=alert.node,
            alert=alert.name,
            id=mark,
            reason=policy.reason_text([cause], mark),
            since=now.wall,
            firing=firing,
        )
        self._write(entry)
        self.cases[alert.node] = _case_of(entry, now)

    def _ended(self, alert: AlertSeen, entry: AlertDrain, now: Now) -> Note | None:
        if entry.firing.get(alert.fingerprint, alert.starts + 1.0) > alert.starts:
            return None  # not one of these, or it fires anew
        firing = {mark: at for mark, at in entry.firing.items() if mark != alert.fingerprint}
        fields = self._fields(alert.node, alert=alert.name)
        if firing:
            self._write(msgspec.structs.replace(entry, firing=firing))
        elif entry.respected or not entry.asked:
            self.drop(alert.node, now)  # nothing of it stands
        else:
            self._write(msgspec.structs.replace(entry, firing={}, resolved=now.wall))
            self.cases[alert.node].wants = False
            self._fabric.forget((alert.node, ALERT), now)
        return Note("info", "alert-resolved", fields)

    def _once(self, event: str, node: str, alert: str) -> Note | None:
        if node in self._refused or len(self._refused) >= 1000:
            return None
        self._refused.add(node)
        return Note("warning", event, {"node": node, "alert": alert})

    # ------------------------------------------------------------------------------------- what came of it

    def heard(self, report: Report, now: Now) -> None:
        """A node has reported: if its alerts are over and it has said fit since, it is to be given back."""
        entry = self._book.alerts.get(report.node)
        if entry is None:
            return
        if entry.resolved is not None and entry.resolved > now.wall:  # the clock was set back meanwhile
            entry = msgspec.structs.replace(entry, resolved=now.wall)
            self._write(entry)
        later = entry.resolved is not None and min(report.sent, now.wall) > entry.resolved
        self.cases[report.node].giving = later and report.fitness is NodeFitness.FIT

    def asking(self, case: Case, now: Now) -> None:
        """The scheduler is about to be asked for this drain: that is in the ledger before it is done."""
        entry = msgspec.structs.replace(self._book.alerts[case.node], asked=now.wall)
        self._write(entry)
        case.record = _record(entry)

    def settle(self, case: Case, now: Now) -> None:
        """Write down what was learned of a case, and close it when nothing of it is left."""
        entry = self._book.alerts.get(case.node)
        if entry is None or entry.id != case.id:
            return
        if case.over():
            self.drop(case.node, now)
        elif (entry.held, entry.respected) != (case.held, case.gone):
            entry = msgspec.structs.replace(entry, held=case.held, respected=case.gone)
            self._write(entry)
            case.record = _record(entry)

    def strangers(self, room: Room, now: Now) -> list[Note]:
        """Close the cases of nodes that the scheduler turns out not to have, where nothing was asked for yet."""
        entries = self._book.alerts.values() if room.nodes else ()
        gone = [entry.node for entry in entries if not entry.asked and entry.node not in room.nodes]
        notes = [Note("warning", "alert-unknown-node", self._fields(node)) for node in gone]
        for node in gone:
            self.drop(node, now)
        return notes

    def show(self, room: Room, fleet: int, now: Now) -> None:
        """Tell the fabric desk of all alerts that fire: what the ledger holds after a start, or with a new topology."""
        for node in self.cases:
            self._show(node, room, fleet, now)

    def _show(self, node: str, room: Room, fleet: int, now: Now) -> None:
        entry = self._book.alerts[node]
        signs = {alert_sign(entry.alert): Shown(max(entry.firing.values()), recovering=False)} if entry.firing else {}
        self._fabric.show((node, ALERT), room.groups.get(node, ""), signs, now, ahead=0.0, fleet=fleet)

    def drop(self, node: str, now: Now) -> None:
        """Forget a case."""
        self.cases.pop(node, None)
        self._fabric.forget((node, ALERT), now)
        if self._book.alerts.pop(node, None) is not None:
            self._book.touch()

    def _write(self, entry: AlertDrain) -> None:
        self._book.alerts[entry.node] = entry
        self._book.touch()

    def _fields(self, node: str, **more: str) -> dict[str, str]:
        entry = self._book.alerts.get(node)
        return {"node": node, **more, **({"id": entry.id, "reason": entry.reason} if entry else {})}


def _case_of(entry: AlertDrain, now: Now) -> Case:
    case = Case("alertmanager", entry.node, entry.id, entry.reason, entry.since, now)
    case.wants, case.held, case.gone = bool(entry.firing), entry.held, entry.respected
    case.record = _record(entry)
    return case


def _record(entry: AlertDrain) -> Ownership:
    return Ownership(entry.id, entry.reason, entry.asked, entry.held)
