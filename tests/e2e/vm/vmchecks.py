"""Checks that run in a guest, as tests here: their names before the guest is started, their results after.

Owns the way from a file in checks/ to test results. One guest serves all checks of a file.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from vmguest import Share, emulated

if TYPE_CHECKING:
    from vmguest import Guest, Result

CHECKS = Path(__file__).resolve().parent / "checks"
CHECKOUT = CHECKS.parents[3]


def names(file: str) -> list[str]:
    """The checks of a file, in its order; the file is read, not run: it belongs on the guest's kernel."""
    tree = ast.parse((CHECKS / file).read_text())
    marked = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(decorator, ast.Name) and decorator.id == "check" for decorator in node.decorator_list)
    ]
    if not marked or len(marked) != len(set(marked)):
        raise ValueError(f"{file}: no check, or two of the same name: {marked}")
    return marked


class Results:
    """What the checks of one file said.

    Args:
        result: The guest's end.
    """

    def __init__(self, result: Result) -> None:
        self._result = result
        path = result.out / "results.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        self._by_name: dict[str, Any] = {entry["name"]: entry for entry in map(json.loads, lines)}

    def require(self, name: str) -> None:
        """Fails the running test if the check failed in the guest, or was never reached."""
        entry = self._by_name.get(name)
        if entry is None:
            pytest.fail(
                f"the guest did not get to {name}; end of its output:\n{self._result.output[-5000:]}", pytrace=False
            )
        print(f"{entry['seconds']} s in the guest. {entry['detail'] if entry['passed'] else ''}")
        if not entry["passed"]:
            pytest.fail(f"{entry['detail']}\n--- output of the guest:\n{self._result.output[-5000:]}", pytrace=False)


def run(guest: Guest, file: str, out: Path, *, timeout: float = 300) -> Results:
    """Runs a file's checks on the guest's own Python.

    In their environment, as paths of this machine, for `in-host` in a guest with this machine's root: IBMON, the
    command of the present virtual environment; IBMON_INTERPRETER, what it runs on; IBMON_CHECKOUT. And
    IBMON_EMULATED, 1 where limits in seconds need patience.
    """
    guest = dataclasses.replace(guest, shares=[*guest.shares, Share(CHECKS, "/checks")])
    environment = {
        "IBMON": Path(sys.executable).with_name("ibmon"),
        "IBMON_INTERPRETER": Path(sys.executable).resolve(),
        "IBMON_CHECKOUT": CHECKOUT,
        "IBMON_EMULATED": int(emulated()),
    }
    command = ["env", *(f"{name}={value}" for name, value in environment.items()), "python3", "-B", f"/checks/{file}"]
    return Results(guest.run(command, out, timeout=timeout))
