"""How often a scheduler is asked: seconds between calls, spread so that nodes do not stay in step. Pure."""

from __future__ import annotations

import hashlib

RECHECK_SECONDS = 300.0
"""A node with a drain wanted or owned looks at the scheduler this often, give or take half."""

RETRY_FIRST, RETRY_CAP = 10.0, 300.0

JITTER = 30.0
"""Seconds over which the first calls of nodes that become unfit together are spread at most, in direct mode."""


def spread(key: str, share: float = 0.5) -> float:
    """A factor of 1 ± share that differs from node to node and from try to try, but is the same in a replay.

    Of a hash that mixes: the factors of a checksum cancel out over a few tries, and then all nodes ask at once.
    """
    chance = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest(), "big") / 0xFFFFFFFF
    return 1.0 + share * (2.0 * chance - 1.0)


def jitter(hold: float) -> float:
    """Seconds over which nodes are spread for a fault with this hold: at most half of it again."""
    return min(JITTER, hold / 2)


def retry(key: str, tries: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return min(RETRY_CAP, RETRY_FIRST * 2.0 ** min(tries - 1, 63)) * spread(f"{key}{tries}", 0.2)
