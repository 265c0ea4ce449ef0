"""Both sides of the fleet controller's wire, small and in memory: a controller over a simulated cluster, and a node."""

from __future__ import annotations

from exporter_snapshots import snapshot

from ibmon.config import ActionConfig, LimitsConfig
from ibmon.drain import policy, reconcile
from ibmon.drain.cluster import Cluster
from ibmon.drain.correspondence import Correspondence
from ibmon.drain.intent import DrainDesk, DrainMemory
from ibmon.drain.reconcile import Gates
from ibmon.messages import FleetWord
from ibmon.model import Finding, Intent, Mode, NodeFitness, Now, Ownership, Severity
from ibmon.picture import drain_view
from ibmon.ports import SchedulerError, StoreError
from ibmon.recording import SchedulerAct
from ibmon.report import Reply
from ibmon.runtime.memory_store import MemoryStore

NAME = "node0001"
BOOT = "b007"
LIMITS = LimitsConfig(min_nodes=2, new_per_minute=1000.0)
SAID = {"done": "drained", "gone": "released", "blocked": "blocked", "failed": "none"}


def fault(port="mlx5_3", **facts):
    """A finding that drains."""
    usual = {"rule": "port-down", "device": port, "port": 1, "counter": "", "severity": Severity.CRITICAL}
    numbers = {"onset": 5.0, "observed": "DOWN", "limit": "ACTIVE", "text": "DOWN/Polling 62s>60s", "drains": True}
    return Finding(**{**usual, **numbers, **facts})


class FleetSide:
    """What the controller does with a report: `reconcile` against the cluster, at once, with the node's own record."""

    def __init__(self, cluster: Cluster | None = None, wall=lambda: 0.0, node=NAME) -> None:
        self.cluster = cluster or Cluster(100, wall=wall)
        self.wall = wall
        self.node = node
        self.stop = False
        self.mode = Mode.DRAIN
        self.silent = False  # it has just begun and does not know the fleet yet
        self.reports = []

    def answer(self, report) -> Reply:
        self.reports.append(report)
        decision, code = ("none", "") if self.silent else self._decide(report)
        return Reply(decision, code, self.stop, self.mode)

    def _decide(self, report):
        wish, owned = report.intent, report.owned
        record = Ownership(owned.id, owned.reason, owned.asked, owned.held) if owned else None
        store = MemoryStore()
        store.record(record)
        client = self.cluster.client(report.node)
        gates = Gates(mode=lambda: self.mode, stop=lambda: self.stop, limits=LIMITS)
        now = Now(0.0, self.wall())
        if wish.drain:
            intent = Intent(True, wish.id, wish.reason, wish.since)
            done = reconcile.drain(intent, client, store, gates, now)
        elif wish.id:
            assert record is not None, "a node gave something back that it has not on record"
            assert record.id == wish.id, "a node gave something back that it has not on record"
            done = reconcile.release(record, client, store, gates, now)
        elif record is not None:
            return self._of_record(client, record)
        else:
            return "none", ""
        return SAID[done.outcome], done.code.value if done.code and done.outcome == "blocked" else ""

    def _of_record(self, client, record):
        try:
            view = client.read_node()
        except SchedulerError:
            return "none", ""
        if policy.owns(record, view):
            return "drained", ""
        return ("released" if record.held else "none"), ""

    @property
    def reason(self):
        """The reason of the node's drain; empty where it is not drained."""
        view = self.cluster.view(self.node)
        return view.reason if view.drained else ""


class Killed(BaseException):
    """The process dies here, as by SIGKILL."""


class Disk(MemoryStore):
    """A store whose disk can fail, or be full; `burn` is called before and after each write."""

    broken = full = False
    burn = staticmethod(lambda: None)

    def ownership(self):
        self._check()
        return super().ownership()

    def record(self, owned):
        self._check(full=self.full)
        self.burn()
        super().record(owned)
        self.burn()

    def _check(self, *, full=False):
        if self.broken or full:
            raise StoreError("disk full")


class DeskNode:
    """A node without ports: its findings are set by hand; the desk, the store and the correspondence are the real ones.

    `lost` says what a report may meet: "" nothing, "report" it never arrives, "reply" its answer does not. `lag` are
    turns of the loop that answers wait for, as the engine is a thread of its own. `fuse` are the effects until the
    process dies and is started again.
    """

    def __init__(self, fleet: FleetSide, *, auto_release=True) -> None:
        self.fleet = fleet
        self.disk = Disk()
        self.disk.burn = self.burn
        self.fuse = None
        self.kills = 0
        self.lag = 0
        self._mail = []
        self.now = Now(1000.0, 1_700_000_000.0)
        self.findings = ()
        self.mode = Mode.DRAIN
        self.stopped = False
        self.lost = ""
        self.outcomes = []
        self.auto_release = auto_release
        self.override_ttl = 86400.0
        self._saved = DrainMemory()
        self._seq = 0
        self._sequence = 0
        fleet.wall = lambda: self.now.wall
        fleet.cluster._wall = lambda: self.now.wall
        self.start()

    def start(self):
        """A new process on the same store."""
        gates = Gates(mode=lambda: self.mode, stop=lambda: self.stopped, limits=LIMITS)
        self.told = Correspondence(self.disk, lambda: gates, version="1", boot_id=BOOT)
        self._mail, self._tried = [], self._saved
        broken, self.disk.broken = self.disk.broken, False
        self.desk = DrainDesk(self.fleet.node, BOOT, self._saved, self.disk.ownership(), self.now)
        self.disk.broken = broken
        self.word = FleetWord()
        self.tick()

    def burn(self):
        """A place between two effects."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise Killed

    def alive(self, what):
        """What it gives back, or None where the process dies of it; it is started again then."""
        try:
            return what()
        except Killed:
            self.kills += 1
            self.start()
            return None

    def after(self, seconds):
        """Let time pass, and one turn of the loop with it."""
        self.now = Now(self.now.monotonic + seconds, self.now.wall + seconds)
        self.tick()

    def tick(self):
        """One turn of the loop."""
        self.alive(self._tick)

    def _tick(self):
        self._open_mail()
        self._sequence += 1
        fitness = NodeFitness.UNFIT if self.findings else NodeFitness.FIT
        mode = self.mode if self.word.mode is Mode.DRAIN else min(self.mode, Mode.ALERT, key=lambda m: m.rank)
        action = ActionConfig(
            mode=mode, scheduler="controller", auto_release=self.auto_release, override_ttl=self.override_ttl
        )
        stopped = self.stopped or self.word.stop
        requests = self.desk.decide(self.findings, fitness, action, self.now, stopped=stopped, enabled=True)
        self._save()
        for request in requests:
            self.told.submit(request, self.now)
        self.told.show(self.picture(fitness))

    def _save(self):
        """As the engine does: what could not be saved is not tried again before it changes."""
        memory = self.desk.memory()
        if memory == self._tried:
            return
        self._tried = memory
        self.burn()
        if not (self.disk.broken or self.disk.full):
            self._saved = memory
            self.burn()

    def picture(self, fitness):
        return snapshot(
            node=self.fleet.node, boot_id=BOOT, sequence=self._sequence, at=self.now, findings=self.findings,
            fitness=fitness, mode=self.mode, drain=drain_view(self.desk),
        )  # fmt: skip

    def report(self):
        """One report and its reply, and a turn of the loop with what they bring; the report, None where none is due."""
        return self.alive(self._report)

    def _report(self):
        self._seq += 1
        letter, ended = self.told.letter(self.now, self._seq)
        if letter is None:
            return None
        self._take(ended)
        if self.lost == "report":
            self._take(self.told.unanswered(SchedulerError("nobody answers")))
        else:
            self.burn()
            reply = self.fleet.answer(letter.report)
            self.burn()
            if self.lost == "reply":
                self._take(self.told.unanswered(SchedulerError("nobody answers")))
            else:
                self._take(self.told.answered(letter, reply, self.now))
        self._tick()
        return letter.report

    def _take(self, events):
        self._mail += [(self.lag, event) for event in events]
        if not self.lag:
            self._open_mail()

    def _open_mail(self):
        due = [event for wait, event in self._mail if not wait]
        self._mail = [(wait - 1, event) for wait, event in self._mail if wait]
        for event in due:
            if isinstance(event, FleetWord):
                self.word = event
            else:
                self.outcomes.append((event.effect, event.outcome, event.code))
                self.desk.done(event, self.now)

    def live(self, seconds):
        """So long an ordinary life: a report every two seconds."""
        for _ in range(int(seconds / 2)):
            self.after(2.0)
            self.report()


def act(fleet, do, by="admin", reason="bad DIMM"):
    """Somebody does something at the scheduler, or to it."""
    fleet.cluster.act(NAME, SchedulerAct(by=by, do=do, reason=reason))
