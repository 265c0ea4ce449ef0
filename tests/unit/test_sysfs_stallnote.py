"""The note of hanging reads: written whole, believed only while its writer still has a thread."""

import os
import subprocess
import sys

import pytest

from ibmon.sysfs import stallnote
from ibmon.sysfs.stallnote import Entry


def stat(state, start):
    """A line of /proc/PID/stat with a name that tries to be two fields."""
    return f"42 (a) b) {state} " + " ".join(["0"] * 18) + f" {start} 0 0\n"


def process(proc, pid, state, start, **tasks):
    """A process as /proc shows it; tasks by number and state."""
    (proc / str(pid) / "task").mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(stat(state, start))
    for task, task_state in {str(pid): state, **tasks}.items():
        (proc / str(pid) / "task" / task.removeprefix("t")).mkdir()
        (proc / str(pid) / "task" / task.removeprefix("t") / "stat").write_text(stat(task_state, start))


@pytest.fixture
def note(tmp_path):
    path = tmp_path / stallnote.FILE
    stallnote.write(path, {"mlx5_0": Entry(4242, 777, 1_800_000_000.0)})
    return path


def test_a_note_comes_back_as_it_was_written(note):
    assert stallnote.read(note) == {"mlx5_0": Entry(4242, 777, 1_800_000_000.0)}
    assert [path.name for path in note.parent.iterdir()] == [stallnote.FILE]


def test_a_note_that_is_absent_or_damaged_says_nothing(tmp_path):
    path = tmp_path / "note"
    assert stallnote.read(path) == {}
    for content in (b"", b"{", b"[]", b'{"mlx5_0": {"pid": "x"}}', b"\xff"):
        path.write_bytes(content)
        assert stallnote.read(path) == {}


def test_a_note_that_cannot_be_written_leaves_the_old_one(note, monkeypatch):
    def fail(*_):
        raise OSError(28, "no space")

    monkeypatch.setattr(stallnote.msgspec.json, "encode", fail)
    with pytest.raises(OSError, match="no space"):
        stallnote.write(note, {})
    monkeypatch.undo()
    assert set(stallnote.read(note)) == {"mlx5_0"}
    assert len(list(note.parent.iterdir())) == 1


@pytest.mark.parametrize(
    ("state", "tasks", "out"),
    [
        ("S", {}, True),
        ("D", {}, True),
        ("Z", {"t4243": "D"}, True),  # killed, and its reader still is in the kernel
        ("Z", {"t4243": "Z"}, False),
        ("Z", {}, False),
        ("X", {}, False),
    ],
)
def test_a_device_is_out_while_its_process_has_a_thread(note, tmp_path, state, tasks, out):
    process(tmp_path / "proc", 4242, state, 777, **tasks)
    assert set(stallnote.still_out(note, tmp_path / "proc")) == ({"mlx5_0"} if out else set())


def test_another_process_of_the_same_number_is_not_it(note, tmp_path):
    process(tmp_path / "proc", 4242, "S", 778)
    assert stallnote.still_out(note, tmp_path / "proc") == {}


def test_a_process_that_has_ended_is_out_of_everything(note, tmp_path):
    assert stallnote.still_out(note, tmp_path / "proc") == {}


def test_our_own_entries_are_no_quarantine(tmp_path):
    path = tmp_path / stallnote.FILE
    stallnote.write(path, {"mlx5_0": stallnote.entry(os.getpid(), 5.0)})
    assert stallnote.read(path)["mlx5_0"].pid == os.getpid()
    assert stallnote.still_out(path) == {}


def test_a_real_process_is_known_by_its_start_until_it_ends(tmp_path):
    path = tmp_path / stallnote.FILE
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        stallnote.write(path, {"mlx5_0": stallnote.entry(child.pid, 5.0)})
        assert set(stallnote.still_out(path)) == {"mlx5_0"}
    finally:
        child.communicate(b"\n", timeout=10)
    assert stallnote.still_out(path) == {}
