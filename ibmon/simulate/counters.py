"""The counter files of an mlx5 port as the simulated hardware keeps them: names in kernel order, widths, first values.

It is the other side of the daemon's catalog and stays apart from it, so that a mistake in one shows against the other.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

# ports/N/counters with the extended set: 21 files (core/sysfs.c). Values are the bits of the field; all stick at the
# maximum (IBTA PortCounters).
PMA_BITS: Mapping[str, int] = {
    "symbol_error": 16,
    "link_error_recovery": 8,
    "link_downed": 8,
    "port_rcv_errors": 16,
    "port_rcv_remote_physical_errors": 16,
    "port_rcv_switch_relay_errors": 16,
    "port_xmit_discards": 16,
    "port_xmit_constraint_errors": 8,
    "port_rcv_constraint_errors": 8,
    "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4,
    "VL15_dropped": 16,
    "port_xmit_data": 64,
    "port_rcv_data": 64,
    "port_xmit_packets": 64,
    "port_rcv_packets": 64,
    "port_xmit_wait": 32,
    "unicast_xmit_packets": 64,
    "unicast_rcv_packets": 64,
    "multicast_xmit_packets": 64,
    "multicast_rcv_packets": 64,
}

# ports/N/hw_counters of mlx5 on a 6.1 kernel: 29 counters; the first one arms the driver's cache (hw/mlx5/counters.c).
HW_NAMES: tuple[str, ...] = (
    "rx_write_requests",
    "rx_read_requests",
    "rx_atomic_requests",
    "rx_dct_connect",
    "out_of_buffer",
    "out_of_sequence",
    "duplicate_request",
    "rnr_nak_retry_err",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "resp_local_length_error",
    "resp_cqe_error",
    "req_cqe_error",
    "req_remote_invalid_request",
    "req_remote_access_errors",
    "resp_remote_access_errors",
    "resp_cqe_flush_error",
    "req_cqe_flush_error",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
    "rp_cnp_ignored",
    "rp_cnp_handled",
    "np_ecn_marked_roce_packets",
    "np_cnp_sent",
    "rx_icrc_encapsulated",
)
LIFESPAN_MS = 12  # 10 ms in jiffies of a 250 Hz kernel, read back


def zero_counters() -> dict[str, int]:
    """`counters/` of a port that has just been reset."""
    return dict.fromkeys(PMA_BITS, 0)


def zero_hw_counters() -> dict[str, int]:
    """`hw_counters/` of a port whose driver has just been loaded."""
    return {**dict.fromkeys(HW_NAMES, 0), "lifespan": LIFESPAN_MS}


def used_counters(seed: int) -> dict[str, int]:
    """`counters/` of a healthy port that has carried training traffic for days.

    Some error counters are not zero: on real healthy ports they are not either (links were trained, peers rebooted).
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    words = chance.randrange(180, 250) * 10**12 + chance.randrange(10**12)
    packets = words * 4 // 2900
    received = packets + chance.randrange(10**8, 10**9)
    return {
        **zero_counters(),
        "link_downed": chance.randrange(3),
        "port_rcv_errors": chance.choice((0, 0, 14)),
        "port_rcv_switch_relay_errors": chance.choice((0, 1, 2)),
        "port_xmit_data": words,
        "port_rcv_data": words + chance.randrange(10**9),
        "port_xmit_packets": packets,
        "unicast_xmit_packets": packets,
        "port_rcv_packets": received,
        "unicast_rcv_packets": received,
        "port_xmit_wait": chance.randrange(1 << 30),
    }


def used_hw_counters(seed: int) -> dict[str, int]:
    """`hw_counters/` of such a port."""
    chance = random.Random(seed + 1)  # noqa: S311 - no secret
    return {
        **zero_hw_counters(),
        "rx_write_requests": chance.randrange(2 * 10**9, 4 * 10**9),
        "rx_read_requests": chance.randrange(10**6, 10**7),
        "rx_dct_connect": chance.randrange(10**5, 10**6),
        "roce_adp_retrans": chance.randrange(4),
    }
