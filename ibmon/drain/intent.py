"""From findings to what is wanted of the scheduler, and when to ask again. Pure; the engine owns one `DrainDesk`.

Level, not edge: while a drain is wanted it is asked for again and again (every five minutes once it stands), and
`reconcile` finds out what is true. What it answers moves this desk; nothing here assumes that a request worked.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import msgspec

from ibmon.config import ActionConfig
from ibmon.drain import policy
from ibmon.drain.orphan import Orphan, OrphanWatch
from ibmon.drain.pace import RECHECK_SECONDS, retry, spread
from ibmon.health.counts import span
from ibmon.health.windows import Moment
from ibmon.messages import Answer, Drain, EffectDone, Observe, Person, Release, SchedulerSaw
from ibmon.model import BlockCode, Finding, Intent, Mode, NodeFitness, NodeView, Now, Ownership, PersonRelease

OVERRIDE_ALERT = 3600.0
"""Seconds after which people are told that a node which somebody resumed is still unfit."""

MAX_DRAINS = 16
LOST_STATE_QUIET = 600.0
"""Seconds of a fit node before a drain is given back whose findings were lost with the state."""


_UNSEEN = frozenset({"none", "controller"})
"""Values of `action.scheduler` with which this node reads no scheduler itself."""


class Override(msgspec.Struct, frozen=True, array_like=True):
    """An operator resumed the node while it was bad: no drain for the same subjects until it ends."""

    monotonic: float
    boot_id: str
    subjects: tuple[str, ...]
    wall: float = 0.0


class DrainMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored of the desk (ownership has a row of its own in the store).

    `unseen` is whether an earlier record may have been lost, and nobody has looked at the scheduler since.
    """

    intent: Intent | None = None
    subjects: tuple[str, ...] = ()
    would: int = 0
    override: Override | None = None
    drains: tuple[Moment, ...] = ()
    orphan: Orphan | None = None
    unseen: bool = False


class DrainDesk:
    """What this node wants of its scheduler, what it owns there, and why nothing is done now.

    Attributes:
        orphans: drains in our words that are not ours by any record.
        unnamed: since when (wall time) and how the scheduler does not know this host by exactly one name.
    """

    def __init__(self, node: str, boot_id: str, memory: DrainMemory, owned: Ownership | None, now: Now) -> None:
        self.node = node
        self.boot_id = boot_id
        self.intent = memory.intent
        self.subjects = memory.subjects
        self.would = memory.would
        self.drains = memory.drains
        self.sticky = False  # a person must clear the node before it is given back
        self.override = memory.override if memory.override and memory.override.boot_id == boot_id else None
        self.owned = None if owned is None or owned.gone else owned
        self.orphans = OrphanWatch(node, memory.orphan, unseen=memory.unseen)
        self.unnamed: tuple[float, str] | None = None
        self.blocked: BlockCode | None = None
        self.asks = False  # the drain is wanted, and nothing on this node's side bars it
        self.errors: dict[str, int] = {}
        self.asked: PersonRelease | None = None  # the newest that a person wanted back, and what came of it
        self._busy = False
        self._out = ""  # which effect is out while busy
        self._barred = False  # whether `blocked` is this desk's own word
        self._asked: Intent | None = None  # the drain that was asked for last
        self._hoped = False  # the override rests on a person's request that has not been done yet
        self._serving = False  # what is out was asked for by a person
        self._waiting = False  # a request is due but for its time
        self._grace = False
        self._jitter = 0.0
        self._tries = 0
        self._next_try = -math.inf
        self._quiet: float | None = None  # seconds still to be fit before a drain without findings is given back
        self._quiet_until = math.inf
        self._fit_since: float | None = None
        self._long_at = math.inf  # when people are to be told of the override
        if self.owned is not None and memory.intent is None:
            self._quiet = LOST_STATE_QUIET
        if owned is not None and owned.gone and self.intent is not None and owned.id == self.intent.id:
            self._respect(self.intent, now)  # it was killed before this was saved

    def memory(self) -> DrainMemory:
        """What must outlive the process."""
        return DrainMemory(
            self.intent,
            self.subjects,
            self.would,
            self.override,
            self.drains,
            self.orphans.orphan,
            self.orphans.unseen,
        )

    # ------------------------------------------------------------------------------------- deciding

    def decide(
        self,
        findings: Sequence[Finding],
        fitness: NodeFitness,
        action: ActionConfig,
        now: Now,
        *,
        stopped: bool,
        enabled: bool,
        maintenance: bool = False,
        grace: bool = False,
        holding: bool = False,
        jitter: float = 0.0,
    ) -> list[Drain | Release | Observe]:
        """The requests to make now, if any.

        `enabled` is False where another daemon acts for this node. `maintenance` is whether somebody works on any
        part of it: findings in a window begin no drain, and nothing is given back meanwhile but by a person. `grace`
        is whether the host has only just booted: a fault of before the boot begins no drain yet. `holding` is whether
        something is wrong that drains if it lasts: giving back meanwhile would only be taken back. `jitter` are the
        seconds over which the first call for a new drain is spread among nodes.
        """
        mode = action.mode if enabled else Mode.OBSERVE
        self._grace, self._jitter = grace, jitter
        requests = self._requests(
            findings, fitness, action, mode, now, stopped=stopped, maintenance=maintenance, holding=holding
        )
        told = self.override is None or self.long_overridden(now.monotonic)
        self._long_at = math.inf if told or self.override is None else self.override.monotonic + OVERRIDE_ALERT
        asks = mode is Mode.DRAIN and action.scheduler not in _UNSEEN and not stopped
        return [*requests, *self.orphans.look(now, allowed=asks and not self._busy)]

    def _requests(
        self,
        findings: Sequence[Finding],
        fitness: NodeFitness,
        action: ActionConfig,
        mode: Mode,
        now: Now,
        *,
        stopped: bool,
        maintenance: bool,
        holding: bool,
    ) -> list[Drain | Release]:
        capable = [f for f in findings if f.drains]
        due = [f for f in capable if f.trusted]
        outside = [f for f in due if not f.maintenance]
        working = bool(due) and not outside
        if not working:
            self._want(outside, mode, now)
        self._waiting = self.asks = False
        self._quiet_until = math.inf
        if self.asked is not None and self.asked.outcome is None and not self._busy:
            return self._ask(Release(self.owned, self.asked.user), now, by_person=True)
        if working:
            self._bar(BlockCode.MAINTENANCE)
            return []
        if self.intent is not None:
            barred = self._obstacle(mode, action, now, stopped=stopped)
            if barred is not None or self._barred:
                self._bar(barred)
            self.asks = barred is None
            return self._ask(Drain(self.intent), now) if self.asks else []
        self._bar(BlockCode.INVENTORY_UNCONFIRMED if capable else None)
        may_release = (
            self.owned is not None
            and action.auto_release
            and mode is Mode.DRAIN
            and not stopped
            and not maintenance
            and not self.sticky
            and not capable
            and not holding
            and self._quiet_over(fitness, now)
        )
        return self._ask(Release(self.owned), now) if may_release and self.owned is not None else []

    def _want(self, due: Sequence[Finding], mode: Mode, now: Now) -> None:
        """Begin or end to want a drain. The text is written once and never updated while it is wanted."""
        if not due:
            if self.intent is not None:
                self._reset()
            self.intent, self.subjects, self.override = None, (), None
            return
        self.subjects = tuple(sorted({f"{f.rule} {f.subject}" for f in due}))
        if self.intent is not None:
            return
        if self.owned is not None:
            self.intent = Intent(True, self.owned.id, self.owned.reason, self.owned.asked)  # noqa: FBT003
        else:
            seed = f"{self.node}|{self.boot_id}|{now.wall:.3f}|{self.would}"
            mark = _mark(seed)
            self.intent = Intent(drain=True, id=mark, reason=policy.reason_text(due, mark), since=now.wall)
            if mode is not Mode.DRAIN:
                self.would += 1
        self._reset()
        if self.owned is None and self._jitter > 0:
            self._next_try = now.monotonic + self._jitter * spread(f"{self.node}{self.intent.id}", 1.0) / 2

    def _bar(self, code: BlockCode | None) -> None:
        """Say why this node's own side asks for nothing; None where it has no reason, or no more."""
        self.blocked, self._barred = code, code is not None

    def _obstacle(self, mode: Mode, action: ActionConfig, now: Now, *, stopped: bool) -> BlockCode | None:
        """Why nothing is asked of the scheduler at all; None where the scheduler's side decides."""
        if stopped:
            return BlockCode.STOP
        if mode is not Mode.DRAIN:
            return BlockCode.MODE
        if self.override is not None:
            worse = not set(self.subjects) <= set(self.override.subjects)
            over = now.monotonic >= self.override.monotonic + action.override_ttl
            if not worse and not over:
                return BlockCode.OVERRIDE
            self.override = None
            self._reset()
        if self._grace and (self.owned is None or not self.owned.held):
            return BlockCode.BOOT_GRACE
        return None

    def _quiet_over(self, fitness: NodeFitness, now: Now) -> bool:
        """Whether the node is seen to be well, and long enough where its findings were lost with the state."""
        if fitness not in (NodeFitness.FIT, NodeFitness.WATCH):
            self._fit_since = None
            return False
        if self._quiet is None:
            return True
        if self._fit_since is None:
            self._fit_since = now.monotonic
        # Compared with the very sum that `next_due` tells: a difference may be rounded to less.
        until = self._fit_since + self._quiet
        if now.monotonic >= until:
            return True
        self._quiet_until = until
        return False

    def _ask(self, request: Drain | Release, now: Now, *, by_person: bool = False) -> list[Drain | Release]:
        if self._busy:
            return []
        self._waiting = now.monotonic < self._next_try and not by_person
        self._serving = by_person
        self._busy = not self._waiting
        self._out = "drain" if isinstance(request, Drain) else "release"
        if isinstance(request, Drain):
            self._asked = request.intent
        return [] if self._waiting else [request]

    # ------------------------------------------------------------------------------------- a person's release

    def give_back(self, person: Person, action: ActionConfig, now: Now, *, stopped: bool, enabled: bool) -> Answer:
        """A person wants the node back although findings may stand; the request is made at the next `decide`."""
        done, text = self._may_give_back(action, stopped=stopped, enabled=enabled)
        if done and not person.dry_run:
            self.asked = PersonRelease(person.user, now.wall)
            if self.intent is not None and self.override is None:
                # Saved before the request leaves, so that no kill makes us forget who asked.
                self.override, self._hoped = self._override(now), True
        return Answer(person.ticket, done=done, text=text)

    def _may_give_back(self, action: ActionConfig, *, stopped: bool, enabled: bool) -> tuple[bool, str]:
        if not enabled:
            return False, "another daemon acts for this node; ask that one"
        if stopped:
            return False, f"a stop is in force: nothing is written to the scheduler while {action.stop_file} is there"
        if action.mode is not Mode.DRAIN:
            mode = action.mode.value
            return False, f"action.mode is {mode}: ibmon writes nothing to the scheduler; give it back there"
        if self.owned is None:
            what = "no drain of this node is on record; one that stands in ibmon's words is given back"
        else:
            what = f"giving back: {self.owned.reason}"
        if self.intent is None:
            return True, what
        if action.override_ttl <= 0:
            return True, f"{what}; action.override_ttl is 0s, so it is drained again while its findings stand"
        return True, f"{what}; its findings stand, and are not acted on for {span(action.override_ttl)}"

    # ------------------------------------------------------------------------------------- what came of it

    def done(self, event: EffectDone, now: Now) -> None:
        """Take in how a request ended, or what has become of a drain meanwhile: the fleet controller tells unasked."""
        by_person = False
        if event.effect == self._out:
            by_person, self._serving = self._serving, False
            self._busy, self._out = False, ""
        self._barred = False
        if by_person and self.asked is not None:
            self.asked = msgspec.structs.replace(
                self.asked, outcome=event.outcome, code=event.code, detail=event.detail
            )
            if self._hoped and event.outcome != "gone":
                self.override = None  # it stands, so there is nothing to respect yet
            self._hoped = False
        if event.code is not None and event.outcome != "done":
            self.errors[event.code.value] = self.errors.get(event.code.value, 0) + 1
        asked = self._asked if self._asked is not None and self._asked.id == event.id else None
        if (event.outcome == "failed" or event.open) and self.owned is None and asked is not None:
            # It may still arrive: until it is known not to, it is ours to give back.
            self.owned = Ownership(event.id, asked.reason, now.wall)
        if event.outcome == "failed":
            self._tries += 1
            self._next_try = now.monotonic + retry(f"{self.node}{event.id}", self._tries)
            self.blocked = event.code or BlockCode.SCHEDULER_UNREACHABLE
        elif event.outcome == "blocked":
            self._tries += 1
            wait = RECHECK_SECONDS * spread(f"{self.node}{event.id}{self._tries}")
            self._next_try = now.monotonic + wait
            self.blocked = event.code
        elif event.effect == "release" or event.outcome == "gone":
            if event.open:
                self.orphans.lapse(self.owned, now)
            self._gone(now, respect=event.effect == "drain" or by_person)
        else:
            self._held(event, now)
        self._know(event, now, ours=event.outcome == "done")

    def saw(self, event: SchedulerSaw, now: Now) -> bool:
        """Take in what a look has read; whether it is the first of a row that failed."""
        first = event.view is None and not self.orphans.failing
        self.orphans.looked(event, now)
        self._know(event, now, ours=False)
        return first

    def _know(self, event: EffectDone | SchedulerSaw, now: Now, *, ours: bool) -> None:
        """What a read tells beside its purpose: a drain that nobody remembers, and whether we have a name there."""
        if event.unnamed:
            self.unnamed = self.unnamed or (now.wall, event.detail)
        if event.view is not None:
            self.unnamed = None
            if self.owned is None and policy.owns(self.orphans.lapsed, event.view):
                self.owned, self.orphans.lapsed = self.orphans.lapsed, None
            self.orphans.seen(event.view, now, ours=ours or self._ours(event.view))

    def _ours(self, view: NodeView) -> bool:
        asked = None if self.intent is None else policy.intended(self.intent)
        return policy.owns(self.owned, view) or policy.owns(asked, view)

    def _held(self, event: EffectDone, now: Now) -> None:
        self._tries = 0
        self.blocked = None
        self._next_try = now.monotonic + RECHECK_SECONDS * spread(f"{self.node}{event.id}{now.monotonic:.0f}")
        if self.intent is None:
            self._reset()
        reason = self._reason_of(event)
        if reason is not None:
            if self.owned is None or not self.owned.held:
                self.drains = (*self.drains, Moment(now.monotonic, now.wall, self.boot_id))[-MAX_DRAINS:]
            asked = self.owned.asked if self.owned else now.wall
            self.owned = Ownership(event.id, reason, asked, held=True)

    def _reason_of(self, event: EffectDone) -> str | None:
        """The text of the drain that stands: what was asked for, or an older one of ours that the store remembered."""
        for known in (self.intent, self._asked, self.owned):
            if known is not None and known.id == event.id:
                return known.reason
        return None if event.view is None else policy.bare_reason(event.view.reason or "")

    def forgive(self) -> None:
        """A person has cleared the node: what was counted against it is forgotten."""
        self.drains = ()
        self.sticky = False

    def _gone(self, now: Now, *, respect: bool) -> None:
        """The drain is not there any more: given back, or taken away by somebody while it was still due (`respect`)."""
        self.owned = None
        self._quiet = None
        self._reset()
        if respect and self.intent is not None:
            self._respect(self.intent, now)

    def _respect(self, intent: Intent, now: Now) -> None:
        """No drain for what is known, until the override ends; the one after that gets an id of its own."""
        self.override = self._override(now)
        self._bar(BlockCode.OVERRIDE)
        mark = _mark(f"{self.node}|{self.boot_id}|{now.wall:.3f}|{intent.id}")
        reason = intent.reason.replace(f"[id {intent.id}]", f"[id {mark}]")
        self.intent = msgspec.structs.replace(intent, id=mark, reason=reason)

    def _override(self, now: Now) -> Override:
        return Override(now.monotonic, self.boot_id, self.subjects, now.wall)

    def long_overridden(self, monotonic: float) -> bool:
        """Whether the node has been left as an operator resumed it for so long that people are told."""
        return self.override is not None and monotonic >= self.override.monotonic + OVERRIDE_ALERT

    def _reset(self) -> None:
        self._tries = 0
        self._next_try = -math.inf

    def next_due(self, action: ActionConfig) -> float:
        """Monotonic time at which `decide` would ask for or tell something that it does not now, or infinity."""
        times = [self._long_at, self._quiet_until, self.orphans.next_due()]
        if self._waiting:
            times.append(self._next_try)
        elif self.blocked is BlockCode.OVERRIDE and self.override is not None:
            times.append(self.override.monotonic + action.override_ttl)
        return min(times)


def _mark(seed: str) -> str:
    """The id of a drain."""
    return hashlib.sha256(seed.encode()).hexdigest()[:6]
