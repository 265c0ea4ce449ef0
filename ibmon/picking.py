"""Picking items out of a sequence by position, as fast as the interpreter can. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

Picker: TypeAlias = Callable[[Sequence[Any]], tuple[Any, ...]]
"""Gives some items of a sequence, always the same positions in the same order."""


def picker(positions: Iterable[int]) -> Picker:
    """What picks these positions: one call for all of them, and a tuple however many they are."""
    wanted = tuple(positions)
    if len(wanted) > 1:
        return itemgetter(*wanted)
    if not wanted:
        return lambda _: ()
    [only] = wanted
    return lambda items: (items[only],)
