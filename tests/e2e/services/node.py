"""The sysfs tree of a node with four 400 Gb/s InfiniBand ports in a directory, whose links and counters can be moved.

Owns: files as the mlx5 driver names them, in the kernel's own text. Must not: use anything of ibmon; a test reads its
expected values back from these files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

DEVICES = tuple(f"mlx5_{number}" for number in range(4))

_DEVICE_FILES = {
    "node_type": "1: CA",
    "fw_ver": "28.39.1002",
    "hw_rev": "0x0",
    "hca_type": "MT4129",
    "board_id": "MT_0000000838",
}
_PORT_FILES = {
    "link_layer": "InfiniBand",
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "400 Gb/sec (4X NDR)",
    "lid_mask_count": "0",
    "sm_lid": "0x1",
    "sm_sl": "0",
    "cap_mask": "0xa651e848",
}
_COUNTERS = (
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
)
_HW_COUNTERS = ("duplicate_request", "local_ack_timeout_err", "out_of_sequence", "packet_seq_err", "rnr_nak_retry_err")


class NodeTree:
    """A tree below `root`, to be given to `--sysfs`; every port is ACTIVE at first."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for number, device in enumerate(DEVICES):
            self._create(number, device)

    def _create(self, number: int, device: str) -> None:
        guid = f"b859:9f03:00d0:{number:04x}"
        base = self.root / "class/infiniband" / device
        files = {**_DEVICE_FILES, "node_guid": guid, "sys_image_guid": guid}
        port_files = {**_PORT_FILES, "lid": f"0x{16 + number:x}", "gids/0": f"fe80:0000:0000:0000:{guid}"}
        files |= {f"ports/1/{name}": text for name, text in port_files.items()}
        # Error counters stand at zero; traffic differs by device, so that no test passes with two devices mixed up.
        busy = {"port_rcv_data": 10**12, "port_xmit_data": 2 * 10**12, "unicast_rcv_packets": 10**9}
        files |= {f"ports/1/counters/{name}": str(busy.get(name, 0) + number * (name in busy)) for name in _COUNTERS}
        files |= {f"ports/1/hw_counters/{name}": str(number) for name in _HW_COUNTERS}
        files["ports/1/hw_counters/lifespan"] = "10"
        for name, text in files.items():
            path = base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")

    def _file(self, device: str, name: str) -> Path:
        return self.root / "class/infiniband" / device / "ports/1" / name

    def text(self, device: str, name: str) -> str:
        """Returns what a file of the device's port 1 holds, without the newline."""
        return self._file(device, name).read_text().rstrip("\n")

    def set(self, device: str, name: str, text: str) -> None:
        """Changes a file of the device's port 1 in place: a descriptor kept open sees it, as it does in sysfs.

        No reader sees an empty file or the tail of the old text: newlines cover it until the file is cut.
        """
        content = f"{text}\n".encode()
        with self._file(device, name).open("r+b", buffering=0) as file:
            old = os.fstat(file.fileno()).st_size
            os.pwrite(file.fileno(), content.ljust(old, b"\n"), 0)
            file.truncate(len(content))

    def carry(self, device: str, gigabytes: int) -> None:
        """The port receives and sends so much more (in 4-byte words, as the kernel counts)."""
        for name in ("port_rcv_data", "port_xmit_data"):
            self.set(
                device, f"counters/{name}", str(int(self.text(device, f"counters/{name}")) + gigabytes * 10**9 // 4)
            )

    def link_down(self, device: str) -> None:
        """The peer goes away; `rate` keeps its last value, as the kernel does it."""
        self.set(device, "phys_state", "2: Polling")
        self.set(device, "state", "1: DOWN")

    def link_up(self, device: str) -> None:
        """The link trains and the subnet manager activates it; the kernel counts the time it was down."""
        self.set(device, "phys_state", "5: LinkUp")
        self.set(device, "state", "4: ACTIVE")
