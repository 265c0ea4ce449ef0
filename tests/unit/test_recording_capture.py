"""What is captured of a tree reads like the tree, and differences rebuild each later one."""

import errno

import pytest

from ibmon.capture import PATTERNS, capture, difference
from ibmon.recording import Frame
from ibmon.simulate.dgx import dgx
from ibmon.simulate.directory import DirectoryTree
from ibmon.simulate.tree import Port, Tree, device
from ibmon.sysfs.files import FileTree
from ibmon.virtualtree import VirtualTree


def tree_of(tree, *frames):
    made = VirtualTree()
    for frame in (tree.frame() if isinstance(tree, Tree) else tree, *frames):
        made.apply(frame)
    return made


def contents(tree, path=""):
    """Every path with its target, its content or None for a directory, and the errno of a read that fails."""
    found = {}
    for name in tree.listdir(path):
        at = f"{path}/{name}".lstrip("/")
        if tree.islink(at):
            found[at] = tree.readlink(at)
            continue
        try:
            found[at] = None if tree.isdir(at) else tree.read(at)
            found |= contents(tree, at) if tree.isdir(at) else {}
        except OSError as error:
            found[at] = error.errno
    return found


@pytest.mark.parametrize("node", [dgx(), dgx(vfs=1), dgx(plain=True), device("rxe0", files={"parent": "eth0\n"})])
def test_a_captured_tree_is_captured_again_the_same(node):
    first = capture(tree_of(node))
    assert capture(tree_of(first)) == first
    assert first.files


def test_a_real_directory_is_captured_like_the_tree_in_memory(tmp_path):
    node = dgx(vfs=1)
    DirectoryTree(tmp_path).apply(node.frame())
    assert capture(FileTree(tmp_path)) == capture(tree_of(node))


def test_values_links_and_neighbours_are_captured():
    again = tree_of(capture(tree_of(dgx(vfs=1))))
    base = "class/infiniband/mlx5_0"
    assert again.read(f"{base}/ports/1/state") == b"4: ACTIVE\n"
    assert len(again.listdir(f"{base}/ports/1/counters")) == 21
    assert len(again.listdir(f"{base}/ports/1/hw_counters")) == 30
    assert again.realpath(f"{base}/device/driver") == "bus/pci/drivers/mlx5_core"
    assert again.read(f"{base}/device/../max_link_width") == b"16\n"
    assert again.read("class/infiniband/mlx5_12/device/physfn/max_link_speed") == b"32.0 GT/s PCIe\n"
    assert again.read("class/infiniband_verbs/uverbs0/ibdev") == b"mlx5_0\n"
    assert again.read("class/net/ens41f1np1/operstate") == b"up\n"
    assert again.read("bus/pci/devices/0000:18:00.0/vendor") == b"0x15b3\n"


def test_files_that_cost_or_are_not_read_are_not_captured():
    assert not [path for path in PATTERNS if "pkeys/*" in path or path.endswith(("/speed", "/carrier"))]
    found = capture(tree_of(dgx()))
    assert not [path for path in found.files if path.endswith(("sm_sl", "pkeys/1", "lid_mask_count"))]


def test_what_rules_look_at_beside_counters_is_captured():
    found = capture(tree_of(dgx())).files
    for end in ("gids/0", "pkeys/0", "temp2_label", "temp2_input", "/name"):
        assert any(path.endswith(end) for path in found), end


def test_netdevs_and_functions_of_others_are_left_out():
    others = Tree(
        {
            "class/net/veth1/operstate": "up\n",
            "bus/pci/devices/0000:00:02.0/class": "0x030000\n",
            "bus/pci/devices/0000:00:02.0/vendor": "0x8086\n",
            "bus/pci/devices/0000:69:00.0/class": "0x020700\n",
            "bus/pci/devices/0000:69:00.0/vendor": "0x15b3\n",
            "class/net/eth9/operstate": "up\n",
        }
    )
    rxe = device("rxe0", ports=(Port(counters=None),), files={"parent": "eth9\n"})
    found = capture(tree_of(rxe | others)).files
    assert "class/net/eth9/operstate" in found
    assert "class/net/veth1/operstate" not in found
    assert "bus/pci/devices/0000:69:00.0/vendor" in found
    assert "bus/pci/devices/0000:00:02.0/vendor" not in found


class Watched(VirtualTree):
    """Notes each file that was opened."""

    def __init__(self):
        super().__init__()
        self.opened = []

    def read(self, path):
        self.opened.append(path)
        return super().read(path)


def test_what_keep_refuses_is_never_opened():
    tree = Watched()
    tree.apply(dgx().frame())
    capture(tree, keep=lambda path: path != "class/infiniband/mlx5_3" and not path.endswith("/hw_counters"))
    assert any("mlx5_4/" in path for path in tree.opened)
    assert not [path for path in tree.opened if "mlx5_3/" in path or "hw_counters" in path]


def test_failures_are_part_of_the_picture():
    broken = Frame(
        t=1,
        errnos={
            "class/infiniband/mlx5_0/ports/1/counters/symbol_error": "EINVAL",
            "class/infiniband/mlx5_1/ports": "EACCES",
        },
    )
    again = tree_of(capture(tree_of(dgx(), broken)))
    with pytest.raises(OSError) as caught:
        again.read("class/infiniband/mlx5_0/ports/1/counters/symbol_error")
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(OSError) as caught:
        again.listdir("class/infiniband/mlx5_1/ports")
    assert caught.value.errno == errno.EACCES


def test_no_rdma_is_an_empty_class_and_no_class_is_none():
    assert capture(tree_of(Tree(dirs=("class/infiniband",)))).dirs == ("class/infiniband",)
    assert capture(VirtualTree()) == Frame(t=0)


def test_bytes_that_are_no_text_become_replacement_characters():
    class Binary(VirtualTree):
        def read(self, path):
            return b"host \xff\n" if path.endswith("node_desc") else super().read(path)

    tree = Binary()
    tree.apply(device("mlx5_0").frame())
    assert capture(tree).files["devices/virtual/infiniband/mlx5_0/node_desc"] == "host �\n"


@pytest.mark.parametrize(
    "change",
    [
        Frame(t=5, files={"class/infiniband/mlx5_2/ports/1/state": "1: DOWN\n"}),
        Frame(t=5, remove=("class/infiniband/mlx5_2", "devices/pci0000:4e")),
        Frame(t=5, remove=("class/infiniband",)),
        Frame(t=5, remove=("class", "devices", "bus")),
        Frame(t=5, links={"class/infiniband/mlx5_2": "../../devices/elsewhere"}),
        Frame(t=5, errnos={"class/infiniband/mlx5_2/ports/1/state": "EIO"}),
        Frame(t=5, remove=("class/infiniband/mlx5_2/ports/1/counters/link_downed",)),
    ],
)
def test_a_difference_turns_one_capture_into_the_next_and_back(change):
    tree = tree_of(dgx())
    before = capture(tree)
    tree.apply(change)
    after = capture(tree, t=5)
    for old, new in ((before, after), (after, before)):
        step = difference(old, new)
        assert step is not None
        assert step.t == new.t
        assert contents(tree_of(old, step)) == contents(tree_of(new))


def test_no_change_is_no_frame():
    tree = tree_of(dgx())
    assert difference(capture(tree), capture(tree, t=5)) is None
