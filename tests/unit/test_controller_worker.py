"""The controller's scheduler thread: one bulk read a half minute, each job through reconcile, an outcome for each."""

import queue
import threading
import time

import msgspec
import pytest

from ibmon.config import LimitsConfig
from ibmon.controller.schedulers import WholeScheduler
from ibmon.controller.values import DrainJob, FleetView, Outcome, ReleaseJob
from ibmon.controller.worker import CHECK_SECONDS, Permits, Rights, Unread, Worker
from ibmon.drain.cluster import Cluster
from ibmon.model import BlockCode, Intent, Mode, Now, Ownership
from ibmon.ports import SchedulerError
from ibmon.recording import SchedulerAct

WHY = "ibmon: port-down mlx5_0/1 DOWN/Polling 62s>60s [id 7f3a9c]"
WISH = Intent(drain=True, id="7f3a9c", reason=WHY, since=1000.0)
ASKED = Ownership("7f3a9c", WHY, asked=1000.0)
HELD = Ownership("7f3a9c", WHY, asked=1000.0, held=True)
SECONDS = 20  # no test waits so long unless it fails


class Clock:
    """Stands still until it is set."""

    def __init__(self):
        self.at = 0.0

    def now(self):
        return Now(self.at, 1_000.0 + self.at)


@pytest.fixture
def cluster():
    return Cluster(100, wall=lambda: 1000.0)


@pytest.fixture
def site(cluster):
    """The controller's scheduler thread beside a simulated cluster; what it posts comes from `site.next()`."""

    class Site:
        mode, stop = Mode.DRAIN, False
        voids = False

        def __init__(self):
            self.news = queue.SimpleQueue()
            self.reads = 0
            self.broken = None
            self.checks = []
            self.problems = ()
            leaves = lambda names: dict.fromkeys(sorted(names)[:2], "leaf1")  # noqa: E731
            whole = WholeScheduler(self.pools, self.node, leaves, self.check)
            self.held = threading.Event()  # while it is clear no read returns
            self.held.set()
            permits = Permits(mode=lambda _: self.mode, stop=self.is_stopped, limits=LimitsConfig())
            self.clock = Clock()
            self.worker = Worker(self.news.put, whole, permits, self.clock, look_seconds=3600.0)
            self.worker.start()

        def is_stopped(self):
            if self.voids:
                self.worker.void()
            return self.stop

        def pools(self):
            self.reads += 1
            self.held.wait(SECONDS)
            if self.broken:
                raise self.broken
            return cluster.client("node0001").read_pools()

        def node(self, name):
            if self.broken:
                raise self.broken
            return cluster.client(name)

        def check(self, name):
            self.checks.append(name)
            if isinstance(self.problems, Exception):
                raise self.problems
            return self.problems

        def any(self):
            return self.news.get(timeout=SECONDS)

        def next(self):
            """The next news that is not about rights."""
            while isinstance(news := self.any(), Rights):
                pass
            return news

        def look(self):
            """Have all read; what comes of it before the next job does."""
            self.worker.look()
            self.worker.submit(DrainJob("node0099", WISH, ASKED))
            found = []
            while not isinstance(news := self.any(), Outcome):
                found.append(news)
            return found

        def do(self, job):
            self.worker.submit(job)
            return self.next()

    site = Site()
    yield site
    site.worker.close(SECONDS)


def test_the_first_thing_is_to_read_all(site):
    view = site.next()
    assert isinstance(view, FleetView)
    assert len(view.nodes) == 100
    assert view.groups == {"node0001": "leaf1", "node0002": "leaf1"}


def test_a_drain_is_made_with_the_words_of_the_node(site, cluster):
    site.next()
    outcome = site.do(DrainJob("node0007", WISH, ASKED))
    assert isinstance(outcome, Outcome)
    assert (outcome.node, outcome.done.outcome) == ("node0007", "done")
    assert cluster.view("node0007").reason == WHY


def test_a_drain_of_ours_is_given_back_and_one_of_others_is_not(site, cluster):
    site.next()
    site.do(DrainJob("node0007", WISH, ASKED))
    assert site.do(ReleaseJob("node0007", ASKED)).done.outcome == "gone"
    assert not cluster.view("node0007").drained
    cluster.act("node0008", SchedulerAct(by="admin", do="drain", reason="mine"))
    assert site.do(ReleaseJob("node0008", HELD)).done.outcome == "gone"
    assert cluster.view("node0008").reason == "mine"


def test_what_was_taken_away_while_held_is_not_drained_again(site, cluster):
    site.next()
    done = site.do(DrainJob("node0007", WISH, HELD)).done
    assert (done.outcome, cluster.view("node0007").drained) == ("gone", False)


def test_a_persons_word_is_enough_for_a_drain_without_record(site, cluster):
    site.next()
    cluster.act("node0009", SchedulerAct(by="slurm", do="drain", reason=WHY))
    assert site.do(ReleaseJob("node0009", None, by="alice")).done.outcome == "gone"
    assert not cluster.view("node0009").drained


@pytest.mark.parametrize(
    ("mode", "stop", "code"),
    [(Mode.DRAIN, True, BlockCode.STOP), (Mode.OBSERVE, False, BlockCode.MODE), (Mode.ALERT, False, BlockCode.MODE)],
)
def test_stop_and_mode_are_asked_right_before_the_write(site, cluster, mode, stop, code):
    site.next()
    site.mode, site.stop = mode, stop
    done = site.do(DrainJob("node0007", WISH, ASKED)).done
    assert (done.outcome, done.code) == ("blocked", code)
    assert not cluster.view("node0007").drained


def test_the_limit_is_counted_at_the_scheduler(site, cluster):
    site.next()
    for name in ("node0001", "node0002"):
        cluster.act(name, SchedulerAct(by="x", do="drain", reason=f"ibmon: x [id {name[-4:]}]"))
    done = site.do(DrainJob("node0007", WISH, ASKED)).done
    assert (done.outcome, done.code) == ("blocked", BlockCode.LIMIT_NODES)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SchedulerError("connection refused"), BlockCode.SCHEDULER_UNREACHABLE),
        (SchedulerError("access denied", forbidden=True), BlockCode.FORBIDDEN),
        (RuntimeError("a fault of our own"), BlockCode.SCHEDULER_UNREACHABLE),
    ],
)
def test_whatever_goes_wrong_has_an_outcome(cluster, error, code):
    def fail(*_):
        raise error

    news = queue.SimpleQueue()
    permits = Permits(mode=lambda _: Mode.DRAIN, stop=lambda: False, limits=LimitsConfig())
    worker = Worker(news.put, WholeScheduler(fail, fail, dict), permits, Clock())
    worker.start()
    try:
        unread = news.get(timeout=SECONDS)
        assert isinstance(unread, Unread)
        assert unread.code is code
        for job in (DrainJob("node0007", WISH, ASKED), ReleaseJob("node0007", ASKED), ReleaseJob("node0007", None)):
            worker.submit(job)
            assert news.get(timeout=SECONDS).done.outcome == "failed"
    finally:
        worker.close(SECONDS)


def until(holds):
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_what_was_submitted_before_it_was_declared_void_is_not_begun_and_nothing_of_it_is_told(site, cluster):
    site.next()
    site.held.clear()
    site.worker.look()
    until(lambda: site.reads == 2)
    site.worker.submit(DrainJob("node0007", WISH, ASKED))
    site.worker.void()
    site.held.set()
    assert isinstance(site.next(), FleetView)
    assert site.do(DrainJob("node0008", WISH, ASKED)).node == "node0008"
    assert not cluster.view("node0007").drained


def test_a_job_that_is_declared_void_while_it_is_under_way_writes_nothing(site, cluster):
    site.next()
    site.voids = True  # at the first gate, which is behind it then
    site.worker.submit(DrainJob("node0007", WISH, ASKED))
    until(lambda: site.worker._age > 0 and site.worker._jobs.empty())
    site.voids = False
    assert site.do(DrainJob("node0008", WISH, ASKED)).node == "node0008"
    assert not cluster.view("node0007").drained


def test_a_read_that_takes_longer_than_the_time_between_two_leaves_time_for_jobs(site, cluster):
    site.next()
    site.held.clear()
    site.worker.look()
    until(lambda: site.reads == 2)
    site.clock.at += 4000.0
    site.worker.submit(DrainJob("node0007", WISH, ASKED))
    site.held.set()
    assert isinstance(site.next(), FleetView)
    assert isinstance(site.next(), Outcome)
    assert cluster.view("node0007").drained


def test_a_look_that_is_asked_for_in_the_moment_in_which_one_ends_is_made(site):
    site.next()
    assert site.any() == Rights(())
    now, asks = site.clock.now, iter([False, True])

    def ask_at_the_end():
        if site.reads == 2 and next(asks, False):
            site.worker.look()
        return now()

    site.worker._check_due = float("inf")
    site.clock.now = ask_at_the_end
    site.worker.look()
    for _ in range(2):
        assert isinstance(site.next(), FleetView)


def test_the_rights_of_a_drain_are_asked_for_before_one_is_due_and_once(site):
    site.next()
    assert site.any() == Rights(())
    site.look()
    assert len(site.checks) == 1


def test_rights_that_are_missing_are_told_and_asked_for_again_every_five_minutes(site):
    site.next()
    site.any()
    site.worker._check_due = float("-inf")
    site.problems = ("Kubernetes forbids ibmon to patch node x",)
    assert site.look()[1:] == [Rights(site.problems)]
    assert len(site.look()) == 1
    site.clock.at += CHECK_SECONDS
    site.problems = ()
    assert site.look()[1:] == [Rights(())]


@pytest.mark.parametrize(("mode", "stop"), [(Mode.OBSERVE, False), (Mode.ALERT, False), (Mode.DRAIN, True)])
def test_where_nothing_may_be_drained_no_right_is_asked_for(site, mode, stop):
    site.next()
    site.any()
    site.worker._check_due = float("-inf")
    site.mode, site.stop = mode, stop
    site.look()
    assert len(site.checks) == 1


def test_a_scheduler_that_does_not_answer_says_nothing_about_rights_and_is_asked_again(site):
    site.next()
    site.any()
    site.worker._check_due = float("-inf")
    site.problems = SchedulerError("connection refused")
    assert len(site.look()) == 1
    site.problems = ()
    assert site.look()[1:] == [Rights(())]


def test_no_node_at_all_is_an_error_and_not_an_empty_cluster(cluster):
    whole = WholeScheduler(list, cluster.client, lambda _: {})
    with pytest.raises(SchedulerError, match="names no node at all"):
        whole.read()


def test_the_topology_is_asked_again_only_when_nodes_come_or_go(cluster):
    asked = []
    pools = [cluster.client("node0001").read_pools()]

    def topology(names):
        asked.append(len(names))
        return {}

    whole = WholeScheduler(lambda: pools[-1], cluster.client, topology)
    whole.read()
    whole.read()
    pools.append(Cluster(101).client("node0001").read_pools())
    whole.read()
    assert asked == [100, 101]


def test_a_topology_that_cannot_be_learned_anew_keeps_no_drain_waiting(cluster, caplog):
    trouble = []

    def topology(names):
        if trouble:
            raise SchedulerError(trouble[0])
        return dict.fromkeys(names, "leaf1")

    pools = list(cluster.client("node0001").read_pools())
    whole = WholeScheduler(lambda: pools, cluster.client, topology)
    trouble.append("topology.toml: line 3 is half written")
    with pytest.raises(SchedulerError, match="half written"):
        whole.read()  # what never was known may be of no less than all leaves
    trouble.clear()
    whole.read()
    pools[0] = msgspec.structs.replace(pools[0], nodes=pools[0].nodes[1:])
    trouble.append("topology.toml: line 3 is half written")
    for _ in range(3):
        assert set(whole.read().groups.values()) == {"leaf1"}
    assert caplog.text.count("half written") == 1
