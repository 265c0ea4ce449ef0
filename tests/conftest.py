"""For every test: signals as a terminal's programs have them."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Where the tests run in the background of a shell, SIGINT is ignored, and so it would be in what they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
