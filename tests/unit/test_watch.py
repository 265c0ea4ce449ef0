"""Hotplug: a burst of events is one, a stop is at once, and a host without events says why."""

import builtins
import errno
import os
import queue
import threading
import time

import pytest

from ibmon.messages import Hotplug
from ibmon.sysfs import watch

SECONDS = 10  # no test waits so long unless it fails
DEBOUNCE = 0.02


class Monitor:
    """What a pyudev monitor is to the watch: something to poll, and events in it."""

    def __init__(self):
        self.end, self.begin = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.error = None

    def fileno(self):
        return self.end

    def happen(self, count=1):
        os.write(self.begin, b"e" * count)

    def poll(self, timeout):
        assert timeout == 0
        if self.error is not None:
            error, self.error = self.error, None
            os.read(self.end, 4096)
            raise OSError(error, os.strerror(error))
        try:
            return os.read(self.end, 1)
        except BlockingIOError:
            return None

    def close(self):
        os.close(self.end)
        os.close(self.begin)


@pytest.fixture
def monitor():
    one = Monitor()
    yield one
    one.close()


@pytest.fixture
def posted():
    return queue.Queue()


def test_a_burst_of_events_is_one_and_the_next_is_another(monitor, posted):
    one = watch.Watch(posted.put, monitor, DEBOUNCE)
    for _ in range(2):
        monitor.happen(50)
        assert posted.get(timeout=SECONDS) == Hotplug()
    one.close()
    assert posted.empty()


def test_the_event_comes_a_while_after_the_first_of_the_burst(monitor, posted):
    one = watch.Watch(posted.put, monitor, 0.2)
    start = time.monotonic()
    monitor.happen()
    posted.get(timeout=SECONDS)
    assert time.monotonic() - start >= 0.2
    one.close()


def test_it_stops_at_once_also_before_the_event_was_due(monitor, posted):
    one = watch.Watch(posted.put, monitor, 60)
    monitor.happen()
    start = time.monotonic()
    one.close()
    one.close()
    assert time.monotonic() - start < 30
    assert posted.empty()


def test_lost_events_are_events(monitor, posted):
    monitor.error = errno.ENOBUFS
    monitor.happen()
    one = watch.Watch(posted.put, monitor, DEBOUNCE)
    assert posted.get(timeout=SECONDS) == Hotplug()
    one.close()


def test_a_broken_socket_ends_the_watch_and_is_told(monitor, posted, caplog):
    monitor.error = errno.EBADF
    monitor.happen()
    one = watch.Watch(posted.put, monitor, DEBOUNCE)
    one._thread.join(SECONDS)
    assert not one._thread.is_alive()
    one.close()
    assert posted.empty()
    assert "hotplug events ended" in caplog.text


def test_without_the_library_there_is_a_reason_and_no_watch(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "pyudev":
            raise ImportError("No library named udev")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert watch.start(print) == (None, "no hotplug events: No library named udev")


class FakeMonitor:
    """Records how the monitor is set up, or refuses."""

    refusal = None
    calls = ()

    @classmethod
    def from_netlink(cls, context, source):
        if cls.refusal is not None:
            raise cls.refusal
        one = cls()
        one.pipe = os.pipe2(os.O_CLOEXEC)
        one.calls = [source]
        cls.last = one
        return one

    def filter_by(self, subsystem):
        self.calls.append(subsystem)

    def set_receive_buffer_size(self, size):
        raise PermissionError(1, "not ours to grow")

    def start(self):
        self.calls.append("start")

    def fileno(self):
        return self.pipe[0]


@pytest.fixture
def pyudev(monkeypatch):
    import pyudev as module

    monkeypatch.setattr(module, "Context", object)
    monkeypatch.setattr(module, "Monitor", FakeMonitor)
    monkeypatch.setattr(FakeMonitor, "refusal", None)


@pytest.mark.usefixtures("pyudev")
@pytest.mark.parametrize("source", ["udev", "kernel"])
def test_udevs_events_are_taken_where_it_runs_and_else_the_kernels(tmp_path, source):
    control = tmp_path / "control"
    if source == "udev":
        control.touch()
    one, told = watch.start(print, control)
    assert told == source
    assert FakeMonitor.last.calls == [source, "infiniband", "start"]
    one.close()
    for fd in FakeMonitor.last.pipe:
        os.close(fd)


@pytest.mark.usefixtures("pyudev")
@pytest.mark.parametrize("error", [OSError("Could not create udev monitor"), ImportError("x"), ValueError("y")])
def test_without_netlink_there_is_a_reason_and_no_watch(monkeypatch, error):
    monkeypatch.setattr(FakeMonitor, "refusal", error)
    before = threading.active_count()
    assert watch.start(print) == (None, f"no hotplug events: {error}")
    assert threading.active_count() == before


def test_the_host_gives_a_watch_or_a_reason():
    one, told = watch.start(print)
    assert told
    if one is not None:
        one.close()
