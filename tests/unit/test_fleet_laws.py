"""The laws of acting, held by the controller over anything that may happen to it, its nodes and their scheduler."""

from __future__ import annotations

from fleet_world import Node, World, finding
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ibmon.config import LimitsConfig
from ibmon.controller.values import DrainJob, Outcome, Refused
from ibmon.drain import policy
from ibmon.model import Mode, NodeFitness

COUNT = 24
LEAVES = {"leaf-a": [f"n{i}" for i in range(1, 13)], "leaf-b": [f"n{i}" for i in range(13, 25)]}
NODES = st.sampled_from([f"n{i}" for i in range(1, COUNT + 1)])
FEW = st.lists(NODES, min_size=1, max_size=5, unique=True)
# Trouble is rarer than its absence, so that long runs of good luck are played too.
SELDOM = st.sampled_from([False, False, False, True])
RULES = st.sampled_from(["port-down", "port-down", "rate-low", "link-flap", "port-init"])
LIMITS = [LimitsConfig(), LimitsConfig(new_per_minute=1000.0), LimitsConfig(min_nodes=3, new_per_minute=60.0)]


class Watched(World):
    """A world that looks at every job: whether it may be, and what it did."""

    def carry_out(self, job):
        self.may_be(job)
        before = {name: self.cluster.view(name) for name in self.nodes}
        done = super().carry_out(job)
        after = {name: self.cluster.view(name) for name in self.nodes}
        changed = [name for name in self.nodes if before[name] != after[name]]
        assert changed in ([], [job.node])
        if not changed:
            return done
        if isinstance(job, DrainJob):
            assert not before[job.node].drained
            assert after[job.node].reason == job.intent.reason
            for pool in self.cluster.pools_of(job.node):
                counted = policy.counted(pool)
                ours = sum(policy.claims(view) for view in counted)
                assert ours <= policy.allowed(len(counted), self.settings.limits)
        else:
            assert policy.parse_reason(before[job.node].reason)
            if job.owned is not None:
                assert policy.owns(job.owned, before[job.node])
        return done

    def may_be(self, job):
        desk, name = self.desk, job.node
        fleet = desk.fleet(self.now)
        assert fleet.leader
        assert fleet.stop is None
        assert desk.mode_of(name) is Mode.DRAIN
        assert name in self.nodes
        if not isinstance(job, DrainJob):
            return
        assert fleet.quorum.open
        row = next(row for row in desk.nodes(self.now) if row.name == name)
        assert not row.missing
        if row.age is not None:
            assert row.age < 90
            assert desk.node(name, self.now)["report"]["mode"] == "drain"
        assert desk.node(name, self.now)["maintenance"] is None


class AFleet(RuleBasedStateMachine):
    """Nodes, alerts, people, a scheduler and a controller that is killed, in any order."""

    def __init__(self):
        super().__init__()
        self.foreign = {}
        self.silent = set()
        self.up = True
        self.starts = {}

    @initialize(limits=st.sampled_from(LIMITS), mode=st.sampled_from([Mode.DRAIN, Mode.DRAIN, Mode.OBSERVE]))
    def begin(self, limits, mode):
        cluster = {"leaves": LEAVES, "partitions": LEAVES}
        self.world = Watched(COUNT, **cluster, limits=limits, mode=mode, drain_on=("IbPortDown",))
        self.world.begin()

    # ------------------------------------------------------------------------------------------- what happens

    @rule(seconds=st.sampled_from([1.0, 11.0, 31.0, 95.0, 400.0]))
    def time_passes(self, seconds):
        self.world.wait(seconds)

    @rule(rounds=st.sampled_from([1, 1, 3]))
    def life_goes_on(self, rounds):
        for _ in range(rounds):
            self.world.round(silent=self.silent)

    @rule(names=FEW, what=RULES, rail=st.sampled_from([0, 1, 2]))
    def nodes_go_bad(self, names, what, rail):
        for name in names:
            self.world.nodes[name].bad(self.world.wall, finding(what, rail=rail, onset=self.world.wall))
        self.speak(*names)

    @rule(names=FEW)
    def nodes_get_well(self, names):
        for name in names:
            self.world.nodes[name].well()
        self.speak(*names)

    @rule(names=FEW, lost=SELDOM)
    def nodes_report(self, names, lost):
        self.speak(*names, lost=lost)

    def speak(self, *names, lost=False):
        """Reports, the replies to which may be lost on their way."""
        for name in names:
            if name in self.silent:
                continue
            reply = self.world.desk.report(self.world.nodes[name].report(self.world.wall), self.world.now)
            assert not isinstance(reply, Refused)
            if not lost:
                self.world.nodes[name].told(reply)

    @rule(names=FEW, silent=SELDOM)
    def nodes_fall_silent(self, names, silent):
        self.silent = self.silent | set(names) if silent else self.silent - set(names)

    @rule(name=NODES, mode=st.sampled_from([Mode.DRAIN, Mode.DRAIN, Mode.ALERT]))
    def a_nodes_own_mode(self, name, mode):
        self.world.nodes[name].mode = mode

    @rule(name=NODES, firing=st.booleans())
    def an_alert(self, name, firing):
        if firing:
            self.starts.setdefault(name, self.world.wall)
        starts = self.starts.get(name, self.world.wall)
        self.world.alert(name, firing=firing, starts=starts)
        if not firing:
            self.starts.pop(name, None)

    @rule()
    def a_stranger_wants_a_drain(self):
        stranger = Node("stranger")
        stranger.boot = f"boot-{self.world.wall}"
        stranger.bad(self.world.wall)
        self.world.desk.report(stranger.report(self.world.wall), self.world.now)

    @rule()
    def the_scheduler_is_read(self):
        self.world.look()

    @rule(most=st.sampled_from([1, 1000]))
    def the_worker_works(self, most):
        self.world.work(most)
        if most > 1:  # nothing is left to do, so nothing may be due
            assert self.world.desk.next_due() > self.world.mono

    @rule(names=FEW)
    def reports_come_while_a_job_is_out(self, names):
        job = self.world.desk.next_job(self.world.now)
        if job is None:
            return
        self.world.save()
        done = self.world.carry_out(job)
        view = None
        if self.up:
            view = self.world.view()
        self.speak(*names, job.node)
        if view is not None:
            self.world.desk.scheduler(view, self.world.now)
        self.world.desk.done(Outcome(job.node, done), self.world.now)
        self.world.save()

    @rule(lost=SELDOM, while_out=SELDOM)
    def the_controller_is_killed(self, lost, while_out):
        if while_out:
            job = self.world.desk.next_job(self.world.now)
            if job is not None:
                self.world.save()
                self.world.carry_out(job)
        if lost:
            self.world.disk = None
        self.world.crash()

    @rule(leader=st.booleans())
    def the_lease(self, leader):
        self.world.desk.lead(leader, self.world.now)

    @rule(do=st.sampled_from(["up", "up", "hang", "down"]))
    def the_scheduler_is(self, do):
        self.world.scheduler_is(do)
        self.up = do == "up"

    @rule(what=st.sampled_from(["drain", "undrain"]))
    def the_scheduler_hangs_in_the_next(self, what):
        cluster = self.world.cluster
        write = getattr(type(cluster), what)

        def hang(*arguments):
            delattr(cluster, what)
            self.the_scheduler_is("hang")
            return write(cluster, *arguments)

        setattr(cluster, what, hang)

    @precondition(lambda self: self.up)
    @rule(name=NODES, reason=st.sampled_from(["RMA", "swap the fan", "ibmon: by hand"]))
    def a_person_drains(self, name, reason):
        self.world.person(name, "drain", reason)
        self.foreign[name] = reason

    @precondition(lambda self: self.up)
    @rule(name=NODES)
    def somebody_copies_a_reason(self, name):
        if not self.world.cluster.view(name).drained:
            self.world.person(name, "drain", "ibmon: copied [id 0000]")

    @precondition(lambda self: self.up)
    @rule(name=NODES)
    def a_person_resumes(self, name):
        self.world.person(name, "resume")
        self.foreign.pop(name, None)

    @rule(stop=SELDOM)
    def a_person_stops_or_starts(self, stop):
        self.world.ask("stop" if stop else "start")

    @rule(name=NODES, mode=st.sampled_from([Mode.DRAIN, Mode.DRAIN, Mode.OBSERVE, None]))
    def a_wave(self, name, mode):
        self.world.ask("mode", name, mode=mode)

    @rule(names=FEW, begin=st.booleans())
    def a_window(self, names, begin):
        if begin:
            self.world.ask("maintenance-start", *names, seconds=600.0, reason="cables")
        else:
            self.world.ask("maintenance-stop", all=True)

    @rule(seconds=st.sampled_from([86400.0, -86400.0, 200.0, -200.0]))
    def all_clocks_are_set(self, seconds):
        self.world.wall += seconds

    @rule(names=FEW)
    def a_person_releases(self, names):
        self.world.ask("release", *names)

    # ------------------------------------------------------------------------------------------ what must hold

    @invariant()
    def a_drain_of_a_person_stands_as_it_was_set(self):
        for name, reason in self.foreign.items():
            view = self.world.cluster.view(name)
            assert view.drained
            assert view.reason == reason

    @invariant()
    def everything_can_be_looked_at(self):
        if hasattr(self, "world"):
            fleet = self.world.desk.fleet(self.world.now)
            assert sum(fleet.nodes[fitness.value] for fitness in NodeFitness) == fleet.quorum.seen
            assert self.world.desk.counts(self.world.now).stop is (fleet.stop is not None)

    def teardown(self):
        """When all is well again, nothing of ours is left but orphans, and those go by a person's word."""
        world = self.world
        for what in ("drain", "undrain"):
            vars(world.cluster).pop(what, None)
        self.the_scheduler_is("up")
        self.silent.clear()
        for name, node in world.nodes.items():
            node.mode = Mode.DRAIN
            node.well()
            world.alert(name, firing=False, starts=3e9)
        world.desk.lead(True, world.now)
        world.ask("start")
        world.ask("maintenance-stop", all=True)
        world.ask("mode", "*", mode=Mode.DRAIN)
        for _ in range(14):
            world.round()
            for node in world.nodes.values():
                node.well()
        rows = [row for row in world.desk.fleet(world.now).drains if row.node != "stranger"]
        assert {row.owner for row in rows} <= {"orphan", "foreign"}, rows
        assert {row.node for row in rows if row.owner == "foreign"} == set(self.foreign)
        assert all(node.owned is None for node in world.nodes.values())
        world.ask("release", all=True)
        world.round(2)
        left = {row.node for row in world.desk.fleet(world.now).drains}
        assert left - {"stranger"} == set(self.foreign)
        assert world.desk.next_due() >= world.mono


AFleet.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_the_laws_hold_whatever_happens = AFleet.TestCase
