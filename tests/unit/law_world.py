"""A node's whole way from sysfs to its scheduler that can be killed between any two effects, with the laws as checks.

The engine, `reconcile` and the store on disk are the daemon's own; the scheduler is `Cluster`, which does late what it
was asked while it hung. Each write of ours is judged in the moment it is made.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
from pathlib import Path

import msgspec
from core_world import node, path, port

from ibmon.configfile import loads
from ibmon.drain import policy, reconcile
from ibmon.drain.cluster import Cluster
from ibmon.messages import Drain, Person, Release, Reloaded, StopFile
from ibmon.model import Mode
from ibmon.ports import StoreError
from ibmon.recording import Frame, Header, SchedulerAct
from ibmon.runtime.replay import NODE, World
from ibmon.store import Store

GRACE = 120.0
TTL = 7200.0
CONFIG = f"""
[action]
mode = "drain"
scheduler = "slurm"
boot_grace = "{GRACE:g}s"
override_ttl = "{TTL:g}s"
[sampling]
state_interval = "20s"
counter_interval = "40s"
slow_interval = "60s"
[inventory]
mode = "declared"
[[port]]
match = "mlx5_[0-1]/1"
rate = 400
"""
DEVICES = ("mlx5_0", "mlx5_1")
OTHERS = ("node0002", "node0003")
DOWN = {"state": "1: DOWN\n", "physical": "2: Polling\n", "rate": "10 Gb/sec (4X SDR)\n"}
SLOW = {"rate": "200 Gb/sec (2X NDR)\n"}


class Killed(BaseException):
    """The process dies here, as by SIGKILL."""


class Scheduler:
    """The daemon's way to its scheduler; the process may die before and after each call."""

    def __init__(self, world):
        self._world = world
        self._client = world.cluster.client(NODE)
        self.calls = self._client.calls
        self.hangs_at = None

    def read_node(self):
        return self._call("read_node", self._client.read_node)

    def read_pools(self):
        return self._call("read_pools", self._client.read_pools)

    def drain(self, reason):
        self._world.judge_drain(reason)
        self._call("drain", lambda: self._client.drain(reason))

    def undrain(self):
        self._world.judge_undrain()
        self._call("undrain", self._client.undrain)

    def _call(self, name, call):
        if self.hangs_at == name:
            self.hangs_at = None
            self._world.cluster.act(NODE, SchedulerAct(do="hang"))
        self._world.burn()
        before = self._world.view
        try:
            return call()
        finally:
            assert self._world.view.flags - {"DRAIN"} == before.flags - {"DRAIN"}, "law 9: only the drain is changed"
            self._world.burn()


class Disk:
    """The store as the daemon uses it: the state's failures stay in `Persistence`, the record's go to `reconcile`."""

    def __init__(self, world, directory):
        self._world = world
        self.directory = directory
        self.full = False
        self._store = self._open()

    def _open(self):
        return Store(self.directory, node=NODE, machine="uuid", wall=lambda: self._world.now().wall)

    def again(self):
        """What the next process opens."""
        self._store.close()
        self._store = self._open()

    def lose(self):
        """Somebody removes everything."""
        self._store.close()
        shutil.rmtree(self.directory)
        self.directory.mkdir()
        self._store = self._open()

    def close(self):
        self._store.close()

    def load(self):
        return self._store.load()

    def ownership(self):
        return self._store.ownership()

    def save(self, state):
        with contextlib.suppress(StoreError):
            self._write(lambda: self._store.save(state))

    def record(self, owned):
        self._write(lambda: self._store.record(owned))

    def _write(self, write):
        if self.full:
            raise StoreError("disk full")
        self._world.burn()
        write()
        self._world.burn()


class LawWorld(World):
    """The node `NODE` of twenty, and what is true of it whatever it knows.

    Attributes:
        fuse: effects until the process dies, None for never.
        bad: how each device is bad, by device.
        foreign: the reason of a drain that a person set and that stands.
        respected: what was wrong when a person resumed the node, and when, while that must be respected.
        lost: the reason of the drain that stood when the state was lost.
        released: whether a person may want the node to be left alone, since it went bad.
        kills: how often the process died.
    """

    def __init__(self):
        ram = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._place = Path(tempfile.mkdtemp(prefix="ibmon-laws-", dir=ram))
        self.fuse = None
        self.bad = {}
        self.foreign = None
        self.respected = None
        self.stopped = False
        self.release = None
        self.kills = 0
        self.lost = None
        self.released = False
        self._tickets = itertools.count(1)
        super().__init__(Header(), loads(CONFIG).config)
        self.cluster = Cluster(20, wall=lambda: self.now().wall)
        self.scheduler = Scheduler(self)
        self.store = Disk(self, self._place)
        self._gates = reconcile.Gates(
            mode=lambda: self.config.action.mode, stop=lambda: self.stopped, limits=self.config.action.limits
        )
        self.engine = self._start()
        self.do(lambda: self.apply(Frame(t=0, files=node(*DEVICES))))
        self.run(100)

    def close(self):
        self._reader.close()
        self.store.close()
        shutil.rmtree(self._place)

    # ------------------------------------------------------------------------------------------ how it goes on

    @property
    def view(self):
        return self.cluster.view(NODE)

    def burn(self):
        """A place between two effects."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise Killed

    def do(self, what):
        """Let something happen to the process, which may die of it and is started again."""
        try:
            what()
        except Killed:
            self.kills += 1
            self.restart()

    def restart(self):
        self._reader.close()
        self._parked.clear()
        self._left = set(self._hanging)
        self.store.again()
        self.engine = self._start()
        if self.stopped:
            self.do(lambda: self.step(StopFile(present=True)))

    def _start(self):
        engine = super()._start()
        step = engine.step
        engine.step = lambda event, now: self._noted(step(event, now))
        return engine

    def _noted(self, effects):
        for effect in effects:
            if isinstance(effect, Release):
                self.release = effect
            elif isinstance(effect, Drain):
                self.release = None
        if self.engine.desk.intent is None:
            self.respected = None
            self.released = self.released and self.held
        return effects

    @property
    def reachable(self):
        """Whether the controller answers, to people as to us."""
        return self.cluster._outage is None

    @property
    def held(self):
        """Whether the node's record says that a drain of ours stands."""
        record = self.store.ownership()
        return record is not None and record.held

    def step(self, event):
        self._carry_out(self.engine.step(event, self.now()))

    def run(self, seconds):
        """Let time pass; whatever is due happens at its time."""
        end = self.time + seconds
        still = 0
        while True:
            self.do(self.settle)
            due = max(self.engine.next_due(), self.time)
            if due > end:
                break
            still = still + 1 if due == self.time else 0
            assert still < 50, "the engine says that something is due, and does nothing"
            self.time = due
        self.time = end
        self.do(self.settle)

    def run_to_the_next_request(self):
        """Let time pass until just before something is asked of the scheduler, if that is to come."""
        due = self.engine.desk.next_due(self.config.action)
        if self.time < due < self.time + 1000:
            self.run(due - self.time - 0.5)

    def person(self, action, **more):
        self.released = self.released or action == "release"
        self.do(lambda: self.step(Person(next(self._tickets), action, "ada", **more)))

    def set_mode(self, mode):
        action = msgspec.structs.replace(self.config.action, mode=mode)
        self.config = msgspec.structs.replace(self.config, action=action)
        self.do(lambda: self.step(Reloaded(self.config)))

    def set_stop(self, present):
        self.stopped = present
        self.do(lambda: self.step(StopFile(present)))

    def set_port(self, device, how):
        worse = how is not None and self.bad.get(device) != how
        if how is None:
            self.bad.pop(device, None)
        else:
            self.bad[device] = how
        if worse:
            self.respected = None
        self.do(lambda: self.apply(Frame(t=self.time, files=port(device, **(how or {})))))

    def blind(self, device, code):
        self.do(lambda: self.apply(Frame(t=self.time, errnos={path(device, "state"): code})))

    def reboot(self, name):
        self.respected = None
        self.store.again()
        self.do(lambda: self.apply(Frame(t=self.time, boot_id=name, uptime=10.0)))

    def lose_state(self):
        self.respected = None
        if self.view.drained:
            self.foreign = self.lost = self.view.reason  # nobody's now, so nobody touches it
        self.store.lose()
        self.restart()

    def outage(self, do):
        self.cluster.act(NODE, SchedulerAct(do=do))

    def person_drains(self, reason):
        self.cluster.act(NODE, SchedulerAct(do="drain", by="admin", reason=reason))
        self.foreign = reason

    def person_resumes(self):
        if policy.owns(self.store.ownership(), self.view) and self.held and self.engine.desk.intent:
            self.respected = (frozenset(self.engine.desk.subjects), self.time)
        if self.held:
            self.released = True  # also where a boot or a new finding lies between this and the next look
        self.cluster.act(NODE, SchedulerAct(do="resume", by="admin"))
        self.foreign = None

    # ------------------------------------------------------------------------------------------ what must hold

    def judge_write(self):
        assert self.config.action.mode is Mode.DRAIN, "law 8: mode"
        assert not self.stopped, "law 8: stop"
        assert self.foreign is None or self.by_person, "law 2: somebody else's drain"

    @property
    def by_person(self):
        return self.release is not None and bool(self.release.by)

    def judge_drain(self, reason):
        self.judge_write()
        engine, view = self.engine, self.view
        assert not view.drained, "laws 2 and 7: a reason is written once"
        assert policy.drain_obstacle(view.flags) is None
        due = [f for f in engine.findings if f.drains and f.trusted and not f.maintenance]
        assert due, "laws 1 and 5: no drain without a cause"
        assert {f.device for f in due} <= set(DEVICES)
        assert self.time >= self._booted + GRACE, "law 1: boot grace"
        ours = sum(policy.claims(self.cluster.view(name)) for name in ("node0002", "node0003", "node0004"))
        assert ours < policy.allowed(20, self.config.action.limits), "law 1: the limit"
        assert policy.parse_reason(reason) is not None
        if self.respected is not None:
            known, since = self.respected
            over = self.time - since >= TTL
            assert over or not {f"{f.rule} {f.subject}" for f in due} <= known, "law 11: a resume is respected"
            self.respected = None

    def judge_undrain(self):
        self.judge_write()
        view = self.view
        assert view.drained
        assert policy.undrain_obstacle(view.flags) is None
        assert policy.parse_reason(view.reason) is not None, "law 2: not in our words"
        if not self.by_person:
            assert self.store.full or policy.owns(self.store.ownership(), view), "law 2: without a record"
            beyond = self.release is None  # a drain that went beyond the limit
            assert beyond or not any(f.drains for f in self.engine.findings), "law 3: the findings have not cleared"
            assert beyond or not self.engine.maintenance.on
            assert beyond or not self.engine.desk.sticky, "law 3: a person must clear it"
        elif self.engine.desk.intent is not None:
            self.respected = (frozenset(self.engine.desk.subjects), self.time)
        self.foreign = None
