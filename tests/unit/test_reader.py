"""Reading: values and errnos stay with their column, kept descriptors are fresh, and a lost device is told as such."""

import contextlib
import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sysfs_trees import StillClock, port_files, virtual, write

from ibmon.model import Level, Now, Tier
from ibmon.recording import Frame
from ibmon.sysfs import descriptors
from ibmon.sysfs.discover import discover
from ibmon.sysfs.files import FileTree
from ibmon.sysfs.reader import FileReader, TreeReader, read_columns_tree, reader
from ibmon.virtualtree import ReadHangs

PORT = "class/infiniband/mlx5_0/ports/1"
FILES = {
    **port_files("mlx5_0"),
    f"{PORT}/counters/port_xmit_data": "12345678901234567890\n",
    f"{PORT}/counters/link_downed": "255\n",
    f"{PORT}/hw_counters/out_of_buffer": "7\n",
}


def every(device):
    return tuple(range(len(device.layout.columns)))


def by_name(device, reading):
    return {device.layout.columns[i].name: v for i, v in zip(reading.columns, reading.values, strict=True)}


def why(device, reading):
    return {device.layout.columns[i].name: errno.errorcode[code] for i, code in reading.errnos.items()}


@pytest.fixture
def disk(tmp_path):
    """A device on disk: its tree, what discovery says of it, and a reader that is closed in the end."""
    tree = FileTree(write(tmp_path, Frame(t=0, files=FILES)))
    files = FileReader(tree, StillClock())
    yield tree, discover(tree, "mlx5_0", 3), files
    files.close()
    assert files.open_files == 0


def put(tree, path, text):
    """Change a file in place, as a kernel's value changes."""
    Path(tree.path(path)).write_text(text)


# ------------------------------------------------------------------------------------------------- values and errnos


def test_a_reading_says_what_it_is_of():
    tree, clock = virtual(Frame(t=0, files=FILES)), StillClock(Now(5.0, 6.0))
    device = discover(tree, "mlx5_0", 3)
    columns = device.layout.tiers[Tier.STATE]
    reading = TreeReader(tree, clock).read(device, columns)
    assert (reading.device, reading.generation, reading.columns) == ("mlx5_0", 3, columns)
    assert (reading.values, reading.errnos, reading.words) == ((4,), {}, {})
    assert (reading.started, reading.ended) == (Now(5.0, 6.0), Now(5.0, 6.0))


def test_values_are_exact_and_the_rates_word_is_kept(disk):
    _, device, files = disk
    for _ in range(2):
        reading = files.read(device, every(device))
        assert by_name(device, reading) == {
            "state": 4,
            "phys_state": 5,
            "rate": 50_000_000_000,
            "width": 4,
            "port_xmit_data": 12345678901234567890,
            "link_downed": 255,
            "out_of_buffer": 7,
        }
        assert reading.words == {device.layout.column(1, Level.ATTR, "rate"): "NDR"}
        assert reading.errnos == {}


def test_a_part_is_read_in_the_order_that_was_asked_for(disk):
    _, device, files = disk
    columns = tuple(reversed(every(device)))
    reading = files.read(device, columns)
    assert reading.columns == columns
    assert by_name(device, reading) == by_name(device, files.read(device, every(device)))


class Counting:
    """A tree that counts the reads of a file, which are firmware commands on a real one."""

    def __init__(self, tree):
        self.tree, self.reads = tree, []

    def __getattr__(self, call):
        return getattr(self.tree, call)

    def read(self, path):
        self.reads.append(path.rpartition("/")[2])
        return self.tree.read(path)


@pytest.mark.parametrize("errnos", [{}, {f"{PORT}/rate": "EINVAL"}, {f"{PORT}/rate": "ETIMEDOUT"}])
def test_rate_and_width_are_one_read(errnos):
    tree = Counting(virtual(Frame(t=0, files=FILES, errnos=errnos)))
    device = discover(tree, "mlx5_0", 1)
    tree.reads.clear()
    columns = tuple(device.layout.column(1, Level.ATTR, name) for name in ("rate", "width"))
    reading = TreeReader(tree, StillClock()).read(device, columns)
    assert tree.reads == ["rate"]
    assert len(reading.errnos) == 2 * len(errnos)


@pytest.mark.parametrize("code", ["EINVAL", "EIO", "EPERM", "EACCES", "ENOLINK", "ETIMEDOUT", "EBUSY"])
def test_what_the_kernel_refuses_stays_in_its_column(code):
    tree = virtual(Frame(t=0, files=FILES, errnos={f"{PORT}/counters/link_downed": code}))
    device = discover(tree, "mlx5_0", 1)
    reading = read_columns_tree(tree, device, every(device), StillClock())
    assert why(device, reading) == {"link_downed": code}
    assert by_name(device, reading)["link_downed"] is None
    assert by_name(device, reading)["port_xmit_data"] == 12345678901234567890


@pytest.mark.parametrize(
    ("path", "content", "lost"),
    [
        ("counters/link_downed", "N/A (no PMA)\n", {"link_downed": "ENODATA"}),
        ("counters/link_downed", "", {"link_downed": "EBADMSG"}),
        ("counters/link_downed", "-1\n", {"link_downed": "EBADMSG"}),
        ("counters/link_downed", "18446744073709551616\n", {"link_downed": "EBADMSG"}),
        ("hw_counters/out_of_buffer", "1_0\n", {"out_of_buffer": "EBADMSG"}),
        ("state", "garbage\n", {"state": "EBADMSG"}),
        ("rate", "\n", {"rate": "EBADMSG", "width": "EBADMSG"}),
        ("rate", "N/A\n", {"rate": "ENODATA", "width": "ENODATA"}),
        ("rate", "400 Gb/sec\n", {"width": "ENODATA"}),
    ],
)
def test_content_that_is_no_value_is_an_errno_of_its_column(tmp_path, path, content, lost):
    frame = Frame(t=0, files={**FILES, f"{PORT}/{path}": content})
    on_disk = FileTree(write(tmp_path, frame))
    for tree in (virtual(frame), on_disk):
        device = discover(tree, "mlx5_0", 1)
        files = reader(tree, StillClock())
        reading = files.read(device, every(device))
        files.close()
        assert why(device, reading) == lost
        assert sum(value is None for value in reading.values) == len(lost)


def test_a_read_that_hangs_is_no_answer():
    tree = virtual(Frame(t=0, files=FILES))
    device = discover(tree, "mlx5_0", 1)
    tree.apply(Frame(t=1, block=(f"{PORT}/state",)))
    with pytest.raises(ReadHangs):
        TreeReader(tree, StillClock()).read(device, every(device))


def test_ionics_mark_for_not_read_is_no_value():
    files = {**FILES, f"{PORT}/hw_counters/out_of_buffer": f"{2**64 - 1}\n"}
    links = {"class/infiniband/mlx5_0/device/driver": "../../bus/pci/drivers/ionic"}
    for frame, expected in ((Frame(t=0, files=files, links=links), None), (Frame(t=0, files=files), 2**64 - 1)):
        tree = virtual(frame)
        device = discover(tree, "mlx5_0", 1)
        reading = TreeReader(tree, StillClock()).read(device, every(device))
        assert by_name(device, reading)["out_of_buffer"] == expected
        assert ("out_of_buffer" in why(device, reading)) == (expected is None)


# ---------------------------------------------------------------------------------------------------- coming and going


def test_a_file_that_went_is_absent_and_its_device_stays():
    tree = virtual(Frame(t=0, files=FILES))
    device = discover(tree, "mlx5_0", 1)
    files = TreeReader(tree, StillClock())
    tree.apply(Frame(t=1, remove=(f"{PORT}/hw_counters",)))
    assert why(device, files.read(device, every(device))) == {"out_of_buffer": "ENOENT"}


def test_a_device_that_went_is_gone_in_every_column():
    tree = virtual(Frame(t=0, files=FILES))
    device = discover(tree, "mlx5_0", 1)
    files = TreeReader(tree, StillClock())
    tree.apply(Frame(t=1, remove=("class/infiniband/mlx5_0",)))
    reading = files.read(device, every(device))
    assert set(reading.errnos) == set(every(device))
    assert set(reading.errnos.values()) == {errno.ENODEV}
    assert set(reading.values) == {None}


def test_enodev_of_one_file_is_not_the_end_of_the_device():
    """Soft-RoCE answers so for `state` once its interface has gone (core/verbs.c:ib_get_eth_speed)."""
    tree = virtual(Frame(t=0, files=FILES, errnos={f"{PORT}/state": "ENODEV"}))
    device = discover(tree, "mlx5_0", 1)
    reading = TreeReader(tree, StillClock()).read(device, every(device))
    assert why(device, reading) == {"state": "ENODEV"}


def test_a_kept_descriptor_gives_the_value_of_now(disk):
    tree, device, files = disk
    files.read(device, every(device))
    kept = files.open_files
    put(tree, f"{PORT}/hw_counters/out_of_buffer", "8\n")
    put(tree, f"{PORT}/state", "1: DOWN\n")
    values = by_name(device, files.read(device, every(device)))
    assert (values["out_of_buffer"], values["state"]) == (8, 1)
    assert files.open_files == kept == 6  # rate and width share one


def test_a_file_that_was_replaced_is_opened_anew(disk, tmp_path):
    _, device, files = disk
    for number in range(3):
        fresh = tmp_path / "fresh"
        fresh.write_text(f"{number}\n")
        fresh.replace(tmp_path / PORT / "hw_counters/out_of_buffer")
        assert by_name(device, files.read(device, every(device)))["out_of_buffer"] == number


def test_a_directory_that_was_swapped_is_opened_anew(disk, tmp_path):
    _, device, files = disk
    files.read(device, every(device))
    write(tmp_path / "other", Frame(t=0, files={"hw/out_of_buffer": "99\n"}))
    (tmp_path / PORT / "hw_counters").rename(tmp_path / "old")
    (tmp_path / "other/hw").rename(tmp_path / PORT / "hw_counters")
    assert by_name(device, files.read(device, every(device)))["out_of_buffer"] == 99


def test_a_device_that_was_removed_from_disk_is_gone(disk, tmp_path):
    _, device, files = disk
    files.read(device, every(device))
    (tmp_path / "class/infiniband/mlx5_0").rename(tmp_path / "old")
    reading = files.read(device, every(device))
    assert set(reading.errnos.values()) == {errno.ENODEV}
    assert files.open_files == 0


@pytest.fixture
def unregistered(monkeypatch, disk):
    """Descriptors that answer ENODEV until they are closed, as kernfs does; on no plain file system, as on sysfs."""
    _, device, files = disk
    lost, pread, close = set(), os.pread, os.close

    def lost_pread(fd, size, offset):
        if fd in lost:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return pread(fd, size, offset)

    def ending_close(fd):
        lost.discard(fd)
        close(fd)

    monkeypatch.setattr(os, "pread", lost_pread)
    monkeypatch.setattr(os, "close", ending_close)
    files._plain = False
    files.read(device, every(device))
    lost.update(fd for fd in files._kept["mlx5_0"].files.fds if fd >= 0)
    assert len(lost) == 6
    return lost


@pytest.mark.usefixtures("unregistered")
def test_a_device_of_the_same_name_is_another_one(disk, tmp_path):
    """An old descriptor answers ENODEV for ever, also when the name is back: only discovery may open it again."""
    tree, device, files = disk
    (tmp_path / "class/infiniband/mlx5_0").rename(tmp_path / "old")
    write(tmp_path, Frame(t=0, files=FILES))
    assert set(files.read(device, every(device)).errnos.values()) == {errno.ENODEV}
    assert files.open_files == 0
    again = discover(tree, "mlx5_0", 4)
    assert files.read(again, every(again)).errnos == {}


def test_a_lost_descriptor_of_a_device_that_stays_is_opened_again_at_once(disk, unregistered):
    _, device, files = disk
    reading = files.read(device, every(device))
    assert reading.errnos == {}
    assert by_name(device, reading)["out_of_buffer"] == 7
    assert not unregistered
    assert files.open_files == 6


def test_a_new_generation_drops_the_descriptors_of_the_old(disk):
    tree, device, files = disk
    files.read(device, every(device))
    again = discover(tree, "mlx5_0", 4)
    assert files.read(again, every(again)).generation == 4
    assert files.open_files == 6


def test_a_forgotten_device_keeps_nothing_open(disk):
    _, device, files = disk
    files.read(device, every(device))
    files.forget("mlx5_0")
    files.forget("never_there")
    assert files.open_files == 0
    assert files.read(device, every(device)).errnos == {}


# ------------------------------------------------------------------------------------------------------------- budget


def open_below(directory):
    """How many descriptors of this process lead below a directory."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += str(link.readlink()).startswith(f"{directory}/")
    return count


@pytest.mark.parametrize("budget", [0, 2])
def test_beyond_the_budget_files_are_opened_for_each_read(tmp_path, budget):
    frame = Frame(t=0, files={**FILES, f"{PORT}/gid_attrs/ndevs/0": "eth2\n", "class/net/eth2/carrier_changes": "3\n"})
    tree = FileTree(write(tmp_path, frame))
    files = FileReader(tree, StillClock(), budget=budget)
    device = discover(tree, "mlx5_0", 1)
    for _ in range(3):
        reading = files.read(device, every(device))
        assert reading.errnos == {}
        assert by_name(device, reading)["carrier_changes"] == 3
        assert files.open_files == budget
    assert open_below(tmp_path) <= budget + 1  # and the directory that they are opened below
    files.close()
    assert open_below(tmp_path) == 0


@pytest.mark.parametrize(("may_open", "kept"), [(65536, 20_000), (1024, 768), (300, 150), (-1, 20_000)])
def test_the_budget_leaves_room_for_the_rest_of_the_process(monkeypatch, may_open, kept):
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: (may_open, 65536))
    assert descriptors.Budget().limit == kept
    assert descriptors.Budget(100).limit == 100


def test_no_more_files_for_the_process_is_an_errno_and_no_crash(disk, monkeypatch):
    _, device, files = disk

    def refuse(*_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(descriptors.os, "open", refuse)
    assert set(why(device, files.read(device, every(device))).values()) == {"EMFILE"}


# ------------------------------------------------------------------------------------------------------ statistics


class Statistics:
    """Ethtool statistics of one interface."""

    def __init__(self, **values):
        self.given, self.calls, self.error = values, 0, None

    def names(self, netdev):
        assert netdev == "eth2"
        return tuple(self.given)

    def values(self, netdev):
        self.calls += 1
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        return tuple(self.given.values())


def ethernet():
    function = "devices/pci0000:00/0000:00:01.0"
    real = f"{function}/infiniband/mlx5_0"
    files = port_files("mlx5_0", link_layer="Ethernet\n", gid_attrs__ndevs__0="eth2\n")
    return virtual(
        Frame(
            t=0,
            files={path.replace("class/infiniband/mlx5_0", real): text for path, text in files.items()},
            links={
                "class/infiniband/mlx5_0": f"../../{real}",
                f"{real}/device": "../../../0000:00:01.0",
                f"{function}/driver": "../../../bus/pci/drivers/mlx5_core",
            },
        )
    )


def test_the_statistics_that_the_catalog_knows_are_columns_read_in_one_call():
    tree, statistics = ethernet(), Statistics(rx_bytes=5, link_down_events_phy=3, rx_prio3_pause=9, nonsense=1)
    device = discover(tree, "mlx5_0", 1, ethtool=statistics)
    phy = [c.name for c in device.layout.columns if c.level is Level.PHY]
    assert phy == ["link_down_events_phy", "rx_prio3_pause"]
    reading = TreeReader(tree, StillClock(), statistics).read(device, every(device))
    values = by_name(device, reading)
    assert (values["link_down_events_phy"], values["rx_prio3_pause"], statistics.calls) == (3, 9, 1)


def test_statistics_that_fail_are_an_errno_of_their_columns_asked_once():
    tree, statistics = ethernet(), Statistics(link_down_events_phy=3, rx_prio3_pause=9)
    device = discover(tree, "mlx5_0", 1, ethtool=statistics)
    statistics.error = errno.EBUSY
    reading = TreeReader(tree, StillClock(), statistics).read(device, every(device))
    assert set(why(device, reading)) == {"link_down_events_phy", "rx_prio3_pause"}
    assert by_name(device, reading)["state"] == 4
    assert statistics.calls == 1


def test_an_infiniband_port_has_no_ethtool_statistics():
    tree = ethernet()
    real = "devices/pci0000:00/0000:00:01.0/infiniband/mlx5_0/ports/1/link_layer"
    tree.apply(Frame(t=1, files={real: "InfiniBand\n"}))
    device = discover(tree, "mlx5_0", 1, ethtool=Statistics(link_down_events_phy=3))
    assert not [c for c in device.layout.columns if c.level is Level.PHY]


# ----------------------------------------------------------------------------------------------------- any content


@given(
    st.dictionaries(
        st.sampled_from(sorted(FILES)),
        st.binary(max_size=140) | st.from_regex(rb"0{60,70}[0-9]{0,3}\n?", fullmatch=True),
        max_size=4,
    )
)
def test_any_bytes_on_disk_read_as_in_memory(tmp_path_factory, contents):
    root = write(tmp_path_factory.mktemp("tree"), Frame(t=0, files=FILES))
    tree = FileTree(root)
    device = discover(tree, "mlx5_0", 1)
    for path, content in contents.items():
        (root / path).write_bytes(content)
    files = FileReader(tree, StillClock())
    try:
        fast = files.read(device, every(device)), files.read(device, every(device))
        slow = TreeReader(tree, StillClock()).read(device, every(device))
        assert fast == (slow, slow)
    finally:
        files.close()
