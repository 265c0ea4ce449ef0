"""The reader threads: order, one event a job, and nobody waits for a device that hangs."""

import os
import queue
import threading
from collections import defaultdict

import pytest
from sysfs_trees import StillClock, port_files, virtual, write

from ibmon.messages import Discover, Discovered, ListingDone, Read, ReadDone, ReadListing
from ibmon.model import Tier
from ibmon.recording import Frame
from ibmon.sysfs import danger
from ibmon.sysfs.files import FileTree
from ibmon.sysfs.pool import PATIENCE, ReaderPool
from ibmon.sysfs.source import LocalSource, SourceError

SECONDS = 10  # no test waits so long unless it fails
FILES = {**port_files("mlx5_0"), **port_files("mlx5_1")}
STATE = (Tier.STATE,)


class Gates:
    """A tree in which reads of a path wait until they are let through."""

    def __init__(self, tree):
        self.tree = tree
        self.shut = {}
        self.reached = defaultdict(threading.Event)
        self.readers = defaultdict(int)

    def __getattr__(self, call):
        return getattr(self.tree, call)

    def close(self, path):
        self.shut[path] = threading.Event()

    def open(self, path):
        self.shut.pop(path).set()

    def read(self, path):
        if (gate := self.shut.get(path)) is not None:
            self.readers[path] += 1
            self.reached[path].set()
            assert gate.wait(SECONDS)
        return self.tree.read(path)


class Bench:
    """A pool over two devices, its events, and what they tell."""

    def __init__(self, tree):
        self.tree = tree
        self.events = queue.Queue()
        self.clock = StillClock()
        self.pool = ReaderPool(self.events.put, lambda: LocalSource(os.getpid(), tree, self.clock), self.clock)
        self.devices = {}

    def next(self):
        return self.events.get(timeout=SECONDS)

    def discover(self, *names):
        for name in names:
            self.pool.submit([Discover(name, 1)])
            event = self.next()
            assert isinstance(event, Discovered)
            self.devices[name] = event.device
        return self

    def state(self, name):
        return Read(name, 1, STATE, self.devices[name].layout.tiers[Tier.STATE])


@pytest.fixture
def bench():
    one = Bench(Gates(virtual(Frame(t=0, files=FILES)))).discover("mlx5_0", "mlx5_1")
    yield one
    for path in list(one.tree.shut):
        one.tree.open(path)
    one.pool.close(SECONDS)


GATE = "class/infiniband/mlx5_0/ports/1/state"


def hang(bench):
    """Let a read of mlx5_0 hang."""
    bench.tree.close(GATE)
    bench.pool.submit([bench.state("mlx5_0")])
    assert bench.tree.reached[GATE].wait(SECONDS)


def test_jobs_are_done_in_their_order_with_one_event_each(bench):
    bench.pool.submit([ReadListing(), bench.state("mlx5_1"), Discover("mlx5_0", 2), bench.state("mlx5_1")])
    listing, first, found, second = [bench.next() for _ in range(4)]
    assert isinstance(listing, ListingDone)
    assert listing.listing.names == ("mlx5_0", "mlx5_1")
    assert first == second
    assert isinstance(first, ReadDone)
    assert (first.reading.values, first.tiers) == ((4,), STATE)
    assert (found.name, found.device.layout.generation) == ("mlx5_0", 2)


def test_a_device_that_is_not_there_is_discovered_as_none(bench):
    bench.pool.submit([Discover("mlx5_9", 5)])
    assert bench.next() == Discovered("mlx5_9", None)


@pytest.mark.parametrize("job", [Read("mlx5_0", 99, STATE, (0,)), Read("mlx5_9", 1, STATE, (0,))])
def test_a_read_of_another_generation_answers_that_the_device_has_gone(bench, job):
    bench.pool.submit([job])
    event = bench.next()
    assert (event.reading.device, event.reading.generation, event.reading.errnos) == (
        job.device,
        job.generation,
        {0: 19},
    )


def test_a_hanging_device_is_left_to_its_thread_and_the_others_go_on(bench):
    hang(bench)
    bench.pool.submit([bench.state("mlx5_1")])
    bench.pool.abandon("mlx5_0")
    assert bench.next().reading.device == "mlx5_1"
    assert bench.pool.stuck() == {"mlx5_0": os.getpid()}


def test_a_hanging_device_gets_no_second_read_until_the_first_is_back(bench):
    hang(bench)
    bench.pool.abandon("mlx5_0")
    bench.pool.submit([bench.state("mlx5_0"), bench.state("mlx5_1")])
    assert bench.next().reading.device == "mlx5_1"
    assert bench.tree.readers[GATE] == 1
    bench.tree.open(GATE)
    assert [bench.next().reading.device for _ in range(2)] == ["mlx5_0", "mlx5_0"]
    assert bench.pool.stuck() == {}


def test_what_comes_back_late_is_posted_and_its_thread_ends(bench):
    hang(bench)
    stuck = bench.pool._worker
    bench.pool.abandon("mlx5_0")
    bench.tree.open(GATE)
    assert bench.next().reading.values == (4,)
    stuck.join(SECONDS)
    assert not stuck.is_alive()
    bench.pool.submit([bench.state("mlx5_0")])
    assert bench.next().reading.values == (4,)


def test_each_of_several_hanging_devices_costs_one_thread(bench):
    hang(bench)
    bench.pool.abandon("mlx5_0")
    other = "class/infiniband/mlx5_1/ports/1/state"
    bench.tree.close(other)
    bench.pool.submit([bench.state("mlx5_1"), ReadListing()])
    assert bench.tree.reached[other].wait(SECONDS)
    bench.pool.abandon("mlx5_1")
    assert isinstance(bench.next(), ListingDone)
    assert bench.pool.stuck().keys() == {"mlx5_0", "mlx5_1"}


def test_a_device_that_was_given_up_before_its_turn_is_left_when_it_takes_long_by_itself(bench):
    """Both ports of a card hang: the second was overdue only because it waited for the first, until it hangs too."""
    hang(bench)
    other = "class/infiniband/mlx5_1/ports/1/state"
    bench.tree.close(other)
    bench.pool.submit([bench.state("mlx5_1"), ReadListing()])
    for name in ("mlx5_1", "mlx5_0"):
        bench.pool.abandon(name)
    assert bench.tree.reached[other].wait(SECONDS)
    bench.pool.turn()
    assert bench.pool.stuck().keys() == {"mlx5_0"}
    bench.clock.at = bench.clock.at._replace(monotonic=bench.clock.at.monotonic + PATIENCE)
    bench.pool.turn()
    assert isinstance(bench.next(), ListingDone)
    assert bench.pool.stuck().keys() == {"mlx5_0", "mlx5_1"}


def test_a_device_that_was_given_up_before_its_turn_and_is_quick_then_has_all_its_time_the_next_time(bench):
    hang(bench)
    bench.pool.submit([bench.state("mlx5_1")])
    for name in ("mlx5_1", "mlx5_0"):
        bench.pool.abandon(name)
    assert bench.next().reading.device == "mlx5_1"
    other = "class/infiniband/mlx5_1/ports/1/state"
    bench.tree.close(other)
    bench.pool.submit([bench.state("mlx5_1")])
    assert bench.tree.reached[other].wait(SECONDS)
    bench.clock.at = bench.clock.at._replace(monotonic=bench.clock.at.monotonic + PATIENCE)
    bench.pool.turn()
    assert bench.pool.stuck().keys() == {"mlx5_0"}


def test_no_device_is_blamed_for_a_source_that_is_slow_to_get_ready():
    ready, events, clock = threading.Event(), queue.Queue(), StillClock()

    class Slow(LocalSource):
        def open(self):
            assert ready.wait(SECONDS)

    tree = virtual(Frame(t=0, files=FILES))
    pool = ReaderPool(events.put, lambda: Slow(1, tree, clock), clock)
    pool.submit([Discover("mlx5_0", 1)])
    pool.abandon("mlx5_0")
    clock.at = clock.at._replace(monotonic=clock.at.monotonic + PATIENCE)
    pool.turn()
    assert pool.stuck() == {}
    ready.set()
    assert events.get(timeout=SECONDS).device.name == "mlx5_0"
    assert pool.close(SECONDS)


def test_giving_up_a_device_that_is_not_being_read_changes_nothing(bench):
    worker = bench.pool._worker
    for name in ("mlx5_0", "never_there"):
        bench.pool.abandon(name)
    assert bench.pool._worker is worker
    assert bench.pool.stuck() == {}


def test_a_hanging_discovery_is_left_as_well(bench):
    gate = "class/infiniband/mlx5_0/ports/1/link_layer"
    bench.tree.close(gate)
    bench.pool.submit([Discover("mlx5_0", 2), bench.state("mlx5_1")])
    assert bench.tree.reached[gate].wait(SECONDS)
    bench.pool.abandon("mlx5_0")
    assert bench.next().reading.device == "mlx5_1"
    bench.tree.open(gate)
    assert bench.next().device.layout.generation == 2


def test_closing_does_not_wait_for_a_read_that_hangs(bench):
    hang(bench)
    assert bench.pool.close(0.01) is False
    assert bench.pool.stuck().keys() == {"mlx5_0"}  # for the note that the next process reads
    bench.pool.submit([ReadListing()])
    bench.tree.open(GATE)
    assert bench.next().reading.device == "mlx5_0"
    assert bench.events.empty()


def test_closing_an_idle_pool_ends_its_thread(bench):
    assert bench.pool.close(SECONDS) is True
    assert not bench.pool._worker.is_alive()


def test_a_fault_of_ours_is_an_answer_too_and_the_thread_goes_on(bench, caplog):
    def fail(_):
        raise ZeroDivisionError

    bench.tree.read = fail
    bench.tree.listdir = fail
    bench.pool.submit([bench.state("mlx5_0"), ReadListing(), Discover("mlx5_0", 2)])
    read, listing, found = [bench.next() for _ in range(3)]
    assert (read.reading.values, read.reading.errnos) == ((None,), {0: 5})
    assert (listing.listing.names, listing.listing.errno) == (None, 5)
    assert found == Discovered("mlx5_0", None)
    assert len([r for r in caplog.records if r.exc_info]) == 3


def test_a_source_that_cannot_answer_is_an_answer_too_and_tells_nothing_twice(bench, caplog):
    def fail(*_):
        raise SourceError

    bench.pool._source.answers = lambda questions: iter([None] * len(questions))
    bench.pool._source.discover = fail
    bench.pool.submit([bench.state("mlx5_0"), ReadListing(), Discover("mlx5_0", 2)])
    read, listing, found = [bench.next() for _ in range(3)]
    assert (read.reading.values, read.reading.errnos) == ((None,), {0: 5})
    assert (listing.listing.names, listing.listing.errno) == (None, 5)
    assert found == Discovered("mlx5_0", None)
    assert caplog.records == []


def test_patterns_can_change_while_it_runs(bench):
    bench.pool.configure(["mlx5_1"], [])
    bench.pool.submit([ReadListing()])
    assert bench.next().listing.names == ("mlx5_1",)


def test_what_is_dangerous_to_read_is_told_once(caplog):
    events = queue.Queue()
    tree = virtual(Frame(t=0, files={**port_files("bnxt_re0"), **port_files("bnxt_re1")}))
    clock, platform = StillClock(), danger.Platform("6.18.1")
    pool = ReaderPool(events.put, lambda: LocalSource(1, tree, clock, platform=platform), clock, platform=platform)
    pool.submit([Discover("bnxt_re0", 1), Discover("bnxt_re1", 1), Discover("bnxt_re0", 2)])
    for _ in range(3):
        events.get(timeout=SECONDS)
    pool.close()
    assert len([r for r in caplog.records if "CVE-2025-71092" in r.message]) == 1


def test_on_disk_a_forgotten_device_closes_its_files_even_when_a_thread_is_in_them(tmp_path):
    tree = FileTree(write(tmp_path, Frame(t=0, files=FILES)))
    source = LocalSource(1, tree, StillClock())
    device = source.discover("mlx5_0", 1)
    assert next(source.answers([(device, tuple(range(len(device.layout.columns))))])).errnos == {}
    files = source.files
    assert files.open_files == 3
    kept = files._acquire(device)  # as the thread that is in a read does
    source.forget("mlx5_0")
    assert files.open_files == 3
    files._release(kept)  # as it does when the read returns
    assert files.open_files == 0
    source.close()
