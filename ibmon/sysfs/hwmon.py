"""The temperature sensors that the driver shows of a device: those of the modules in its cages.

Finds the files and reads none of them: each reading is a firmware command (mlx5/core/hwmon.c, MTMP).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ibmon.ports import Tree
from ibmon.sysfs import parse
from ibmon.sysfs.attributes import CLASS, attribute, names

DRIVER: Final = "mlx5"
"""What the file `name` of an mlx5 sensor chip says."""

MAX_SENSORS: Final = 16
"""Sensors of one device beyond which the rest is left out; a card has one to four cages."""

_LABEL: Final = re.compile(r"temp(\d{1,4})_label")
_MODULE: Final = re.compile(r"module\d{1,4}")


def modules(tree: Tree, device: str) -> Mapping[str, str]:
    """By label (``module0``), where in the tree the temperature of each module lies, in byte order of the labels."""
    found: dict[str, str] = {}
    chips = f"{CLASS}/{device}/device/hwmon"
    for chip in names(tree, chips):
        directory = f"{chips}/{chip}"
        if attribute(tree, f"{directory}/name", parse.text) != DRIVER:
            continue
        for file in names(tree, directory):
            if (match := _LABEL.fullmatch(file)) is None:
                continue
            label = attribute(tree, f"{directory}/{file}", parse.text) or ""
            if _MODULE.fullmatch(label):
                found.setdefault(label, f"{directory}/temp{match[1]}_input")
    return {label: found[label] for label in sorted(found)[:MAX_SENSORS]}
