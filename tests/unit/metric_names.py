"""Names of metrics in PromQL, and whether anybody publishes them."""

from __future__ import annotations

import re

from ibmon.controller.families import CONTROLLER_FAMILIES
from ibmon.exporter import families
from ibmon.sysfs import catalog

OTHERS = re.compile(r"(process|node_infiniband)_\w+|up")
"""What is no family of ours: every client library's, node_exporter's, Prometheus's own."""


def names_of(expr: str) -> set[str]:
    """Names of metrics: words that stand before a selector, or that are ours."""
    without = re.sub(r'"[^"]*"', "", expr)
    return set(re.findall(r"\b(?:ibmon|process|node_infiniband)_\w+", without))


def known(name: str) -> bool:
    fixed = {family.name for family in (*families.SNAPSHOT_FAMILIES, *families.SELF_FAMILIES, *CONTROLLER_FAMILIES)}
    counters = {catalog.metric_name(entry.level, entry.name) for entry in catalog.entries()}
    parts = {f"{families.TICK_DURATION.name}_sum", f"{families.TICK_DURATION.name}_count"}
    parts |= {f"{family.name}_bucket" for family in CONTROLLER_FAMILIES}
    attributes = {family.name for family in families.ATTRIBUTE_FAMILIES.values()}
    return name in fixed | counters | parts | attributes or bool(OTHERS.fullmatch(name))
