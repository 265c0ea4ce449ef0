"""The one place that all scheduler writes pass: read, compare, gate, record, write, read back.

It decides nothing about health and keeps nothing in memory: what it must know later is in the store. In observe and
alert mode, and while a stop is in force, it cannot write.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from ibmon.config import LimitsConfig
from ibmon.drain import policy
from ibmon.messages import Drain, EffectDone, Observe, Release, SchedulerSaw
from ibmon.model import BlockCode, Intent, Mode, NodeFitness, NodeView, Now, Ownership
from ibmon.ports import Records, Scheduler, SchedulerError, StoreError, Teller

_Outcome = Literal["done", "gone", "blocked", "failed"]

LATE: Final = 300.0
"""Seconds for which a drain whose call failed is waited for: a scheduler that was stuck may still carry it out."""

NEVER: Final = 86400.0
"""Seconds after which such a drain is not looked for any more, and its record goes."""


class Gates(msgspec.Struct, frozen=True):
    """What may forbid a write; `mode` and `stop` are asked again right before each one.

    A daemon that must not act for another reason (the second one on a node) answers Mode.OBSERVE.
    """

    mode: Callable[[], Mode]
    stop: Callable[[], bool]
    limits: LimitsConfig

    def closed(self) -> BlockCode | None:
        """Why nothing may be written now, or None."""
        return policy.write_gate(self.mode(), stop=self.stop())


def stop_file_present(path: str) -> bool:
    """Whether the stop file stands. A file that cannot be looked for counts as one that stands."""
    try:
        os.stat(path)  # noqa: PTH116 - no Path object for each tick
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def carry_out(
    request: Drain | Release | Observe, scheduler: Scheduler, store: Records, gates: Gates, now: Now
) -> EffectDone | SchedulerSaw:
    """Do what the engine asked for, and nothing else."""
    if isinstance(request, Observe):
        return observe(scheduler)
    if isinstance(request, Drain):
        return drain(request.intent, scheduler, store, gates, now)
    if request.owned is None:
        return reclaim(scheduler, store, gates, now)
    return release(request.owned, scheduler, store, gates, now, by_person=bool(request.by))


def observe(scheduler: Scheduler) -> SchedulerSaw:
    """Read this node once; it writes nothing."""
    try:
        return SchedulerSaw(scheduler.read_node())
    except SchedulerError as error:
        return SchedulerSaw(None, str(error), unnamed=error.unnamed)


def drain(intent: Intent, scheduler: Scheduler, store: Records, gates: Gates, now: Now) -> EffectDone:
    """Drain this node as `intent` says, unless something forbids it or the drain stands already.

    Done means: read back at the scheduler, and still within the limits when counted again. The outcome carries the
    id of the drain that stands, which may be that of an older one of ours: a standing reason is never rewritten.
    `gone` means that this very drain was held and somebody has taken it away: that person is respected, so it is not
    made again, and the caller decides until when. The record says so until a drain with another id is asked for, so
    that the caller may be killed before it has saved what follows from it.
    The record is saved before the write. If it cannot be saved the drain goes on all the same (the intent remembers
    it), and every later call tries to save it; until that worked `release` refuses.
    """
    return _Drain(intent, scheduler, store, gates, now).run()


def release(
    owned: Ownership, scheduler: Scheduler, store: Records, gates: Gates, now: Now, *, by_person: bool = False
) -> EffectDone:
    """Give this node back if its drain is ours exactly as the stored record says and Slurm's state allows it.

    `gone` means that our drain does not stand any more, whoever took it away; the record is removed then. A drain
    with another reason, or one without a saved record, is left as it is. A drain that was asked for and never seen
    is `failed` for `LATE` seconds, as it may still arrive; then it is `gone` and `open`, and its record stays up to
    `NEVER`, since without it a drain that comes later yet would be nobody's. A person's word stands for a record that
    could not be saved.
    """
    return _Release(owned, scheduler, store, gates, now, by_person=by_person).run()


def publish(teller: Teller, fitness: NodeFitness, why: str, gates: Gates) -> bool:
    """Show the verdict at the scheduler, which people read; whether mode and stop let it through.

    SchedulerError where the scheduler did not take it.
    """
    if gates.stop() or gates.mode() is Mode.OBSERVE:
        return False
    teller.publish(fitness, why)
    return True


def reclaim(scheduler: Scheduler, store: Records, gates: Gates, now: Now) -> EffectDone:
    """Give this node back by a person's word, where a drain stands that has the form of ours and no record.

    Mode, stop and the node's state are asked as for every release; only the record is not.
    """
    return _Reclaim(Ownership(id="", reason="", asked=now.wall), scheduler, store, gates, now).run()


class _Call:
    """What both directions share: the ports, and how outcomes and failures are told."""

    effect: Literal["drain", "release"]

    def __init__(self, scheduler: Scheduler, store: Records, gates: Gates, effect_id: str) -> None:
        self._scheduler = scheduler
        self._store = store
        self._gates = gates
        self._id = effect_id
        self._view: NodeView | None = None
        self._unnamed = self._general = False
        self._notes: list[str] = []

    def _end(
        self, outcome: _Outcome, code: BlockCode | None = None, detail: str = "", *, still_open: bool = False
    ) -> EffectDone:
        text = "; ".join([*([detail] if detail else []), *self._notes])
        return EffectDone(
            self.effect, self._id, outcome, code, text, self._view,
            open=still_open, unnamed=self._unnamed, general=self._general,
        )  # fmt: skip

    def _unreachable(self, error: SchedulerError) -> EffectDone:
        """Not known: says nothing about the node, and will be tried again."""
        self._unnamed, self._general = error.unnamed, error.general
        code = BlockCode.FORBIDDEN if error.forbidden else BlockCode.SCHEDULER_UNREACHABLE
        return self._end("failed", code, str(error))

    def _read(self) -> NodeView:
        self._view = None
        self._view = self._scheduler.read_node()
        return self._view

    def _save(self, record: Ownership | None) -> bool:
        try:
            self._store.record(record)
        except StoreError as error:
            note = f"the record of the drain is not saved: {error}"
            if note not in self._notes:
                self._notes.append(note)
            return False
        return True

    def _try(self, write: Callable[[], None]) -> SchedulerError | None:
        """Write; a failed call may have been carried out all the same, so its error is only kept."""
        try:
            write()
        except SchedulerError as error:
            return error
        return None

    def _undone(self, error: SchedulerError | None, detail: str) -> EffectDone:
        """It was written, and is not to be seen."""
        self._general = error is not None and error.general
        return self._end("failed", BlockCode.SCHEDULER_UNREACHABLE, str(error or detail))


class _Drain(_Call):
    effect = "drain"

    def __init__(self, intent: Intent, scheduler: Scheduler, store: Records, gates: Gates, now: Now) -> None:
        super().__init__(scheduler, store, gates, intent.id)
        self._intent = intent
        self._now = now

    def run(self) -> EffectDone:
        if not self._intent.drain or policy.parse_reason(self._intent.reason) != self._intent.id:
            raise ValueError(f"not an intent to drain with a reason that carries its id: {self._intent}")
        if code := self._gates.closed():
            return self._end("blocked", code)
        record = self._recorded()
        try:
            view = self._read()
        except SchedulerError as error:
            return self._unreachable(error)
        if standing := self._ours(record, view):
            return self._settle(standing, saved=record == standing)
        known = record is not None and (record.held or record.gone)
        if known and record is not None and record.id == self._intent.id and not view.drained:
            self._save(msgspec.structs.replace(record, held=False, gone=True))
            return self._end("gone", detail="somebody gave the node back")
        if code := policy.node_gate(view, record, self._intent):
            return self._end("blocked", code, _obstacle(code, view))
        if blocked := self._limits(view):
            return blocked
        return self._write(record)

    def _recorded(self) -> Ownership | None:
        try:
            return self._store.ownership()
        except StoreError as error:
            self._notes.append(f"the record of the drain is not readable: {error}")
            return None

    def _ours(self, record: Ownership | None, view: NodeView) -> Ownership | None:
        """The record of the drain of ours that stands; by the intent alone when the record could not be saved.

        The intent's id and text were made by this node and are in no other place, so they prove as much.
        """
        if record is not None and policy.owns(record, view):
            return record
        asked = policy.intended(self._intent)
        return asked if policy.owns(asked, view) else None

    def _limits(self, view: NodeView) -> EffectDone | None:
        try:
            pools = self._scheduler.read_pools()
        except SchedulerError as error:
            return self._end("blocked", BlockCode.LIMIT_UNREADABLE, str(error))
        code = policy.limit_gate(pools, view.name, self._gates.limits, self._now.wall)
        return self._end("blocked", code) if code else None

    def _write(self, before: Ownership | None) -> EffectDone:
        asked = Ownership(id=self._intent.id, reason=self._intent.reason, asked=self._now.wall)
        saved = self._save(asked)
        if code := self._gates.closed():
            self._save(before)
            return self._end("blocked", code, "it closed while the drain was prepared")
        error = self._try(lambda: self._scheduler.drain(self._intent.reason))
        try:
            view = self._read()
        except SchedulerError as unread:
            return self._unreachable(error or unread)
        if policy.owns(asked, view):
            return self._settle(asked, saved=saved)
        if view.drained:
            if error is None:  # it was overwritten behind us; after an error ours may still arrive late
                self._save(None)
            why = _obstacle(BlockCode.FOREIGN_DRAIN, view)
            return self._end("blocked", BlockCode.FOREIGN_DRAIN, why, still_open=error is not None)
        if error is not None and error.forbidden:
            self._save(None)
            return self._end("blocked", BlockCode.FORBIDDEN, str(error))
        return self._undone(error, "the drain was taken but not made")

    def _settle(self, standing: Ownership, *, saved: bool) -> EffectDone:
        """Our drain stands: count again once after the write, then mark it as held.

        `held` is what tells that the count was done, so a kill in between only repeats the count.
        """
        self._id = standing.id
        if standing.held:
            return self._end("done")
        if not saved:
            saved = self._save(standing)
        name = self._view.name if self._view else ""
        try:
            over = policy.beyond_limit(self._scheduler.read_pools(), name, self._gates.limits)
        except SchedulerError as error:
            return self._end("done", detail=f"the limit could not be counted again: {error}")
        if over:
            return self._undo(standing, saved=saved)
        self._save(msgspec.structs.replace(standing, held=True, gone=False))
        return self._end("done")

    def _undo(self, standing: Ownership, *, saved: bool) -> EffectDone:
        """Take back a drain that went beyond the limit because nodes cannot see each other decide."""
        if not saved:
            return self._end("done", BlockCode.LIMIT_NODES, "beyond the limit, but a drain without a record stays")
        undone = _Release(standing, self._scheduler, self._store, self._gates, self._now).run()
        self._view = undone.view
        if undone.outcome == "gone":
            return self._end("blocked", BlockCode.LIMIT_NODES, "taken back: others drained in the same moment")
        return self._end("failed", BlockCode.LIMIT_NODES, f"beyond the limit and not taken back: {undone.detail}")


class _Release(_Call):
    effect = "release"

    def __init__(
        self,
        owned: Ownership,
        scheduler: Scheduler,
        store: Records,
        gates: Gates,
        now: Now,
        *,
        by_person: bool = False,
    ) -> None:
        super().__init__(scheduler, store, gates, owned.id)
        self._owned = owned
        self._now = now
        self._by_person = by_person

    def run(self) -> EffectDone:
        if code := self._gates.closed():
            return self._end("blocked", code)
        try:
            record = self._store.ownership()
        except StoreError as error:
            if not self._by_person:
                return self._end("failed", detail=f"nothing is given back without its record: {error}")
            record = None
        try:
            view = self._read()
        except SchedulerError as error:
            return self._unreachable(error)
        if not policy.owns(self._owned, view):
            return self._not_ours(view, record)
        recorded = record is not None and (record.id, record.reason) == (self._owned.id, self._owned.reason)
        if not recorded and not self._by_person:
            detail = "the store has no record of this drain, so it waits for a person: ibmon release"
            return self._end("blocked", BlockCode.FOREIGN_DRAIN, detail)
        if obstacle := policy.undrain_obstacle(view.flags):
            return self._end("blocked", BlockCode.SCHEDULER_STATE, obstacle)
        if code := self._gates.closed():
            return self._end("blocked", code)
        return self._write(record)

    def _write(self, record: Ownership | None = None) -> EffectDone:
        if record is not None and not self._by_person:
            # From here on the drain may go by our own doing, perhaps late: that is no person's resume, so not `held`.
            self._save(msgspec.structs.replace(record, held=False))
        error = self._try(self._scheduler.undrain)
        try:
            view = self._read()
        except SchedulerError as unread:
            return self._unreachable(error or unread)
        if not policy.owns(self._owned, view):
            return self._forget(view)
        if error is not None and error.forbidden:
            return self._end("blocked", BlockCode.FORBIDDEN, str(error))
        return self._undone(error, "the node was not given back")

    def _not_ours(self, view: NodeView, record: Ownership | None) -> EffectDone:
        if record is not None and policy.owns(record, view):
            return self._end("gone", detail=f"another drain of ours stands: {record.id}")
        age = self._now.wall - record.asked if record is not None and not (record.held or record.gone) else NEVER
        if 0 <= age < LATE:
            return self._end("failed", detail="a drain that was asked for may still arrive")
        if 0 <= age < NEVER:
            return self._end("gone", detail="a drain that was asked for has not come", still_open=True)
        return self._forget(view)

    def _forget(self, view: NodeView) -> EffectDone:
        """Our drain does not stand: remove its record and leave whatever stands there."""
        self._save(None)
        return self._end("gone", detail=_foreign(view) if view.drained else "")


class _Reclaim(_Release):
    def run(self) -> EffectDone:
        if code := self._gates.closed():
            return self._end("blocked", code)
        try:
            view = self._read()
        except SchedulerError as error:
            return self._unreachable(error)
        found = policy.parse_reason(view.reason)
        if not view.drained:
            return self._end("gone", detail="the node is not drained")
        if found is None or view.reason is None:
            return self._end("blocked", BlockCode.FOREIGN_DRAIN, _foreign(view))
        self._id, self._owned = found, Ownership(found, view.reason, asked=self._now.wall)
        if obstacle := policy.undrain_obstacle(view.flags):
            return self._end("blocked", BlockCode.SCHEDULER_STATE, obstacle)
        if code := self._gates.closed():
            return self._end("blocked", code)
        return self._write()


def _foreign(view: NodeView) -> str:
    who = f" by {view.user}" if view.user else ""
    return f"foreign: drained{who}: {view.reason or 'no reason given'}"


def _obstacle(code: BlockCode, view: NodeView) -> str:
    return _foreign(view) if code is BlockCode.FOREIGN_DRAIN else policy.drain_obstacle(view.flags) or ""
