"""Windows and recoveries as long as a site writes them, and limits that fall on whole numbers."""

import pytest
from core_world import CONFIG, changes, port, rows, start

from ibmon.recording import Frame

DAY = 86_400
SLOW = f'{CONFIG}[sampling]\nstate_interval = "60s"\ncounter_interval = "60s"\nslow_interval = "60s"\n'


def rises(counter, *steps):
    """A port whose counter shows each value from its time on."""
    first = Frame(t=0, files={**start().files, **port("mlx5_0", **{counter: 0})})
    return [first, *(Frame(t=t, files=port("mlx5_0", **{counter: value})) for t, value in steps)]


def ended(told, rule):
    return [t for t, row in told if not any(f["rule"] == rule for f in row["findings"])][-1]


def test_a_finding_recovers_for_as_long_as_is_written():
    told = changes(
        rises("local_link_integrity_errors", (590, 2)), 3 * DAY, f'{SLOW}[rules.link-integrity]\nrecover = "48h"\n'
    )

    assert ended(told, "link-integrity") == 600 + 2 * DAY


@pytest.mark.parametrize(
    ("rule", "counter", "settings"),
    [
        ("link-flap", "link_downed", "warning = 2\n"),
        ("receive-errors", "port_rcv_errors", "warning_per_hour = 0.04\n"),
    ],
)
def test_what_rises_days_apart_is_counted_in_a_window_of_a_week(rule, counter, settings):
    config = f'{SLOW}[rules.{rule}]\nwindow = "7d"\nrecover = "7d"\n{settings}'
    frames = rises(counter, (1000, 4), (1000 + 2 * DAY, 8))

    assert rows(frames, [1100 + 2 * DAY], config)[1100 + 2 * DAY]["findings"] != []


def test_many_minutes_with_errors_are_counted_within_the_window_alone():
    config = f'{SLOW}[rules.receive-errors]\nwindow = "6h"\nwarning_per_hour = 90\ncritical_per_hour = 100\n'
    frames = rises("port_rcv_errors", *((60 * n - 1, n) for n in range(1, 2400)))

    assert not any(row["findings"] for _, row in changes(frames, 2 * DAY, config))


def test_a_ratio_gives_whole_numbers_as_limits():
    frames = rises("symbol_error", *((540 + 60 * n - 1, 48 * n) for n in range(1, 6)))
    [finding] = rows(frames, [900])[900]["findings"]

    assert (finding["observed"], finding["limit"]) == (240, 240)


@pytest.mark.parametrize("restart", [[], [Frame(t=100_000.5, restart=True)]])
def test_a_counter_that_was_reset_from_its_maximum_is_quiet_from_then_on(restart):
    steps = ((590, 5), (700, 15), (100_000, 0))
    told = changes([*rises("local_link_integrity_errors", *steps), *restart], 3 * DAY, SLOW)
    open_until = [t for t, row in told if any(f["rule"] == "link-integrity" for f in row["findings"])][-1]

    assert ended(told, "link-integrity") == pytest.approx(100_020 + DAY, abs=60)
    assert open_until > 100_000
