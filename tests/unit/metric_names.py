"""Names of metrics in PromQL, and whether anybody publishes them."""

from __future__ import annotations

import re

from ibmon.exporter import families
from ibmon.sysfs import catalog

OTHERS = re.compile(r"(ibmon_controller|process|node_infiniband)_\w+|up")
"""What is no family of the daemon: the controller's, every client library's, node_exporter's, Prometheus's own."""


def names_of(expr: str) -> set[str]:
    """Names of metrics: words that stand before a selector, or that are ours."""
    without = re.sub(r'"[^"]*"', "", expr)
    return set(re.findall(r"\b(?:ibmon|process|node_infiniband)_\w+", without))


def known(name: str) -> bool:
    fixed = {family.name for family in (*families.SNAPSHOT_FAMILIES, *families.SELF_FAMILIES)}
    counters = {catalog.metric_name(entry.level, entry.name) for entry in catalog.entries()}
    summaries = {f"{families.TICK_DURATION.name}_{part}" for part in ("sum", "count")}
    attributes = {family.name for family in families.ATTRIBUTE_FAMILIES.values()}
    return name in fixed | counters | summaries | attributes or bool(OTHERS.fullmatch(name))
