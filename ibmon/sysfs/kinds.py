"""What kind of RDMA function a device is, and which character device it has.

Reads static facts only. What follows from the kind (who is judged) is decided in `ibmon.health`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from ibmon.model import Column, Function, Level
from ibmon.ports import Tree
from ibmon.sysfs import parse
from ibmon.sysfs.attributes import CLASS, attribute, names, resolved
from ibmon.sysfs.pci import Location, is_virtual

_CLASS_VERBS = "class/infiniband_verbs"
_REPRESENTOR_PREFIX = "vport_"  # hw/mlx5/counters.c: names of the counters of a representor's port


def uverbs(tree: Tree, device: str) -> str | None:
    """Name of the device's verbs character device (`uverbs0`), or None.

    The directory beside the device holds one or few; only where there is none, all of the class are asked.
    """
    for directory in (f"{CLASS}/{device}/device/infiniband_verbs", _CLASS_VERBS):
        for name in names(tree, directory):
            if attribute(tree, f"{directory}/{name}/ibdev", parse.text) == device:
                return name
    return None


def function(
    tree: Tree, device: str, location: Location | None, *, columns: Sequence[Column], ports: int, chardev: str | None
) -> Function:
    """The kind of a device; `PF` where a PCI function is there and nothing says otherwise."""
    if device.startswith("mlx5_bond_"):  # hw/mlx5/main.c: name of the device that stands for both ports of a LAG
        return Function.BOND
    if "physfn" in names(tree, f"{CLASS}/{device}/device"):
        return Function.VF  # also where the link dangles, or the rest of the PCI tree is not to be seen
    if location is None:
        return Function.VIRTUAL
    if ".sf." in posixpath.basename(resolved(tree, f"{CLASS}/{device}/device") or ""):
        return Function.SF
    if is_virtual(tree, location):
        return Function.VF
    if _is_representor(columns, ports):
        return Function.REPRESENTOR
    if chardev is None and _sibling_has_chardev(tree, device):
        return Function.SMI
    return Function.PF


def _is_representor(columns: Sequence[Column], ports: int) -> bool:
    """Whether every port counts a switchdev vport; a PF that has such ports beside its own is none."""
    marked = {c.port for c in columns if c.level is Level.HW and c.name.startswith(_REPRESENTOR_PREFIX)}
    return bool(marked) and len(marked) == ports


def _sibling_has_chardev(tree: Tree, device: str) -> bool:
    """Whether another device of the same PCI function has a character device while this one has none.

    So it is with the SMI child of a multiplane port (core/uverbs_main.c:ib_uverbs_add_one passes it over). Without
    that sibling a missing character device says nothing of the kind: its module may not be loaded.
    """
    function_directory = f"{CLASS}/{device}/device"
    siblings = set(names(tree, f"{function_directory}/infiniband")) - {device}
    verbs = f"{function_directory}/infiniband_verbs"
    return any(attribute(tree, f"{verbs}/{name}/ibdev", parse.text) in siblings for name in names(tree, verbs))
