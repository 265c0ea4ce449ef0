"""Discovery: which names are devices, what is static about them, and the order and tier of what is read."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sysfs_trees import StillClock, found, port_files, virtual

from ibmon.config import SamplingConfig
from ibmon.model import Function, Level, Now, Tier
from ibmon.recording import Frame
from ibmon.sysfs import price
from ibmon.sysfs.columns import MAX_COLUMNS
from ibmon.sysfs.discover import MAX_PORTS, discover, list_devices
from ibmon.sysfs.reader import TreeReader

NOW = Now(1.0, 2.0)
COUNTERS = [
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
]
HW = [
    "duplicate_request",
    "lifespan",
    "local_ack_timeout_err",
    "out_of_buffer",
    "rx_atomic_requests",
    "rx_write_requests",
]
PCI = "devices/pci0000:00/0000:00:01.0/0000:1a:00.0"


def mlx5(name="mlx5_0", **contents):
    files = port_files(name, **contents)
    base = f"class/infiniband/{name}/ports/1"
    files.update({f"{base}/counters/{counter}": "1\n" for counter in COUNTERS})
    files.update({f"{base}/hw_counters/{counter}": "1\n" for counter in HW})
    return files


def on_pci(name="mlx5_0", function=PCI, **files):
    """A device as a kernel makes it: the class entry and `device` are links."""
    real = f"{function}/infiniband/{name}"
    moved = {path.replace(f"class/infiniband/{name}", real): text for path, text in mlx5(name).items()}
    moved.update({f"{function}/{path.replace('__', '/')}": text for path, text in files.items()})
    links = {f"class/infiniband/{name}": f"../../{real}", f"{real}/device": f"../../../{function.rpartition('/')[2]}"}
    return Frame(t=0, links=links, files=moved)


def named(device, tier=None):
    return [c.name for c in device.layout.columns if tier in {None, c.tier}]


# ---------------------------------------------------------------------------------------------------------- listing


def names(frame, include=("*",), exclude=()):
    return list_devices(virtual(frame), include, exclude, NOW)


def test_devices_are_listed_in_byte_order():
    listing = names(Frame(t=0, dirs=tuple(f"class/infiniband/{n}" for n in ("mlx5_10", "mlx5_2", "mlx4_0"))))
    assert listing.names == ("mlx4_0", "mlx5_10", "mlx5_2")
    assert (listing.errno, listing.at) == (None, NOW)


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (("*",), (), ("mlx5_0", "mlx5_1", "rxe0")),
        (("mlx5_*",), (), ("mlx5_0", "mlx5_1")),
        (("*",), ("mlx5_[1-9]",), ("mlx5_0", "rxe0")),
        (("mlx5_0", "rxe*"), ("rxe0",), ("mlx5_0",)),
        ((), (), ()),
    ],
)
def test_patterns_decide_which_names_are_devices(include, exclude, expected):
    frame = Frame(t=0, dirs=tuple(f"class/infiniband/{n}" for n in ("mlx5_0", "mlx5_1", "rxe0")))
    assert names(frame, include, exclude).names == expected


class Watched:
    """A tree that tells which paths were asked for."""

    def __init__(self, tree):
        self.tree, self.asked = tree, []

    def __getattr__(self, call):
        def asking(path):
            self.asked.append(path)
            return getattr(self.tree, call)(path)

        return asking


def test_an_excluded_device_is_never_touched():
    tree = Watched(virtual(Frame(t=0, files={**mlx5("mlx5_0"), **mlx5("mlx5_1")})))
    assert list_devices(tree, ["*"], ["mlx5_1"], NOW).names == ("mlx5_0",)
    assert not [path for path in tree.asked if "mlx5_1" in path]


def test_no_rdma_at_all_is_an_empty_listing():
    assert names(Frame(t=0, dirs=("class/net",))).names == ()


def test_an_empty_class_is_an_empty_listing():
    assert names(Frame(t=0, dirs=("class/infiniband",))).names == ()


def test_a_root_that_is_no_sysfs_is_not_known_rather_than_empty():
    listing = names(Frame(t=0, dirs=("somewhere",)))
    assert (listing.names, listing.errno) == (None, errno.ENOENT)


@pytest.mark.parametrize("code", ["EACCES", "EIO", "ENOTDIR"])
def test_an_unreadable_class_is_not_known(code):
    listing = names(Frame(t=0, dirs=("class/infiniband/mlx5_0",), errnos={"class/infiniband": code}))
    assert (listing.names, listing.errno) == (None, getattr(errno, code))


def test_stray_files_and_dangling_links_are_no_devices():
    frame = Frame(
        t=0,
        files={**mlx5(), "class/infiniband/README": "x\n"},
        links={"class/infiniband/mlx5_9": "../../devices/gone"},
    )
    assert names(frame).names == ("mlx5_0",)


# ----------------------------------------------------------------------------------------------------- what is read


def test_state_is_read_most_often_and_the_dear_rest_seldom():
    device = found(Frame(t=0, files=mlx5()))
    assert named(device, Tier.STATE) == ["state"]
    fast = {"port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets"}
    fast |= {"link_downed", "link_error_recovery"}
    assert set(named(device, Tier.COUNTER)) == fast | (set(HW) - {"lifespan"})
    assert set(named(device, Tier.SLOW)) == {"phys_state", "rate", "width", "lifespan"} | (set(COUNTERS) - fast)


@pytest.mark.parametrize("first", ["rx_write_requests", "vport_rx_write_requests"])
def test_the_file_that_arms_the_kernels_cache_is_read_first_and_the_set_in_one_go(first):
    files = {f"class/infiniband/mlx5_0/ports/1/hw_counters/{n}": "1\n" for n in ("aaa", first, "zzz")}
    device = found(Frame(t=0, files={**mlx5(), **files}))
    layout = device.layout
    levels = [layout.columns[i].level for i in layout.tiers[Tier.COUNTER]]
    assert named(device, Tier.COUNTER)[0] in {"rx_write_requests", first}
    assert levels == sorted(levels, key=[Level.HW, Level.COUNTERS].index)


def test_default_intervals_stay_within_the_firmwares_budget():
    device = found(Frame(t=0, files=mlx5()))
    assert price.per_minute(device, SamplingConfig()) == 139
    assert price.LIMIT_PER_MINUTE >= 139


def test_tables_and_modules_stay_within_the_firmwares_budget_too():
    tables = mlx5(gids__0="fe80::\n", pkeys__0="0xffff\n")
    device = found(Frame(t=0, files={**tables, **sensors(module0=41_000, module1=42_000)}))
    assert price.per_minute(device, SamplingConfig()) == 139 + 1 + 2
    assert price.LIMIT_PER_MINUTE >= 142


def sensors(chip="class/infiniband/mlx5_0/device/hwmon/hwmon3", name="mlx5", **temperatures):
    """A sensor chip of a device: that of the card, and others by label."""
    files = {f"{chip}/name": f"{name}\n", f"{chip}/temp1_label": "asic\n", f"{chip}/temp1_input": "60000\n"}
    for number, (label, value) in enumerate(temperatures.items(), 2):
        files |= {f"{chip}/temp{number}_label": f"{label}\n", f"{chip}/temp{number}_input": f"{value}\n"}
    return files


def read_all(frame):
    """Values of a device by level and name, and their tiers."""
    tree = virtual(frame)
    device = discover(tree, "mlx5_0", 1)
    columns = device.layout.columns
    reading = TreeReader(tree, StillClock()).read(device, tuple(range(len(columns))))
    return {(c.level, c.name): (v, c.tier) for c, v in zip(columns, reading.values, strict=True)}


def test_modules_are_read_by_their_label_and_the_card_itself_is_not():
    values = read_all(Frame(t=0, files={**port_files("mlx5_0"), **sensors(module1=-1000, sensor4=9, module0=41_125)}))
    warm = {name: found for (level, name), found in values.items() if level is Level.HWMON}
    assert warm == {"module0": (41_125, Tier.SLOW), "module1": (-1000, Tier.SLOW)}


@pytest.mark.parametrize(
    "odd",
    [
        {},
        sensors(name="nvme", module0=1),
        {"class/infiniband/mlx5_0/device/hwmon/hwmon0/temp2_label": "module0\n"},
        sensors(module0=1) | {"class/infiniband/mlx5_0/device/hwmon/hwmon3/temp2_label": "\n"},
        sensors(module0=1) | {"class/infiniband/mlx5_0/device/hwmon/hwmon3/temp2_label": "module../../x\n"},
    ],
)
def test_what_is_no_module_of_the_driver_has_no_column(odd):
    values = read_all(Frame(t=0, files={**port_files("mlx5_0"), **odd}))
    assert not [name for level, name in values if level is Level.HWMON]


def test_a_module_without_a_reading_is_not_known():
    files = {**port_files("mlx5_0"), **sensors(module0=1)}
    del files["class/infiniband/mlx5_0/device/hwmon/hwmon3/temp2_input"]
    assert read_all(Frame(t=0, files=files))[Level.HWMON, "module0"][0] is None


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ("Ethernet", {"gid0": (1, Tier.COUNTER)}),
        ("InfiniBand", {"pkey0": (0x7FFF, Tier.SLOW)}),
        ("Unknown", {}),
        (None, {}),
    ],
)
def test_the_first_gid_matters_on_ethernet_and_the_first_pkey_on_infiniband(layer, expected):
    tables = {"gids__0": "fe80:0000:0000:0000:a088:c203:00a0:0001\n", "pkeys__0": "0x7fff\n"}
    layer = None if layer is None else f"{layer}\n"
    values = read_all(Frame(t=0, files=port_files("mlx5_0", link_layer=layer, **tables)))
    assert {name: value for (_, name), value in values.items() if name in {"gid0", "pkey0"}} == expected


def test_a_set_that_is_not_armed_costs_for_every_file():
    unarmed = mlx5()
    del unarmed["class/infiniband/mlx5_0/ports/1/hw_counters/rx_write_requests"]
    armed, dear = found(Frame(t=0, files=mlx5())), found(Frame(t=0, files=unarmed))
    assert price.commands(armed, armed.layout.tiers[Tier.COUNTER]) == 6 + 3
    assert price.commands(dear, dear.layout.tiers[Tier.COUNTER]) == 6 + 3 * 4


def test_ethernet_is_cheaper_to_ask_for_its_state():
    device = found(Frame(t=0, files=mlx5(link_layer="Ethernet\n")))
    assert price.commands(device, device.layout.tiers[Tier.STATE]) == 2


def test_what_is_not_there_has_no_column():
    device = found(Frame(t=0, files=port_files("mlx5_0", rate=None, phys_state=None)))
    assert named(device) == ["state"]


def test_a_device_without_ports_keeps_its_facts():
    device = found(Frame(t=0, files={"class/infiniband/mlx5_0/fw_ver": "28.41.1000\n"}))
    assert (device.ports, device.layout.columns, device.firmware_version) == ((), (), "28.41.1000")


def test_a_port_directory_that_cannot_be_listed_still_has_its_state():
    frame = Frame(t=0, files=mlx5(), errnos={"class/infiniband/mlx5_0/ports/1": "EACCES"})
    assert named(found(frame))[:4] == ["state", "phys_state", "rate", "width"]


def test_counters_of_the_device_itself_have_port_0():
    frame = Frame(t=0, files={**mlx5(), "class/infiniband/mlx5_0/hw_counters/lifespan": "10\n"})
    column = found(frame).layout.columns[-1]
    assert column[:4] == (0, Level.DEVICE_HW, "lifespan", Tier.SLOW)
    assert not column.counts


def test_names_with_commas_and_spaces_are_names():
    files = {f"class/infiniband/hfi1_0/hw_counters/{n}": "1\n" for n in ("SwLinkUp,32", "Pio Reserved 30")}
    device = found(Frame(t=0, files=files), name="hfi1_0")
    assert named(device) == ["Pio Reserved 30", "SwLinkUp,32"]


def test_ports_and_columns_have_a_limit():
    ports = {k: v for port in range(1, MAX_PORTS + 20) for k, v in port_files("mlx5_0", port).items()}
    many = {f"class/infiniband/mlx5_0/ports/1/hw_counters/c{i}": "1\n" for i in range(MAX_COLUMNS + 10)}
    assert len(found(Frame(t=0, files=ports)).ports) == MAX_PORTS
    device = found(Frame(t=0, files={**port_files("mlx5_0"), **many}))
    assert len(device.layout.columns) == MAX_COLUMNS
    assert named(device)[0] == "state"


@pytest.mark.parametrize("name", ["0", "01", "x", "-1", "²"])
def test_what_is_no_port_number_is_no_port(name):
    frame = Frame(t=0, files={**mlx5(), f"class/infiniband/mlx5_0/ports/{name}/state": "4: ACTIVE\n"})
    assert [p.id.port for p in found(frame).ports] == [1]


def test_ports_are_in_order_of_their_number():
    files = {k: v for port in (10, 2, 1) for k, v in port_files("mlx5_0", port).items()}
    assert [str(p.id) for p in found(Frame(t=0, files=files)).ports] == ["mlx5_0/1", "mlx5_0/2", "mlx5_0/10"]


# --------------------------------------------------------------------------------------------------- what is static


def test_a_pci_function_tells_its_own_link_and_its_slots():
    link = {"max_link_speed": "32.0 GT/s PCIe\n", "max_link_width": "16\n"}
    files = {"current_link_speed": "16.0 GT/s PCIe\n", "current_link_width": "8\n", "numa_node": "1\n"}
    bridge = "devices/pci0000:00/0000:00:01.0"
    slot = {f"{bridge}/max_link_speed": "16.0 GT/s PCIe\n", f"{bridge}/max_link_width": "16\n"}
    links = {f"{PCI}/driver": "../../../../bus/pci/drivers/mlx5_core"}
    tree = virtual(on_pci(**link, **files), Frame(t=0, files=slot, links=links))
    device = discover(tree, "mlx5_0", 1)
    pci = device.pci
    assert (pci.address, pci.driver, pci.numa_node) == ("0000:1a:00.0", "mlx5_core", 1)
    assert (pci.max_speed, pci.max_width) == (32_000_000_000, 16)
    assert (pci.slot_max_speed, pci.slot_max_width) == (16_000_000_000, 16)
    assert (pci.expected_speed, pci.expected_width) == (16_000_000_000, 16)
    assert device.function is Function.PF
    assert device.slot(1) == "0000:1a:00.0/1"
    columns = [device.layout.column(0, Level.PCI, f"current_link_{what}") for what in ("speed", "width")]
    reading = TreeReader(tree, StillClock()).read(device, tuple(columns))
    assert reading.values == (16_000_000_000, 8)


def test_a_virtual_function_has_the_link_of_its_physical_function():
    vf = "devices/pci0000:00/0000:00:01.0/0000:1a:00.1"
    own = {"max_link_speed": "Unknown\n", "max_link_width": "0\n", "current_link_width": "0\n"}
    true = {f"{PCI}/max_link_width": "16\n", f"{PCI}/current_link_width": "4\n"}
    tree = virtual(on_pci(function=vf, **own), Frame(t=0, files=true, links={f"{vf}/physfn": "../0000:1a:00.0"}))
    device = discover(tree, "mlx5_0", 1)
    assert device.function is Function.VF
    assert (device.pci.address, device.pci.max_width) == ("0000:1a:00.1", 16)
    width = device.layout.column(0, Level.PCI, "current_link_width")
    assert TreeReader(tree, StillClock()).read(device, (width,)).values == (4,)


def test_a_sub_function_belongs_to_the_pci_function_above_it():
    device = found(on_pci(function=f"{PCI}/mlx5_core.sf.4"))
    assert (device.function, device.pci.address) == (Function.SF, "0000:1a:00.0")


def test_a_copied_tree_with_a_plain_device_directory_tells_its_address_in_uevent():
    uevent = "DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:9c:00.0\n"
    device = found(Frame(t=0, files={**mlx5(), "class/infiniband/mlx5_0/device/uevent": uevent}))
    assert device.pci.address == "0000:9c:00.0"


def test_a_device_all_of_whose_ports_are_representors_is_one():
    vport = {"class/infiniband/mlx5_0/ports/2/hw_counters/vport_rx_write_requests": "1\n"}
    real = f"{PCI}/infiniband/mlx5_0/ports"
    own, more = on_pci(), {f"{real}/2/hw_counters/vport_rx_write_requests": "1\n"}
    assert found(own, Frame(t=0, files=more)).function is Function.PF
    also = {f"{real}/1/hw_counters/vport_rx_write_requests": "1\n"}
    assert found(own, Frame(t=0, files={**more, **also})).function is Function.REPRESENTOR
    assert found(Frame(t=0, files={**mlx5(), **vport})).function is Function.VIRTUAL


def test_the_management_child_of_a_multiplane_port_is_told_by_its_siblings_character_device():
    parent, child = on_pci("mlx5_0"), on_pci("smi_0")
    assert found(parent, child, name="smi_0").function is Function.PF  # nobody has one: the module is not loaded
    verbs = Frame(t=0, files={f"{PCI}/infiniband_verbs/uverbs0/ibdev": "mlx5_0\n"})
    assert found(parent, child, verbs, name="smi_0").function is Function.SMI
    device = found(parent, child, verbs, name="mlx5_0")
    assert (device.function, device.uverbs) == (Function.PF, "uverbs0")


def test_no_fact_is_required():
    device = found(Frame(t=0, files=port_files("mlx5_0", link_layer=None)))
    facts = ("driver", "node_guid", "sys_image_guid", "board_id", "hca_type", "firmware_version", "pci", "uverbs")
    assert {getattr(device, fact) for fact in facts} == {None}
    assert device.ports[0].link_layer is None
    assert device.card(1) == "mlx5_0/1"


def test_a_device_that_is_not_there_is_none():
    assert found(Frame(t=0, dirs=("class/infiniband",))) is None
    assert found(Frame(t=0, files={"class/infiniband/mlx5_0": "a file\n"})) is None
    assert found(Frame(t=0, links={"class/infiniband/mlx5_0": "../../gone"})) is None


class Vanishing(Watched):
    """A tree whose device goes after so many questions."""

    def __init__(self, tree, after):
        super().__init__(tree)
        self.after = after

    def __getattr__(self, call):
        if len(self.asked) == self.after:
            self.tree.apply(Frame(t=1, remove=("class/infiniband/mlx5_0",)))
        return super().__getattr__(call)


def test_a_device_that_vanishes_meanwhile_is_none_at_whatever_moment():
    whole = Watched(virtual(on_pci()))
    discover(whole, "mlx5_0", 1)
    for after in range(len(whole.asked)):
        assert discover(Vanishing(virtual(on_pci()), after), "mlx5_0", 1) is None


# ------------------------------------------------------------------------------------------------------- interfaces


def net(name, **files):
    return {f"{PCI}/net/{name}/{file}": text for file, text in files.items()}


def test_the_gid_table_names_a_ports_interface():
    frame = Frame(t=0, files=mlx5(gid_attrs__ndevs__0="eth2\n"))
    assert found(frame).ports[0].netdev == "eth2"


def test_an_interface_that_was_never_up_is_found_by_its_port_number():
    files = {**net("eth0", dev_port="1\n", ifindex="2\n"), **net("eth1", dev_port="0\n", ifindex="3\n")}
    frame = Frame(t=0, files=files, errnos={f"{PCI}/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0": "EINVAL"})
    assert found(on_pci(), frame).ports[0].netdev == "eth1"


def test_of_several_interfaces_of_a_port_the_oldest_is_its_own():
    files = {**net("a_child", dev_port="0\n", ifindex="12\n"), **net("ib0", dev_port="0\n", ifindex="4\n")}
    assert found(on_pci(), Frame(t=0, files=files)).ports[0].netdev == "ib0"


def test_a_single_interface_needs_no_port_number():
    assert found(on_pci(), Frame(t=0, files=net("ib0", ifindex="4\n"))).ports[0].netdev == "ib0"
    two = {**net("ib0", ifindex="4\n"), **net("ib1", ifindex="5\n")}
    assert found(on_pci(), Frame(t=0, files=two)).ports[0].netdev is None


def test_an_interfaces_carrier_is_counted_and_nothing_that_takes_rtnl_is_read():
    files = {"carrier": "1\n", "speed": "100\n", "duplex": "full\n", "dev_id": "0x0\n", "carrier_changes": "3\n"}
    files["carrier_up_count"] = "2\n"
    interface = Frame(t=0, files={f"class/net/eth2/{name}": text for name, text in files.items()})
    tree = Watched(virtual(Frame(t=0, files=mlx5(gid_attrs__ndevs__0="eth2\n")), interface))
    device = discover(tree, "mlx5_0", 1)
    columns = [c.name for c in device.layout.columns if c.level is Level.NET]
    assert columns == ["carrier_changes", "carrier_up_count"]
    every = tuple(range(len(device.layout.columns)))
    reading = TreeReader(tree, StillClock()).read(device, every)
    assert reading.values[device.layout.column(1, Level.NET, "carrier_changes")] == 3
    forbidden = {"carrier", "speed", "duplex", "dev_id"}
    assert not [path for path in tree.asked if path.rpartition("/")[2] in forbidden]


@pytest.mark.parametrize("content", ["../../../etc\n", "..\n", "\n", "a/b\n"])
def test_what_is_no_interface_name_leads_nowhere(content):
    device = found(Frame(t=0, files=mlx5(gid_attrs__ndevs__0=content)))
    assert device.ports[0].netdev is None


# ------------------------------------------------------------------------------------------------------- any content

PATHS = [
    *mlx5(),
    "class/infiniband/mlx5_0/node_guid",
    "class/infiniband/mlx5_0/fw_ver",
    "class/infiniband/mlx5_0/parent",
    "class/infiniband/mlx5_0/device/uevent",
    "class/infiniband/mlx5_0/device/numa_node",
    "class/infiniband/mlx5_0/device/net/ib0/dev_port",
    "class/infiniband/mlx5_0/device/infiniband_verbs/uverbs0/ibdev",
    "class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0",
]


@given(st.dictionaries(st.sampled_from(PATHS), st.text(max_size=40), max_size=12))
def test_no_content_of_any_file_stops_discovery_or_reading(contents):
    tree = virtual(Frame(t=0, files={**mlx5("mlx5_0"), **mlx5("mlx5_1")}), Frame(t=0, files=contents))
    for name in ("mlx5_0", "mlx5_1"):
        device = discover(tree, name, 1)
        columns = tuple(range(len(device.layout.columns)))
        reading = TreeReader(tree, StillClock()).read(device, columns)
        for index, value in zip(columns, reading.values, strict=True):
            assert (value is None) == (index in reading.errnos)
        if name == "mlx5_1":
            assert not reading.errnos


def test_a_known_device_is_taken_for_one_by_its_name_and_an_unknown_one_is_looked_at():
    frame = Frame(t=0, dirs=("class/infiniband/mlx5_0",), links={"class/infiniband/mlx5_1": "../nowhere"})
    tree = virtual(frame)
    assert list_devices(tree, ["*"], [], NOW).names == ("mlx5_0",)
    assert list_devices(tree, ["*"], [], NOW, known={"mlx5_1"}).names == ("mlx5_0", "mlx5_1")
    assert list_devices(tree, ["*"], ["mlx5_1"], NOW, known={"mlx5_1", "gone"}).names == ("mlx5_0",)
