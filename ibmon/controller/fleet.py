"""The fleet's state machine: reports, alerts, people and the scheduler go in; replies, jobs and notes come out. Pure.

One thread owns it. It holds no truth: that a node is drained the scheduler knows, that it is unfit the node does. What
must outlive the process is in the ledger, and little enough is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, Literal

from ibmon.controller.alarms import AlarmDesk
from ibmon.controller.bars import CODES, Bar, Bars
from ibmon.controller.blame import Blame
from ibmon.controller.cases import LIMIT_CODES, Case
from ibmon.controller.docket import Docket
from ibmon.controller.fabric import REPORT, FabricDesk, signs_of
from ibmon.controller.ledger import Book, Ledger
from ibmon.controller.line import Line
from ibmon.controller.notebook import UNKNOWN, Notebook
from ibmon.controller.orphans import OrphanDesk
from ibmon.controller.people import PeopleDesk, standing
from ibmon.controller.room import FRESH, Room
from ibmon.controller.roster import Known, Roster
from ibmon.controller.values import (
    AlertSeen,
    Ask,
    Counts,
    DrainJob,
    Fleet,
    FleetSettings,
    FleetView,
    Job,
    NodeRow,
    Note,
    Outcome,
    Refused,
    ReleaseJob,
    Told,
)
from ibmon.controller.views import Viewer
from ibmon.drain import policy
from ibmon.model import BlockCode, Mode, Now
from ibmon.report import Decision, Reply, Report

PAUSE: Final = 30.0
"""Seconds without another call to the scheduler that is in trouble itself, unless a view of it comes before."""

_BACK_AT_ONCE: Final = frozenset({BlockCode.SCHEDULER_UNREACHABLE, BlockCode.FORBIDDEN})


class FleetDesk:
    """The fleet side. The runtime saves the ledger while `changed`, before it answers or carries out a job.

    After anything was given in it asks for `next_job` until that says None or a job is out, and again at `next_due`.
    Alerts and requests of people belong to the leader; an instance that does not lead takes reports and decides
    nothing.

    Args:
        settings: the configuration.
        ledger: what was saved last, or an empty one.
        now: the start of this process.
        leader: whether this instance decides from the start.
    """

    def __init__(self, settings: FleetSettings, ledger: Ledger, now: Now, *, leader: bool = True) -> None:
        self._book = Book(ledger)
        self._roster = Roster(ledger.seen, settings.quorum, now)
        self._fabric = FabricDesk(settings.fabric_hold)
        self._room = Room(settings.limits)
        self._bars = Bars(settings, self._book, self._roster, self._fabric, self._room)
        self._bars.leader = leader
        self._alarms = AlarmDesk(settings.drain_on, self._book, self._fabric, now)
        self._notebook = Notebook()
        self._people = PeopleDesk(self._book, self._roster, self._room, self._bars, self._notebook)
        self._orphans = OrphanDesk(self._book, self._roster, self._room, self._notebook)
        self._docket = Docket(self._book, self._room, self._notebook)
        self._line = Line()
        self._blame = Blame()
        self._out: tuple[Job, Case] | None = None
        self._decisions: Counter[tuple[str, str]] = Counter()
        self._window_due = self._book.first_end(now)
        self._silenced: set[str] = set()
        self._viewer = Viewer(self._book, self._roster, self._fabric, self._room, self._bars, self._orphans.found)

    # ------------------------------------------------------------------------------------- for the runtime

    @property
    def changed(self) -> bool:
        """Whether the ledger holds what is not saved yet."""
        return self._book.changed

    def ledger_bytes(self) -> bytes:
        """The ledger as it is to be saved."""
        return self._book.to_bytes(self._roster.seen)

    @property
    def revision(self) -> int:
        """Grows with each change of the ledger."""
        return self._book.revision

    def saved(self, revision: int) -> None:
        """What `ledger_bytes` gave at this revision is saved."""
        self._book.saved(revision)

    @property
    def stopped(self) -> bool:
        """Whether a stop is in force, or this instance does not lead: no scheduler is written to.

        Another thread may ask right before it writes.
        """
        return self._book.stop is not None or not self._bars.leader

    def mode_of(self, node: str) -> Mode:
        """How far the controller goes with a node. Another thread may ask."""
        return self._bars.mode_of(node)

    def notes(self) -> list[Note]:
        """Lines for the audit log since the last call."""
        return self._notebook.take()

    def silenced(self) -> frozenset[str]:
        """Nodes that went silent since the last call: what they said last holds no more."""
        silenced, self._silenced = frozenset(self._silenced), set()
        return silenced

    def next_due(self) -> float:
        """Earliest monotonic time at which anything changes without input, or infinity."""
        waits = self._out is not None or self.stopped
        return self._due() if waits else min(self._due(), self._line.wake)

    # ------------------------------------------------------------------------------------- reports

    def report(self, report: Report, now: Now) -> Reply | Refused:
        """Take in an authenticated report, and answer what is known of the node's wish."""
        node = report.node
        refused = self._roster.refusal(report, now)
        if refused is not None:
            self._notebook.refused(node, refused)
            return refused
        before, was_missing = self._roster.take(report, now)
        self._silenced.discard(node)
        if was_missing:
            self._notebook.tell("info", "node-back", node=node)
        self._notebook.accepted(node)
        if self._room.seq and node not in self._room.nodes:
            self._notebook.once(node, UNKNOWN, "warning", "node-unknown-at-scheduler", wants=report.intent.drain)
        self._signs(report, before, now)
        if node in self._alarms.cases:
            self._alarms.heard(report, now)
            self._weigh(self._alarms.cases[node], now)
        case = self._docket.take(report, now, known=before is not None)
        if case is not None and node != self._busy:
            case.witness(self._room, now)
        if node in self._room.claimed and node != self._busy:
            self._orphans.judge(node)
        if now.monotonic >= self._due() or self._fabric.news:
            self._turn(now)
        decision, code = self._weigh(case, now) if case is not None else ("none", "")
        return Reply(decision, code, self._book.stop is not None, self._bars.mode_of(node))

    def _signs(self, report: Report, before: Known | None, now: Now) -> None:
        old = before.report if before is not None else None
        if not (report.findings or report.holds or (old is not None and (old.findings or old.holds))):
            return
        node, working = report.node, report.maintenance
        away = (working is not None and not working.subjects) or self._book.window_of(node, now) is not None
        signs = {} if away else signs_of(report)
        group, ahead = self._room.groups.get(node, ""), report.sent - now.wall
        self._fabric.show((node, REPORT), group, signs, now, ahead=ahead, fleet=len(self._roster.seen))

    # ------------------------------------------------------------------------------------- alerts and people

    def alert(self, alert: AlertSeen, now: Now) -> None:
        """Take in an alert of an Alertmanager; only names in `drain_on` matter."""
        note = self._alarms.seen(alert, self._room, len(self._roster.seen), now)
        if note is not None:
            self._notebook.add(note)
        self._turn(now)
        if alert.node in self._alarms.cases:
            self._weigh(self._alarms.cases[alert.node], now)

    def ask(self, ask: Ask, now: Now) -> Told:
        """Do what an operator asks, or say why not."""
        self._turn(now)
        drains = standing(self._owned(), self._orphans.found.values())
        told = self._people.ask(ask, drains, standing((), self._orphans.unheard().values()), now)
        self._window_due = self._book.first_end(now)
        if ask.action == "start":
            for case in self._all():
                case.again()
        self._orphans.assign(self._cases_of, self._busy, now)
        self._look(now)
        return told

    def _owned(self) -> Iterator[Case]:
        yield from self._docket.cases.values()
        yield from self._alarms.cases.values()

    def _all(self) -> Iterator[Case]:
        yield from self._owned()
        yield from self._orphans.wanted.values()

    def _cases_of(self, node: str) -> list[Case]:
        return [case for cases in (self._docket.cases, self._alarms.cases) if (case := cases.get(node)) is not None]

    # ------------------------------------------------------------------------------------- the scheduler

    def scheduler(self, view: FleetView, now: Now) -> None:
        """Take in the newest view of the whole scheduler."""
        if self._room.trouble is not None:
            self._notebook.tell("info", "scheduler-back")
            for case in self._all():
                if case.code in _BACK_AT_ONCE:
                    case.again()
        groups = self._room.groups
        self._room.load(view, now)
        if self._room.groups != groups or self._room.seq == 1:
            self._fabric.regroup(self._room.groups, now, len(self._roster.seen))
            self._alarms.show(self._room, len(self._roster.seen), now)
        for note in self._alarms.strangers(self._room, now):
            self._notebook.add(note)
        for case in list(self._owned()):
            if case.node != self._busy:
                case.witness(self._room, now)
                self._settle(case, now)
        self._orphans.judge_all(self._busy)
        self._orphans.assign(self._cases_of, self._busy, now)
        self._line.stale = True
        self._turn(now)

    def scheduler_failed(self, code: BlockCode, detail: str, now: Now) -> None:
        """The scheduler as a whole could not be read: nothing is drained by what was known before."""
        if self._room.trouble is not code:
            self._notebook.tell("error", "scheduler-failed", code=code.value, detail=detail)
        self._room.trouble = code
        for case in self._owned():
            case.unanswered(now)
        self._line.stale = True
        self._turn(now)

    # ------------------------------------------------------------------------------------- jobs

    def next_job(self, now: Now) -> Job | None:
        """The next thing to do at the scheduler; None while one is out, or where there is nothing to do now."""
        self._turn(now)
        if self._out is not None or self.stopped:
            return None
        if self._line.stale or now.monotonic >= self._line.wake:
            self._look(now)
        while (first := self._line.pop()) is not None:
            case = self._find(*first)
            job = self._job(case, now) if case is not None else None
            if case is not None and job is not None:
                self._out = (job, case)
                return job
        return None

    def _find(self, node: str, owner: str) -> Case | None:
        cases = {"node": self._docket.cases, "alertmanager": self._alarms.cases, "orphan": self._orphans.wanted}[owner]
        return cases.get(node)

    def _look(self, now: Now) -> None:
        """Weigh every case anew."""
        self._line.clear()
        if now.monotonic < self._room.at + FRESH:
            self._line.later(self._room.at + FRESH)
        for case in list(self._all()):
            self._weigh(case, now)

    def _job(self, case: Case, now: Now) -> Job | None:
        if case.back():
            if self._bars.release(case, now) is not None:
                return None
            if case.owner != "orphan":
                return ReleaseJob(case.node, case.to_give_back(now), case.by)
            view = self._room.claimed.get(case.node)
            same = view is not None and policy.parse_reason(view.reason) == case.id
            return ReleaseJob(case.node, None, case.by) if same else None
        if not case.due() or self._bars.drain(case, now) is not None:
            return None
        if case.owner == "alertmanager":
            self._alarms.asking(case, now)
        return DrainJob(case.node, case.intent(), case.ownership())

    def done(self, outcome: Outcome, now: Now) -> None:
        """Take in how the job that is out has ended."""
        if self._out is None or self._out[0].node != outcome.node:
            return
        (job, case), self._out = self._out, None
        done = outcome.done
        if done.view is not None:
            self._room.see(done.view, now.monotonic)
        if done.outcome == "failed" and done.code in _BACK_AT_ONCE:
            if self._blame.failed(job.node, general=done.general):
                self._room.pause = now.monotonic + PAUSE
        elif done.view is not None:
            self._blame.worked()
        if isinstance(job, DrainJob):
            case.drained(done, self._room, now)
            if done.outcome == "blocked" and done.code in LIMIT_CODES:
                self._room.close(job.node, done.code)
        else:
            case.released(done, self._room, now, job.by)
            if not case.by:
                self._orphans.finished(job.node, case.id)
        self._line.stale = True
        self._settle(case, now)
        self._weigh(case, now, done.detail)
        self._orphans.judge(job.node)

    def _settle(self, case: Case, now: Now) -> None:
        if case.owner == "alertmanager":
            self._alarms.settle(case, now)
        if case.stands is False and case.by:
            case.by = ""
            self._orphans.finished(case.node, case.id)

    @property
    def _busy(self) -> str | None:
        """The node with which a job is out: what is seen of it meanwhile proves nothing."""
        return self._out[0].node if self._out is not None else None

    # ------------------------------------------------------------------------------------- deciding

    def _weigh(self, case: Case, now: Now, detail: str = "") -> tuple[Decision, str]:
        """What is said of a case now. It is put in line where something can be done, and each change is told once."""
        if self._out is not None and self._out[1] is case:
            return "none", ""
        bar: Bar | None = None
        if case.back():
            bar = self._bars.release(case, now)
            self._queue(case, bar, giving=True)
        elif case.due():
            bar = self._bars.drain(case, now)
            self._queue(case, bar, giving=False)
        case.bar = bar.code if bar is not None else ""
        decision, code = _decision(case)
        if decision != "none" and (decision, code) != case.told:
            case.told = (decision, code)
            self._decisions[decision, code] += 1
            fields = {"owner": case.owner, "id": case.id, "code": code, "reason": case.reason, "detail": detail}
            level: Literal["info", "warning"] = "warning" if decision == "blocked" else "info"
            self._notebook.tell(level, decision, node=case.node, **fields)
        return decision, code

    def _queue(self, case: Case, bar: Bar | None, *, giving: bool) -> None:
        if bar is None:
            self._line.ready(case, giving=giving)
        else:
            self._line.later(bar.until)

    # ------------------------------------------------------------------------------------- time

    def lead(self, leader: bool, now: Now) -> None:  # noqa: FBT001 (the one thing that it is about)
        """This instance leads from now on, or does not any more. A new leader waits for the quorum anew."""
        if leader is self._bars.leader:
            return
        self._bars.leader = leader
        if leader:
            self._roster.restart(now)
        self._notebook.tell("info", "leading" if leader else "following")
        self._line.stale = True

    def _due(self) -> float:
        return min(self._roster.next_due(), self._fabric.next_due(), self._window_due)

    def _turn(self, now: Now) -> None:
        """Let time pass."""
        self._window_due = self._book.first_end(now)
        if now.monotonic < self._due() and not self._fabric.news:
            return
        turned = self._roster.turn(now)
        if turned.save:
            self._book.touch()
        self._silenced.update(turned.missing)
        if self._bars.leader:  # who does not lead hears nobody, and that is no news
            self._notebook.turned(turned, self._roster.quorum())
        for node in turned.forgotten:
            self._docket.cases.pop(node, None)
            self._fabric.forget((node, REPORT), now)
            self._notebook.over(node)
        began, ended = self._fabric.turn(now)
        for event in began:
            self._notebook.fabric(event, begins=True)
        for event in ended:
            self._notebook.fabric(event, begins=False)
        for window in self._book.end_windows(now):
            self._notebook.window_over(window)
        self._window_due = self._book.first_end(now)
        self._line.stale = True

    # ------------------------------------------------------------------------------------- looking

    def fleet(self, now: Now) -> Fleet:
        """The fleet at this instant."""
        self._turn(now)
        return self._viewer.fleet(self._owned(), now)

    def nodes(self, now: Now) -> list[NodeRow]:
        """Every node that reports or that the scheduler has, by name."""
        self._turn(now)
        return self._viewer.nodes(self._docket.cases, now)

    def node(self, name: str, now: Now) -> dict[str, Any] | None:
        """All that is known of one node, None where nobody knows it."""
        self._turn(now)
        return self._viewer.node(name, self._cases_of(name), now)

    def counts(self, now: Now) -> Counts:
        """What metrics are made of."""
        self._turn(now)
        return self._viewer.counts(self._owned(), dict(self._decisions), now)


def _decision(case: Case) -> tuple[Decision, str]:
    if case.wants:
        if case.stands and not case.by:
            return "drained", ""
        if case.gone:
            return "released", ""
    elif case.stands is False:
        return "released", ""
    if case.bar in CODES:
        return "blocked", case.bar
    return ("drained", "") if case.stands and case.owner != "orphan" else ("none", "")
