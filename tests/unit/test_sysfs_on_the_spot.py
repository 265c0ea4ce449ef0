"""What whoever wants answers asks and collects by itself, and what the worker does where they do not come at once."""

import os
import queue
import signal
import socket
import time
from pathlib import Path

import msgspec
import pytest
from sysfs_trees import StillClock, port_files, write
from waiting_pipe import WaitingPipe, waits

from ibmon.messages import Discover, Discovered, ListingDone, Read, ReadDone, ReadListing
from ibmon.model import Layout, Tier
from ibmon.recording import Frame
from ibmon.sysfs import danger, wire
from ibmon.sysfs.files import FileTree
from ibmon.sysfs.pool import ReaderPool
from ibmon.sysfs.process import ChildSource, Template
from ibmon.sysfs.source import LocalSource

SECONDS = 10  # no test waits so long unless it fails
FILES = {**port_files("mlx5_0"), **port_files("mlx5_1")}


def until(holds):
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Bench:
    """A pool over two devices that reads in a process, and its events."""

    def __init__(self, root, source):
        self.root = root
        self.events = queue.Queue()
        self.pool = ReaderPool(self.events.put, source, StillClock())
        self.devices = {}
        for name in ("mlx5_0", "mlx5_1"):
            self.pool.submit([Discover(name, 1)])
            self.devices[name] = self.next().device
        until(lambda: self.pool._idle)

    def next(self):
        return self.events.get(timeout=SECONDS)

    def state(self, name):
        return Read(name, 1, (Tier.STATE,), self.devices[name].layout.tiers[Tier.STATE])

    def write(self, name, text):
        (self.root / f"class/infiniband/{name}/ports/1/state").write_text(text)

    def all_collected(self, count):
        """Collect only when every answer is in the socket, as after the sleep of the daemon's loop."""
        child = self.pool._source._child
        deadline = time.monotonic() + SECONDS
        while len(wire.take(child._received + peek(child))[0]) < count:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return self.pool.collect()


def peek(child):
    try:
        return child._connection.recv(1 << 20, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""


@pytest.fixture
def root(tmp_path):
    return write(tmp_path / "sys", Frame(t=0, files=FILES))


@pytest.fixture
def bench(root):
    template = Template()
    setup = wire.Setup(str(root), danger.Platform(), ethtool=False)
    one = Bench(root, lambda: ChildSource(template, setup))
    yield one
    one.pool.close()
    template.close()


def told(event):
    return type(event), getattr(getattr(event, "reading", None), "device", None)


def test_what_comes_at_once_is_collected_in_order_and_not_posted(bench):
    for turn in range(3):
        bench.write("mlx5_1", f"{turn + 1}: A\n")
        bench.pool.submit([ReadListing(), bench.state("mlx5_0"), bench.state("mlx5_1")], collected=True)
        assert bench.pool.asked
        listing, first, second = bench.all_collected(3)
        assert listing.listing.names == ("mlx5_0", "mlx5_1")
        assert (told(first), told(second)) == ((ReadDone, "mlx5_0"), (ReadDone, "mlx5_1"))
        assert second.reading.values == (turn + 1,)
        assert not bench.pool.asked
        assert bench.pool.collect() == []
    assert bench.events.empty()
    assert bench.pool._idle


def test_what_does_not_come_at_once_is_posted_when_it_does(bench):
    pipe = WaitingPipe(bench.root / "class/infiniband/mlx5_0/ports/1/state", bench.root.parent)
    pipe.hang()
    bench.pool.submit([bench.state("mlx5_1"), bench.state("mlx5_0"), ReadListing()], collected=True)
    until(lambda: waits(bench.pool._source.pid))
    [first] = bench.all_collected(1)
    assert told(first) == (ReadDone, "mlx5_1")
    assert bench.events.empty()
    pipe.answer()
    assert [told(bench.next()) for _ in range(2)] == [(ReadDone, "mlx5_0"), (ListingDone, None)]
    until(lambda: bench.pool._idle)
    assert bench.pool.stuck() == {}


def test_a_device_that_hangs_is_left_after_others_were_collected(bench):
    pipe = WaitingPipe(bench.root / "class/infiniband/mlx5_0/ports/1/state", bench.root.parent)
    pipe.hang()
    bench.pool.submit([bench.state("mlx5_1"), bench.state("mlx5_0"), ReadListing()], collected=True)
    until(lambda: waits(bench.pool._source.pid))
    stuck = bench.pool._source.pid
    assert len(bench.all_collected(1)) == 1
    bench.pool.abandon("mlx5_0")
    assert bench.pool.stuck() == {"mlx5_0": stuck}
    assert told(bench.next()) == (ListingDone, None)
    until(lambda: bench.pool._idle)
    bench.pool.submit([bench.state("mlx5_1")], collected=True)  # of which the new process must be told first
    assert told(bench.next()) == (ReadDone, "mlx5_1")
    until(lambda: bench.pool._idle)
    bench.pool.submit([bench.state("mlx5_1")], collected=True)
    assert [told(event) for event in bench.all_collected(1)] == [(ReadDone, "mlx5_1")]
    pipe.answer()
    assert told(bench.next()) == (ReadDone, "mlx5_0")
    until(lambda: bench.pool.stuck() == {})


def test_while_the_worker_has_something_to_do_it_does_the_rest_too(bench):
    bench.pool.submit([Discover("mlx5_0", 2), bench.state("mlx5_1")], collected=True)
    assert not bench.pool.asked
    assert [told(bench.next()) for _ in range(2)] == [(Discovered, None), (ReadDone, "mlx5_1")]
    assert bench.pool.collect() == []


def test_what_is_wanted_before_the_answers_were_collected_comes_after_them(bench):
    bench.pool.submit([bench.state("mlx5_0")], collected=True)
    bench.pool.submit([bench.state("mlx5_1")], collected=True)
    assert [told(event) for event in bench.all_collected(1)] == [(ReadDone, "mlx5_0")]
    assert told(bench.next()) == (ReadDone, "mlx5_1")


def test_a_read_of_a_device_that_has_gone_is_answered_without_asking(bench):
    bench.pool.submit([Read("mlx5_9", 1, (Tier.STATE,), (0,))], collected=True)
    assert not bench.pool.asked
    assert bench.next().reading.errnos == {0: 19}


@pytest.mark.parametrize("when", ["before it is asked", "before it is heard"])
def test_a_process_that_dies_is_replaced_and_asked_again(bench, when, caplog):
    dead = bench.pool._source.pid

    def kill():
        os.kill(dead, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{dead}").exists())

    if when == "before it is asked":
        kill()
    bench.pool.submit([bench.state("mlx5_0"), ReadListing()], collected=True)
    if when == "before it is heard":
        kill()
    events = bench.pool.collect()
    while len(events) < 2:
        events.append(bench.next())
    assert [told(event) for event in events] == [(ReadDone, "mlx5_0"), (ListingDone, None)]
    assert events[0].reading.values == (4,)
    assert events[0].reading.errnos == {}


def test_an_answer_that_cannot_be_given_is_a_failed_read_and_the_next_one_is_taken(bench, caplog):
    impossible = Read("mlx5_0", 1, (Tier.STATE,), (9999,))
    bench.pool.submit([impossible, bench.state("mlx5_1")], collected=True)
    failed, good = bench.all_collected(2)
    assert failed.reading.errnos == {9999: 5}
    assert good.reading.values == (4,)


def test_a_process_that_does_not_know_the_device_yet_is_told_by_the_worker(bench):
    bench.pool.submit([Discover("mlx5_0", 2)])
    device = bench.next().device
    bench.pool._source._known.clear()
    until(lambda: bench.pool._idle)
    state = Read("mlx5_0", 2, (Tier.STATE,), device.layout.tiers[Tier.STATE])
    bench.pool.submit([state, ReadListing()], collected=True)
    assert not bench.pool.asked
    assert [told(bench.next()) for _ in range(2)] == [(ReadDone, "mlx5_0"), (ListingDone, None)]
    until(lambda: bench.pool._idle)
    bench.pool.submit([state], collected=True)
    assert [told(event) for event in bench.all_collected(1)] == [(ReadDone, "mlx5_0")]


def test_hundreds_of_devices_are_asked_and_answered_in_one_breath(bench):
    """The answers are more than a socket holds: the process waits with the rest until they are fetched."""
    width = len(bench.devices["mlx5_0"].layout.columns)
    many = [Read("mlx5_0", 1, (Tier.STATE,), tuple(range(width)) * 8) for _ in range(400)]
    bench.pool.submit(many, collected=True)
    assert bench.pool.asked
    events = bench.pool.collect()
    while len(events) < len(many):
        events.append(bench.next())
    assert {told(event) for event in events} == {(ReadDone, "mlx5_0")}
    assert {event.reading.values for event in events} == {events[0].reading.values}


def test_a_new_process_is_told_of_hundreds_of_devices_without_either_end_waiting_for_the_other(bench):
    one = bench.devices["mlx5_0"]
    columns = tuple(column._replace(name=f"{column.name}{n}") for n in range(50) for column in one.layout.columns)
    large = msgspec.structs.replace(one, layout=Layout.build(one.name, 1, (*one.layout.columns, *columns)))
    devices = {f"mlx5_{n}": msgspec.structs.replace(large, name=f"mlx5_{n}") for n in range(400)}
    bench.pool._devices.update(devices)
    many = [Read(name, 1, (Tier.STATE,), (0,) * 200) for name in devices]
    bench.pool.submit(many, collected=True)
    assert not bench.pool.asked
    assert sorted(bench.next().reading.device for _ in many) == sorted(devices)


def test_closing_gives_back_what_nobody_collected(bench):
    bench.pool.submit([bench.state("mlx5_0")], collected=True)
    assert bench.pool.close(SECONDS)
    assert bench.pool.stuck() == {}


def test_reading_in_this_process_is_never_done_in_the_thread_that_asks(root):
    one = Bench(root, lambda: LocalSource(os.getpid(), FileTree(root), StillClock()))
    one.pool.submit([one.state("mlx5_0")], collected=True)
    assert not one.pool.asked
    assert told(one.next()) == (ReadDone, "mlx5_0")
    assert one.pool.close(SECONDS)
