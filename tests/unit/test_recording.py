"""The recording format: what is read, what is refused and how the refusal reads, and a writer on a full disk."""

import gzip
import json
import os
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibmon.recording import DEFAULT_UPTIME, Frame, Header, RecordingError, SchedulerAct, Writer, read

HEADER = {"ibmon_recording": 1}


def recording(tmp_path, *lines, name="r.jsonl"):
    path = tmp_path / name
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def error_of(path):
    with pytest.raises(RecordingError) as caught:
        list(read(path)[1])
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_every_key_of_the_format_is_read(tmp_path):
    frame = {
        "t": 1.5,
        "remove": ["a/b"],
        "dir": ["c"],
        "link": {"d": "../nowhere"},
        "set": {"e/f": "4: ACTIVE\n"},
        "errno": {"e/g": "EINVAL", "e/h": None},
        "block": ["e/i"],
        "unblock": ["e/j"],
        "kmsg": ["mlx5_core 0000:18:00.0: line"],
        "scheduler": {"by": "admin", "do": "drain", "reason": "disk"},
        "restart": True,
        "boot_id": "b2",
        "uptime": 3,
        "wall_step": -60,
        "suspend": 30,
    }
    header, frames = read(
        recording(tmp_path, {**HEADER, "boot_id": "b1", "uptime": 100, "wall": 7}, {"t": 0}, frame, "")
    )
    assert header == Header(boot_id="b1", uptime=100, wall=7)
    assert list(frames) == [
        Frame(t=0),
        Frame(
            t=1.5,
            remove=("a/b",),
            dirs=("c",),
            links={"d": "../nowhere"},
            files={"e/f": "4: ACTIVE\n"},
            errnos={"e/g": "EINVAL", "e/h": None},
            block=("e/i",),
            unblock=("e/j",),
            kmsg=("mlx5_core 0000:18:00.0: line",),
            scheduler=SchedulerAct(do="drain", reason="disk"),
            restart=True,
            boot_id="b2",
            uptime=3,
            wall_step=-60,
            suspend=30,
        ),
    ]


def test_a_header_without_values_has_those_of_the_format(tmp_path):
    header, _ = read(recording(tmp_path, HEADER, {"t": 0}))
    assert header == Header()
    assert header.uptime == DEFAULT_UPTIME == 864000


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"t": 5, "sett": {}}, ["unknown key 'sett'", "'set'"]),
        ({"t": 5, "blok": []}, ["unknown key 'blok'", "'block'"]),
        ({"t": 5, "zzzzzz": 1}, ["unknown key 'zzzzzz'"]),
        ({"t": 5, "files": {}}, ["unknown key 'files'"]),
        ({"t": 5, "scheduler": {"do": "drain", "raeson": "x"}}, ["unknown key 'raeson'", "'reason'"]),
        ({"t": 5, "scheduler": {"do": "explode"}}, ["explode", "scheduler"]),
        ({"t": 5, "set": {"a": 1}}, ["str", "int"]),
        ({"t": 5, "set": ["a"]}, ["array", "set"]),
        ({"t": "5"}, ["str", "t"]),
        ({"set": {}}, ["t"]),
        ({"t": -1}, ["t is -1"]),
        ({"t": 5, "suspend": -1}, ["suspend"]),
        ({"t": 5, "uptime": 9}, ["boot_id"]),
        ({"t": 5, "errno": {"a": "EINVALL"}}, ["EINVALL", "'EINVAL'"]),
        ({"t": 5, "link": {"a": ""}}, ["no target"]),
        ({"t": 5, "restart": 1}, ["restart"]),
        ([], ["no JSON object"]),
        ('{"t": 5, "set": {"a": "b', ["no JSON", "cut off"]),
        ("\x00\x01", ["no JSON"]),
        ({"t": 5, "set": {"/a": ""}}, ["'/a'", "relative"]),
        ({"t": 5, "set": {"a/../../etc": ""}}, ["'a/../../etc'"]),
        ({"t": 5, "remove": ["a//b"]}, ["'a//b'"]),
        ({"t": 5, "dir": ["a/"]}, ["'a/'"]),
        ({"t": 5, "block": [""]}, ["''"]),
        ({"t": 5, "unblock": ["./a"]}, ["'./a'"]),
        ({"t": 5, "errno": {"..": "EIO"}}, ["'..'"]),
        ({"t": 5, "link": {"a/.": "b"}}, ["'a/.'"]),
    ],
)
def test_a_bad_frame_is_named_by_line_and_cause(tmp_path, line, words):
    path = recording(tmp_path, HEADER, "", {"t": 1}, line)
    text = error_of(path)
    assert text.startswith(f"{path}:4: ")
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ({"t": 0}, "not a recording"),
        ({"boot_id": "x"}, "not a recording"),
        ({"ibmon_recording": 2}, "version 2"),
        ({"ibmon_recording": 1, "uptim": 3}, "'uptime'"),
        ({"ibmon_recording": 1, "uptime": -3}, "uptime is -3"),
        ({"ibmon_recording": 1, "boot_id": ""}, "boot_id is empty"),
        ({"ibmon_recording": 1, "wall": 1e300}, r"wall is 1e\+300: that is too far"),
        ({"ibmon_recording": "1"}, "ibmon_recording"),
        ("class/infiniband", "no JSON"),
    ],
)
def test_a_bad_header_is_refused_before_any_frame(tmp_path, line, word):
    path = recording(tmp_path, line, {"t": 0})
    with pytest.raises(RecordingError, match=word) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:1: ")


def test_frames_before_the_bad_one_are_given(tmp_path):
    _, frames = read(recording(tmp_path, HEADER, {"t": 0}, {"t": 9}, {"t": 8.5}))
    assert [next(frames).t, next(frames).t] == [0, 9]
    with pytest.raises(RecordingError, match=r":4: t is 8\.5 after 9"):
        next(frames)


@pytest.mark.parametrize(
    ("frame", "word"),
    [
        ({"t": 1767225600}, "t is 1.76723e+09: that is too far, 1e+09 seconds are the most"),
        ({"t": 0, "suspend": 1e18}, "suspend is 1e+18: that is too far"),
        ({"t": 0, "wall_step": -1e30}, "wall_step is 1e+30: that is too far"),
        ({"t": 0, "boot_id": ""}, "boot_id is empty"),
    ],
)
def test_a_time_that_no_recording_reaches_is_refused(tmp_path, frame, word):
    with pytest.raises(RecordingError, match=re.escape(word)):
        list(read(recording(tmp_path, HEADER, frame))[1])


def test_a_clock_that_is_set_from_1970_is_played(tmp_path):
    assert next(read(recording(tmp_path, HEADER, {"t": 0, "wall_step": 1.8e9}))[1]).wall_step == 1.8e9


def test_two_frames_may_share_a_time(tmp_path):
    assert [frame.t for frame in read(recording(tmp_path, HEADER, {"t": 0}, {"t": 4}, {"t": 4}))[1]] == [0, 4, 4]


def test_a_recording_needs_a_first_frame(tmp_path):
    assert "no frame" in error_of(recording(tmp_path, HEADER))


def test_an_empty_or_missing_or_unreadable_file_is_one_clear_line(tmp_path):
    (tmp_path / "empty").touch()
    assert "empty file" in error_of(tmp_path / "empty")
    assert "No such file" in error_of(tmp_path / "absent")
    assert "directory" in error_of(tmp_path)
    (tmp_path / "no.gz").write_text("plain text")
    assert "gzip" in error_of(tmp_path / "no.gz")


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_what_is_written_is_read_back(tmp_path, name):
    frames = [
        Frame(t=0, files={"a/b": "ü\n"}, dirs=("c",)),
        Frame(t=2.25, remove=("a",), scheduler=SchedulerAct(do="up")),
    ]
    with Writer(tmp_path / name, Header(wall=5)) as writer:
        for frame in frames:
            writer.write(frame)
    header, again = read(tmp_path / name)
    assert (header, list(again)) == (Header(wall=5), frames)
    if name.endswith("gz"):
        assert gzip.decompress((tmp_path / name).read_bytes()).count(b"\n") == 3


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_frames_of_a_recorder_that_was_killed_are_all_there(tmp_path, name):
    writer = Writer(tmp_path / name, Header())
    for t in range(5):
        writer.write(Frame(t=t, files={"a": "x" * 100 * t}))
    copy = tmp_path / f"copy-{name}"  # what a kill would leave
    copy.write_bytes((tmp_path / name).read_bytes())
    assert [frame.t for frame in read(copy)[1]] == [0, 1, 2, 3, 4]
    writer.close()


def test_damage_within_a_compressed_recording_is_an_error(tmp_path):
    path = tmp_path / "r.gz"
    with Writer(path, Header()) as writer:
        for t in range(50):
            writer.write(Frame(t=t, files={"a": os.urandom(60).hex()}))
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40] = bytes(40)
    path.write_bytes(data)
    assert str(path) in error_of(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_at_the_header_is_one_clear_error(tmp_path):
    full = tmp_path / "full.jsonl"
    full.symlink_to("/dev/full")
    with pytest.raises(RecordingError, match="No space left on device: recording stopped after 0 frames"):
        Writer(full, Header())


class _SmallDisk:
    """Takes `room` bytes; a write beyond is short, the next one fails, as on a disk that fills up."""

    def __init__(self, raw, room):
        self._raw, self._room = raw, room

    def write(self, data):
        free = self._room - self._raw.tell()
        if free <= 0:
            raise OSError(28, "No space left on device")
        return self._raw.write(bytes(data)[:free])

    def __getattr__(self, name):
        return getattr(self._raw, name)


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_a_disk_that_fills_up_costs_the_frame_and_no_other(tmp_path, name):
    path = tmp_path / name
    writer = Writer(path, Header())
    writer._raw = _SmallDisk(writer._raw, 500)

    def fill():
        for t in range(100):
            writer.write(Frame(t=t, files={"a": os.urandom(30).hex()}))

    with pytest.raises(RecordingError, match="No space left") as caught:
        fill()
    writer.write(Frame(t=200))
    writer.close()
    kept = [frame.t for frame in read(path)[1]]
    assert kept == list(range(writer.frames))
    assert f"after {len(kept)} frames" in str(caught.value)
    assert len(kept) >= 2


@given(
    t=st.floats(0, 1e9),
    files=st.dictionaries(
        st.from_regex(r"\A[a-z]{1,3}(/[a-z]{1,3}){0,2}\Z"), st.text(st.characters(exclude_categories=["Cs"]))
    ),
)
def test_a_frame_survives_its_line(t, files):
    frame = Frame(t=t, files=files)
    assert msgspec.json.decode(msgspec.json.encode(frame), type=Frame) == frame
