"""Every fault case from the field is judged as it should be."""

from __future__ import annotations

import functools

import fieldcase
import pytest
from fieldcase import Case, Expect, Seen

# Case and need of every expectation that waits for something which is not there yet. What comes takes its lines away
# from here and from the case, so that nothing stays unjudged by oversight.
LEFT_OUT: set[tuple[str, str]] = set()

NAMES = fieldcase.names()
CASES = {name: fieldcase.load(name) for name in NAMES}


@functools.cache
def seen(name: str) -> dict[float, Seen]:
    return fieldcase.watch(CASES[name])


def _each() -> list[object]:
    return [
        pytest.param(name, expect, id=f"{name}@{expect.t:g}#{i}")
        for name, case in CASES.items()
        for i, expect in enumerate(case.expect)
        if not expect.missing
    ]


@pytest.mark.parametrize(("name", "expect"), _each())
def test_the_node_is_seen_as_the_case_says(name: str, expect: Expect) -> None:
    now, later = seen(name)[expect.t], seen(name)[expect.t + CASES[name].slack]

    early, late = expect.unmet(now.row), expect.unmet(later.row)
    assert not early or not late, f"{CASES[name].title}\nat {expect.t:g}: {early}\none reading later: {late}"
    assert now.unmet(expect) == []


def test_only_what_needs_a_later_rule_is_left_out() -> None:
    left_out = {(name, rule) for name, case in CASES.items() for e in case.expect for rule in e.missing}

    assert left_out == LEFT_OUT


@pytest.mark.parametrize("name", NAMES)
def test_a_case_says_what_it_is_and_expects_something_now(name: str) -> None:
    case: Case = CASES[name]

    assert case.title
    assert case.why
    assert case.source
    assert case.basis in {"reported", "composed"}
    assert case.active
