"""The simulated node, and faults on it: what the files say after each, in memory and on disk."""

import itertools
import math

import pytest

from ibmon.recording import Frame, SchedulerAct
from ibmon.simulate.counters import PMA_BITS
from ibmon.simulate.dgx import COMPUTE, MANAGEMENT, STORAGE, dgx
from ibmon.simulate.directory import DirectoryTree
from ibmon.simulate.script import Player, Script, half_of
from ibmon.simulate.tree import Pci, Port, device
from ibmon.virtualtree import VirtualTree

PORT = "class/infiniband/mlx5_3/ports/1"


def play(script, until=math.inf):
    tree, frames = VirtualTree(), []
    for frame in itertools.takewhile(lambda frame: frame.t <= until, script.frames()):
        tree.apply(frame)
        frames.append(frame)
    return tree, frames


def text(tree, path):
    return tree.read(path).decode().rstrip("\n")


def number(tree, path):
    return int(tree.read(path))


def test_the_node_has_eight_compute_two_storage_and_two_management_ports():
    tree, _ = play(Script(dgx()))
    assert sorted(tree.listdir("class/infiniband")) == sorted((*COMPUTE, *STORAGE, *MANAGEMENT))
    seen = {
        name: (
            text(tree, f"class/infiniband/{name}/ports/1/link_layer"),
            text(tree, f"class/infiniband/{name}/ports/1/rate"),
        )
        for name in tree.listdir("class/infiniband")
    }
    assert {seen[name] for name in COMPUTE} == {("InfiniBand", "400 Gb/sec (4X NDR)")}
    assert {seen[name] for name in STORAGE} == {("InfiniBand", "200 Gb/sec (4X HDR)")}
    assert {layer for layer, _ in (seen[name] for name in MANAGEMENT)} == {"Ethernet"}


@pytest.mark.parametrize("plain", [False, True])
def test_each_device_has_its_counters_pci_function_and_distinct_guid(plain):
    node = dgx(plain=plain)
    tree, _ = play(Script(node))
    guids = set()
    for name in node.devices:
        base = f"class/infiniband/{name}"
        assert set(tree.listdir(f"{base}/ports/1/counters")) == set(PMA_BITS)
        assert len(tree.listdir(f"{base}/ports/1/hw_counters")) == 30
        assert text(tree, f"{base}/device/current_link_width") == "16"
        assert text(tree, f"{base}/device/vendor") == "0x15b3"
        guids.add(text(tree, f"{base}/node_guid"))
        assert tree.islink(base) is not plain
    assert len(guids) == 12


def test_links_stand_as_on_a_real_host():
    tree, _ = play(Script(dgx()))
    function = "devices/pci0000:5d/0000:5d:01.0/0000:5e:00.0"
    assert tree.realpath(PORT) == f"{function}/infiniband/mlx5_3/ports/1"
    assert tree.realpath("class/infiniband/mlx5_3/device") == function
    assert tree.realpath("bus/pci/devices/0000:5e:00.0") == function
    assert tree.realpath("bus/pci/drivers/mlx5_core/0000:5e:00.0") == function
    assert tree.realpath(f"{function}/driver") == "bus/pci/drivers/mlx5_core"
    assert tree.realpath("class/net/ibp94s0/device") == function
    assert text(tree, "class/infiniband_verbs/uverbs3/ibdev") == "mlx5_3"
    assert text(tree, "class/infiniband_mad/umad3/port") == "1"
    roce = text(tree, "class/infiniband/mlx5_10/ports/1/gid_attrs/ndevs/0")
    assert tree.realpath(f"class/net/{roce}/device") == tree.realpath("class/infiniband/mlx5_10/device")
    assert text(tree, f"class/net/{roce}/operstate") == "up"


def test_virtual_functions_are_down_and_point_to_their_physical_function():
    tree, _ = play(Script(dgx(vfs=2)))
    assert len(tree.listdir("class/infiniband")) == 12 + 16
    assert text(tree, "class/infiniband/mlx5_12/ports/1/state") == "1: DOWN"
    assert tree.realpath("class/infiniband/mlx5_12/device/physfn") == tree.realpath("class/infiniband/mlx5_0/device")
    assert tree.realpath("class/infiniband/mlx5_0/device/virtfn1") == tree.realpath("class/infiniband/mlx5_13/device")
    assert text(tree, "class/infiniband/mlx5_0/device/sriov_numvfs") == "2"


def test_pieces_of_a_device_can_be_left_out_or_changed():
    bare = Port(counters=None, hw_counters={"tx_bytes": 3, "odd name": "N/A"}, rate="100 Gb/sec (4X EDR)")
    node = device(
        "efa_0", ports=(bare,), hca_type=None, firmware="", files={"ports/1/sm_lid": None, "node_desc": "x\n"}
    )
    tree, _ = play(Script(node))
    base = "class/infiniband/efa_0"
    assert not tree.exists(f"{base}/ports/1/counters")
    assert tree.listdir(f"{base}/ports/1/hw_counters") == ["odd name", "tx_bytes"]
    assert tree.read(f"{base}/fw_ver") == b"\n"
    assert not {"hca_type", "device"} & set(tree.listdir(base))
    assert not tree.exists(f"{base}/ports/1/sm_lid")
    assert text(tree, f"{base}/node_desc") == "x"


def test_link_down_shows_the_kernels_texts_and_one_link_downed():
    script = Script(dgx())
    script.link_down(60, "mlx5_3/1")
    before, _ = play(Script(dgx()))
    tree, _ = play(script)
    assert [text(tree, f"{PORT}/{file}") for file in ("state", "phys_state", "rate")] == [
        "1: DOWN",
        "2: Polling",
        "10 Gb/sec (4X SDR)",
    ]
    assert number(tree, f"{PORT}/counters/link_downed") == number(before, f"{PORT}/counters/link_downed") + 1
    assert text(tree, "class/net/ibp94s0/operstate") == "down"
    assert number(tree, "class/net/ibp94s0/carrier_down_count") == 1


def test_a_roce_port_without_link_is_disabled_at_the_drivers_fallback_rate():
    script = Script(dgx())
    script.link_down(60, "mlx5_10/1")
    tree, _ = play(script)
    port = "class/infiniband/mlx5_10/ports/1"
    assert text(tree, f"{port}/phys_state") == "3: Disabled"
    assert text(tree, f"{port}/rate") == "40 Gb/sec (4X QDR)"


def test_faults_follow_each_other_by_time_whatever_the_order_they_were_added_in():
    script = Script(dgx())
    script.link_up(90, "mlx5_3/1")
    script.half_rate(30, "mlx5_3/1")
    script.link_down(60, "mlx5_3/1")
    script.init(80, "mlx5_3/1")
    tree, frames = VirtualTree(), list(script.frames())
    seen = []
    for frame in frames:
        tree.apply(frame)
        seen.append((frame.t, text(tree, f"{PORT}/state"), text(tree, f"{PORT}/rate")))
    assert seen == [
        (0, "4: ACTIVE", "400 Gb/sec (4X NDR)"),
        (30, "4: ACTIVE", "200 Gb/sec (2X NDR)"),
        (60, "1: DOWN", "10 Gb/sec (4X SDR)"),
        (80, "2: INIT", "400 Gb/sec (4X NDR)"),
        (90, "4: ACTIVE", "400 Gb/sec (4X NDR)"),
    ]


def test_a_flap_counts_once_each_time():
    script = Script(dgx())
    script.flap(100, "mlx5_3/1", times=3, seconds=2, every=30)
    tree, frames = play(script)
    base, _ = play(Script(dgx()))
    assert [frame.t for frame in frames] == [0, 100, 102, 130, 132, 160, 162]
    assert number(tree, f"{PORT}/counters/link_downed") == number(base, f"{PORT}/counters/link_downed") + 3
    assert text(tree, f"{PORT}/state") == "4: ACTIVE"


def test_symbol_errors_rise_and_stick_at_sixteen_bits():
    script = Script(device("mlx5_0"))
    script.symbol_ramp(0, "mlx5_0/1", per_second=1000, seconds=100)
    path = "class/infiniband/mlx5_0/ports/1/counters/symbol_error"
    tree, frames = VirtualTree(), script.frames()
    values = []
    for frame in frames:
        tree.apply(frame)
        values.append(number(tree, path))
    assert values[:3] == [0, 5000, 10000]
    assert values[-1] == 65535
    assert values == sorted(values)


def test_traffic_moves_data_at_the_rate_and_only_where_a_link_is():
    script = Script(dgx(), seed=7)
    script.traffic(0, 100, load=0.5)
    script.link_down(50, "mlx5_3/1")
    tree, _ = play(script)
    start, _ = play(Script(dgx()))

    def moved(device, counter):
        path = f"class/infiniband/{device}/ports/1/counters/{counter}"
        return number(tree, path) - number(start, path)

    full = 400e9 / 8 / 4 * 100 * 0.5
    assert moved("mlx5_0", "port_xmit_data") == pytest.approx(full, rel=0.1)
    assert moved("mlx5_3", "port_rcv_data") == pytest.approx(full / 2, rel=0.15)
    assert moved("mlx5_8", "port_xmit_data") == pytest.approx(full / 2, rel=0.1)
    assert moved("mlx5_0", "unicast_xmit_packets") == moved("mlx5_0", "port_xmit_packets") > 0
    assert moved("mlx5_0", "symbol_error") == 0


def test_the_same_seed_gives_the_same_frames_and_another_does_not():
    def frames(seed):
        script = Script(dgx(), seed=seed)
        script.traffic(0, 20)
        return list(script.frames())

    assert frames(1) == frames(1)
    assert frames(1) != frames(2)


def test_endless_traffic_is_given_as_it_is_asked_for():
    script = Script(device("mlx5_0"))
    script.traffic(0, math.inf, every=10)
    assert [frame.t for frame in itertools.islice(script.frames(), 4)] == [0, 10, 20, 30]


FUNCTION = "devices/pci0000:5d/0000:5d:01.0/0000:5e:00.0"


@pytest.mark.parametrize(
    ("how", "function", "driver"), [("bus", False, False), ("driver", True, False), ("class", True, True)]
)
@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_device_vanishes_and_comes_back_whole(tmp_path, how, function, driver, kind):
    script = Script(dgx())
    script.vanish(10, "mlx5_3", how=how)
    script.symbol_ramp(10, "mlx5_3/1", per_second=1, seconds=10)
    script.link_down(15, "mlx5_3/1")
    script.come_back(30, "mlx5_3")
    tree = VirtualTree() if kind == "memory" else DirectoryTree(tmp_path)
    there = tree.exists if kind == "memory" else lambda path: (tmp_path / path).exists()
    player = Player(script.frames(), tree)
    player.advance(20)
    assert not there("class/infiniband/mlx5_3")
    assert not there(f"{FUNCTION}/infiniband/mlx5_3")
    assert not there("class/infiniband_verbs/uverbs3")
    assert there(FUNCTION) is function
    assert there("bus/pci/devices/0000:5e:00.0") is function
    assert there(f"{FUNCTION}/driver") is driver
    assert there("class/infiniband/mlx5_4/ports/1/state")
    player.advance(30)
    for path in ("class/infiniband/mlx5_3/device/driver", f"{PORT}/state", "class/net/ibp94s0/operstate"):
        assert there(path)
    hw = f"{PORT}/hw_counters/rx_write_requests"
    assert int(tree.read(hw) if kind == "memory" else (tmp_path / hw).read_bytes()) == 0


def test_a_device_that_comes_back_is_complete_when_the_class_shows_it():
    script = Script(dgx())
    script.vanish(10, "mlx5_3")
    script.come_back(30, "mlx5_3")
    tree = VirtualTree()
    for frame in script.frames():
        if tree.apply(frame) and tree.exists("class/infiniband/mlx5_3"):
            assert text(tree, f"{PORT}/state") == "4: ACTIVE"
            assert tree.exists("class/infiniband/mlx5_3/device/driver")


def test_a_two_port_device_is_moved_port_by_port():
    node = device(
        "mlx4_0", ports=(Port(), Port(number=2, link_layer="Ethernet")), pci=Pci("0000:01:00.0", "pci0000:00")
    )
    script = Script(node)
    script.link_down(5, "mlx4_0/2")
    tree, _ = play(script)
    assert text(tree, "class/infiniband/mlx4_0/ports/1/state") == "4: ACTIVE"
    assert text(tree, "class/infiniband/mlx4_0/ports/2/state") == "1: DOWN"


@pytest.mark.parametrize(
    ("rate", "half"),
    [
        ("400 Gb/sec (4X NDR)", "200 Gb/sec (2X NDR)"),
        ("56 Gb/sec (4X FDR)", "28 Gb/sec (2X FDR)"),
        ("5 Gb/sec (2X SDR)", "2.5 Gb/sec (1X SDR)"),
    ],
)
def test_half_the_lanes_are_half_the_rate(rate, half):
    assert half_of(rate) == half


def test_a_single_lane_has_no_half():
    with pytest.raises(ValueError, match="half of its lanes"):
        half_of("2.5 Gb/sec (1X SDR)")


def test_an_unknown_port_or_device_is_a_key_error():
    for add in (
        lambda s: s.link_down(1, "mlx5_99/1"),
        lambda s: s.vanish(1, "mlx5_99"),
        lambda s: s.init(1, "mlx5_0/2"),
    ):
        script = Script(dgx())
        add(script)
        with pytest.raises(KeyError):
            list(script.frames())


def test_surroundings_are_frames_too():
    script = Script(dgx())
    script.kernel_log(5, "mlx5_core 0000:18:00.0: line")
    script.scheduler(6, "drain", reason="disk")
    _, frames = play(script)
    assert frames[1:] == [
        Frame(t=5, kmsg=("mlx5_core 0000:18:00.0: line",)),
        Frame(t=6, scheduler=SchedulerAct(do="drain", reason="disk")),
    ]


def test_a_player_applies_what_is_due_and_says_when_to_come_again():
    script = Script(dgx())
    script.link_down(60, "mlx5_3/1")
    script.link_up(150, "mlx5_3/1")
    tree = VirtualTree()
    player = Player(script.frames(), tree, start=1000)
    assert player.next_due == 1000
    assert player.advance(999.9) == []
    assert [frame.t for frame in player.advance(1059.9)] == [0]
    assert player.next_due == 1060
    assert [frame.t for frame in player.advance(2000)] == [60, 150]
    assert player.next_due is None
    assert player.advance(3000) == []
    assert text(tree, f"{PORT}/state") == "4: ACTIVE"
