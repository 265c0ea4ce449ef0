"""Reading one small fact of a tree, or nothing: no error of a single file leaves this page.

Only for discovery; values that are sampled keep their errno and are read by `ibmon.sysfs.reader`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import TypeVar

from ibmon.ports import Tree
from ibmon.sysfs import parse

CLASS = "class/infiniband"

_T = TypeVar("_T")


def attribute(tree: Tree, path: str, meaning: Callable[[bytes], _T | None]) -> _T | None:
    """What a file says, or None where it is absent, unreadable, empty or says something else."""
    try:
        return meaning(tree.read(path))
    except (OSError, parse.ParseError):
        return None


def names(tree: Tree, path: str) -> tuple[str, ...]:
    """Names in a directory in byte order, without hidden ones; empty where it is absent or unreadable."""
    try:
        return tuple(sorted(name for name in tree.listdir(path) if not name.startswith(".")))
    except OSError:
        return ()


def resolved(tree: Tree, path: str) -> str | None:
    """Where a path really lies, or None where it leads nowhere."""
    try:
        return tree.realpath(path)
    except OSError:
        return None


def target_name(tree: Tree, path: str) -> str | None:
    """The last part of a link's target (a driver's name), dangling or not; None where there is no link."""
    try:
        return posixpath.basename(tree.readlink(path).rstrip("/")) or None
    except OSError:
        return None
