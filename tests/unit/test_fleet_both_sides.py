"""The node's half and the controller's core against each other: whatever gets lost or killed, they end agreed."""

from __future__ import annotations

import random

import pytest
from fleet_side import DeskNode, FleetSide, fault
from fleet_world import World

from ibmon.controller.values import Ask, Refused
from ibmon.drain import policy
from ibmon.model import BlockCode, Mode, Now
from ibmon.recording import SchedulerAct

NAME = "n1"


class Core(FleetSide):
    """The controller's core with its scheduler and 39 other nodes; it reads the scheduler every half minute."""

    def __init__(self) -> None:
        self.world = World(40).begin()
        self.world.wait(1)
        super().__init__(self.world.cluster, node=NAME)
        self._looked = self.world.mono

    def node_of(self):
        """Our node, in the world's time."""
        node = DeskNode(self)
        node.now = Now(self.world.mono, self.world.wall)
        self.cluster._wall = lambda: self.world.wall
        self.own = node
        return node

    def answer(self, report):
        late = self.own.now.monotonic - self.world.mono
        if late > 0:
            self.world.wait(late)
        if self.world.mono - self._looked >= 30:
            self._looked = self.world.mono
            self.world.look()
            self.world.all_say(NAME)
            self.world.work()
        self.reports.append(report)
        reply = self.world.desk.report(report, self.world.now)
        assert not isinstance(reply, Refused), reply
        self.world.work()
        return reply

    def ask(self, action, **more):
        self.world.desk.ask(Ask(action=action, user="operator", **more), self.world.now)
        self.world.work()

    def act(self, do):
        self.cluster.act(NAME, SchedulerAct(by="admin", do=do, reason="bad DIMM"))


@pytest.fixture
def core():
    return Core()


@pytest.fixture
def node(core):
    return core.node_of()


def agreed(node, core):
    """Whether the drain that stands is ours by the node's record."""
    return policy.owns(node.disk.ownership(), core.cluster.view(NAME))


def test_a_node_is_drained_and_given_back(node, core):
    node.findings = (fault(),)
    node.live(60)
    assert agreed(node, core)
    assert node.desk.owned.held
    node.findings = ()
    node.live(60)
    assert core.reason == ""
    assert node.disk.ownership() is None
    assert node.outcomes == [("drain", "done", None), ("release", "gone", None)]


def test_who_resumes_the_node_is_respected_by_both(node, core):
    node.findings = (fault(),)
    node.live(60)
    core.act("resume")
    node.live(120)
    assert core.reason == ""
    assert node.desk.blocked is BlockCode.OVERRIDE
    assert node.disk.ownership().gone


def test_a_wish_behind_somebody_elses_drain_ends_without_a_trace(node, core):
    core.act("drain")
    node.findings = (fault(),)
    node.live(60)
    assert node.desk.blocked is BlockCode.FOREIGN_DRAIN
    node.findings = ()
    node.live(800)
    assert node.disk.ownership() is None
    assert core.reason == "bad DIMM"


def test_an_operators_release_is_an_override_on_the_node(node, core):
    node.findings = (fault(),)
    node.live(60)
    core.ask("release", nodes=(NAME,))
    node.live(60)
    assert core.reason == ""
    assert node.desk.blocked is BlockCode.OVERRIDE


def trouble(chance, node, core):
    """One thing that happens to either side, or just time."""
    what = chance.randrange(11)
    if what == 0:
        node.findings = (fault(),) if chance.random() < 0.6 else ()
        node.tick()
    elif what == 1:
        node.live(chance.choice([2, 10, 60, 200]))
    elif what == 2:
        node.lost = chance.choice(["report", "reply"])
        node.report()
        node.lost = ""
    elif what == 3:
        node.start()
    elif what == 4 and not core.reason:
        core.act("drain")
    elif what == 5 and core.reason:
        core.act("resume")
    elif what == 6:
        core.world.save()
        core.world.crash()
    elif what == 7:
        node.stopped = not node.stopped
    elif what == 8:
        core.ask("release", nodes=(NAME,))
    elif what == 9:
        core.ask(chance.choice(["stop", "start", "start"]))
    elif what == 10:
        core.ask("mode", nodes=(NAME,), mode=chance.choice([Mode.DRAIN, Mode.DRAIN, Mode.OBSERVE]))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happened_the_two_sides_end_agreed(node, core, seed):
    chance = random.Random(seed)
    for _ in range(50):
        before = core.reason
        trouble(chance, node, core)
        if before == "bad DIMM":
            assert core.reason in (before, ""), "a drain of somebody else was overwritten"
        if policy.claims(core.cluster.view(NAME)):
            assert agreed(node, core), "a drain that is nobody's"
    if core.reason == "bad DIMM":
        core.act("resume")
    core.ask("start")
    core.ask("mode", nodes=(NAME,), mode=Mode.DRAIN)
    node.stopped, node.findings = False, ()
    node.live(1500)
    assert core.reason == ""
    assert node.disk.ownership() is None

    node.findings = (fault("mlx5_9"),)
    node.live(200)
    assert agreed(node, core)
