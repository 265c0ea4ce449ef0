"""The laws of acting, held against a scheduler that behaves as Slurm does: races of a fleet, outages, people."""

from __future__ import annotations

import threading

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ibmon.config import LimitsConfig
from ibmon.drain import policy, reconcile
from ibmon.drain.cluster import Cluster
from ibmon.drain.reconcile import Gates
from ibmon.model import BlockCode, Intent, Mode, Now, Ownership
from ibmon.ports import StoreError
from ibmon.recording import SchedulerAct


class Memory:
    """A store in memory whose disk can fail."""

    def __init__(self):
        self.owned, self.broken = None, False

    def ownership(self):
        if self.broken:
            raise StoreError("disk gone")
        return self.owned

    def record(self, owned):
        if self.broken:
            raise StoreError("disk full")
        self.owned = owned


def intent(node, number=0, since=0.0):
    mark = f"{number:06x}"
    return Intent(drain=True, id=mark, reason=f"ibmon: port-down mlx5_3/1 on {node} [id {mark}]", since=since)


# -------------------------------------------------------------------------------------- a leaf switch reboots


def test_of_sixteen_nodes_that_decide_in_the_same_moment_only_the_allowed_four_stay_drained():
    wall = [1000.0]
    cluster = Cluster(32, wall=lambda: wall[0])
    limits = LimitsConfig(min_nodes=4, min_nodes_set=True, new_per_minute=1000.0)
    gates = Gates(mode=lambda: Mode.DRAIN, stop=lambda: False, limits=limits)
    names = [f"node{i:04d}" for i in range(1, 17)]
    stores = {name: Memory() for name in names}
    together = threading.Barrier(len(names), timeout=20)
    outcomes = {}

    def decide(name):
        client = cluster.client(name)
        write = client.drain

        def drain(reason):
            together.wait()  # everybody has counted
            write(reason)
            together.wait()  # everybody has written

        client.drain = drain
        outcomes[name] = reconcile.drain(intent(name, int(name[4:])), client, stores[name], gates, Now(0.0, 1000.0))

    threads = [threading.Thread(target=decide, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cluster.count_drained("ibmon: ") == 4
    assert {n for n in names if outcomes[n].outcome == "done"} == set(names[:4])
    assert {(o.outcome, o.code) for o in outcomes.values()} == {("done", None), ("blocked", BlockCode.LIMIT_NODES)}
    assert [stores[n].owned is not None for n in names] == [True] * 4 + [False] * 12
    for name in names[:4]:
        client = cluster.client(name)
        assert reconcile.release(stores[name].owned, client, stores[name], gates, Now(0.0, 2000.0)).outcome == "gone"
    assert cluster.count_drained("ibmon: ") == 0


def test_drains_that_come_one_after_the_other_stop_at_the_limit_and_at_one_a_minute():
    wall = [1000.0]
    cluster = Cluster(400, wall=lambda: wall[0])
    gates = Gates(mode=lambda: Mode.DRAIN, stop=lambda: False, limits=LimitsConfig())
    codes = []
    for i in range(1, 41):
        name = f"node{i:04d}"
        done = reconcile.drain(intent(name, i), cluster.client(name), Memory(), gates, Now(0.0, wall[0]))
        codes.append(done.code)
        wall[0] += 30.0
    assert cluster.count_drained("ibmon: ") == 8  # 2 % of 400
    assert codes[:4] == [None, BlockCode.LIMIT_RATE, None, BlockCode.LIMIT_RATE]
    assert set(codes[20:]) == {BlockCode.LIMIT_NODES}


# --------------------------------------------------------------------------------------- anything may happen


# Trouble is rarer than its absence, so that long runs of good luck are played too.
MODES = [Mode.DRAIN] * 4 + [Mode.ALERT, Mode.OBSERVE]
SELDOM = st.sampled_from([False, False, False, True])


class OneNode(RuleBasedStateMachine):
    """A node's daemon, its scheduler, a person and a disk, in any order."""

    def __init__(self):
        super().__init__()
        self.wall = 1000.0
        self.cluster = Cluster(100, wall=lambda: self.wall)
        self.node = "node0007"
        self.client = self.cluster.client(self.node)
        self.store, self.ever_broken = Memory(), False
        self.mode, self.stop = Mode.DRAIN, False
        self.wanted: Intent | None = None
        self.number = 0
        self.foreign: str | None = None  # the reason of a person's drain that stands
        self.up = True
        self.hangs_at: str | None = None  # the call of ours in which the controller gets stuck
        for name in ("drain", "undrain"):
            setattr(self.client, name, self.stuck(name, getattr(self.client, name)))

    def stuck(self, name, write):
        def call(*arguments):
            if self.hangs_at == name:
                self.hangs_at = None
                self.the_controller("hang")
            write(*arguments)

        return call

    @initialize(mode=st.sampled_from(MODES))
    def begin(self, mode):
        self.mode = mode

    # ------------------------------------------------------------------------------------------- what happens

    @rule(seconds=st.sampled_from([1.0, 70.0, 400.0]))
    def time_passes(self, seconds):
        self.wall += seconds

    @rule(mode=st.sampled_from(MODES))
    def the_mode_changes(self, mode):
        self.mode = mode

    @rule(stop=SELDOM)
    def the_stop_file(self, stop):
        self.stop = stop

    @rule(broken=SELDOM)
    def the_disk(self, broken):
        self.store.broken = broken
        self.ever_broken = self.ever_broken or broken

    @rule(do=st.sampled_from(["up", "up", "hang", "down"]))
    def the_controller(self, do):
        self.cluster.act(self.node, SchedulerAct(do=do))
        self.up = do == "up"

    @rule(call=st.sampled_from(["drain", "undrain"]))
    def the_controller_will_hang_in_our_next(self, call):
        self.hangs_at = call

    @precondition(lambda self: self.up)
    @rule(reason=st.sampled_from(["ADMIN swap", "ibmon: by hand", "ibmon: copied [id 000001]"]))
    def a_person_drains(self, reason):
        self.cluster.act(self.node, SchedulerAct(do="drain", by="admin", reason=reason))
        self.foreign = reason

    @precondition(lambda self: self.up and self.cluster.view(self.node).drained)
    @rule(new=st.sampled_from(["rate-low", "port-down (RMA)"]))
    def a_person_edits_the_reason_that_stands(self, new):
        old = self.cluster.view(self.node).reason
        if old.replace("port-down", new) != old:
            self.a_person_drains(old.replace("port-down", new))

    @precondition(lambda self: self.up)
    @rule()
    def a_person_resumes(self):
        self.cluster.act(self.node, SchedulerAct(do="resume", by="admin"))
        self.foreign = None

    @precondition(lambda self: self.up)
    @rule(flags=st.sampled_from([("IDLE",), ("ALLOCATED",), ("MIXED",), ("IDLE", "MAINT"), ("DOWN",)]))
    def the_state_changes(self, flags):
        self.cluster.set_flags(self.node, *flags)

    @rule(bad=st.booleans())
    def the_port(self, bad):
        if not bad:
            self.wanted = None
        elif self.wanted is None:
            self.number += 1
            self.wanted = intent(self.node, self.number, self.wall)
        self.the_daemon_acts()

    @rule()
    def the_daemon_acts(self):
        before, calls = self.cluster.view(self.node), dict(self.client.calls)
        gates = Gates(mode=lambda: self.mode, stop=lambda: self.stop, limits=LimitsConfig())
        now = Now(0.0, self.wall)
        if self.wanted is not None:
            done = reconcile.drain(self.wanted, self.client, self.store, gates, now)
        elif self.store.owned is not None:
            done = reconcile.release(self.store.owned, self.client, self.store, gates, now)
        else:
            return
        after = self.cluster.view(self.node)
        wrote = any(self.client.calls[c] != calls.get(c, 0) for c in ("drain", "undrain"))
        if self.mode is not Mode.DRAIN or self.stop:
            assert not wrote
            assert done.outcome == "blocked"
        if done.outcome == "done":
            assert after.drained
            assert policy.parse_reason(after.reason) == done.id
        if before.drained and not after.drained:
            assert self.wanted is None
            assert not self.store.broken
        if not before.drained and after.drained:
            assert self.wanted is not None
            assert policy.drain_obstacle(before.flags) is None
        assert before.flags - {"DRAIN"} == after.flags - {"DRAIN"}

    # ------------------------------------------------------------------------------------------ what must hold

    @invariant()
    def a_drain_of_a_person_stands_as_it_was_set(self):
        if self.foreign is not None:
            view = self.cluster.view(self.node)
            assert view.drained
            assert view.reason == self.foreign

    def teardown(self):
        """When all is well again, nothing of ours is left behind that was ever recorded."""
        self.cluster.act(self.node, SchedulerAct(do="up"))
        self.hangs_at = None
        self.store.broken, self.stop, self.mode, self.wanted = False, False, Mode.DRAIN, None
        self.cluster.set_flags(self.node, "IDLE")
        recorded = self.store.owned
        for _ in range(3):
            self.wall += reconcile.LATE
            if self.store.owned is not None:
                self.the_daemon_acts()
        assert self.store.owned is None or not self.store.owned.held
        view = self.cluster.view(self.node)
        if isinstance(recorded, Ownership):
            assert not policy.owns(recorded, view)
        if not self.ever_broken:
            assert view.drained is (self.foreign is not None)


OneNode.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestOneNode = OneNode.TestCase
