"""Recording a live tree: whole first, then the changes, and a read that hangs costs one device and no more."""

import errno
import os
import threading

import pytest

from ibmon.config import Config, DevicesConfig, SamplingConfig
from ibmon.recording import read
from ibmon.runtime.record import PatientTree, Recorder, keeps, record
from ibmon.sysfs.files import FileTree

IB = "class/infiniband"
SECONDS = 20  # no test waits so long unless it fails


@pytest.fixture
def tree(tmp_path):
    """Two devices with one port each."""
    for name in ("mlx5_0", "mlx5_1"):
        port = tmp_path / IB / name / "ports/1"
        (port / "counters").mkdir(parents=True)
        (port / "state").write_text("4: ACTIVE\n")
        (port / "counters/symbol_error").write_text("0\n")
    return tmp_path


def patient(**sampling):
    return Config(sampling=SamplingConfig(**sampling))


@pytest.fixture
def hang(tree, monkeypatch):
    """Makes a file one whose read does not return before the test ends; every other read gets all its time."""
    hanging, read_within = [], PatientTree.read

    def make(path):
        file = tree / path
        file.unlink()
        os.mkfifo(file)
        hanging.append(path)

    def read_in_time(patient_tree, path):
        deadline = patient_tree._deadline
        patient_tree._deadline = deadline if path in hanging else SECONDS
        try:
            return read_within(patient_tree, path)
        finally:
            patient_tree._deadline = deadline

    monkeypatch.setattr(PatientTree, "read", read_in_time)
    yield make
    for path in hanging:
        os.close(os.open(tree / path, os.O_RDWR | os.O_NONBLOCK))


def readers():
    """How many threads there are to read."""
    return sum(thread.name == "record" for thread in threading.enumerate())


def test_the_first_frame_is_the_tree_and_the_next_what_changed(tree):
    recorder = Recorder(FileTree(tree), Config())
    first = recorder.frame(0)
    assert first.files[f"{IB}/mlx5_0/ports/1/state"] == "4: ACTIVE\n"
    assert recorder.frame(5) is None
    (tree / IB / "mlx5_0/ports/1/state").write_text("1: DOWN\n")
    second = recorder.frame(10)
    assert (second.t, dict(second.files)) == (10, {f"{IB}/mlx5_0/ports/1/state": "1: DOWN\n"})


def test_a_device_that_the_configuration_leaves_out_is_not_opened(tree):
    recorder = Recorder(FileTree(tree), Config(devices=DevicesConfig(exclude=("mlx5_1",))))
    assert {path.split("/")[2] for path in recorder.frame(0).files} == {"mlx5_0"}


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        (f"{IB}/mlx5_0", True),
        (f"{IB}/mlx5_bond_0/ports", False),
        (f"{IB}/rxe0", False),
        ("class/net/eth0", True),
    ],
)
def test_only_rdma_devices_are_left_out(path, kept):
    assert keeps(DevicesConfig(include=("mlx5_*",), exclude=("mlx5_bond_*",)), path) is kept


def test_a_read_that_hangs_is_recorded_as_blocked_and_the_other_device_goes_on(tree, hang):
    recorder = Recorder(FileTree(tree), patient(read_deadline=0.05))
    recorder.frame(0)
    hang(f"{IB}/mlx5_0/ports/1/state")
    (tree / IB / "mlx5_1/ports/1/state").write_text("1: DOWN\n")
    second = recorder.frame(5)
    assert second.block == (f"{IB}/mlx5_0/ports/1/state",)
    assert dict(second.files) == {f"{IB}/mlx5_1/ports/1/state": "1: DOWN\n"}
    assert (second.remove, dict(second.errnos)) == ((), {})
    assert recorder.frame(10) is None


def test_a_file_that_hangs_from_the_start_is_there_and_blocked(tree, hang):
    path = f"{IB}/mlx5_0/ports/1/state"
    hang(path)
    first = Recorder(FileTree(tree), patient(read_deadline=0.05)).frame(0)
    assert first.block == (path,)
    assert first.files[path] == ""


def test_a_device_that_hangs_gets_no_second_read(tree, hang):
    hang(f"{IB}/mlx5_0/ports/1/state")
    patient_tree = PatientTree(FileTree(tree), 0.05)
    before = readers()
    for _ in range(3):
        with pytest.raises(OSError) as caught:
            patient_tree.read(f"{IB}/mlx5_0/ports/1/state")
        assert caught.value.errno == errno.ETIMEDOUT
    assert readers() == before + 1  # one thread was lost and replaced
    assert patient_tree.read(f"{IB}/mlx5_1/ports/1/state") == b"4: ACTIVE\n"


def test_an_error_of_the_kernel_is_passed_on(tree):
    with pytest.raises(FileNotFoundError):
        PatientTree(FileTree(tree), 1).read(f"{IB}/mlx5_0/none")


def test_the_file_holds_what_was_seen_and_people_are_told(tree, tmp_path):
    said = []
    out = tmp_path / "r.jsonl.gz"
    assert record(tree, out, 0.05, Config(), said.append, interval=0.02) == 0
    header, frames = read(out)
    assert header.uptime > 0
    assert [frame.t < 1 for frame in frames] == [True]
    assert said[0] == f"recording to {out}; the first frame holds 4 files"
    assert said[-1].startswith(f"{out}: 1 frames in ")


def test_a_node_without_devices_is_told(tmp_path):
    (tmp_path / IB).mkdir(parents=True)
    said = []
    record(tmp_path, tmp_path / "r.jsonl", 0.01, Config(), said.append, interval=1)
    assert said[0].endswith("the first frame holds 0 files: no RDMA device")
