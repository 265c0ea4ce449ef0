"""Stores in directories of tests, each opened as a process of the daemon opens it."""

from __future__ import annotations

from ibmon.store import Message, Store

DAY = 1893456000.0  # 2030-01-01
OPENED = []


def opened(directory, *, node="n1", machine="uuid-1", wall=lambda: DAY):
    OPENED.append(Store(directory, node=node, machine=machine, wall=wall))
    return OPENED[-1]


def close_all():
    """Close what was opened."""
    while OPENED:
        OPENED.pop().close()


def again(old: Store, **more) -> Store:
    """The same directory as the next process sees it."""
    old.close()
    return opened(old.path.parent, **more)


def message(target="a", subject="s", number=1, topic="finding"):
    return Message(target, subject, topic, f"msg_{target}{subject}{number}", f"{number}".encode(), DAY)
