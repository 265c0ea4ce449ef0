"""Runs checks inside the guest: every function marked `@check`, in the order of the file, one JSON line each.

Owns the report in /out/results.jsonl. Standard library only: it runs on the guest's Python as well as on the
checkout's.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path("/out/results.jsonl")
EMULATED = os.environ.get("IBMON_EMULATED") == "1"
_checks: list[Callable[[], Any]] = []


class CannotGoOnError(Exception):
    """Raised by a check that the others rest on: they are not run, instead of each waiting for what cannot come."""


def check(function: Callable[[], Any]) -> Callable[[], Any]:
    """Marks a check: it fails by raising, and what it returns is printed with its result."""
    _checks.append(function)
    return function


def run_checks() -> None:
    """Runs all; one that fails does not keep the next from running, unless it says so."""
    with RESULTS.open("w") as report:
        for function in _checks:
            start = time.monotonic()
            result = {"name": function.__name__, "passed": True, "detail": ""}
            last = False
            try:
                result["detail"] = str(function() or "")
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this check's failure
                result.update(passed=False, detail=traceback.format_exc())
                last = isinstance(error, CannotGoOnError)
            result["seconds"] = round(time.monotonic() - start, 2)
            print(("passed" if result["passed"] else "FAILED"), result["name"], result["seconds"], result["detail"])
            sys.stdout.flush()
            report.write(json.dumps(result) + "\n")
            report.flush()
            if last:
                return


def limit(seconds: float, *, emulated: float) -> float:
    """The promised limit on a real processor, and a looser one where each instruction costs ten."""
    return emulated if EMULATED else seconds


def eventually(condition: Callable[[], Any], *, within: float, what: str | Callable[[], str]) -> float:
    """The seconds until the condition held.

    Raises:
        AssertionError: it did not hold within the time; the text says what was awaited.
    """
    start = time.monotonic()
    while True:
        holds = condition()
        passed = time.monotonic() - start
        if holds and passed <= within:
            return passed
        if passed > within:
            text = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {within} s, but {'after' if holds else 'not in'} {passed:.1f} s: {text}")
        time.sleep(0.05)
