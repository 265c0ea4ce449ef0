"""Which kernel log lines are evidence, of what, and for how long."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibmon.health import kernel_log
from ibmon.model import Now

LOGS = Path(__file__).resolve().parents[1] / "data" / "kmsg"
NOW = Now(10_000.0, 1_800_000_000.0)


def lines(name):
    text = (LOGS / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def later(seconds):
    return Now(NOW.monotonic + seconds, NOW.wall + seconds)


def gather(*events):
    """Evidence after lines of (seconds from NOW, kind), as they were read."""
    found = ()
    for seconds, kind in events:
        found = kernel_log.add(found, kind, later(seconds), "boot")
    return found


@pytest.mark.parametrize("line", lines("evidence.log"))
def test_a_line_that_names_a_function_and_its_trouble_is_evidence(line):
    address, kind, text = line.split(" ", 2)
    found = kernel_log.match(text)
    assert found is not None
    assert (found[0], found[1].kind) == (address, kind)


@pytest.mark.parametrize("line", lines("no-evidence.log"))
def test_a_line_without_a_function_or_without_a_fault_is_none(line):
    assert kernel_log.match(line) is None


def test_every_pattern_is_held_by_a_line():
    held = {kernel_log.match(line)[1] for line in lines("evidence.log")}
    untold = {pattern.text for pattern in kernel_log.PATTERNS if pattern not in held}
    assert not untold


def test_the_address_is_told_as_sysfs_writes_it():
    found = kernel_log.match("mlx5_core 0000:5C:00.0: health recovery failed")
    assert found is not None
    assert found[0] == "0000:5c:00.0"


@given(st.text())
def test_no_text_raises(text):
    assert kernel_log.match(text) is None or "mlx" in text


@given(st.text(), st.sampled_from([p.text for p in kernel_log.PATTERNS]), st.text())
def test_whatever_stands_around_a_pattern_raises_nothing(before, pattern, after):
    found = kernel_log.match(f"mlx5_core 0000:03:00.0: {before}{pattern}{after}")
    assert found is None or found[0] == "0000:03:00.0"


# ------------------------------------------------------------------------------------------------------------ evidence


def test_the_many_lines_of_one_trouble_are_one_piece_of_evidence():
    burst = [(second / 10, "timeout") for second in range(31)]
    assert kernel_log.kinds(gather(*burst), later(4), "boot") == ("timeout",)


def test_trouble_that_returns_after_a_minute_counts_again():
    found = gather((0, "timeout"), (61, "timeout"), (122, "timeout"))
    assert kernel_log.kinds(found, later(122), "boot") == ("timeout",) * 3


def test_kinds_are_counted_apart():
    assert kernel_log.kinds(gather((0, "timeout"), (0, "health")), NOW, "boot") == ("timeout", "health")


def test_evidence_ends_an_hour_after_its_line():
    found = gather((0, "unrecoverable"))
    assert kernel_log.kinds(found, later(kernel_log.WINDOW), "boot") == ("unrecoverable",)
    assert kernel_log.kinds(found, later(kernel_log.WINDOW + 1), "boot") == ()


def test_a_new_boot_starts_clean():
    assert kernel_log.kinds(gather((0, "unrecoverable")), later(1), "another boot") == ()


def test_a_line_counts_from_when_it_was_written_and_not_from_when_it_was_read():
    found = kernel_log.add((), "timeout", NOW, "boot", age=3000.0)
    assert kernel_log.kinds(found, later(500), "boot") == ("timeout",)
    assert kernel_log.kinds(found, later(700), "boot") == ()


def test_a_line_older_than_the_window_is_none():
    assert kernel_log.add((), "unrecoverable", NOW, "boot", age=kernel_log.WINDOW + 1) == ()


def test_reading_the_log_again_adds_nothing():
    written = [(0.0, "health"), (5.0, "timeout"), (400.0, "timeout"), (500.0, "unrecoverable")]
    first = gather(*written)
    again = first
    for at, kind in written:
        again = kernel_log.add(again, kind, later(900), "boot", age=900 - at)
    assert again == first


def test_evidence_is_bounded_and_the_newest_stays():
    found = gather(*((61.0 * n, "timeout") for n in range(40)))
    assert len(found) == kernel_log.MAX_LINES
    assert found[-1].at.monotonic == NOW.monotonic + 61.0 * 39


@given(
    st.lists(
        st.tuples(
            st.floats(0, 8000),
            st.sampled_from(["timeout", "health", "unrecoverable", "power"]),
            st.floats(0, 8000),
        )
    )
)
def test_evidence_is_always_sorted_bounded_and_no_older_than_the_window(events):
    found, at = (), 0.0
    for step, kind, age in events:
        at += step
        found = kernel_log.add(found, kind, later(at), "boot", age=age)
        ages = [line.at.age(later(at), "boot") for line in found]
        assert ages == sorted(ages, reverse=True)
        assert len(found) <= kernel_log.MAX_LINES
        assert max(ages, default=-math.inf) <= kernel_log.WINDOW + 1e-6
