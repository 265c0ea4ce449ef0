"""What the kernel does, as far as the design rests on it; no ibmon is involved. Runs on the guest's own Python.

When one of these fails on another kernel, it is the design that has to be looked at, not the test.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from pathlib import Path

import pyudev
from checklib import check, eventually, run_checks
from rdma import INFINIBAND, lose_packets, mock, mock_device, ping_pong, process_state, read, rxe_pair, sh


def expect_errno(number: int, path_or_fd: Path | int) -> None:
    name = None
    try:
        if isinstance(path_or_fd, int):
            os.pread(path_or_fd, 4096, 0)
        else:
            read(path_or_fd)
    except OSError as error:
        name = errno.errorcode[error.errno]
    assert name == errno.errorcode[number], f"{path_or_fd}: {name or 'it can be read'}"


@check
def soft_roce_ports_are_active_and_have_no_counters_directory():
    port = INFINIBAND / "rxe0/ports/1"
    assert read(port / "state") == "4: ACTIVE"
    assert read(port / "phys_state") == "5: LinkUp"
    assert read(port / "link_layer") == "Ethernet"
    assert not (port / "counters").exists()


@check
def rdma_traffic_is_counted():
    sent = INFINIBAND / "rxe0/ports/1/hw_counters/sent_pkts"
    before = int(read(sent))
    ping_pong(100)
    assert int(read(sent)) > before + 100


@check
def lost_packets_raise_the_retransmission_counters():
    counters = INFINIBAND / "rxe0/ports/1/hw_counters"

    def seen() -> dict[str, int]:
        return {name: int(read(counters / name)) for name in ("completer_retry_err", "duplicate_request")}

    lose_packets(5, lambda: sum(seen().values()) > 0)
    assert sum(seen().values()) > 0, seen()


@check
def a_peer_that_is_down_polls_and_a_port_that_is_down_is_disabled():
    port = INFINIBAND / "rxe0/ports/1"
    for netdev, physical in (("vb", "2: Polling"), ("va", "3: Disabled")):
        sh(f"ip link set {netdev} down")
        eventually(lambda: read(port / "state") == "1: DOWN", within=5, what="state DOWN")
        assert read(port / "phys_state") == physical
        sh(f"ip link set {netdev} up")
        eventually(lambda: read(port / "state") == "4: ACTIVE", within=5, what="state ACTIVE")
    rxe_pair("fix")


@check
def pyudev_tells_remove_add_and_rename_but_not_a_link_that_goes_down():
    """The source is the kernel itself: the plain guest has no udevd."""
    monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
    monitor.filter_by("infiniband")
    monitor.start()
    mock("add first 1")
    sh("ip link set va down; ip link set va up; rdma dev set first name second")
    mock("second 1 state 1", "del second")
    events = []
    while (device := monitor.poll(timeout=1)) is not None:
        events.append((device.action, device.sys_name))
    assert events == [("add", "first"), ("move", "second"), ("remove", "second")], events
    rxe_pair("fix")


@check
def an_open_file_of_a_removed_device_gives_enodev_also_when_the_name_is_back():
    with mock_device("gone") as device:
        fd = os.open(device / "ports/1/state", os.O_RDONLY)
    try:
        expect_errno(errno.ENODEV, fd)
        with mock_device("gone") as device:
            assert read(device / "ports/1/state") == "4: ACTIVE"
            expect_errno(errno.ENODEV, fd)
    finally:
        os.close(fd)


@check
def an_open_file_of_a_renamed_device_still_reads():
    mock("add before 1")
    fd = os.open(INFINIBAND / "before/ports/1/state", os.O_RDONLY)
    try:
        sh("rdma dev set before name after")
        mock("after 1 state 2")
        assert os.pread(fd, 4096, 0) == b"2: INIT\n"
        assert not (INFINIBAND / "before").exists()
    finally:
        os.close(fd)
        mock("del after")


@check
def a_device_goes_with_its_network_device():
    sh("ip link add d0 type dummy; rdma link add rxe9 type rxe netdev d0")
    assert read(INFINIBAND / "rxe9/ports/1/state") == "1: DOWN"
    sh("ip link del d0")
    eventually(lambda: not (INFINIBAND / "rxe9").exists(), within=5, what="rxe9 is gone")


@check
def the_mock_is_an_infiniband_device_in_the_kernel_s_own_format():
    with mock_device("mlx5_0") as device:
        port = device / "ports/1"
        assert read(port / "link_layer") == "InfiniBand"
        assert read(port / "rate") == "400 Gb/sec (4X NDR)"
        mock("mlx5_0 1 width 1", "mlx5_0 1 state 2")
        assert read(port / "rate") == "100 Gb/sec (1X NDR)"
        assert read(port / "state") == "2: INIT"
        assert (device / "device").is_symlink()


@check
def narrow_counters_stick_at_their_maximum():
    with mock_device("mlx5_0") as device:
        counters = device / "ports/1/counters"
        for name, maximum in (
            ("symbol_error", 2**16 - 1),
            ("link_downed", 2**8 - 1),
            ("local_link_integrity_errors", 2**4 - 1),
            ("port_xmit_wait", 2**32 - 1),
        ):
            mock(f"mlx5_0 1 {name} {maximum + 100}")
            assert int(read(counters / name)) == maximum, name
        mock(f"mlx5_0 1 port_xmit_data {2**40}")
        assert int(read(counters / "port_xmit_data")) == 2**40


@check
def a_failing_query_leaves_the_files_that_need_none():
    with mock_device("mlx5_0") as device:
        port = device / "ports/1"
        mock(f"mlx5_0 1 errno {errno.EIO}")
        for name in ("state", "phys_state", "rate", "lid"):
            expect_errno(errno.EIO, port / name)
        assert read(port / "link_layer") == "InfiniBand"
        mock("mlx5_0 1 errno 0", f"mlx5_0 1 pma_errno {errno.EIO}")
        expect_errno(errno.EINVAL, port / "counters/symbol_error")
        assert read(port / "state") == "4: ACTIVE"
        mock("mlx5_0 1 pma_errno 0", f"mlx5_0 1 hw_errno {errno.EIO}")
        time.sleep(0.1)  # within the lifespan (10 ms) the kernel answers from what it read at registration
        expect_errno(errno.EIO, port / "hw_counters/out_of_sequence")
        assert int(read(port / "counters/symbol_error")) == 0


@check
def a_hung_read_is_in_d_state_and_leaves_the_other_ports_alone():
    with mock_device("mlx5_0", ports=2) as device:
        mock("mlx5_0 1 delay_ms 3000")
        reader = subprocess.Popen(["cat", str(device / "ports/1/state")], stdout=subprocess.DEVNULL)
        eventually(lambda: process_state(reader.pid) == "D", within=2, what="the reader in D state")
        reader.send_signal(signal.SIGKILL)
        start = time.monotonic()
        assert read(device / "ports/2/state") == "4: ACTIVE"
        assert time.monotonic() - start < 0.5
        assert process_state(reader.pid) == "D", "kill -9 has to wait for the driver"
        mock("mlx5_0 1 delay_ms 0")
        assert reader.wait(timeout=10) == -signal.SIGKILL


if __name__ == "__main__":
    rxe_pair("up")
    run_checks()
