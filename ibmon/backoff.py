"""Waiting times between retries: exponential with jitter. Pure; the caller does the waiting.

One class for every outbound call (schedulers, webhooks), so that a fleet never retries in step.
"""

from __future__ import annotations

import random


class Backoff:
    """Delays that double from `base` to `cap` seconds, each shortened by a random part of at most `jitter`.

    Jitter only shortens, so `cap` is never exceeded; a seed makes the row of delays repeatable.
    """

    def __init__(self, base: float, cap: float, *, seed: int | str | None = None, jitter: float = 0.5) -> None:
        if not 0 < base <= cap or not 0 <= jitter < 1:
            raise ValueError(f"backoff needs 0 < base <= cap and 0 <= jitter < 1, not {base}, {cap}, {jitter}")
        self._base = base
        self._cap = cap
        self._jitter = jitter
        self._random = random.Random(seed)  # noqa: S311 (spreads load, guards nothing)
        self.failures = 0

    def next(self) -> float:
        """Count one more failure and return the seconds to wait before the next try."""
        # 2**63 would do as well; the bound only keeps the power a small number.
        delay = min(self._cap, self._base * 2.0 ** min(self.failures, 63))
        self.failures += 1
        return delay * (1 - self._jitter * self._random.random())

    def reset(self) -> None:
        """Start from `base` again after a success."""
        self.failures = 0
