"""The laws of acting, over random lives of a node that is killed between any two effects.

The writes are judged in `law_world.py`; what broke a law once is a story in `test_law_stories.py`. IBMON_LAWS=N plays N
lives instead of a few. Where each law is held:

1. no drain without mode, cause, room, trust, or in grace, maintenance or stop: `judge_drain`; trust: test_intent
2. what is not ours is not touched, an orphan is told: `judge_write`, `judge_undrain`, the invariant; test_notices
3. given back only when all has cleared and nobody must look: `judge_undrain`
4. a scheduler's trouble is no fault of the node: `what_is_over_is_given_back`; deadlines: test_slurm, test_command
5. what cannot be read never drains: `judge_drain`, test_engine_laws
6. every fault has a way out: `what_is_over_is_given_back`, test_engine_laws
7. a kill loses no intent and repeats no effect: `what_is_due_is_done`, `judge_drain`; the store's file: test_store
8. mode and stop hold for every write: `judge_write`
9. running work goes on: `Scheduler._call` (nothing but the drain changes)
10. giving back is not limited: `what_is_over_is_given_back`, test_drain_laws
11. a resume is respected: `judge_drain`; the alert after an hour: test_notices
12. no hook drains what this page forbids: the invariant of the gate; the hooks: test_slurm_hooks
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from law_world import DOWN, OTHERS, SLOW, LawWorld

from ibmon.cli.quickcheck import Options, answer
from ibmon.cli.verdictfile import Verdict
from ibmon.drain import policy
from ibmon.exporter.status import status_document
from ibmon.model import Mode, NodeFitness
from ibmon.recording import SchedulerAct
from ibmon.runtime.replay import NODE

LIVES = int(os.environ.get("IBMON_LAWS", "30"))
HALF = st.booleans()
SELDOM = st.sampled_from([False, False, False, True])


class Life(RuleBasedStateMachine):
    """What may happen to a node, its daemon, its scheduler and its people, in any order."""

    def __init__(self):
        super().__init__()
        self.it = LawWorld()
        self.boots = 0

    # ------------------------------------------------------------------------------------------ the node

    @rule(seconds=st.sampled_from([1, 25, 65, 130, 400, 1300]))
    def time_passes(self, seconds):
        self.it.run(seconds)

    @rule(device=st.sampled_from(["mlx5_0", "mlx5_0", "mlx5_1"]), how=st.sampled_from([DOWN, DOWN, SLOW]))
    def a_port_goes_bad(self, device, how):
        self.it.set_port(device, how)
        self.it.run(90)

    @precondition(lambda self: self.it.bad)
    @rule()
    def all_ports_get_well(self):
        for device in list(self.it.bad):
            self.it.set_port(device, None)

    @rule(code=st.sampled_from(["EIO", None, None]))
    def a_port_cannot_be_read(self, code):
        self.it.blind("mlx5_1", code)

    @rule(effects=st.integers(0, 12))
    def it_will_be_killed(self, effects):
        self.it.fuse = effects

    @rule(effects=st.integers(0, 12))
    def it_will_be_killed_when_it_acts(self, effects):
        self.it.run_to_the_next_request()
        self.it.fuse = effects
        self.it.run(1)

    @rule()
    def it_is_killed(self):
        self.it.restart()

    @rule()
    def it_reboots(self):
        self.boots += 1
        self.it.reboot(f"boot-{self.boots}")

    @rule()
    def its_state_is_lost(self):
        self.it.lose_state()

    @rule(full=SELDOM)
    def the_disk(self, full):
        self.it.store.full = full

    # ---------------------------------------------------------------------------------------- the scheduler

    @rule(do=st.sampled_from(["up", "up", "hang", "down"]))
    def the_controller(self, do):
        self.it.outage(do)

    @rule(call=st.sampled_from(["read_node", "drain", "undrain"]))
    def the_controller_will_hang_in(self, call):
        self.it.scheduler.hangs_at = call

    @rule(full=HALF)
    def others_are_drained(self, full):
        for number, name in enumerate(OTHERS):
            reason = f"ibmon: port-down mlx5_0/1 DOWN [id 00000{number}]"
            self.it.cluster.act(name, SchedulerAct(do="drain" if full else "resume", by="root", reason=reason))

    @rule(flags=st.sampled_from([("IDLE",), ("IDLE",), ("ALLOCATED",), ("IDLE", "MAINT"), ("DOWN",)]))
    def the_state_changes(self, flags):
        self.it.cluster.set_flags(NODE, *flags)

    # ------------------------------------------------------------------------------------------------ people

    @rule(mode=st.sampled_from([Mode.DRAIN, Mode.DRAIN, Mode.ALERT, Mode.OBSERVE]))
    def the_mode_changes(self, mode):
        self.it.set_mode(mode)

    @rule(present=SELDOM)
    def the_stop_file(self, present):
        self.it.set_stop(present)

    @precondition(lambda self: self.it.reachable)
    @rule(reason=st.sampled_from(["swap", "ibmon: by hand", "ibmon: copied [id 000001]"]))
    def a_person_drains(self, reason):
        self.it.person_drains(reason)

    @precondition(lambda self: self.it.reachable and self.it.view.drained)
    @rule()
    def a_person_resumes(self):
        self.it.person_resumes()

    @rule(seconds=st.sampled_from([60.0, 900.0]), subjects=st.sampled_from([(), ("mlx5_0/1",)]))
    def maintenance_begins(self, seconds, subjects):
        self.it.person("maintenance-start", seconds=seconds, subjects=subjects, reason="cable")

    @rule(action=st.sampled_from(["maintenance-stop", "clear", "release"]))
    def a_person_asks(self, action):
        self.it.person(action)
        self.it.run(1)

    # -------------------------------------------------------------------------------------- what must hold

    @invariant()
    def a_drain_of_a_person_stands_as_it_was_set(self):
        if self.it.foreign is not None:
            assert self.it.view.drained, "law 2"
            assert self.it.view.reason == self.it.foreign, "law 2"

    @invariant()
    def the_gate_refuses_for_our_own_drain_only(self):
        drain = self.it.engine.snapshot(self.it.now())
        document = status_document(drain)
        refused = answer(Options(gate=True), Verdict("unfit", "", 0.0, document)).code == 1
        held = drain.drain.owned is not None and drain.drain.owned.held
        assert not refused or (held and drain.mode is Mode.DRAIN), "law 12"

    def teardown(self):
        try:
            self.heal()
            self.what_is_due_is_done()
            self.what_is_over_is_given_back()
        finally:
            self.it.close()

    def heal(self):
        """All but the ports is well again."""
        it = self.it
        it.fuse, it.scheduler.hangs_at, it.store.full = None, None, False
        it.outage("up")
        it.blind("mlx5_1", None)
        it.cluster.set_flags(NODE, "IDLE")
        it.set_mode(Mode.DRAIN)
        it.set_stop(present=False)
        it.person("maintenance-stop")
        for name in OTHERS:
            it.cluster.act(name, SchedulerAct(do="resume", by="root"))

    def what_is_due_is_done(self):
        it = self.it
        it.run(1500)
        if it.bad and it.foreign is None and not self.nobodys():
            respected = it.respected is not None or (it.released and it.engine.desk.override is not None)
            assert it.view.drained or respected, "law 7: an intent was lost"
            if it.view.drained:
                it.run(500)
                assert policy.owns(it.store.ownership(), it.view)
        if self.nobodys() and it.view.reason == it.lost:
            assert it.engine.snapshot(it.now()).drain.orphaned, "law 2: an orphan is told"

    def what_is_over_is_given_back(self):
        it = self.it
        for device in list(it.bad):
            it.set_port(device, None)
        it.run(2500)
        assert it.engine.fitness in (NodeFitness.FIT, NodeFitness.WATCH), "law 4"
        if it.view.drained and it.foreign is None:
            it.person("clear")
            it.run(1000)
        if self.nobodys():
            it.person("release")
            it.run(1)
            it.foreign = None
        assert it.view.drained is (it.foreign is not None), "law 6: every fault has a way out"

    def nobodys(self):
        """Whether a drain in our words stands of which the node has no record."""
        it = self.it
        in_words = it.view.drained and policy.parse_reason(it.view.reason) is not None
        return in_words and not policy.owns(it.store.ownership(), it.view)


Life.TestCase.settings = settings(
    max_examples=LIVES, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLife = pytest.mark.timeout(max(60, LIVES * 5))(Life.TestCase)
