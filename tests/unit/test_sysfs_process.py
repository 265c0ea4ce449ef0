"""The reader process: answers as at home, nothing of the daemon in it, a successor when it dies or hangs."""

import errno
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sysfs_trees import StillClock, frame, port_files, write
from waiting_pipe import WaitingPipe, waits

from ibmon.messages import Discover, Discovered, ListingDone, Read, ReadListing
from ibmon.model import Tier
from ibmon.recording import Frame
from ibmon.sysfs import child, danger, process, wire
from ibmon.sysfs.files import FileTree
from ibmon.sysfs.pool import ReaderPool
from ibmon.sysfs.process import ChildSource, Template
from ibmon.sysfs.source import LocalSource, Names

# A copy of a process with threads is warned of since 3.12. The tests before these may have left some.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

SECONDS = 20  # no test waits so long unless it fails
FILES = {**port_files("mlx5_0"), **port_files("mlx5_1")}
EVERYTHING = Names(("*",), (), (), ())


def until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def setup(root):
    return wire.Setup(str(root), danger.Platform(), ethtool=False)


def columns(device):
    return tuple(range(len(device.layout.columns)))


def ask(source, *questions):
    return list(source.answers(questions))


@pytest.fixture
def root(tmp_path):
    return write(tmp_path / "sys", Frame(t=0, files=FILES))


@pytest.fixture(params=["copy", "program"])
def template(request, monkeypatch):
    """A template as a process with one thread makes it, and as one with several does."""
    monkeypatch.setattr(process.threading, "active_count", lambda: 1 if request.param == "copy" else 2)
    one = Template()
    yield one
    one.close()


@pytest.fixture
def source(root, template):
    one = ChildSource(template, setup(root))
    yield one
    one.close()


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def alive(pid):
    """Whether a process is there, and not only waits for somebody to ask how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


def test_readers_are_copies_of_one_template_and_start_when_they_are_opened(root, template):
    sources = [ChildSource(template, setup(root)) for _ in range(2)]
    assert [one.pid for one in sources] == [None, None]
    for one in sources:
        one.open()
    first, second = (one.pid for one in sources)
    assert first != second
    assert parent(first) == parent(second) != os.getpid()
    assert parent(parent(first)) == os.getpid()
    for one in sources:
        one.close()


@pytest.mark.parametrize("name", ["h100", "rxe-idle", "rdma-exporter-efa"])
def test_a_process_tells_of_every_tree_what_reading_here_tells(tmp_path, template, name):
    root = write(tmp_path / "sys", frame(name))
    here = LocalSource(os.getpid(), FileTree(root), StillClock())
    there = ChildSource(template, setup(root))
    [listing] = ask(there, EVERYTHING)
    assert listing.names == ask(here, EVERYTHING)[0].names
    for device in listing.names:
        mine, its = here.discover(device, 7), there.discover(device, 7)
        assert (its.layout.columns, its.layout.index, its.layout.tiers) == (
            mine.layout.columns, mine.layout.index, mine.layout.tiers,
        )  # fmt: skip
        assert (its.ports, its.pci, its.function, its.node_guid) == (
            mine.ports,
            mine.pci,
            mine.function,
            mine.node_guid,
        )
        [one], [other] = ask(here, (mine, columns(mine))), ask(there, (its, columns(its)))
        assert (one.values, one.errnos, one.words) == (other.values, other.errnos, other.words)
        assert other.columns == columns(its)
        assert abs(other.ended.monotonic - time.monotonic()) < SECONDS  # both processes mean the same clock
    there.close()
    here.close()


@pytest.mark.parametrize("one_thread", [True, False])
def test_a_process_holds_nothing_of_the_daemon_but_its_socket(root, monkeypatch, tmp_path, one_thread):
    monkeypatch.setattr(process.threading, "active_count", lambda: 1 if one_thread else 2)
    with socket.create_server(("127.0.0.1", 0)) as server, (tmp_path / "store").open("w") as store:
        os.set_inheritable(server.fileno(), True)
        os.set_inheritable(store.fileno(), True)
        template = Template()
        source = ChildSource(template, setup(root))
        source.open()
        for pid in (source.pid, parent(source.pid)):
            held = {int(entry.name): str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}
            assert {held.pop(number) for number in (0, 1, 2)} == {os.devnull}
            assert [target.partition(":")[0] for target in held.values()] == ["socket"]
            status = Path(f"/proc/{pid}/status").read_text()
            assert f"Name:\t{child.NAME}\n" in status
            assert "Threads:\t1\n" in status
            assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    source.close()
    template.close()


def test_a_process_survives_what_a_terminal_or_a_supervisor_sends_to_all(source):
    source.open()
    pid = source.pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
        os.kill(parent(pid), number)
    assert ask(source, EVERYTHING)[0].names == ("mlx5_0", "mlx5_1")
    assert source.pid == pid


def test_closing_ends_the_process_and_leaves_no_zombie(source):
    source.open()
    pid = source.pid
    source.close()
    assert source.pid is None
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_closing_the_template_ends_all_of_its_readers_and_makes_no_more(source, template):
    source.open()
    pid = source.pid
    mother = parent(pid)
    template.close()
    assert not Path(f"/proc/{mother}").exists()
    until(lambda: not alive(pid))
    with pytest.raises(OSError, match="shut"):
        template.reader()


def test_a_template_that_dies_takes_its_readers_along_and_is_replaced(source, caplog):
    device = source.discover("mlx5_0", 1)
    mother = parent(source.pid)
    os.kill(mother, signal.SIGKILL)
    until(lambda: not alive(source.pid))
    [reading] = ask(source, (device, columns(device)))
    assert reading.errnos == {}
    assert parent(source.pid) != mother
    told = [record.getMessage().partition(" ")[0] for record in caplog.records]
    assert told == ["event=reader-died", "event=reader-template-died"]


def test_a_template_that_was_replaced_outlives_the_thread_that_did_it(root, template):
    """A reader thread ends when its device was given up and the read returns; others go on with the same template."""
    template.close()
    template = Template()
    first = ChildSource(template, setup(root))
    first.open()
    os.kill(parent(first.pid), signal.SIGKILL)
    until(lambda: not alive(first.pid))
    second = ChildSource(template, setup(root))
    for _ in range(2):  # the first finds out that it has died
        thread = threading.Thread(target=second.open)
        thread.start()
        until(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists())  # noqa: B023 - within the round
    pid = second.pid
    assert ask(second, EVERYTHING)[0].names == ("mlx5_0", "mlx5_1")
    assert second.pid == pid
    for one in (first, second):
        one.close()
    template.close()


def test_files_of_a_forgotten_device_are_closed_before_the_next_question(source):
    device = source.discover("mlx5_0", 1)
    ask(source, (device, columns(device)))

    def opened():
        return [x for x in Path(f"/proc/{source.pid}/fd").iterdir() if "mlx5_0" in str(x.readlink())]

    assert opened()
    source.forget("mlx5_0")
    ask(source, EVERYTHING)
    assert not opened()


def test_a_process_that_dies_is_replaced_at_once_and_what_it_knew_is_told_to_the_next(source, caplog):
    device = source.discover("mlx5_0", 1)
    first = source.pid
    os.kill(first, signal.SIGKILL)
    [reading] = ask(source, (device, columns(device)))
    assert reading.values
    assert reading.errnos == {}
    assert source.pid not in {None, first}
    assert [r.getMessage() for r in caplog.records] == [f'event=reader-died pid={first} asked="reading mlx5_0"']


def test_a_process_that_dies_again_and_again_is_replaced_after_a_while_and_nothing_waits_for_that(
    root, template, caplog
):
    now = [time.monotonic()]
    source = ChildSource(template, setup(root), clock=lambda: now[0])
    device = source.discover("mlx5_0", 1)
    os.kill(source.pid, signal.SIGKILL)
    assert ask(source, EVERYTHING)[0].names
    os.kill(source.pid, signal.SIGKILL)
    question = (device, columns(device))
    assert ask(source, question, question) == [None, None]
    assert ask(source, EVERYTHING) == [None]
    assert source.pid is None
    assert len(caplog.records) == 2
    now[0] += process.RETRY[0]
    assert ask(source, question)[0].errnos == {}
    source.close()


def test_a_process_that_cannot_be_started_is_told_once_and_tried_again_later(root, template, monkeypatch, caplog):
    now = [0.0]
    source = ChildSource(template, setup(root), clock=lambda: now[0])
    template._end()
    monkeypatch.setattr(process.sys, "executable", "/nonexistent/python")
    for _ in range(2):
        assert ask(source, EVERYTHING) == [None]
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == ["event=reader-not-started"]
    monkeypatch.undo()
    monkeypatch.setattr(process.threading, "active_count", lambda: 2)
    now[0] += process.RETRY[0]
    assert ask(source, EVERYTHING)[0].names
    source.close()


def test_a_fault_in_the_process_is_told_with_its_trace_and_the_process_goes_on(source, caplog):
    device = source.discover("mlx5_0", 1)
    [good, bad, again] = ask(source, (device, (0,)), (device, (9999,)), (device, (0,)))
    assert bad is None
    assert good.values == again.values
    [record] = caplog.records
    assert "IndexError" in record.getMessage() or "KeyError" in record.getMessage()


class Bench:
    def __init__(self, root, template):
        self.events = queue.Queue()
        self.pool = ReaderPool(self.events.put, lambda: ChildSource(template, setup(root)), StillClock())
        self.devices = {}
        for name in ("mlx5_0", "mlx5_1"):
            self.pool.submit([Discover(name, 1)])
            self.devices[name] = self.next().device

    def next(self):
        return self.events.get(timeout=SECONDS)

    def state(self, name):
        return Read(name, 1, (Tier.STATE,), self.devices[name].layout.tiers[Tier.STATE])


@pytest.fixture
def fifo(root):
    """The state of mlx5_0."""
    return WaitingPipe(root / "class/infiniband/mlx5_0/ports/1/state", root.parent)


@pytest.fixture(params=["by the worker", "on the spot"])
def bench(request, root, fifo, template):
    fifo.hang()
    one = Bench(root, template)
    one.collected = request.param == "on the spot"
    yield one
    one.pool.close()


def hang(bench):
    until(lambda: bench.pool._idle)
    bench.pool.submit([bench.state("mlx5_0"), bench.state("mlx5_1"), ReadListing()], collected=bench.collected)
    assert bench.pool.asked is bench.collected
    until(lambda: bench.pool._source.pid and waits(bench.pool._source.pid))
    return bench.pool._source.pid


def test_a_process_that_hangs_is_left_and_named_and_another_goes_on_with_what_was_asked_of_it(bench, fifo):
    stuck = hang(bench)
    bench.pool.abandon("mlx5_0")
    assert bench.pool.stuck() == {"mlx5_0": stuck}
    event = bench.next()
    assert (event.reading.device, event.reading.values) == ("mlx5_1", (4,))
    assert isinstance(bench.next(), ListingDone)
    assert bench.pool._source.pid != stuck
    fifo.answer()
    assert bench.next().reading.device == "mlx5_0"


def test_what_a_process_was_asked_after_the_read_that_hangs_it_does_no_more(bench, fifo):
    stuck = hang(bench)
    bench.pool.abandon("mlx5_0")
    assert [bench.next(), bench.next()]
    fifo.answer()
    late = bench.next()
    assert (late.reading.device, late.reading.errnos) == ("mlx5_0", {0: errno.ESPIPE})
    until(lambda: not Path(f"/proc/{stuck}").exists())
    until(lambda: bench.pool.stuck() == {})
    assert bench.events.empty()


def test_a_device_that_hangs_is_neither_read_nor_discovered_by_the_next_process(bench, fifo):
    hang(bench)
    bench.pool.abandon("mlx5_0")
    bench.pool.submit([bench.state("mlx5_0"), Discover("mlx5_0", 2), ReadListing()])
    assert [type(bench.next()) for _ in range(3)][1:] == [ListingDone, ListingDone]
    fifo.answer()
    assert bench.next().reading.device == "mlx5_0"  # of the first question; the second one waits for the pipe again
    until(lambda: waits(bench.pool._source.pid))
    fifo.answer()
    assert bench.next().reading.generation == 1
    found = bench.next()
    assert isinstance(found, Discovered)
    assert found.device.layout.generation == 2


def test_closing_does_not_wait_for_a_process_that_hangs_and_names_it(bench, fifo):
    stuck = hang(bench)
    assert bench.pool.close(0.01) is False
    assert bench.pool.stuck() == {"mlx5_0": stuck}
    fifo.answer()
    until(lambda: not Path(f"/proc/{stuck}").exists())


def test_a_process_that_is_killed_while_it_hangs_ends_the_wait_for_it(bench):
    stuck = hang(bench)
    bench.pool.abandon("mlx5_0")
    assert [bench.next(), bench.next()]
    os.kill(stuck, signal.SIGKILL)
    event = bench.next()
    assert (event.reading.device, set(event.reading.errnos.values())) == ("mlx5_0", {5})
    until(lambda: bench.pool.stuck() == {})


KILLED = """
import sys
from ibmon.sysfs import danger, process, wire
from ibmon.sysfs.process import ChildSource, Template

process.threading.active_count = lambda: int(sys.argv[2])
source = ChildSource(Template(), wire.Setup(sys.argv[1], danger.Platform(), ethtool=False))
device = source.discover("mlx5_0", 1)
print(source.pid, flush=True)
list(source.answers([(device, tuple(range(len(device.layout.columns))))]))
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_process_whose_daemon_is_killed_ends_with_the_read_it_is_in_although_it_was_asked_for_more(
    root, fifo, threads
):
    fifo.hang()
    with subprocess.Popen([sys.executable, "-c", KILLED, str(root), str(threads)], stdout=subprocess.PIPE) as daemon:
        pid = int(daemon.stdout.readline())
        until(lambda: waits(pid))
        daemon.kill()
    until(lambda: not alive(pid))
