"""Writes docs/metrics.md from the tables of families: ``python -m ibmon.exporter.metricsdoc > docs/metrics.md``.

Owns the layout of that page. It must say nothing of a metric that the tables do not hold.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from ibmon.controller.families import CONTROLLER_FAMILIES
from ibmon.exporter import compat, families
from ibmon.exporter.text import Family

_INTRO: Final = """\
# Metrics

What `/metrics` and `ibmon metrics` say. This page is generated from the tables in `ibmon/exporter/families.py`,
`ibmon/controller/families.py` and the counter catalog: change those, then run
`python -m ibmon.exporter.metricsdoc > docs/metrics.md`.

- A series exists only while its value is known. What a file did not tell has no series: no zero, no NaN.
- Names of states are values or label values of closed sets, so nothing churns: of `ibmon_port_health`,
  `ibmon_node_fitness` and `ibmon_drain_blocked` all values exist from the first scrape, and one is 1 (of the last,
  none while nothing is blocked); of `ibmon_action_errors_total` too. `ibmon_finding`, `ibmon_port_counter_saturated`
  and `errno` exist on occurrence.
- While a read of a device hangs, its counters, states, rates and PCIe link end; age, stalled, health, findings and
  what the inventory expects stay.
- A label is empty where its value is not known. A finding about a whole device has an empty `port`.
- The label `counter` is the kernel's file name; `hw_`, `device_hw_`, `net_` or `phy_` stands in front where the file
  is not in `counters/`.
- Info metrics have the value 1 and join by `device` (and `port`):
  `ibmon_port_state * on (instance, device, port) group_left (role, rail) ibmon_port_info`
- A scraper that asks for OpenMetrics gets it; there the type of info metrics is `info`, in the text format `gauge`.
"""

_COUNTERS: Final = """
## Counters

One metric for every counter file that the kernel offers, known to ibmon or not; [counters.md](counters.md) lists the
known ones. The name is the file's without a leading `port_`, in lower case, with `_` for everything outside
`[A-Za-z0-9_]`. Where two files of one device come to the same name, the first in byte order of its path is published
and the other counts in `ibmon_read_errors_total{errno="EEXIST"}`.

| Source | Metric | Labels |
|---|---|---|
| `ports/N/counters/`, `ports/N/counters_ext/` | `ibmon_port_<name>_total` | device, port |
| `ports/N/counters/port_xmit_data`, `port_rcv_data`, times four | `ibmon_port_xmit_data_bytes_total`, \
`ibmon_port_rcv_data_bytes_total` | device, port |
| `ports/N/hw_counters/` | `ibmon_port_hw_<name>_total` | device, port |
| `hw_counters/` of the device | `ibmon_device_hw_<name>_total` | device |
| carrier counters of the port's network interface | `ibmon_port_net_<name>_total` | device, port |
| a closed list of `ethtool -S` statistics | `ibmon_port_phy_<name>_total` | device, port |

Gauges (counters.md names them) have no `_total`; `lifespan`, in milliseconds, is `..._lifespan_seconds`. Adapters
without `port_xmit_data` that count bytes in `hw_counters/tx_bytes` and `rx_bytes` feed the two data metrics from there.
"""

_SELF: Final = """
## ibmon itself

Rendered at most every 5 s. Beside these the process's own, as client libraries name them: `process_cpu_seconds_total`,
`process_resident_memory_bytes`, `process_virtual_memory_bytes`, `process_start_time_seconds`, `process_open_fds`,
`process_max_fds`.

"""

_CONTROLLER: Final = """
## The fleet controller

What `/metrics` of `ibmon controller` says, beside its process. All values of `fitness`, `state`, `outcome`, `code` and
`decision` exist from the first scrape; `pool` and the labels of `ibmon_controller_fabric_event` on occurrence. Until
the scheduler was seen once its age is left out, and the oldest drain while none is held.

"""

_COMPAT: Final = """
## Names of node_exporter

With `compat = ["node_exporter"]` in `[exporter]`, or `--compat node_exporter`, these names of node_exporter 1.12 are
served too. Values are ours, and differ where ours is right: `node_infiniband_lifespan_seconds` is not always 0, data
does not wrap at 2^64 bytes, and rates are exact. One device or file that cannot be read takes no other series along.

| node_exporter | ibmon |
|---|---|
"""

_HEAD: Final = "| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n"
_SECTIONS: Final = (
    ("Node", ("ibmon_up", "ibmon_build_", "ibmon_node_", "ibmon_config_", "ibmon_devices_")),
    ("Devices", ("ibmon_device_", "ibmon_read_", "ibmon_sample_", "ibmon_pcie_", "ibmon_module_")),
    ("Ports", ("ibmon_port_", "ibmon_flap_")),
    ("Findings and drain", ("ibmon_finding", "ibmon_rule_", "ibmon_drain_", "ibmon_maintenance", "ibmon_action")),
)


def page() -> str:
    """The whole page as Markdown, ending in a newline."""
    return "".join(_page())


def _page() -> Iterator[str]:
    yield _INTRO
    for title, prefixes in _SECTIONS:
        yield f"\n## {title}\n\n{_HEAD}"
        yield from _rows(f for f in families.SNAPSHOT_FAMILIES if f.name.startswith(prefixes))
    yield _COUNTERS
    yield _SELF + _HEAD
    yield from _rows(families.SELF_FAMILIES)
    yield _CONTROLLER + _HEAD
    yield from _rows(CONTROLLER_FAMILIES)
    yield _COMPAT
    yield f"| `{compat.INFO.name}` | `{families.DEVICE_INFO.name}` |\n"
    yield from (f"| `{theirs}` | `{ours}` |\n" for theirs, ours in compat.names())


def _rows(table: Iterable[Family]) -> Iterator[str]:
    for family in table:
        labels = ", ".join(family.labels)
        yield f"| `{family.name}` | {family.kind.value} | {labels} | {family.help} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
