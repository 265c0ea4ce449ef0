"""The live side of reading: what a read that hangs leaves behind for the next daemon."""

import contextlib
import os
import queue
import time

import pytest
from sysfs_trees import port_files, write
from waiting_pipe import WaitingPipe, waits

from ibmon.config import DevicesConfig
from ibmon.messages import Abandon, DeviceFree, Discover, Discovered, ListingDone, Read, ReadListing
from ibmon.model import Now, Tier
from ibmon.recording import Frame
from ibmon.runtime.readers import CHECK_NOTE_SECONDS, Readers
from ibmon.sysfs import stallnote

SECONDS = 20  # no test waits so long unless it fails


class Clock:
    """The host's clock, moved on at will."""

    def __init__(self):
        self.ahead = 0.0

    def now(self):
        return Now(time.monotonic() + self.ahead, time.time())


class Node:
    """A tree whose mlx5_0 hangs when its state is read, and daemons' readers on it."""

    def __init__(self, directory):
        self.root = write(directory / "sys", Frame(t=0, files={**port_files("mlx5_0"), **port_files("mlx5_1")}))
        self.pipe = WaitingPipe(self.root / "class/infiniband/mlx5_0/ports/1/state", directory)
        self.pipe.hang()
        self.runtime = directory
        self.clock = Clock()
        self.events = queue.Queue()
        self.started = []

    def readers(self):
        one = Readers(self.events.put, self.root, DevicesConfig(), self.runtime, self.clock, isolate=True)
        one.start()
        self.started.append(one)
        return one

    def next(self):
        """The next event. What was asked for on the spot is collected meanwhile, as the daemon's loop does."""
        deadline = time.monotonic() + SECONDS
        while self.events.empty():
            assert time.monotonic() < deadline
            for one in self.started:
                for event in one.collect():
                    self.events.put(event)
            time.sleep(0.01)
        return self.events.get()

    def note(self):
        return stallnote.read(self.runtime / stallnote.FILE)

    def hang(self, readers):
        readers.carry_out([Discover("mlx5_0", 1)])
        state = self.next().device.layout.tiers[Tier.STATE]
        readers.carry_out([Read("mlx5_0", 1, (Tier.STATE,), state)])
        until(lambda: (pid := readers.pool._source.pid) is not None and waits(pid))
        return readers.pool._source.pid


def until(holds):
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_a_read_that_hangs_is_noted_when_it_begins_to_by_its_own_process(node):
    readers = node.readers()
    pid = node.hang(readers)
    assert pid != os.getpid()
    readers.carry_out([Abandon("mlx5_0"), ReadListing()])
    readers.turn()
    entry = node.note()["mlx5_0"]
    assert (entry.pid, entry.start_time) == (pid, stallnote.start_time(pid))
    assert isinstance(node.next(), ListingDone)
    node.pipe.answer()
    assert node.next().reading.device == "mlx5_0"
    until(lambda: readers.turn() or node.note() == {})  # a turn may come before the thread has said that it is back
    assert readers.pool.close(SECONDS)
    assert readers.close()


def test_a_read_that_hangs_when_the_daemon_stops_is_noted_then(node):
    readers = node.readers()
    pid = node.hang(readers)
    readers.pool.close(0.01)
    assert readers.close() is False
    assert node.note()["mlx5_0"].pid == pid


def test_the_next_daemon_leaves_the_device_alone_until_the_process_of_the_one_before_has_ended(node):
    before = node.readers()
    node.hang(before)
    before.carry_out([Abandon("mlx5_0")])
    before.turn()
    after = node.readers()
    assert after.quarantined == {"mlx5_0"}
    node.clock.ahead += CHECK_NOTE_SECONDS
    after.turn()
    assert node.events.empty()
    before.pool.close()
    before._template.close()  # unlike one in a driver, this read ends with its process
    deadline = time.monotonic() + SECONDS
    told = []
    while DeviceFree("mlx5_0") not in told:
        assert time.monotonic() < deadline
        node.clock.ahead += CHECK_NOTE_SECONDS
        after.turn()
        with contextlib.suppress(queue.Empty):
            told.append(node.events.get(timeout=0.01))
    assert (after.quarantined, node.note()) == (frozenset(), {})
    assert after.pool.close(SECONDS)
    assert after.close()


def test_without_isolation_nothing_is_started(node):
    readers = Readers(node.events.put, node.root, DevicesConfig(), node.runtime, node.clock)
    readers.start()
    readers.carry_out([Discover("mlx5_1", 1)])
    assert isinstance(node.next(), Discovered)
    assert readers.pool._source.pid == os.getpid()
    assert readers.pool.close(SECONDS)
    assert readers.close()
