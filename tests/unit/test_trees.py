"""Every tree of tests/data gives the values that its files hold, checked by a reading of its own."""

import errno
import re

import pytest
from sysfs_trees import NAMES, StillClock, frame, load, virtual, write

from ibmon.model import Function, Level, Now
from ibmon.recording import Frame
from ibmon.sysfs.discover import discover, list_devices
from ibmon.sysfs.files import FileTree
from ibmon.sysfs.reader import FileReader, TreeReader

DIRECTORIES = {
    "counters": Level.COUNTERS,
    "counters_ext": Level.COUNTERS_EXT,
    "hw_counters": Level.HW,
}
RATE = {  # what the kernel prints for lanes and speed in these trees, in bytes per second
    "400 Gb/sec (4X NDR)": 50_000_000_000,
    "400 Gb/sec": 50_000_000_000,
    "200 Gb/sec (2X NDR)": 25_000_000_000,
    "200 Gb/sec (2X HDR)": 25_000_000_000,
    "100 Gb/sec (4X EDR)": 12_500_000_000,
    "100 Gb/sec (1X NDR)": 12_500_000_000,
    "100 Gb/sec": 12_500_000_000,
    "56 Gb/sec (4X FDR)": 7_000_000_000,
    "40 Gb/sec (4X QDR)": 5_000_000_000,
    "40 Gb/sec": 5_000_000_000,
    "25 Gb/sec (1X EDR)": 3_125_000_000,
    "10 Gb/sec (4X)": 1_250_000_000,
    "10 Gb/sec (1X FDR10)": 1_250_000_000,
    "2.5 Gb/sec (1X SDR)": 312_500_000,
    "0 Gb/sec": 0,
}


TABLES = {"gids": ("Ethernet", "gid0"), "pkeys": ("InfiniBand", "pkey0")}


def devices_of(tree):
    names = list_devices(tree, ["*"], [], Now(0, 0)).names
    return [discover(tree, name, 1) for name in names]


def everything(tree, device, reader):
    """Every value and errno of a device, by port, level and name."""
    layout = device.layout
    reading = reader.read(device, tuple(range(len(layout.columns))))
    values = {(c.port, c.level, c.name): v for c, v in zip(layout.columns, reading.values, strict=True)}
    errnos = {tuple(layout.columns[i][:3]): code for i, code in reading.errnos.items()}
    return values, errnos


def written(one, device):
    """What the text of a frame says of a device: its files by port, directory and name, found with regexes alone."""
    target = one.links.get(f"class/infiniband/{device}", "")
    base = re.sub(r"^(\.\./)+", "", target) or f"class/infiniband/{device}"
    pattern = re.compile(re.escape(base) + r"/ports/(\d+)/(?:(counters|counters_ext|hw_counters|gids|pkeys)/)?([^/]+)")
    for path, content in one.files.items():
        match = pattern.fullmatch(path)
        if match:
            yield int(match[1]), match[2], match[3], content
    for path, code in one.errnos.items():
        match = pattern.fullmatch(path)
        if match:
            yield int(match[1]), match[2], match[3], getattr(errno, code)


def expected(one, device):
    """Values and errnos of a device by the text of a frame."""
    values, errnos = {}, {}
    files = list(written(one, device))
    layers = {
        port: content.strip() for port, directory, name, content in files if (directory, name) == (None, "link_layer")
    }
    for port, directory, name, content in files:
        if directory in TABLES:
            layer, key = TABLES[directory]
            if name == "0" and layers.get(port) == layer:
                number = int(content.strip().replace(":", "").removeprefix("0x"), 16)
                values[port, Level.ATTR, key] = min(number, 1) if directory == "gids" else number
            continue
        if directory is None:
            keys = {"state": ["state"], "phys_state": ["phys_state"], "rate": ["rate", "width"]}.get(name, [])
            keys = [(port, Level.ATTR, key) for key in keys]
        else:
            keys = [(port, DIRECTORIES[directory], name)]
        for key in keys:
            if isinstance(content, int):
                values[key], errnos[key] = None, content
            elif content.startswith("N/A"):
                values[key], errnos[key] = None, errno.ENODATA
            elif key[2] == "rate" and directory is None:
                values[key] = RATE[content.strip()]
            elif key[2] == "width" and directory is None:
                lanes = re.search(r"\((\d+)X", content)
                values[key] = int(lanes[1]) if lanes else None
                if not lanes:
                    errnos[key] = errno.ENODATA
            elif directory is None and not content[0].isdigit():
                values[key], errnos[key] = None, errno.EBADMSG  # words that no kernel prints
            elif directory is None:
                values[key] = int(content.split(":")[0])
            else:
                values[key] = int(content)
    return values, errnos


def only_ports(found):
    levels = {Level.ATTR, *DIRECTORIES.values()}
    return {key: value for key, value in found.items() if key[1] in levels and key[0] > 0}


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_in_memory_gives_the_values_of_its_files_and_no_others(name):
    one = frame(name)
    tree = virtual(one)
    devices = devices_of(tree)
    assert devices
    for device in devices:
        values, errnos = everything(tree, device, TreeReader(tree, StillClock()))
        want_values, want_errnos = expected(one, device.name)
        assert only_ports(values) == want_values
        assert only_ports(errnos) == want_errnos
        assert want_values


@pytest.mark.parametrize("name", NAMES)
def test_a_tree_on_disk_gives_what_the_tree_in_memory_gives(name, tmp_path):
    one = frame(name)
    readable = Frame(t=0, dirs=one.dirs, links=one.links, files=one.files)
    tree = FileTree(write(tmp_path, one))
    memory = virtual(readable)
    reader = FileReader(tree, StillClock())
    try:
        names = list_devices(memory, ["*"], [], Now(0, 0)).names
        assert list_devices(tree, ["*"], [], Now(0, 0)).names == names
        for device in names:
            on_disk, in_memory = discover(tree, device, 1), discover(memory, device, 1)
            for fact in type(on_disk).__struct_fields__:
                if fact != "layout":
                    assert getattr(on_disk, fact) == getattr(in_memory, fact), fact
            assert on_disk.layout.columns == in_memory.layout.columns
            for _ in range(2):  # the second pass reads the kept descriptors
                assert everything(tree, on_disk, reader) == everything(
                    memory, in_memory, TreeReader(memory, StillClock())
                )
    finally:
        reader.close()
    assert reader.open_files == 0


def test_every_directory_of_counters_is_in_some_tree():
    levels = {key[1] for name in NAMES for d in devices_of(load(name)) for key in d.layout.index}
    assert {Level.ATTR, *DIRECTORIES.values()} <= levels


def test_the_class_entry_of_a_real_kernel_is_followed_to_the_device():
    (first, second) = devices_of(load("ibmock-ndr-active"))
    assert (first.name, len(first.ports)) == ("mlx5_0", 1)
    assert (second.name, len(second.ports)) == ("mlx5_1", 2)
    assert first.node_guid == "9803:0003:0000:0100"
    assert first.firmware_version == "28.39.1002"
    assert first.function is Function.VIRTUAL  # a platform device, no PCI function


@pytest.mark.parametrize("name", ["rxe-idle", "rxe-admin-down", "siw-idle"])
def test_software_devices_have_no_pci_function_and_no_firmware(name):
    for device in devices_of(load(name)):
        assert device.function is Function.VIRTUAL
        assert device.pci is None
        assert device.firmware_version is None


def test_soft_roce_names_its_interface():
    assert {d.name: d.ports[0].netdev for d in devices_of(load("rxe-idle"))} == {"rxe0": "va", "rxe1": "vb"}


def test_a_virtual_function_is_told_by_its_link_even_where_that_dangles():
    devices = {d.name: d for d in devices_of(load("rdma-exporter-vf"))}
    assert devices["mlx5_0"].function is Function.PF
    assert devices["mlx5_0"].pci.address == "0000:1a:00.0"
    assert devices["mlx5_4"].function is Function.VF
    assert devices["mlx5_4"].pci.address == "0000:1a:00.1"


def test_a_virtual_function_inside_its_guest_looks_like_any_other():
    (device,) = devices_of(load("rdma-exporter-guest-vf"))
    assert device.function is Function.PF
    assert device.pci.address == "0000:00:04.0"


def test_without_a_device_link_the_class_entry_tells_the_pci_function():
    (device,) = devices_of(load("rdma-exporter-symlink"))
    assert device.pci.address == "0000:00:00.0"
    assert device.ports[0].netdev == "ens1f0np0"


def test_character_devices_are_found_by_the_device_that_they_name():
    assert {d.name: d.uverbs for d in devices_of(load("character-devices"))} == {
        "mlx5_0": "uverbs0",
        "mlx5_1": "uverbs1",
    }


def test_a_bond_is_told_by_its_name():
    kinds = {d.name: d.function for d in devices_of(load("h100"))}
    assert kinds["mlx5_bond_0"] is Function.BOND
    assert len(kinds) == 9
