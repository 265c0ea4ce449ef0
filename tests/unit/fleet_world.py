"""A fleet to try the controller's core with: nodes that keep their records, a scheduler, and the jobs in between."""

from __future__ import annotations

import zlib

import msgspec

from ibmon.config import LimitsConfig
from ibmon.controller.fleet import FleetDesk
from ibmon.controller.ledger import Ledger
from ibmon.controller.values import AlertSeen, Ask, DrainJob, FleetSettings, FleetView, Outcome, Refused
from ibmon.controller.worker import Reported
from ibmon.drain import policy, reconcile
from ibmon.drain.cluster import Cluster
from ibmon.drain.reconcile import Gates
from ibmon.model import BlockCode, Mode, NodeFitness, Now, Severity
from ibmon.ports import SchedulerError
from ibmon.recording import SchedulerAct
from ibmon.report import FindingLine, Hold, Owned, Report, Wish

ROOMY = LimitsConfig(max_drained=1.0, max_unavailable=1.0, new_per_minute=1000.0, min_nodes=100, min_nodes_set=True)


def finding(rule="port-down", *, rail=0, onset=0.0, drains=True, recovering=False, severity=Severity.CRITICAL):
    return FindingLine(
        rule=rule,
        device=f"mlx5_{rail}",
        port=1,
        rail=rail,
        severity=severity,
        onset=onset,
        drains=drains,
        recovering=recovering,
    )


def hold(rule="port-down", *, rail=0, onset=0.0):
    return Hold(rule=rule, device=f"mlx5_{rail}", port=1, rail=rail, onset=onset, left=30.0)


class Node:
    """What a node's daemon does: it mints the id, keeps its record, and respects whoever takes a drain away."""

    def __init__(self, name):
        self.name = name
        self.boot, self.seq, self.number = "boot-1", 0, 0
        self.mode = Mode.DRAIN
        self.fitness, self.findings, self.holds, self.maintenance = NodeFitness.FIT, (), (), None
        self.wish, self.owned, self.by = Wish(), None, ""
        self.overridden = False

    def bad(self, wall, *findings):
        """It is unfit, and wants to be drained."""
        self.findings, self.fitness = findings or (finding(onset=wall),), NodeFitness.UNFIT
        if self.overridden or self.wish.drain:
            return
        if self.owned is not None:
            self.wish = Wish(drain=True, id=self.owned.id, reason=self.owned.reason, since=self.owned.asked)
            return
        self.number += 1
        mark = f"{zlib.crc32(self.name.encode()) % 4096:03x}{self.number:03x}"
        reason = f"ibmon: {self.findings[0].rule} mlx5_0/1 DOWN/Polling 62s>60s [id {mark}]"
        self.wish = Wish(drain=True, id=mark, reason=reason, since=wall)
        self.owned = Owned(mark, reason, asked=wall)

    def well(self):
        """It is fit, and wants its drain back."""
        self.findings, self.holds, self.fitness, self.overridden = (), (), NodeFitness.FIT, False
        self.wish = Wish(id=self.owned.id, by=self.by) if self.owned is not None else Wish()

    def told(self, reply):
        if reply.decision == "drained" and self.owned is not None:
            self.owned = msgspec.structs.replace(self.owned, held=True)
        elif reply.decision == "released":
            self.overridden = self.wish.drain
            self.wish, self.owned = Wish(), None

    def report(self, wall, **fields):
        self.seq += 1
        known = {
            "v": 1,
            "node": self.name,
            "boot_id": self.boot,
            "seq": self.seq,
            "sent": wall,
            "version": "0.1.0",
            "config_hash": "c0ffee",
            "mode": self.mode,
            "fitness": self.fitness,
            "rails": "oooooooo",
            "holds": self.holds,
            "findings": self.findings,
            "intent": self.wish,
            "owned": self.owned,
            "maintenance": self.maintenance,
        }
        return Report(**{**known, **fields})


class World:
    """The controller, its nodes and their scheduler, in virtual time.

    Args:
        count: how many nodes there are, `n1` … .
        leaves: node names by leaf, for the topology.
    """

    def __init__(self, count=40, *, leaves=None, partitions=None, ledger=None, leader=True, **settings):
        self.mono, self.wall = 1000.0, 1_800_000_000.0
        names = [f"n{i}" for i in range(1, count + 1)]
        self.cluster = Cluster(names, partitions=partitions, wall=lambda: self.wall)
        self.firsts = [members[0] for members in (partitions or {"batch": names}).values()]
        self.nodes = {name: Node(name) for name in names}
        self.groups = {node: leaf for leaf, members in (leaves or {}).items() for node in members}
        self.settings = FleetSettings(**{"mode": Mode.DRAIN, "limits": ROOMY, **settings})
        self.disk = None
        self.jobs = []
        self.log = []
        self.desk = FleetDesk(self.settings, ledger or Ledger(), self.now, leader=leader)

    @property
    def now(self):
        return Now(self.mono, self.wall)

    def wait(self, seconds):
        self.mono += seconds
        self.wall += seconds

    # ------------------------------------------------------------------------------------- the runtime's part

    def look(self):
        """One bulk read."""
        try:
            self.cluster.reach()
        except SchedulerError as error:
            self.desk.scheduler_failed(BlockCode.SCHEDULER_UNREACHABLE, str(error), self.now)
            return
        self.desk.scheduler(self.view(), self.now)

    def view(self, **fields):
        nodes = {name: self.cluster.view(name) for name in self.nodes}
        pools = {pool.name: pool for first in self.firsts for pool in self.cluster.pools_of(first)}
        known = {"nodes": nodes, "pools": tuple(pools.values()), "groups": self.groups, "began": self.mono}
        return FleetView(**{**known, **fields})

    def save(self):
        if self.desk.changed:
            self.disk = self.desk.ledger_bytes()
            self.desk.saved(self.desk.revision)

    def carry_out(self, job):
        client = self.cluster.client(job.node)
        gates = Gates(
            mode=lambda: self.desk.mode_of(job.node), stop=lambda: self.desk.stopped, limits=self.settings.limits
        )
        if isinstance(job, DrainJob):
            return reconcile.drain(job.intent, client, Reported(job.record), gates, self.now)
        if job.owned is None:
            return reconcile.reclaim(client, Reported(None), gates, self.now)
        return reconcile.release(job.owned, client, Reported(job.owned), gates, self.now)

    def work(self, most=1000):
        """Do what there is to do, and return what was done: (node, effect, outcome, code)."""
        told = []
        for _ in range(most):
            job = self.desk.next_job(self.now)
            if job is None:
                break
            self.save()
            done = self.carry_out(job)
            self.jobs.append(job)
            told.append((job.node, done.effect, done.outcome, done.code))
            self.desk.done(Outcome(job.node, done), self.now)
        self.save()
        self.log += self.desk.notes()
        return told

    def crash(self, **settings):
        """Kill -9, and a new process on what was saved."""
        ledger = Ledger.read(self.disk) if self.disk is not None else Ledger()
        self.settings = msgspec.structs.replace(self.settings, **settings)
        self.desk = FleetDesk(self.settings, ledger, self.now)

    # ------------------------------------------------------------------------------------- the nodes' part

    def say(self, name, **fields):
        """One report of a node, and what it is answered."""
        node = self.nodes[name]
        reply = self.desk.report(node.report(self.wall, **fields), self.now)
        assert not isinstance(reply, Refused), reply
        node.told(reply)
        return reply

    def all_say(self, *silent):
        return {name: self.say(name) for name in self.nodes if name not in silent}

    def begin(self):
        """Start, and let the quorum open."""
        self.look()
        self.all_say()
        self.round(2)
        assert self.desk.fleet(self.now).quorum.open
        self.log += self.desk.notes()
        return self

    def round(self, times=1, seconds=30.0, silent=()):
        """Half a minute of everybody's life: time, a view, reports, work."""
        done = []
        for _ in range(times):
            self.wait(seconds)
            self.look()
            self.all_say(*silent)
            done += self.work()
        return done

    def bad(self, *names, **kind):
        """Nodes become unfit and say so at once."""
        for name in names:
            self.nodes[name].bad(self.wall, *([finding(onset=self.wall, **kind)] if kind else []))
        return [self.say(name) for name in names]

    def well(self, *names):
        for name in names:
            self.nodes[name].well()
        return [self.say(name) for name in names]

    # ------------------------------------------------------------------------------------- others

    def alert(self, node, name="IbPortDown", *, firing=True, fingerprint="f1", starts=None):
        starts = self.wall if starts is None else starts
        self.desk.alert(AlertSeen(name, node, firing, fingerprint, starts, "port 1 is down"), self.now)

    def ask(self, action, *nodes, user="ann", **fields):
        told = self.desk.ask(Ask(action=action, user=user, nodes=nodes, **fields), self.now)
        self.save()
        return told

    def scheduler_is(self, what):
        self.cluster.act("n1", SchedulerAct(do=what))

    def person(self, node, do, reason=None):
        self.cluster.act(node, SchedulerAct(do=do, by="admin", reason=reason))

    def drained(self):
        return sorted(
            (name for name in self.nodes if policy.claims(self.cluster.view(name))), key=lambda name: int(name[1:])
        )

    def notes(self, event):
        """All lines of one kind since the start."""
        self.log += self.desk.notes()
        return [note.fields for note in self.log if note.event == event]

    def row(self, node):
        return next((row for row in self.desk.fleet(self.now).drains if row.node == node), None)
