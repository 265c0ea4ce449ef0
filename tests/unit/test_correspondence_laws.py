"""The laws of acting hold for any life of a node with a controller: faults, people, kills, a disk that is full."""

from __future__ import annotations

from fleet_side import NAME, DeskNode, FleetSide, act, fault
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ibmon.drain import policy
from ibmon.model import Mode


class Correspondences(RuleBasedStateMachine):
    """Faults, losses, kills, people and outages in any order; then everything is well and must end well."""

    def __init__(self):
        super().__init__()
        self.fleet = FleetSide()
        self.node = DeskNode(self.fleet)
        self.foreign = ""

    @rule(bad=st.booleans())
    def health(self, bad):
        self.node.findings = (fault(),) if bad else ()
        self.node.tick()

    @rule(seconds=st.sampled_from([0.5, 2.0, 30.0, 90.0, 700.0]))
    def time(self, seconds):
        self.node.after(seconds)

    @rule(lost=st.sampled_from(["", "", "", "report", "reply"]))
    def report(self, lost):
        self.node.lost = lost
        self.node.report()
        self.node.lost = ""

    @rule()
    def killed(self):
        self.node.start()

    @rule(effects=st.integers(0, 12))
    def will_be_killed(self, effects):
        self.node.fuse = effects

    @rule(lag=st.sampled_from([0, 0, 1, 3]))
    def the_engine_is_behind(self, lag):
        self.node.lag = lag

    @rule(stop=st.booleans(), mode=st.sampled_from([Mode.DRAIN, Mode.DRAIN, Mode.OBSERVE]))
    def controller(self, stop, mode):
        self.fleet.stop, self.fleet.mode = stop, mode

    @rule(silent=st.booleans())
    def begins(self, silent):
        self.fleet.silent = silent

    @rule(do=st.sampled_from(["hang", "down", "up", "up"]))
    def outage(self, do):
        act(self.fleet, do)

    @precondition(lambda self: not self.fleet.reason)
    @rule()
    def somebody_drains(self):
        act(self.fleet, "drain")
        self.foreign = self.fleet.reason

    @precondition(lambda self: self.fleet.reason)
    @rule()
    def somebody_resumes(self):
        act(self.fleet, "resume")
        self.foreign = ""

    @invariant()
    def a_drain_of_somebody_else_is_never_touched(self):
        if self.foreign:
            assert self.fleet.reason == self.foreign

    @invariant()
    def our_drain_is_on_record_while_the_disk_is_well(self):
        view = self.fleet.cluster.view(NAME)
        if policy.claims(view):
            assert policy.owns(self.node.disk.ownership(), view)

    def teardown(self):
        act(self.fleet, "up")
        self.node.fuse, self.node.lag = None, 0
        if self.foreign:
            act(self.fleet, "resume")
        self.fleet.stop, self.fleet.mode, self.fleet.silent = False, Mode.DRAIN, False
        self.node.findings = ()
        for _ in range(20):
            self.node.after(60)
            self.node.live(4)
        assert self.fleet.reason == ""
        record = self.node.disk.ownership()
        assert record is None or record.gone
        assert not self.node.told.waiting


Correspondences.TestCase.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestTheLawsOfACorrespondence = Correspondences.TestCase
