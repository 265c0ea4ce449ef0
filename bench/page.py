"""Writes docs/performance.md: when, on what, what was promised and whether it is kept, then each figure."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

from bench.figure import Figure, fill, targets_table
from bench.programs import ROOT, node_exporter_version

PAGE = ROOT / "docs" / "performance.md"

_HEAD = """\
Measured by `make bench` (`python -m bench --write` made this page) on {date}: {machine}; Python {python};
node_exporter {node_exporter} of Debian with its infiniband collector alone. The tree is that of the simulated node,
or one of its kind with more devices, as plain files on disk. A ratio compares both programs within one run, ibmon's
number over node_exporter's: below 1 ibmon needs less. Absolute times are this machine's, ratios travel better."""


def machine() -> str:
    """This machine in words."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    kernel = ".".join(platform.release().split(".")[:2])
    virtual = ", virtual" if any("hypervisor" in line.split() for line in _lines("/proc/cpuinfo")) else ""
    return f"{os.cpu_count()} CPUs ({model}{virtual}), {memory / 2**20:.0f} GiB of memory, Linux {kernel}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def text(figures: Sequence[Figure]) -> str:
    """The whole page."""
    head = _HEAD.format(
        date=time.strftime("%Y-%m-%d"),
        machine=machine(),
        python=platform.python_version(),
        node_exporter=node_exporter_version(),
    )
    return (
        "\n\n".join(
            [
                "# Performance",
                fill(head),
                "## Targets",
                targets_table(figures).markdown(),
                *(f.markdown() for f in figures),
            ]
        )
        + "\n"
    )


def write(figures: Sequence[Figure]) -> None:
    """Replace the page."""
    PAGE.write_text(text(figures), encoding="utf-8")
