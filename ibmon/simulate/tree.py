"""The one builder of sysfs trees, for the simulated node and for tests: devices with their ports, PCI function, netdev.

Values only: a `Tree` is turned into a frame of a recording, or written to disk by `ibmon.simulate.directory`.
Layout and texts are those of the kernel (drivers/infiniband/core/sysfs.c).
"""

from __future__ import annotations

import posixpath
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ibmon.recording import Frame
from ibmon.simulate.counters import zero_counters, zero_hw_counters

ACTIVE, INIT, DOWN = "4: ACTIVE", "2: INIT", "1: DOWN"
LINK_UP, POLLING, DISABLED = "5: LinkUp", "2: Polling", "3: Disabled"


@dataclass(frozen=True)
class Port:
    """One port as its files show it. None for `counters` or `hw_counters`: the directory does not exist.

    `netdev` is the RoCE interface (named by gid_attrs/ndevs/0) or, on InfiniBand, the IPoIB one. `speed` of it in Mb/s.
    """

    number: int = 1
    state: str = ACTIVE
    phys_state: str = LINK_UP
    rate: str = "400 Gb/sec (4X NDR)"
    link_layer: str = "InfiniBand"
    lid: str = "0x1a"
    sm_lid: str = "0x1"
    counters: Mapping[str, int | str] | None = field(default_factory=zero_counters)
    hw_counters: Mapping[str, int | str] | None = field(default_factory=zero_hw_counters)
    netdev: str | None = None

    @property
    def ethernet(self) -> bool:
        """Whether this is a RoCE port."""
        return self.link_layer == "Ethernet"


@dataclass(frozen=True)
class Pci:
    """One PCI function. `above` is the path of its bridge below devices/, whose `max_*` are the slot's."""

    address: str
    above: str
    current_speed: str = "32.0 GT/s PCIe"
    current_width: int = 16
    max_speed: str = "32.0 GT/s PCIe"
    max_width: int = 16
    slot_speed: str = "32.0 GT/s PCIe"
    slot_width: int = 16
    numa_node: int = 0
    vendor: str = "0x15b3"
    device: str = "0x1021"
    class_code: str = "0x020700"
    driver: str | None = "mlx5_core"
    modules: tuple[int, ...] = ()  # temperatures of the modules in its cages, in thousandths of a degree Celsius
    physfn: str | None = None
    virtfns: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Where the function is in the tree."""
        return f"devices/{self.above}/{self.address}"


@dataclass(frozen=True)
class Placed:
    """Where a device lies in a tree, for whoever wants to move or remove it.

    `entries` are its links (or directories) in class directories, `parts` the directories these lead to, and `bus`
    what of it is under bus/pci.
    """

    name: str
    path: str
    ports: Mapping[int, Port]
    pci: Pci | None = None
    entries: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    bus: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tree:
    """Files, links and empty directories by path below the sysfs root, and where devices lie; trees add up: `a | b`."""

    files: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    dirs: tuple[str, ...] = ()
    devices: Mapping[str, Placed] = field(default_factory=dict)

    def __or__(self, other: Tree) -> Tree:
        return Tree(
            {**self.files, **other.files},
            {**self.links, **other.links},
            tuple(dict.fromkeys(self.dirs + other.dirs)),
            {**self.devices, **other.devices},
        )

    def under(self, places: Iterable[str]) -> Tree:
        """What of this tree lies at or below one of `places`, without the devices' whereabouts."""
        wanted = tuple(places)

        def inside(path: str) -> bool:
            return any(path == place or path.startswith(place + "/") for place in wanted)

        return Tree(
            {path: text for path, text in self.files.items() if inside(path)},
            {path: target for path, target in self.links.items() if inside(path)},
            tuple(filter(inside, self.dirs)),
        )

    def frame(self, t: float = 0) -> Frame:
        """The tree as the frame that makes it: the first one of a recording."""
        return Frame(t=t, dirs=self.dirs, links=self.links, files=self.files)

    def port_path(self, port: str) -> str:
        """The directory of a port given as ``mlx5_3/1``. Raises KeyError when there is none."""
        name, _, number = port.partition("/")
        placed = self.devices[name]
        return f"{placed.path}/ports/{placed.ports[int(number)].number}"


def device(
    name: str,
    *,
    ports: Iterable[Port] = (Port(),),
    pci: Pci | None = None,
    plain: bool = False,
    index: int | None = None,
    guid: str | None = None,
    image_guid: str | None = None,
    firmware: str = "28.39.1002",
    hca_type: str | None = "MT4129",
    board_id: str | None = "MT_0000000838",
    node_type: str = "1: CA",
    files: Mapping[str, str | None] | None = None,
) -> Tree:
    """A tree with one RDMA device.

    Args:
        name: its name in class/infiniband.
        ports: its ports.
        pci: its PCI function; None puts it under devices/virtual without a `device` link, as rxe and siw are.
        plain: class/infiniband/NAME and its `device` are directories, not links, as in copies made without links.
        index: N of uverbsN and umadN; None: the device has no character devices.
        guid: node GUID; by default one that belongs to the name.
        image_guid: system image GUID, which the functions of one card share; by default the node GUID.
        firmware: fw_ver; may be empty, as of drivers that tell none.
        hca_type: None leaves the file out.
        board_id: None leaves the file out.
        node_type: text of node_type.
        files: further or other files by path below the device, with text; None takes a file away.
    """
    placed_ports = {port.number: port for port in ports}
    home = f"{pci.path}/infiniband/{name}" if pci else f"devices/virtual/infiniband/{name}"
    path = f"class/infiniband/{name}" if plain else home
    guid = guid or guid_of(name)
    content: dict[str, str | None] = {
        "node_guid": guid,
        "sys_image_guid": image_guid or guid,
        "node_type": node_type,
        "node_desc": f"node {name}",
        "fw_ver": firmware,
        "hca_type": hca_type,
        "board_id": board_id,
    }
    for number, port in placed_ports.items():
        content |= {f"ports/{number}/{file}": text for file, text in _port(port, guid).items()}
    content = {file: None if text is None else f"{text}\n" for file, text in content.items()} | dict(files or {})
    tree = Tree(
        {f"{path}/{file}": text for file, text in content.items() if text is not None},
        devices={name: Placed(name, path, placed_ports, pci, (f"class/infiniband/{name}",), () if plain else (path,))},
    )
    if plain:
        return tree | _plain_function(f"{path}/device", pci)
    tree |= _class_link(f"class/infiniband/{name}", path)
    if pci is None:
        return tree
    tree |= Tree(links={f"{path}/device": f"../../../{pci.address}"}) | function(pci)
    for extra in _class_neighbours(name, placed_ports.values(), pci, index):
        tree |= extra
    return _with_whereabouts(tree, name)


def guid_of(name: str) -> str:
    """The GUID that a device of this name gets."""
    return f"a088:c203:{0x00A0:04x}:{zlib.crc32(name.encode()) & 0xFFFF:04x}"


def function(pci: Pci) -> Tree:
    """A PCI function with its bridge and its place under bus/pci, with or without an RDMA device on it."""
    up = "../" * (pci.path.count("/") + 1)
    links = {f"bus/pci/devices/{pci.address}": f"../../../{pci.path}"}
    if pci.driver is not None:
        links[f"{pci.path}/driver"] = f"{up}bus/pci/drivers/{pci.driver}"
        links[f"bus/pci/drivers/{pci.driver}/{pci.address}"] = f"../../../../{pci.path}"
    if pci.physfn is not None:
        links[f"{pci.path}/physfn"] = f"../{pci.physfn}"
    links |= {f"{pci.path}/virtfn{number}": f"../{address}" for number, address in enumerate(pci.virtfns)}
    slot = {
        f"devices/{pci.above}/max_link_speed": f"{pci.slot_speed}\n",
        f"devices/{pci.above}/max_link_width": f"{pci.slot_width}\n",
    }
    files = _function_files(pci) | _sensors(pci)
    return Tree(slot | {f"{pci.path}/{file}": text for file, text in files.items()}, links)


def _sensors(pci: Pci) -> dict[str, str]:
    """The driver's sensor chip: the card itself first, then each module (mlx5/core/hwmon.c)."""
    if not pci.modules:
        return {}
    files = {"name": "mlx5", "temp1_label": "asic", "temp1_input": "56000"}
    for number, temperature in enumerate(pci.modules):
        files |= {f"temp{number + 2}_label": f"module{number}", f"temp{number + 2}_input": str(temperature)}
    chip = f"hwmon/hwmon{zlib.crc32(pci.address.encode()) % 100}"
    return {f"{chip}/{file}": f"{text}\n" for file, text in files.items()}


def _function_files(pci: Pci) -> dict[str, str]:
    texts = {
        "vendor": pci.vendor,
        "device": pci.device,
        "class": pci.class_code,
        "numa_node": str(pci.numa_node),
        "current_link_speed": pci.current_speed,
        "current_link_width": str(pci.current_width),
        "max_link_speed": pci.max_speed,
        "max_link_width": str(pci.max_width),
    }
    if pci.physfn is None:
        texts["sriov_numvfs"] = str(len(pci.virtfns))
    return {file: f"{text}\n" for file, text in texts.items()}


def _plain_function(path: str, pci: Pci | None) -> Tree:
    if pci is None:
        return Tree()
    return Tree({f"{path}/{file}": text for file, text in (_function_files(pci) | _sensors(pci)).items()})


def _port(port: Port, guid: str) -> dict[str, str]:
    """The files of a port by path below its directory, without the newline."""
    files = {
        "state": port.state,
        "phys_state": port.phys_state,
        "rate": port.rate,
        "link_layer": port.link_layer,
        "lid": "0x0" if port.ethernet else port.lid,
        "sm_lid": "0x0" if port.ethernet else port.sm_lid,
        "lid_mask_count": "0",
        "sm_sl": "0",
        "cap_mask": "0x00010000" if port.ethernet else "0xa751e848",
        "gids/0": f"fe80:0000:0000:0000:{guid}",
        "gid_attrs/types/0": "IB/RoCE v1",
        "pkeys/0": "0xffff",
    }
    if port.ethernet and port.netdev:
        files["gid_attrs/ndevs/0"] = port.netdev
    for directory, counters in (("counters", port.counters), ("hw_counters", port.hw_counters)):
        files |= {f"{directory}/{name}": str(value) for name, value in (counters or {}).items()}
    return files


def _class_link(entry: str, path: str) -> Tree:
    return Tree(links={entry: posixpath.relpath(path, posixpath.dirname(entry))})


def _class_neighbours(name: str, ports: Iterable[Port], pci: Pci, index: int | None) -> Iterable[Tree]:
    """The netdevs and character devices that stand beside an RDMA device."""
    for port in ports:
        if port.netdev is not None:
            yield _netdev(port, pci)
        if index is not None and not port.ethernet:
            path = f"{pci.path}/infiniband_mad/umad{index}"
            files = {f"{path}/ibdev": f"{name}\n", f"{path}/port": f"{port.number}\n"}
            yield Tree(files) | _class_link(f"class/infiniband_mad/umad{index}", path)
    if index is not None:
        path = f"{pci.path}/infiniband_verbs/uverbs{index}"
        files = {f"{path}/ibdev": f"{name}\n", f"{path}/dev": f"231:{192 + index}\n", f"{path}/abi_version": "1\n"}
        yield Tree(files) | _class_link(f"class/infiniband_verbs/uverbs{index}", path)


def _netdev(port: Port, pci: Pci) -> Tree:
    path = f"{pci.path}/net/{port.netdev}"
    up = port.state == ACTIVE
    files = {
        "operstate": "up" if up else "down",
        "carrier_changes": "1" if up else "0",
        "carrier_up_count": "1" if up else "0",
        "carrier_down_count": "0",
        "type": "1" if port.ethernet else "32",
        "dev_port": str(port.number - 1),
        "ifindex": str(zlib.crc32(f"{pci.address}/{port.number}".encode()) % 10_000 + 2),
        "mtu": "9000" if port.ethernet else "2044",
        "flags": "0x1003",
    }
    return Tree(
        {f"{path}/{file}": f"{text}\n" for file, text in files.items()},
        {f"{path}/device": f"../../../{pci.address}"},
    ) | _class_link(f"class/net/{port.netdev}", path)


def _with_whereabouts(tree: Tree, name: str) -> Tree:
    """The tree of one device, with its class entries and parts noted."""
    placed = tree.devices[name]
    entries = {entry: target for entry, target in tree.links.items() if entry.startswith("class/")}
    parts = (posixpath.normpath(posixpath.join(posixpath.dirname(entry), target)) for entry, target in entries.items())
    return tree | Tree(
        devices={
            name: Placed(
                name=name,
                path=placed.path,
                ports=placed.ports,
                pci=placed.pci,
                entries=tuple(entries),
                parts=tuple(parts),
                bus=tuple(entry for entry in tree.links if entry.startswith("bus/")),
            )
        }
    )
