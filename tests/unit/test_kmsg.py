"""The kernel log: records decoded, read once, in order, through errors and restarts, and given up at once."""

from __future__ import annotations

import errno
import logging
import os
import queue
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibmon.messages import KernelLine
from ibmon.model import Now
from ibmon.runtime import kmsg

SECONDS = 10  # no test waits so long unless it fails
UPTIME = 5000.0
FAULT = "mlx5_core 0000:1a:00.0: poll_health:801:(pid 0): Fatal error 1 detected"


class Clock:
    def now(self):
        return Now(UPTIME, 1_800_000_000.0)


def record(sequence, text=FAULT, *, seconds=UPTIME, facility=0):
    """A record as the kernel gives it, with the lines that name its device."""
    head = f"{facility << 3 | 3},{sequence},{int(seconds * 1e6)},-"
    return f"{head};{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:1a:00.0\n".encode()


class Ring:
    """The kernel's ring: every opening reads it from its oldest record on, one record a read, then what is added."""

    def __init__(self, *records):
        self.records = list(records)
        self.ends = []
        self.opened = 0
        self.refuse = []  # errnos for the next openings

    def open(self):
        self.opened += 1
        if self.refuse:
            code = self.refuse.pop(0)
            raise OSError(code, os.strerror(code))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ends.append(ours)
        for one in self.records:
            ours.send(one)
        theirs.setblocking(False)
        return theirs.detach()

    def add(self, one):
        self.records.append(one)
        self.ends[-1].send(one)

    def hang_up(self):
        self.ends[-1].close()


@pytest.fixture
def start(monkeypatch, tmp_path):
    """Starts a log on a ring; what it posts is in `lines`."""
    started = []

    def begin(ring, *, boot="boot", directory=tmp_path):
        monkeypatch.setattr(kmsg.KernelLog, "_open", lambda self: ring.open())
        lines = queue.Queue()
        one = kmsg.KernelLog(lines.put, Clock(), boot, directory, retry=(0.001, 0.002))
        one.lines = lines
        started.append((one, ring))
        one.started = one.start()
        return one

    yield begin
    for one, ring in started:
        one.close()
        for end in ring.ends:
            end.close()


def next_line(log):
    return log.lines.get(timeout=SECONDS)


def texts(log, count):
    return [next_line(log).text for _ in range(count)]


def fault(number):
    return f"{FAULT} ({number})"


# ------------------------------------------------------------------------------------------------------------- records


def test_a_record_is_its_number_its_time_and_its_text():
    raw = b"6,339,5140900,-;NET: Registered protocol family 10\n SUBSYSTEM=net\n"
    assert kmsg.parse(raw) == kmsg.Record(339, 5.1409, 0, "NET: Registered protocol family 10")


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (b"two\\x0alines", "two lines"),
        (b"a tab\\x09", "a tab\t"),
        (b"a backslash \\x5c", "a backslash \\"),
        (b"\\x5cx0a is no line end", "\\x0a is no line end"),
        (b"\\xc3\\xa9", "\u00e9"),
        (b"\\xff", "\ufffd"),
        (b"semicolon; equals=", "semicolon; equals="),
        (b"", ""),
    ],
)
def test_escapes_are_decoded_once(written, text):
    assert kmsg.parse(b"6,1,2,-;" + written + b"\n").text == text


def test_fields_that_later_kernels_add_are_passed_over():
    assert kmsg.parse(b"6,1,2,-,caller=T1,more=2;text\n").text == "text"


@pytest.mark.parametrize("raw", [b"", b"\n", b"no head\n", b"6,1;text\n", b"a,b,c,-;text\n", b"6,-1,2,-;x\n"])
def test_what_is_no_record_is_none(raw):
    assert kmsg.parse(raw) is None


@given(st.binary())
def test_no_bytes_raise(raw):
    kmsg.parse(raw)
    kmsg.parse(b"3,1,2,-;" + raw)


# ------------------------------------------------------------------------------------------------------------- reading


def test_evidence_is_posted_and_all_else_is_not(start):
    ring = Ring(record(1, "usb 1-1: new device"), record(2), record(3, "mlx5_core 0000:1a:00.0: Cable plugged"))
    log = start(ring)
    assert next_line(log) == KernelLine(FAULT, 0.0)
    ring.add(record(4, fault(4)))
    assert next_line(log).text == fault(4)
    assert log.lines.empty()


def test_the_log_of_a_boot_is_read_from_its_oldest_record_with_the_age_of_each(start):
    log = start(Ring(record(1, fault(1), seconds=UPTIME - 3000), record(2, fault(2), seconds=UPTIME - 10)))
    assert [next_line(log), next_line(log)] == [KernelLine(fault(1), 3000.0), KernelLine(fault(2), 10.0)]


def test_what_is_too_old_to_be_evidence_is_not_posted(start):
    log = start(Ring(record(1, fault(1), seconds=UPTIME - 3601), record(2, fault(2), seconds=UPTIME - 3599)))
    assert next_line(log).text == fault(2)


def test_a_record_from_the_future_is_of_now(start):
    assert next_line(start(Ring(record(1, seconds=UPTIME + 50)))).age == 0.0


def test_what_a_program_wrote_into_the_log_is_no_word_of_the_kernel(start):
    log = start(Ring(record(1, fault(1), facility=1), record(2, fault(2), facility=3), record(3, fault(3))))
    assert next_line(log).text == fault(3)


def test_a_broken_record_is_passed_over(start):
    assert next_line(start(Ring(b"garbage", record(2)))).text == FAULT


# -------------------------------------------------------------------------------------------------------------- errors


def fail_next_reads(monkeypatch, ring, *codes):
    """The next reads of the ring end so; all others are real."""
    real, left = os.read, list(codes)

    def read(fd, size):
        if left and size == kmsg._RECORD:
            code = left.pop(0)
            raise OSError(code, os.strerror(code))
        return real(fd, size)

    monkeypatch.setattr(kmsg.os, "read", read)
    return left


def test_records_that_were_lost_do_not_stop_the_rest(start, monkeypatch):
    ring = Ring(record(7))
    left = fail_next_reads(monkeypatch, ring, errno.EPIPE, errno.EPIPE)
    log = start(ring)
    assert next_line(log).text == FAULT
    assert (left, ring.opened) == ([], 1)


@pytest.mark.parametrize("code", [errno.EIO, errno.EINVAL, errno.EPERM, errno.ENODEV, errno.ENOMEM])
def test_a_read_that_fails_is_tried_again_on_a_new_descriptor(start, monkeypatch, code):
    ring = Ring(record(1))
    fail_next_reads(monkeypatch, ring, code, code, code)
    log = start(ring)
    assert next_line(log).text == FAULT
    assert ring.opened == 4


def test_nothing_is_told_twice_after_an_error(start):
    ring = Ring(record(1, fault(1)))
    log = start(ring)
    assert texts(log, 1) == [fault(1)]
    ring.records.append(record(2, fault(2)))
    ring.hang_up()
    assert texts(log, 1) == [fault(2)]
    assert log.lines.empty()


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EPERM, errno.EMFILE])
def test_a_device_that_is_gone_for_a_while_is_opened_again(start, code):
    ring = Ring(record(1, fault(1)))
    log = start(ring)
    texts(log, 1)
    ring.refuse = [code] * 3
    ring.records.append(record(2, fault(2)))
    ring.hang_up()
    assert texts(log, 1) == [fault(2)]


def test_a_fault_of_our_own_does_not_end_the_thread(start, monkeypatch, caplog):
    real, broken = kmsg.parse, [True]

    def parse(raw):
        if broken.pop() if broken else False:
            raise RuntimeError("ours")
        return real(raw)

    monkeypatch.setattr(kmsg, "parse", parse)
    assert next_line(start(Ring(record(1)))).text == FAULT
    assert "reading the kernel log failed" in caplog.text


@pytest.mark.parametrize("code", sorted(kmsg.UNAVAILABLE))
def test_a_host_that_hides_its_log_is_told_of_once_and_left_alone(start, caplog, code):
    ring = Ring(record(1))
    ring.refuse = [code]
    with caplog.at_level(logging.INFO):
        log = start(ring)
    assert (log.started, ring.opened) == (False, 1)
    [line] = caplog.messages
    assert errno.errorcode[code] in line


def test_a_first_opening_that_fails_for_another_reason_is_tried_again(start):
    ring = Ring(record(1))
    ring.refuse = [errno.EMFILE, errno.ENFILE]
    log = start(ring)
    assert log.started
    assert next_line(log).text == FAULT


def test_a_failure_that_lasts_is_told_of_once(start, monkeypatch, caplog):
    ring = Ring(record(1))
    fail_next_reads(monkeypatch, ring, *[errno.EIO] * 5)
    next_line(start(ring))
    assert len([m for m in caplog.messages if "cannot be read" in m]) == 1


# -------------------------------------------------------------------------------------------------------------- cursor


def test_a_restart_reads_on_where_all_was_saved(start, tmp_path):
    ring = Ring(record(1, fault(1)), record(2, fault(2)))
    first = start(ring)
    texts(first, 2)
    first.close()  # joined: all it posted is noted
    first.committed()
    first.committed()
    ring.records.append(record(3, fault(3)))
    second = start(ring)
    assert texts(second, 1) == [fault(3)]
    assert second.lines.empty()
    assert [path.name for path in tmp_path.iterdir()] == [kmsg.FILE]


@pytest.mark.parametrize("calls", [0, 1])
def test_a_kill_before_all_was_saved_loses_no_line(start, calls):
    ring = Ring(record(1, fault(1)), record(2, fault(2)))
    first = start(ring)
    texts(first, 2)
    first.close()
    for _ in range(calls):
        first.committed()
    assert texts(start(ring), 2) == [fault(1), fault(2)]


def test_what_was_posted_since_the_call_before_is_not_noted(start, tmp_path):
    ring = Ring(record(1, fault(1)), record(2, fault(2)))
    log = start(ring)
    texts(log, 2)
    log.committed()
    ring.add(record(3, fault(3)))
    texts(log, 1)
    log.committed()
    assert kmsg.read_cursor(tmp_path / kmsg.FILE, "boot") in {1, 2}


def test_a_new_boot_is_read_from_its_beginning(start):
    ring = Ring(record(50, fault(50)))
    first = start(ring)
    texts(first, 1)
    first.close()
    first.committed()
    first.committed()
    assert texts(start(Ring(record(1, fault(1))), boot="another"), 1) == [fault(1)]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"boot":"boot"}', b'{"boot":"boot","sequence":"x"}', b"\xff\xfe"]
)
def test_a_damaged_note_means_reading_from_the_beginning(tmp_path, content):
    (tmp_path / kmsg.FILE).write_bytes(content)
    assert kmsg.read_cursor(tmp_path / kmsg.FILE, "boot") == -1


def test_without_a_boot_id_nothing_is_noted(start, tmp_path):
    log = start(Ring(record(1)), boot="")
    texts(log, 1)
    log.close()
    log.committed()
    log.committed()
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_saves_nothing_notes_nothing(start, tmp_path):
    log = start(Ring(record(1)), directory=None)
    texts(log, 1)
    log.close()
    log.committed()
    log.committed()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_told_of_and_no_more(start, tmp_path, caplog):
    log = start(Ring(record(1)), directory=tmp_path / "absent")
    texts(log, 1)
    log.close()
    for _ in range(5):
        log.committed()
    assert len([m for m in caplog.messages if "cannot be written" in m]) == 1


# ---------------------------------------------------------------------------------------------------------------- stop


def test_a_stop_is_at_once_and_twice_is_once(start):
    log = start(Ring())
    thread = log._thread
    log.close()
    log.close()
    assert not thread.is_alive()


def test_a_stop_does_not_wait_for_the_next_try(monkeypatch):
    def refuse(_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(kmsg.KernelLog, "_open", refuse)
    log = kmsg.KernelLog(print, Clock(), "boot", None, retry=(3600.0, 3600.0))
    assert log.start()
    log.close()
    assert not log._thread.is_alive()


def test_a_log_that_was_never_started_can_be_closed():
    kmsg.KernelLog(print, Clock(), "boot", None).close()


def open_files():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_descriptors_are_given_back(start):
    before = open_files()
    ring = Ring(record(1))
    log = start(ring)
    texts(log, 1)
    log.close()
    for end in ring.ends:
        end.close()
    assert open_files() == before
