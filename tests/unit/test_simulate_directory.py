"""A directory and the tree in memory show the same after the same frames; kept descriptors see new values."""

import errno
import itertools
import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibmon.recording import Frame, RecordingError
from ibmon.simulate.directory import DirectoryTree
from ibmon.virtualtree import VirtualTree

NAMES = ("a", "b", "c")
PATHS = ["/".join(parts) for depth in (1, 2, 3) for parts in itertools.product(NAMES, repeat=depth)]
path = st.sampled_from(PATHS)
target = st.one_of(path, st.sampled_from(NAMES).map(lambda name: f"../{name}"), path.map(lambda to: f"/{to}"))
frame = st.builds(
    Frame,
    t=st.just(0),
    remove=st.lists(path, max_size=2).map(tuple),
    dirs=st.lists(path, max_size=2).map(tuple),
    links=st.dictionaries(path, target, max_size=2),
    files=st.dictionaries(path, st.text("0123456789 é\n", max_size=12), max_size=3),
    errnos=st.dictionaries(path, st.none(), max_size=1),
)


def outcome(call, *args):
    try:
        return call(*args)
    except OSError as error:
        return errno.errorcode[error.errno]


def names(directory):
    return sorted(entry.name for entry in directory.iterdir())


def stripped(result):
    return result.rstrip(b"\n") if isinstance(result, bytes) else result


def fits(tree, change):
    try:
        tree.apply(change)
    except RecordingError:
        return False
    return True


@settings(max_examples=150, deadline=None)
@given(frames=st.lists(frame, max_size=6))
def test_memory_and_disk_show_the_same(tmp_path_factory, frames):
    root = tmp_path_factory.mktemp("tree")
    disk, memory = DirectoryTree(root), VirtualTree()
    for change in frames:
        # A link out of the tree dangles in memory and is refused on disk.
        if any(to.startswith("../") and "/" not in at for at, to in change.links.items()):
            return
        agreed = fits(memory, change)
        assert fits(disk, change) == agreed
        if not agreed:
            return
        for at in PATHS:
            assert stripped(outcome(memory.read, at)) == stripped(outcome((root / at).read_bytes)), at
            assert outcome(memory.listdir, at) == outcome(names, root / at), at
            assert memory.isdir(at) == (root / at).is_dir()
            assert memory.islink(at) == (root / at).is_symlink()
            assert memory.exists(at) == (root / at).exists()
            if memory.exists(at):
                assert memory.realpath(at) == os.path.relpath(os.path.realpath(root / at), os.path.realpath(root))


def test_a_kept_descriptor_sees_each_new_value(tmp_path):
    tree = DirectoryTree(tmp_path)
    tree.apply(Frame(t=0, files={"rate": "400 Gb/sec (4X NDR)\n"}))
    kept = os.open(tmp_path / "rate", os.O_RDONLY)
    try:
        for text in ("10 Gb/sec (4X SDR)\n", "200 Gb/sec (2X NDR)\n", "", "400 Gb/sec (4X NDR)\n"):
            tree.apply(Frame(t=1, files={"rate": text}))
            assert os.pread(kept, 4096, 0).decode().rstrip("\n") == text.rstrip("\n")
    finally:
        os.close(kept)


def test_no_reader_sees_an_empty_or_a_mixed_file(tmp_path):
    tree = DirectoryTree(tmp_path)
    texts = ["4: ACTIVE\n", "1: DOWN\n", "2: INIT\n"]
    tree.apply(Frame(t=0, files={"state": texts[0]}))
    seen, done = set(), threading.Event()

    def look():
        kept = os.open(tmp_path / "state", os.O_RDONLY)
        while not done.is_set():
            seen.add(os.pread(kept, 4096, 0))
        os.close(kept)

    reader = threading.Thread(target=look)
    reader.start()
    for turn in range(6000):
        tree.apply(Frame(t=1, files={"state": texts[turn % 3]}))
    done.set()
    reader.join()
    assert {text.rstrip(b"\n") + b"\n" for text in seen} <= {text.encode() for text in texts}


def test_a_removed_file_shows_nothing_more_to_a_kept_descriptor(tmp_path):
    tree = DirectoryTree(tmp_path)
    tree.apply(Frame(t=0, files={"d/one": "1\n", "d/e/two": "2\n"}, links={"class": "d"}))
    kept = [os.open(tmp_path / name, os.O_RDONLY) for name in ("d/one", "d/e/two")]
    tree.apply(Frame(t=1, remove=("d",)))
    tree.apply(Frame(t=2, files={"d/one": "1\n"}))
    assert [os.pread(fd, 10, 0) for fd in kept] == [b"", b""]
    for fd in kept:
        os.close(fd)


def test_enoent_takes_the_file_away(tmp_path):
    tree = DirectoryTree(tmp_path)
    tree.apply(Frame(t=0, files={"a": "1", "b": "2"}))
    tree.apply(Frame(t=1, errnos={"a": "ENOENT", "b": None}))
    assert names(tmp_path) == ["b"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Frame(t=5, files={"x": "1"}, errnos={"a": "EINVAL"}), "t=5: errno a: .* EINVAL; play it with ibmon replay"),
        (Frame(t=5, files={"x": "1"}, block=("a",)), "t=5: block a: .*; play it with ibmon replay"),
        (Frame(t=5, links={"l": "../../etc/passwd"}), r"t=5: l: .*'../../etc/passwd' leads out of the tree"),
    ],
)
def test_what_plain_files_cannot_show_is_refused_untouched(tmp_path, change, words):
    tree = DirectoryTree(tmp_path / "sys")
    with pytest.raises(RecordingError, match=words):
        tree.apply(change)
    assert names(tmp_path / "sys") == []


@pytest.mark.parametrize(
    "change",
    [
        Frame(t=5, files={"d": "1"}),
        Frame(t=5, dirs=("f",)),
        Frame(t=5, files={"f/x": "1"}),
        Frame(t=5, links={"d": "f"}),
        Frame(t=5, files={"dangling": "1"}),
        Frame(t=5, files={"loop/x": "1"}),
    ],
)
@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_frame_that_does_not_fit_is_an_error_with_its_time(tmp_path, change, kind):
    tree = VirtualTree() if kind == "memory" else DirectoryTree(tmp_path)
    tree.apply(Frame(t=0, files={"f": "1"}, dirs=("d",), links={"dangling": "nowhere", "loop": "loop"}))
    with pytest.raises(RecordingError, match="frame at t=5: "):
        tree.apply(change)
