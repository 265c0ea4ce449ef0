"""Writes docs/counters.md from the counter catalog: ``python -m ibmon.sysfs.catalog_docs > docs/counters.md``.

Owns the layout of that page. It must say nothing that the catalog does not hold.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

from ibmon.sysfs import catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_INTRO: Final = """\
# Counters

Every kernel counter that ibmon knows, the metric that publishes it and what a rise means. A counter that is not listed
here is published all the same, by the same naming rule, with a generic help text. This page is generated from
`ibmon/sysfs/catalog.json`: change that file, then run `python -m ibmon.sysfs.catalog_docs > docs/counters.md`.

- **Bits**: width of the field where the number comes from; `varies` where driver or kernel decide (32 or 64 in most).
- **At maximum**: `sticks` means that the counter stays at its largest value and is blind until somebody resets it;
  `depends` that this differs by driver or is not known, so ibmon does not guess. bnxt_re wraps its narrow
  `counters/` files.
- **Drivers**: who has the file, with kernel versions or conditions; `(0)` means that the file exists and stays 0.
- A number in braces, as in `TxFlitVL{vl}`, stands for one file a number; the metric is shown for number 0.
- Class `throughput`, `congestion` and `config` are not faults of the fabric. A value by itself means little: only a
  rise does.
"""

_TITLES: Final[dict[catalog.Level, tuple[str, str]]] = {
    "counters": ("Port counters", "`ports/N/counters/`, the InfiniBand performance counters, and `counters_ext/`."),
    "hw": ("Port hardware counters", "`ports/N/hw_counters/`, by driver."),
    "device_hw": ("Device hardware counters", "`hw_counters/` of the device: no port label."),
    "net": ("Network interface", "Files of the port's network interface; free to read."),
    "phy": ("Ethernet port", "The closed list of `ethtool -S` statistics that ibmon takes."),
}
_HEAD: Final = (
    "| File | Metric | Unit | Bits | At maximum | Class | Drivers | Meaning |\n|---|---|---|---|---|---|---|---|\n"
)
_PLACEHOLDER: Final = re.compile(r"\{[a-z]+\}")
_STICKS: Final = {"yes": "sticks", "no": "", "depends": "depends"}


def page() -> str:
    """The whole page as Markdown, ending in a newline."""
    return "".join(_page())


def _page() -> Iterator[str]:
    yield _INTRO
    for level, (title, place) in _TITLES.items():
        listed = [entry for entry in catalog.entries() if entry.level == level]
        yield f"\n## {title}\n\n{place}\n\n"
        yield from _table(entry for entry in listed if entry.drivers != "hfi1")
        if omnipath := [entry for entry in listed if entry.drivers == "hfi1"]:
            yield "\n### Omni-Path (hfi1)\n\n"
            yield from _table(omnipath)
    yield "\n## Names of node_exporter\n\n"
    yield "With `--compat node_exporter` these are served as well, under the names of node_exporter 1.12.\n\n"
    yield "| File | Metric of ibmon | Metric of node_exporter |\n|---|---|---|\n"
    for level, name, metric in catalog.node_exporter_names():
        yield f"| `{name}` | `{catalog.metric_name(level, name)}` | `{metric}` |\n"


def _table(rows: Iterable[catalog.Entry]) -> Iterator[str]:
    yield _HEAD
    for entry in rows:
        cells = (
            f"`{entry.name}`",
            f"`{_metric(entry)}`",
            entry.unit,
            _bits(entry),
            _STICKS[entry.saturates],
            entry.health_class,
            entry.drivers.replace(";", ", "),
            entry.help,
        )
        yield f"| {' | '.join(cells)} |\n"


def _bits(entry: catalog.Entry) -> str:
    if entry.bits is None:
        return "varies" if entry.kind == "counter" else ""
    return str(entry.bits)


def _metric(entry: catalog.Entry) -> str:
    if entry.name == "*":
        return "ibmon_port_hw_<name>_total"
    return catalog.metric_name(entry.level, _PLACEHOLDER.sub("0", entry.name))


if __name__ == "__main__":
    sys.stdout.write(page())
