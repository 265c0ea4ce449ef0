"""Waiting for what another thread does, in the exporter's tests."""

from __future__ import annotations

import time

PATIENCE = 10.0  # seconds; nothing here takes a tenth of it


def until(condition):
    """Returns once the condition holds; fails after PATIENCE."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)
