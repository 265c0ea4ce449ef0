"""What reading costs the adapter: firmware commands by column, by pass and by minute.

Arithmetic on a layout, from the code paths of Linux 6.12 (drivers/infiniband/hw/mlx5 main.c, mad.c, counters.c). It
reads nothing; the sampling plan is held to a limit with it, by tests and by the benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ibmon.config import SamplingConfig
from ibmon.model import Column, Device, Level, Tier
from ibmon.sysfs.columns import HW_FIRST

LIMIT_PER_MINUTE: Final = 150
"""Commands per minute and InfiniBand port that the default intervals stay within."""

_QUERY_INFINIBAND: Final = 5  # vport context, PTYS, PMTU twice, PVLC: main.c:mlx5_query_hca_port
_QUERY_ETHERNET: Final = 2  # PTYS, NIC vport context: main.c:mlx5_query_port_roce
_COUNTER: Final = 1  # vport counter or PPCNT: mad.c:process_pma_cmd
_HW_SET: Final = 3  # Q counters, PPCNT, congestion statistics: counters.c:mlx5_ib_get_hw_stats
_FREE: Final = {"lifespan"}
_TABLES: Final = {"gid0": 0, "pkey0": 1}  # a cache, and core/sysfs.c:show_port_pkey
_MODULE: Final = 1  # MTMP: mlx5/core/hwmon.c


def commands(device: Device, indexes: Iterable[int]) -> int:
    """Firmware commands that mlx5 needs for one pass over these columns in this order.

    A set of hw_counters costs once when its first file arms the kernel's cache (since 5.16 only index 0 does), else
    once for every file. Ethtool statistics are not in it: they are read on Ethernet alone, and tens of registers there.
    """
    link_layers = {port.id.port: port.link_layer for port in device.ports}
    asked: set[tuple[int, str]] = set()
    armed: set[tuple[int, Level]] = set()
    total = 0
    for index in indexes:
        column = device.layout.columns[index]
        if column.level is Level.ATTR and column.name in _TABLES:
            total += _TABLES[column.name]
        elif column.level is Level.ATTR:
            file = (column.port, "rate" if column.name == "width" else column.name)
            if file not in asked:
                asked.add(file)
                total += _QUERY_ETHERNET if link_layers.get(column.port) == "Ethernet" else _QUERY_INFINIBAND
        elif column.level in {Level.COUNTERS, Level.COUNTERS_EXT}:
            total += _COUNTER
        elif column.level in {Level.HW, Level.DEVICE_HW}:
            total += _hw(column, armed)
        elif column.level is Level.HWMON:
            total += _MODULE
    return total


def per_minute(device: Device, sampling: SamplingConfig) -> float:
    """Firmware commands per minute that the tiers of a device cost at these intervals, all its ports together."""
    intervals = (sampling.state_interval, sampling.counter_interval, sampling.slow_interval)
    return sum(
        commands(device, device.layout.tiers[tier]) * 60 / interval
        for tier, interval in zip(Tier, intervals, strict=True)
    )


def _hw(column: Column, armed: set[tuple[int, Level]]) -> int:
    key = (column.port, column.level)
    if column.name in _FREE or key in armed:
        return 0
    if column.name in HW_FIRST:
        armed.add(key)
    return _HW_SET
