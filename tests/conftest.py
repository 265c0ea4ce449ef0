"""For every test: signals as a terminal's programs have them, and asserts that show their values."""

from __future__ import annotations

import signal

import pytest

# Not named like tests, and full of them.
pytest.register_assert_rewrite("kube_contract", "kube_controller_contract")


def pytest_configure() -> None:
    """Where the tests run in the background of a shell, SIGINT is ignored, and so it would be in what they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
