"""Waiting for what another thread does, in the exporter's tests."""

from __future__ import annotations

import time

PATIENCE = 20.0  # seconds; no test waits so long unless it fails


def until(condition):
    """Returns once the condition holds; fails after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)
