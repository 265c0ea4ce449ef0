"""The tree in memory answers as a reader of sysfs sees it, and tells when the class directory changed."""

import errno
import time

import pytest

from ibmon.recording import Frame, RecordingError
from ibmon.simulate.dgx import dgx
from ibmon.virtualtree import ReadHangs, VirtualTree


def tree_of(**files):
    tree = VirtualTree()
    tree.apply(Frame(t=0, **files))
    return tree


def errno_of(call, *args):
    with pytest.raises(OSError) as caught:
        call(*args)
    return errno.errorcode[caught.value.errno]


@pytest.fixture
def linked():
    return tree_of(
        files={"devices/card/ib/x/ports/1/state": "4: ACTIVE\n", "devices/bridge": "b\n"},
        links={
            "class/infiniband/x": "../../devices/card/ib/x",
            "devices/card/ib/x/device": "../../../card",
            "absolute": "/devices/card",
            "dangling": "devices/none",
            "a": "b",
            "b": "a",
            "outside": "../../etc",
            "class/file": "../devices/bridge",
        },
    )


def test_links_are_followed_as_the_kernel_does(linked):
    assert linked.read("class/infiniband/x/ports/1/state") == b"4: ACTIVE\n"
    assert linked.realpath("class/infiniband/x/device") == "devices/card"
    assert linked.read("class/infiniband/x/device/../bridge") == b"b\n"
    assert linked.listdir("absolute") == ["ib"]
    assert linked.readlink("class/infiniband/x") == "../../devices/card/ib/x"
    assert linked.realpath("") == ""
    assert linked.exists("class/infiniband/x/.")
    assert linked.islink("dangling")
    assert not linked.exists("dangling")
    assert linked.listdir("") == ["a", "absolute", "b", "class", "dangling", "devices", "outside"]


@pytest.mark.parametrize(
    ("call", "path", "name"),
    [
        ("read", "nothing", "ENOENT"),
        ("read", "dangling", "ENOENT"),
        ("realpath", "dangling", "ENOENT"),
        ("read", "outside/passwd", "ENOENT"),
        ("read", "..", "ENOENT"),
        ("read", "a", "ELOOP"),
        ("listdir", "a", "ELOOP"),
        ("read", "class/infiniband", "EISDIR"),
        ("listdir", "class/file", "ENOTDIR"),
        ("read", "class/file/x", "ENOTDIR"),
        ("read", "class/file/.", "ENOTDIR"),
        ("readlink", "class", "EINVAL"),
        ("readlink", "devices/bridge", "EINVAL"),
        ("readlink", "nothing", "ENOENT"),
    ],
)
def test_what_leads_nowhere_has_the_errno_of_the_kernel(linked, call, path, name):
    assert errno_of(getattr(linked, call), path) == name
    assert errno_of(getattr(linked, call), path) == name  # from the cache of found paths too


def test_a_chain_of_forty_links_is_followed_and_one_more_is_not():
    links = {f"l{number}": f"l{number - 1}" for number in range(1, 42)}
    tree = tree_of(files={"l0": "end"}, links=links)
    assert tree.read("l40") == b"end"
    assert errno_of(tree.read, "l41") == "ELOOP"


def test_an_errno_holds_on_every_way_to_the_file_until_null(linked):
    linked.apply(Frame(t=1, errnos={"class/infiniband/x/ports/1/state": "ENOLINK"}))
    linked.apply(Frame(t=2, files={"devices/card/ib/x/ports/1/state": "1: DOWN\n"}))
    assert errno_of(linked.read, "devices/card/ib/x/ports/1/state") == "ENOLINK"
    linked.apply(Frame(t=3, errnos={"devices/card/ib/x/ports/1/state": None, "never/was": None}))
    assert linked.read("class/infiniband/x/ports/1/state") == b"1: DOWN\n"
    assert not linked.exists("never")


def test_a_failing_file_that_was_never_set_is_listed():
    tree = tree_of(errnos={"counters/VL15_dropped": "EINVAL"})
    assert tree.listdir("counters") == ["VL15_dropped"]
    assert errno_of(tree.read, "counters/VL15_dropped") == "EINVAL"


def test_an_errno_on_a_directory_fails_its_listing_and_not_what_is_below(linked):
    linked.apply(Frame(t=1, errnos={"class/infiniband": "EACCES"}))
    assert errno_of(linked.listdir, "class/infiniband") == "EACCES"
    assert linked.read("class/infiniband/x/ports/1/state") == b"4: ACTIVE\n"


def test_a_blocked_directory_hangs_all_that_it_really_holds(linked):
    linked.apply(Frame(t=1, block=("class/infiniband/x",)))
    for path in ("class/infiniband/x/ports/1/state", "devices/card/ib/x/ports/1/state"):
        assert linked.is_blocked(path)
        with pytest.raises(ReadHangs):
            linked.read(path)
    with pytest.raises(ReadHangs):
        linked.listdir("class/infiniband/x/ports")
    assert linked.listdir("class/infiniband") == ["x"]
    assert linked.listdir("class/infiniband/x/device") == ["ib"]
    assert not linked.is_blocked("class/infiniband/x/device/../bridge")
    assert not linked.is_blocked("class/infiniband/x/none")
    linked.apply(Frame(t=2, block=("class/infiniband/x/ports/1/state",)))
    linked.apply(Frame(t=3, unblock=("devices/card/ib/x", "no/such")))
    assert linked.read("class/infiniband/x/ports/1/state") == b"4: ACTIVE\n"


def test_a_device_that_was_removed_comes_back_readable(linked):
    linked.apply(Frame(t=1, block=("class/infiniband/x",), errnos={"devices/bridge": "EIO"}))
    linked.apply(Frame(t=2, remove=("devices",)))
    linked.apply(Frame(t=3, files={"devices/card/ib/x/ports/1/state": "2: INIT\n", "devices/bridge": "c"}))
    assert linked.read("class/infiniband/x/ports/1/state") == b"2: INIT\n"
    assert linked.read("devices/bridge") == b"c"


def test_remove_leaves_parents_and_does_not_follow_the_last_link(linked):
    linked.apply(Frame(t=1, remove=("class/infiniband/x", "no/such/path", "a")))
    assert linked.listdir("class/infiniband") == []
    assert linked.listdir("devices/card/ib/x/ports/1") == ["state"]


def test_keys_apply_in_the_order_of_the_format():
    tree = tree_of(files={"a/old": "1"})
    tree.apply(
        Frame(
            t=1,
            unblock=("a/new",),
            block=("a/new",),
            errnos={"a/new": "EIO"},
            files={"l/new": "2"},
            links={"l": "a"},
            dirs=("a",),
            remove=("a",),
        )
    )
    assert tree.listdir("a") == ["new"]
    assert errno_of(tree.read, "l/new") == "EIO"


@pytest.mark.parametrize(
    ("frame", "event"),
    [
        (Frame(t=1, remove=("class/infiniband/x",)), True),
        (Frame(t=1, remove=("class",)), True),
        (Frame(t=1, files={"class/infiniband/y/node_guid": ""}), True),
        (Frame(t=1, dirs=("class/infiniband/y",)), True),
        (Frame(t=1, links={"class/infiniband/y": "../../devices/none"}), True),
        (Frame(t=1, links={"class/infiniband/x": "../../devices/other"}), True),
        (Frame(t=1, remove=("class/infiniband/x",), links={"class/infiniband/x": "../../devices/card/ib/x"}), True),
        (Frame(t=1, links={"class/infiniband/x": "../../devices/card/ib/x"}), False),
        (Frame(t=1, files={"class/infiniband/x/ports/1/state": "1: DOWN\n"}), False),
        (Frame(t=1, files={"class/infiniband/x/ports/2/state": "1: DOWN\n"}), False),
        (Frame(t=1, remove=("devices/card/ib/x/ports",)), False),
        (Frame(t=1, files={"class/net/eth0/operstate": "up\n"}), False),
        (Frame(t=1, dirs=("class/infiniband",)), False),
        (Frame(t=1, kmsg=("line",)), False),
    ],
)
def test_a_change_directly_below_the_class_is_an_event_and_no_other(linked, frame, event):
    version = linked.class_version
    assert linked.apply(frame) is event
    assert linked.class_version == version + event


def test_the_class_without_devices_going_away_is_no_event():
    tree = tree_of(dirs=("class/infiniband",))
    assert tree.apply(Frame(t=1, remove=("class",))) is False


def test_version_counts_frames_that_touch_the_tree(linked):
    version = linked.version
    linked.apply(Frame(t=1, files={"devices/bridge": "c"}))
    linked.apply(Frame(t=2, restart=True))
    assert linked.version == version + 1


def test_a_day_at_five_seconds_is_applied_and_read_within_seconds():
    tree, node = VirtualTree(), dgx()
    tree.apply(node.frame())
    states = [f"class/infiniband/{name}/ports/1/state" for name in node.devices]
    before = time.process_time()
    for step in range(17_280):
        tree.apply(Frame(t=step, files={states[step % 12]: "4: ACTIVE\n"}))
        for path in states:
            tree.read(path)
    assert time.process_time() - before < 20  # about one second here; a slow machine gets its share


def test_a_frame_that_does_not_fit_names_its_time_and_path():
    tree = tree_of(files={"a": "1"})
    with pytest.raises(RecordingError, match="t=7: a/b: Not a directory"):
        tree.apply(Frame(t=7, files={"a/b": "2"}))
