"""The simulated node: a DGX-class machine with 8 compute, 2 storage and 2 management ports.

Addresses, rates and counters are of the kind that such machines show; names and GUIDs belong to no real one.
"""

from __future__ import annotations

from dataclasses import replace

from ibmon.simulate.counters import used_counters, used_hw_counters, zero_counters, zero_hw_counters
from ibmon.simulate.tree import DISABLED, DOWN, Pci, Port, Tree, device, guid_of

COMPUTE = tuple(f"mlx5_{number}" for number in range(8))
STORAGE = ("mlx5_8", "mlx5_9")
MANAGEMENT = ("mlx5_10", "mlx5_11")

# Bus of each compute card; the first half hangs at NUMA node 0, the second at 1.
_COMPUTE_BUSES = (0x18, 0x40, 0x4F, 0x5E, 0x9A, 0xC0, 0xCE, 0xDC)
# Two cards with two ports each: function 0 is the storage port, function 1 the management port.
_DUAL_BUSES = (0x29, 0xAA)


def _pci(bus: int, function: int = 0, *, ethernet: bool = False) -> Pci:
    return Pci(
        address=f"0000:{bus:02x}:00.{function}",
        above=f"pci0000:{bus - 1:02x}/0000:{bus - 1:02x}:01.0",
        numa_node=int(bus >= 0x80),
        class_code="0x020000" if ethernet else "0x020700",
    )


def _port(seed: int, *, rate: str = "400 Gb/sec (4X NDR)", netdev: str, ethernet: bool = False) -> Port:
    return Port(
        rate=rate,
        link_layer="Ethernet" if ethernet else "InfiniBand",
        lid=f"0x{0x1A + seed:x}",
        netdev=netdev,
        counters=used_counters(seed),
        hw_counters=used_hw_counters(seed),
    )


def dgx(*, vfs: int = 0, plain: bool = False) -> Tree:
    """The node with all ports ACTIVE.

    Args:
        vfs: number of virtual functions on each compute card, named from mlx5_12 on; they are DOWN, with GUIDs of zero
            as before somebody assigns one.
        plain: directories instead of links below class/infiniband, as in copies of a sysfs made without links.
    """
    tree = Tree(dirs=("class/infiniband", "class/net"))
    for seed, (name, bus) in enumerate(zip(COMPUTE, _COMPUTE_BUSES, strict=True)):
        pci = replace(
            _pci(bus),
            modules=(41_000 + 500 * seed,),
            virtfns=tuple(f"0000:{bus:02x}:00.{number + 1}" for number in range(vfs)),
        )
        tree |= device(name, ports=(_port(seed, netdev=f"ibp{bus}s0"),), pci=pci, index=seed, plain=plain)
    for seed, (name, bus) in enumerate(zip(STORAGE, _DUAL_BUSES, strict=True), start=8):
        port = _port(seed, rate="200 Gb/sec (4X HDR)", netdev=f"ibp{bus}s0f0")
        tree |= device(name, ports=(port,), pci=_pci(bus), index=seed, plain=plain, board_id="MT_0000000834")
    for seed, (name, bus) in enumerate(zip(MANAGEMENT, _DUAL_BUSES, strict=True), start=10):
        port = _port(seed, rate="100 Gb/sec (2X HDR)", netdev=f"ens{bus}f1np1", ethernet=True)
        tree |= device(
            name,
            ports=(port,),
            pci=_pci(bus, 1, ethernet=True),
            index=seed,
            plain=plain,
            image_guid=guid_of(STORAGE[seed - 10]),
            board_id="MT_0000000834",
        )
    return tree | _virtual_functions(vfs, plain=plain)


def _virtual_functions(vfs: int, *, plain: bool) -> Tree:
    tree, index = Tree(), 12
    for bus in _COMPUTE_BUSES:
        for number in range(vfs):
            pci = replace(_pci(bus, number + 1), physfn=f"0000:{bus:02x}:00.0", device="0x101e")
            port = Port(
                state=DOWN,
                phys_state=DISABLED,
                rate="10 Gb/sec (4X SDR)",
                lid="0xffff",
                sm_lid="0x0",
                counters=zero_counters(),
                hw_counters=zero_hw_counters(),
            )
            zero = "0000:0000:0000:0000"
            tree |= device(f"mlx5_{index}", ports=(port,), pci=pci, index=index, plain=plain, guid=zero)
            index += 1
    return tree
