"""The node's half of a drain that the fleet controller makes: from requests to reports, from replies to outcomes.

The counterpart of `reconcile`, which runs at the controller: nothing here writes to a scheduler. It owns the stored
record of the drain meanwhile, and holds to reconcile's order: a drain is asked for once its record is saved (or cannot
be), nothing is given back whose record is not stored, and a drain that somebody took away stays on record as `gone`
until the next is asked for, so that whoever begins after a kill respects that person.
Time is an argument. The engine's thread calls `submit` and `show`, one other thread all the rest.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import msgspec

from ibmon import reporting
from ibmon.drain.reconcile import Gates
from ibmon.messages import Drain, EffectDone, FleetWord, Release
from ibmon.model import BlockCode, Intent, Now, Ownership
from ibmon.ports import SchedulerError, Store, StoreError
from ibmon.report import Reply, Report, Wish
from ibmon.snapshot import Snapshot

PATIENCE: Final = 60.0
"""Seconds that a request stays out while the controller answers without saying anything about it."""

_GONE: Final = "somebody gave the node back"
_CODES: Final = {code.value: code for code in BlockCode}


class _Request(NamedTuple):
    """What the engine has asked for: since when (monotonic), and how many pictures had been shown by then."""

    what: Drain | Release
    since: float
    shown: int

    @property
    def effect(self) -> Literal["drain", "release"]:
        return "drain" if isinstance(self.what, Drain) else "release"

    @property
    def id(self) -> str:
        return self.what.intent.id if isinstance(self.what, Drain) else self.what.id


class Letter(NamedTuple):
    """A report with the snapshot it was made of."""

    report: Report
    snapshot: Snapshot


class Correspondence:
    """What this node asks of the fleet controller, and what it knows of the answers.

    Args:
        store: of the node; its record of a drain is written here and nowhere else.
        gates: the node's own mode and stop, asked for each report.
        version: of ibmon.
        boot_id: of this boot, not empty.
    """

    def __init__(self, store: Store, gates: Callable[[], Gates], *, version: str, boot_id: str) -> None:
        self._store = store
        self._gates = gates
        self._version = version
        self._boot_id = boot_id
        self._lock = threading.Lock()
        self._request: _Request | None = None
        self._asked: Intent | None = None  # the drain that was asked for last
        self._snapshot: Snapshot | None = None
        self._shown = 0
        self._told: EffectDone | None = None
        self._word = FleetWord()
        self._stored: Ownership | None = None
        self._leaving: tuple[str, int] | None = None  # the drain that is gone, and which picture will know
        # A record that cannot be read now makes the drain nobody's: the engine has begun without it as well.
        with contextlib.suppress(StoreError):
            self._stored = store.ownership()
        self._record = self._stored  # what it should say, which may wait for the disk

    @property
    def waiting(self) -> bool:
        """Whether an answer is waited for."""
        return self._request is not None

    # ------------------------------------------------------------------------------------- from the engine

    def submit(self, request: Drain | Release, now: Now) -> None:
        """Take a request in. Its outcome comes from one of the calls below, sooner or later."""
        with self._lock:
            self._request = _Request(request, now.monotonic, self._shown)
            self._told = None
            if isinstance(request, Drain):
                self._asked = request.intent

    def show(self, snapshot: Snapshot) -> bool:
        """Take the newest picture in; whether it may be worth a report."""
        with self._lock:
            before, self._snapshot = self._snapshot, snapshot
            self._shown += 1
            waits = self._request is not None and self._request.shown == self._shown - 1
        return before is None or waits or not reporting.alike(before, snapshot)

    # ------------------------------------------------------------------------------------- to the controller

    def letter(self, now: Now, seq: int) -> tuple[Letter | None, list[EffectDone]]:
        """The report to send now, and what came of a request that this node itself ends. No report: wait for `show`."""
        with self._lock:
            snapshot, request = self._snapshot, self._request
            behind = request is not None and request.shown == self._shown
        if snapshot is None or behind:
            return None, []
        self._forget(snapshot)
        ended = self._refuse(request, snapshot) if request else None
        told = self._tell(ended) if ended else []
        wish = self._wish(None if ended else request, snapshot)
        if wish.drain:
            self._remember(wish, now)
        self._save()
        stored = self._stored
        report = reporting.report(
            snapshot,
            wish,
            None if stored is None or stored.gone else stored,
            mode=self._gates().mode(),
            version=self._version,
            boot_id=self._boot_id,
            seq=seq,
            sent=now.wall,
        )
        return Letter(report, snapshot), told

    def answered(self, letter: Letter, reply: Reply, now: Now) -> list[EffectDone | FleetWord]:
        """What a reply means for the engine."""
        out: list[EffectDone | FleetWord] = []
        word = FleetWord(reply.stop, reply.mode)
        if word != self._word:
            self._word = word
            out.append(word)
        done = self._outcome(letter, reply)
        if done is not None:
            out.extend(self._tell(done))
        return [*out, *self.overdue(now)]

    def unanswered(self, error: SchedulerError) -> list[EffectDone]:
        """What it means that there was no reply: nothing, but for who waits for one."""
        request = self._request
        if request is None:
            return []
        code = BlockCode.FORBIDDEN if error.forbidden else BlockCode.SCHEDULER_UNREACHABLE
        return self._tell(EffectDone(request.effect, request.id, "failed", code=code, detail=str(error)))

    def overdue(self, now: Now) -> list[EffectDone]:
        """The end of a request about which the controller says nothing for too long."""
        request = self._request
        if request is None or now.monotonic - request.since < PATIENCE:
            return []
        detail = f"the controller has not decided within {PATIENCE:g} s"
        code = BlockCode.SCHEDULER_UNREACHABLE
        return self._tell(EffectDone(request.effect, request.id, "failed", code=code, detail=detail))

    # ------------------------------------------------------------------------------------- what is wished

    def _wish(self, request: _Request | None, snapshot: Snapshot) -> Wish:
        if self._gates().closed():
            return Wish()
        if request is not None and isinstance(request.what, Release):
            return Wish(id=request.id, by=request.what.by)
        intent = self._asked
        if intent is None or not self._asks(intent, snapshot) or self._is_gone(intent.id):
            return Wish()
        return Wish(drain=True, id=intent.id, reason=intent.reason, since=intent.since)

    def _asks(self, intent: Intent, snapshot: Snapshot) -> bool:
        return snapshot.drain.asks and snapshot.drain.intent.id == intent.id

    def _refuse(self, request: _Request, snapshot: Snapshot) -> EffectDone | None:
        """Why a request does not leave this node, or not any more."""
        if code := self._gates().closed():
            return EffectDone(request.effect, request.id, "blocked", code=code, open=self._is_recorded(request.id))
        if isinstance(request.what, Drain):
            if self._asks(request.what.intent, snapshot):
                return None
            detail = "it was not wanted any more before it was answered"
            return EffectDone("drain", request.id, "failed", detail=detail)
        owned = request.what.owned
        if owned is None:
            detail = "there is no record of a drain here; what stands without one is given back at the controller"
            return EffectDone("release", "", "blocked", code=BlockCode.FOREIGN_DRAIN, detail=f"{detail}: ibmon release")
        self._save()
        try:
            stored = self._store.ownership()
        except StoreError as error:
            detail = f"nothing is given back without its record: {error}"
            return EffectDone("release", request.id, "failed", detail=detail)
        if stored is None or (stored.id, stored.reason) != (owned.id, owned.reason):
            detail = "the store has no record of this drain, so it waits for a person: ibmon release"
            return EffectDone("release", request.id, "blocked", code=BlockCode.FOREIGN_DRAIN, detail=detail)
        if stored.gone:  # which the engine had not heard when it asked
            return EffectDone("release", request.id, "gone", detail=_GONE)
        return None

    # ------------------------------------------------------------------------------------- what is answered

    def _outcome(self, letter: Letter, reply: Reply) -> EffectDone | None:
        wish = letter.report.intent
        if wish.drain:
            return self._of_drain(wish, reply)
        if wish.id:
            return self._of_release(wish, reply)
        return self._of_record(reply, letter)

    def _of_drain(self, wish: Wish, reply: Reply) -> EffectDone | None:
        if reply.decision == "drained":
            self._hold()
            return EffectDone("drain", wish.id, "done")
        if reply.decision == "released":
            self._lose()
            return EffectDone("drain", wish.id, "gone", detail=_GONE)
        if reply.decision == "blocked":
            return _blocked("drain", wish.id, reply)
        return None

    def _of_release(self, wish: Wish, reply: Reply) -> EffectDone | None:
        if reply.decision == "released":
            self._leave()
            return EffectDone("release", wish.id, "gone")
        return _blocked("release", wish.id, reply) if reply.decision == "blocked" else None

    def _of_record(self, reply: Reply, letter: Letter) -> EffectDone | None:
        """Nothing was wished; the controller may still know what has become of the drain on record."""
        owned = letter.report.owned
        if owned is None or self._is_gone(owned.id):  # told already, and not on disk yet
            return None
        if reply.decision == "drained" and not owned.held:
            self._hold()
            return EffectDone("drain", owned.id, "done")
        if reply.decision == "released":
            if letter.snapshot.drain.intent.id == owned.id:
                self._lose()
                return EffectDone("drain", owned.id, "gone", detail=_GONE)
            self._leave()
            return EffectDone("release", owned.id, "gone", detail=_GONE)
        return None

    def _tell(self, done: EffectDone) -> list[EffectDone]:
        """The outcome, if the engine waits for it, or if it waits for nothing and this is news."""
        with self._lock:
            request = self._request
            if request is None:
                if done == self._told:
                    return []
            elif request.id != done.id:
                return []
            elif done.outcome == "gone":
                done = msgspec.structs.replace(done, effect=request.effect)
            elif request.effect != done.effect:
                return []
            self._request, self._told = None, done
            return [done]

    # ------------------------------------------------------------------------------------- the record

    def _is_recorded(self, drain_id: str) -> bool:
        return self._record is not None and self._record.id == drain_id

    def _is_gone(self, drain_id: str) -> bool:
        """Whether somebody took this drain away, which the engine may not know yet."""
        return self._record is not None and self._record.gone and self._is_recorded(drain_id)

    def _remember(self, wish: Wish, now: Now) -> None:
        """A drain is about to be asked for."""
        if not self._is_recorded(wish.id):
            self._record, self._leaving = Ownership(wish.id, wish.reason, now.wall), None

    def _hold(self) -> None:
        """It stands, as was read at the scheduler."""
        self._leaving = None
        if self._record is not None and not self._record.held:
            self._record = msgspec.structs.replace(self._record, held=True)
            self._save()

    def _lose(self) -> None:
        """Somebody has taken it away while it was wanted: on record before the engine hears of it."""
        self._leaving = None
        if self._record is not None:
            self._record = msgspec.structs.replace(self._record, held=False, gone=True)
            self._save()

    def _leave(self) -> None:
        """It was given back. Its record goes when the engine knows: a kill before that only asks once more."""
        snapshot = self._snapshot
        if self._record is None or snapshot is None:
            return
        # A picture that still owns it shows by not owning it any more that the engine was told. One that never did
        # shows nothing; the next may have been begun before the engine is told, the one after that is not.
        owned = snapshot.drain.owned
        shows = owned is not None and owned.id == self._record.id
        self._leaving = (self._record.id, snapshot.sequence + (1 if shows else 2))

    def _forget(self, snapshot: Snapshot) -> None:
        """Remove the record of a drain that is gone, once a picture shows that the engine has taken that in."""
        if self._leaving is None or snapshot.sequence < self._leaving[1]:
            return
        owned = snapshot.drain.owned
        if owned is not None and owned.id == self._leaving[0]:
            return
        self._record = self._leaving = None

    def _save(self) -> None:
        """Bring the store to what is known; where it fails the next report tries again."""
        if self._record == self._stored:
            return
        with contextlib.suppress(StoreError):
            self._store.record(self._record)
            self._stored = self._record


def _blocked(effect: Literal["drain", "release"], drain_id: str, reply: Reply) -> EffectDone:
    code = _CODES.get(reply.code, BlockCode.SCHEDULER_UNREACHABLE)
    detail = "" if reply.code in _CODES else f"the controller says {reply.code[:64] or 'nothing of why'}"
    return EffectDone(effect, drain_id, "blocked", code=code, detail=detail, open=effect == "drain")
