"""One odd device or file takes nothing from the others: the mutations that blank other exporters, one by one."""

import errno

import pytest
from sysfs_trees import StillClock, frame, virtual, write

from ibmon.model import Level, Now
from ibmon.recording import Frame
from ibmon.sysfs.discover import discover, list_devices
from ibmon.sysfs.files import FileTree
from ibmon.sysfs.reader import reader

DEVICE = "class/infiniband/mlx5_0"
PORT = f"{DEVICE}/ports/1"
ODD = "mlx5_0"
OTHERS = ("hfi1_0", "mlx4_0")

CHANGES = {
    "nothing": {},
    "fw_ver missing": {"remove": [f"{DEVICE}/fw_ver"]},
    "hca_type and board_id missing": {"remove": [f"{DEVICE}/hca_type", f"{DEVICE}/board_id"]},
    "no ports": {"remove": [f"{DEVICE}/ports"]},
    "link_layer missing": {"remove": [f"{PORT}/link_layer"]},
    "one counter N/A": {"files": {f"{PORT}/counters/symbol_error": "N/A\n"}},
    "one counter N/A (no PMA)": {"files": {f"{PORT}/counters/symbol_error": "N/A (no PMA)\n"}},
    "one counter empty": {"files": {f"{PORT}/counters/symbol_error": ""}},
    "one counter unreadable": {"errnos": {f"{PORT}/counters/symbol_error": "EINVAL"}},
    "one hw counter unreadable": {"errnos": {f"{PORT}/hw_counters/out_of_buffer": "EINVAL"}},
    "rate empty": {"files": {f"{PORT}/rate": "\n"}},
    "rate N/A": {"files": {f"{PORT}/rate": "N/A\n"}},
    "rate unreadable": {"errnos": {f"{PORT}/rate": "EINVAL"}},
    "state garbage": {"files": {f"{PORT}/state": "garbage\n"}},
    "phys_state unknown": {"files": {f"{PORT}/phys_state": "0: <unknown>\n"}},
    "no counters directory": {"remove": [f"{PORT}/counters"]},
    "no hw_counters directory": {"remove": [f"{PORT}/hw_counters"]},
    "unknown hw counter": {"files": {f"{PORT}/hw_counters/brand_new": "77\n"}},
    "value of 2**64": {"files": {f"{PORT}/counters/port_rcv_data": f"{2**64}\n"}},
    "words of 2**64 - 1": {"files": {f"{PORT}/counters/port_rcv_data": f"{2**64 - 1}\n"}},
    "stray file in the class": {"files": {"class/infiniband/stray": "x\n"}},
    "dangling device link": {"links": {"class/infiniband/mlx5_7": "../../devices/gone/infiniband/mlx5_7"}},
    "directory in place of a counter": {
        "remove": [f"{PORT}/counters/symbol_error"],
        "dirs": [f"{PORT}/counters/symbol_error/x"],
    },
    "file in place of ports": {"remove": [f"{DEVICE}/ports"], "files": {f"{DEVICE}/ports": "x\n"}},
    "file in place of counters": {"remove": [f"{PORT}/counters"], "files": {f"{PORT}/counters": "x\n"}},
    "every file empty": {"files": dict.fromkeys([p for p in frame("procfs").files if p.startswith(DEVICE)], "")},
    "every file unreadable": {
        "errnos": dict.fromkeys([p for p in frame("procfs").files if p.startswith(DEVICE)], "EIO")
    },
    "every directory unreadable": {
        "errnos": dict.fromkeys([f"{PORT}/counters", f"{PORT}/hw_counters", PORT, f"{DEVICE}/ports"], "EACCES")
    },
}
LOST = {  # what the odd device loses: values that are None, and columns that are not there
    "one counter N/A": {"symbol_error": errno.ENODATA},
    "one counter N/A (no PMA)": {"symbol_error": errno.ENODATA},
    "one counter empty": {"symbol_error": errno.EBADMSG},
    "one counter unreadable": {"symbol_error": errno.EINVAL},
    "one hw counter unreadable": {"out_of_buffer": errno.EINVAL},
    "rate empty": {"rate": errno.EBADMSG, "width": errno.EBADMSG},
    "rate N/A": {"rate": errno.ENODATA, "width": errno.ENODATA},
    "rate unreadable": {"rate": errno.EINVAL, "width": errno.EINVAL},
    "state garbage": {"state": errno.EBADMSG},
    "value of 2**64": {"port_rcv_data": errno.EBADMSG},
    "directory in place of a counter": {"symbol_error": errno.EISDIR},
}
WITHOUT = {
    "no counters directory": Level.COUNTERS,
    "file in place of counters": Level.COUNTERS,
    "no hw_counters directory": Level.HW,
}
WHOLE = (
    "no ports",
    "file in place of ports",
    "every file empty",
    "every file unreadable",
    "every directory unreadable",
)


def changed(name):
    change = CHANGES[name]
    parts = {key: tuple(change.get(key, ())) for key in ("remove", "dirs")}
    return Frame(t=1, **parts, **{key: change.get(key, {}) for key in ("links", "files", "errnos")})


def in_memory(name, _):
    return virtual(frame("procfs"), changed(name))


def on_disk(name, root):
    change = changed(name)
    one = frame("procfs")
    gone = lambda path: any(path == r or path.startswith(f"{r}/") for r in change.remove)  # noqa: E731 - local
    kept = Frame(
        t=0,
        dirs=tuple(d for d in (*one.dirs, *change.dirs) if not gone(d) or d in change.dirs),
        links={**one.links, **change.links},
        files={**{p: text for p, text in one.files.items() if not gone(p)}, **change.files},
    )
    return FileTree(write(root, kept))


def everything(tree):
    """By device: its facts, the values of its columns and why some are missing."""
    listing = list_devices(tree, ["*"], [], Now(0, 0))
    files = reader(tree, StillClock())
    given = {}
    for name in listing.names:
        device = discover(tree, name, 1)
        columns = tuple(range(len(device.layout.columns)))
        reading = files.read(device, columns)
        keys = [device.layout.columns[i][:3] for i in columns]
        given[name] = (
            device,
            dict(zip(keys, reading.values, strict=True)),
            {device.layout.columns[i].name: code for i, code in reading.errnos.items()},
        )
    files.close()
    return given


# A plain directory cannot refuse a read to the superuser, so what needs an errno is played in memory only.
@pytest.mark.parametrize(
    ("name", "build"),
    [(name, in_memory) for name in CHANGES] + [(name, on_disk) for name in CHANGES if "errnos" not in CHANGES[name]],
)
def test_the_other_devices_keep_all_and_the_odd_one_what_can_be_read(name, build, tmp_path):
    whole, given = everything(in_memory("nothing", None)), everything(build(name, tmp_path))
    assert set(given) == {ODD, *OTHERS}
    for other in OTHERS:
        assert given[other][1:] == whole[other][1:]
        assert given[other][0].ports == whole[other][0].ports
    _, values, errnos = given[ODD]
    _, all_values, _ = whole[ODD]
    if name in WHOLE:
        assert {value for value in values.values() if value is not None} == set()
        return
    assert errnos == LOST.get(name, {})
    if name in WITHOUT:
        assert {key[1] for key in all_values} - {key[1] for key in values} == {WITHOUT[name]}
        all_values = {key: value for key, value in all_values.items() if key[1] is not WITHOUT[name]}
    told = changed(name).files
    for key, value in all_values.items():
        if key[2] not in errnos and not any(path.endswith(f"/{key[2]}") for path in told):
            assert values[key] == value, key


def test_a_new_counter_is_read_although_nobody_knows_it():
    _, values, _ = everything(in_memory("unknown hw counter", None))[ODD]
    assert values[1, Level.HW, "brand_new"] == 77


def test_the_largest_number_of_words_is_kept_whole():
    _, values, _ = everything(in_memory("words of 2**64 - 1", None))[ODD]
    assert values[1, Level.COUNTERS, "port_rcv_data"] == 2**64 - 1


def test_a_physical_state_without_a_name_is_its_number():
    _, values, _ = everything(in_memory("phys_state unknown", None))[ODD]
    assert values[1, Level.ATTR, "phys_state"] == 0


def test_every_read_of_a_real_kernels_port_may_fail():
    (given,) = everything(virtual(frame("ibmock-read-errors"))).values()
    _, values, errnos = given
    assert set(values.values()) == {12, None}  # only the setting `lifespan` asks no driver
    assert set(errnos.values()) == {errno.EIO, errno.EINVAL}
