"""For every test: signals and time as they are on a busy machine, and asserts that show their values."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# How long one example takes says nothing here: the machine has other work. `timeout` bounds each test.
settings.register_profile("ibmon", deadline=None)
settings.load_profile("ibmon")

# Not named like tests, and full of them.
pytest.register_assert_rewrite("kube_contract", "kube_controller_contract")


def pytest_configure() -> None:
    """Where the tests run in the background of a shell, SIGINT is ignored, and so it would be in what they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
