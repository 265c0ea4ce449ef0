"""When reports leave: at once with news, rarely without, seldom to nobody; and what the thread does with trouble."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time

import pytest
from bells import Bell
from delivery_counts import Metrics
from exporter_snapshots import snapshot
from fleet_side import BOOT, LIMITS, NAME, Disk, FleetSide, fault

from ibmon.drain.controller import NotLeaderError, ReplayedError
from ibmon.drain.correspondence import Correspondence
from ibmon.drain.reconcile import Gates
from ibmon.messages import Drain, EffectDone, FleetWord
from ibmon.model import BlockCode, Intent, Mode, NodeFitness, Now
from ibmon.ports import SchedulerError
from ibmon.report import INTERVAL
from ibmon.runtime.reporter import GAP, Numbers, Pace, Reporter
from ibmon.snapshot import DrainView

SECONDS = 10  # no test waits so long unless it fails
INTENT = Intent(drain=True, id="7f3a9c", reason="ibmon: port-down mlx5_3/1 DOWN [id 7f3a9c]", since=5.0)


class Clock:
    """Time that goes when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self):
        return Now(self.seconds, 1_700_000_000.0 + self.seconds)


class Way:
    """To a `FleetSide`, with what is to go wrong first in `trouble`."""

    def __init__(self, clock=None) -> None:
        self.fleet = FleetSide(wall=lambda: clock.now().wall if clock else time.time())
        self.trouble = []
        self.sent = []
        self.released = threading.Event()
        self.hangs = False
        self.closed = False
        self._clock = clock

    def send(self, report):
        self.sent.append((self._clock.seconds if self._clock else time.monotonic(), report))
        if self.hangs:
            assert self.released.wait(3 * SECONDS)
            raise SchedulerError("stopped")
        if self.trouble and (error := self.trouble.pop(0)) is not None:
            raise error
        return self.fleet.answer(report)

    def abort(self):
        self.released.set()

    def close(self):
        self.closed = True


class Scene:
    """A reporter without a thread, in virtual time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.way = Way(self.clock)
        self.posted = []
        self.metrics = Metrics()
        self.picture = snapshot(node=NAME, boot_id=BOOT)
        self.reporter = Reporter(
            self.posted.append, self.way, correspondence(), self.clock, node=NAME, metrics=self.metrics
        )

    def show(self, **facts):
        self.picture = snapshot(**{"node": NAME, "boot_id": BOOT, "sequence": self.picture.sequence + 1, **facts})
        return self.reporter.show(self.picture)

    def run(self, seconds):
        """So long without anything new; what was sent meanwhile."""
        end, before = self.clock.seconds + seconds, len(self.way.sent)
        for _ in range(1000):
            pause = self.reporter.turn(self.clock.now())
            if self.clock.seconds + pause > end:
                break
            self.clock.seconds += pause
        self.clock.seconds = end
        return self.way.sent[before:]

    def wish(self):
        """The engine asks for a drain and shows it."""
        self.reporter.submit(Drain(INTENT))
        return self.show(fitness=NodeFitness.UNFIT, findings=(fault(),), drain=DrainView(INTENT, asks=True))


def correspondence():
    gates = Gates(mode=lambda: Mode.DRAIN, stop=lambda: False, limits=LIMITS)
    return Correspondence(Disk(), lambda: gates, version="1", boot_id=BOOT)


@pytest.fixture
def scene():
    return Scene()


# ------------------------------------------------------------------------------------------ when


def test_nothing_is_reported_before_there_is_a_picture(scene):
    assert scene.run(100) == []


def test_without_news_a_report_leaves_every_half_minute_and_not_to_the_second(scene):
    scene.show()
    times = [at for at, _ in scene.run(40 * INTERVAL)]
    gaps = [round(b - a, 3) for a, b in itertools.pairwise(times)]
    assert len(times) in range(38, 43)
    assert 0.9 * INTERVAL <= min(gaps) < max(gaps) <= 1.1 * INTERVAL


def test_two_nodes_do_not_beat_in_step():
    one, other = Pace("node0001"), Pace("node0002")
    for pace in (one, other):
        pace.sent(0.0)
    assert one.due(changed=False, waiting=False) != other.due(changed=False, waiting=False)


def test_a_change_leaves_within_a_second_and_two_changes_together(scene):
    scene.show()
    scene.run(10)
    began = scene.clock.seconds
    scene.show(fitness=NodeFitness.WATCH)
    assert [at - began for at, _ in scene.run(0.1)] == [0.0]
    scene.show(fitness=NodeFitness.UNFIT)
    scene.clock.seconds += 0.1
    scene.show(fitness=NodeFitness.UNFIT, findings=(fault(),))
    told = scene.run(5)
    assert len(told) == 1
    assert told[0][0] - began < 1
    assert told[0][1].findings


def test_while_an_answer_is_waited_for_a_report_leaves_every_two_seconds(scene):
    scene.way.fleet.silent = True
    scene.wish()
    times = [at for at, _ in scene.run(21)]
    assert [round(b - a, 3) for a, b in itertools.pairwise(times[1:])] == [2.0] * (len(times) - 2)
    assert len(times) in (11, 12)


def test_an_answer_is_handed_to_the_engine_with_the_word_of_the_controller(scene):
    scene.way.fleet.mode = Mode.DRAIN
    scene.wish()
    scene.run(3)
    assert scene.posted == [EffectDone("drain", "7f3a9c", "done")]
    scene.way.fleet.stop = True
    scene.run(40)
    assert FleetWord(stop=True, mode=Mode.DRAIN) in scene.posted


# ------------------------------------------------------------------------------------------ trouble


def test_nobody_there_is_asked_less_and_less_often_whatever_changes_here(scene, caplog):
    scene.way.trouble = [SchedulerError("connection refused")] * 1000
    scene.show()
    for fitness in (NodeFitness.WATCH, NodeFitness.FIT) * 150:
        scene.show(fitness=fitness)
        scene.run(2)
    times = [at for at, _ in scene.way.sent]
    assert len(times) < 45
    assert all(b - a <= INTERVAL + 2 for a, b in itertools.pairwise(times))
    assert len([r for r in caplog.records if "controller-failing" in r.message]) == 1
    assert scene.metrics.pending == {"controller": 1}
    assert set(scene.metrics.attempts) == {("controller", False)}

    caplog.set_level(logging.INFO)
    scene.way.trouble = []
    scene.run(INTERVAL)
    assert scene.metrics.attempts[-1] == ("controller", True)
    assert scene.metrics.pending == {"controller": 0}
    assert "event=controller-answers" in caplog.text


def test_a_request_meets_its_end_when_nobody_answers(scene):
    scene.way.trouble = [SchedulerError("connection refused")] * 3
    scene.wish()
    scene.run(0.1)
    (done,) = scene.posted
    assert (done.outcome, done.code, done.detail) == (
        "failed", BlockCode.SCHEDULER_UNREACHABLE, "connection refused",
    )  # fmt: skip
    scene.run(INTERVAL)
    assert scene.posted[1:] == [EffectDone("drain", "7f3a9c", "done")]


def test_an_election_is_waited_for_and_ends_no_request(scene):
    scene.way.trouble = [NotLeaderError("does not serve now")] * 4
    scene.wish()
    times = [at for at, _ in scene.run(25)]
    assert scene.posted == [EffectDone("drain", "7f3a9c", "done")]
    assert times[4] - times[0] < 20


def test_an_election_without_an_end_fails_the_request_after_a_minute(scene):
    scene.way.trouble = [NotLeaderError("does not serve now")] * 100
    scene.wish()
    scene.run(70)
    assert [(d.outcome, d.code) for d in scene.posted] == [("failed", BlockCode.SCHEDULER_UNREACHABLE)]


def test_a_number_that_was_seen_before_is_left_behind_at_once(scene):
    scene.way.trouble = [ReplayedError("seen"), ReplayedError("seen"), None]
    scene.show()
    sent = scene.run(0.1)
    numbers = [report.seq for _, report in sent]
    assert len(numbers) == 3
    assert numbers[1] - numbers[0] >= 1000
    assert numbers[2] - numbers[1] >= 1000
    assert scene.metrics.attempts == [("controller", True)]


def test_numbers_grow_over_a_restart_within_a_boot_and_within_a_millisecond():
    before, after = Numbers(), Numbers()
    last = [before.next(50.0) for _ in range(3)][-1]
    assert last == 50_002
    assert after.next(50.5) > last


def test_a_refused_key_switches_actions_off_in_the_picture_until_it_is_taken(scene, caplog):
    scene.way.trouble = [SchedulerError("the controller does not take this node's reports", forbidden=True)]
    assert scene.show().actions_enabled
    scene.run(0.1)
    assert not scene.show().actions_enabled
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    scene.run(INTERVAL)
    assert scene.show().actions_enabled


def test_a_fault_of_our_own_is_told_and_ends_neither_the_thread_nor_the_waiting(scene, caplog):
    scene.way.trouble = [ZeroDivisionError("odd")]
    scene.wish()
    scene.run(0.1)
    assert [(d.outcome, d.detail) for d in scene.posted] == [("failed", "a fault of ibmon: ZeroDivisionError")]
    assert "controller-fault" in caplog.text
    scene.run(INTERVAL)
    assert scene.posted[-1] == EffectDone("drain", "7f3a9c", "done")


# ------------------------------------------------------------------------------------------ the thread


def until(holds):
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def threaded(scene):
    """The scene with the reporter's thread; the clock stands still by itself."""
    scene.posted = queue.Queue()
    scene.reporter._post = scene.posted.put
    scene.reporter._wake = scene.bell = Bell()
    scene.reporter.start()
    yield scene
    scene.reporter.close(SECONDS)


def test_the_thread_reports_a_request_with_the_picture_that_shows_it(threaded):
    threaded.show()
    until(lambda: threaded.way.sent and threaded.bell.settled())
    threaded.clock.seconds += GAP
    threaded.wish()
    assert threaded.posted.get(timeout=SECONDS) == EffectDone("drain", "7f3a9c", "done")
    assert threaded.way.fleet.reason == INTENT.reason


def test_closing_ends_a_call_that_hangs_and_gives_the_connection_back(threaded):
    threaded.way.hangs = True
    threaded.show()
    until(lambda: threaded.way.sent)
    threaded.reporter.close(SECONDS)
    assert threaded.way.closed
    threaded.reporter.close(SECONDS)  # the daemon knows it under two names


def test_a_number_stays_one_that_reports_may_have_however_often_it_is_refused():
    numbers = Numbers()
    for _ in range(500):
        numbers.skip()
        last = numbers.next(1e7)
    assert last < numbers.next(1e7) <= 2**53
