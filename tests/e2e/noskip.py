"""Pytest plugin: where CI is set, a skipped end-to-end test is a failed one.

Owns that rule only. A run that quietly tests nothing looks exactly like one that tests everything.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    expected_to_fail = hasattr(report, "wasxfail")
    if report.skipped and not expected_to_fail:
        report.outcome = "failed"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.longrepr = f"{reason}\n(CI is set: what is skipped there counts as failed)"


if os.environ.get("CI", "").lower() not in {"", "0", "false"}:

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport() -> Generator[None, Any, pytest.TestReport]:
        """A test that is skipped while it runs or is set up."""
        report: pytest.TestReport = yield
        _fail_if_skipped(report)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report() -> Generator[None, Any, pytest.CollectReport]:
        """A module that is skipped when it is collected."""
        report: pytest.CollectReport = yield
        _fail_if_skipped(report)
        return report
