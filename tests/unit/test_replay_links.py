"""A link's history: which outages count, and which errors belong to a link that comes up."""

import pytest
from core_world import CONFIG, changes, comes_up, goes_down, path, port, rows, start

from ibmon.recording import Frame


def found(row):
    return {(f["rule"], f["severity"]) for f in row["findings"]}


@pytest.mark.parametrize("seconds", [40, 100, 600, 3600])
def test_an_outage_counts_however_long_it_was(seconds):
    frames = [start()]
    for begin in (100, 10_100, 20_100):
        frames += [goes_down(begin), comes_up(begin + seconds)]
    told = rows(frames, [9_000, 19_000, 25_000])

    assert [[s for r, s in found(told[t]) if r == "long-outage"] for t in (9_000, 19_000, 25_000)] == [
        [],
        ["warning"],
        ["critical"],
    ]


def test_a_fall_while_the_port_recovers_is_no_outage_of_its_own():
    frames = [start(), goes_down(100), comes_up(300), goes_down(400), comes_up(500), goes_down(600), comes_up(700)]

    assert not any(r == "long-outage" for _, row in changes(frames, 5000) for r, _ in found(row))


def test_errors_of_a_link_that_comes_up_after_a_long_outage_are_none_of_a_bad_link():
    def errors(t, count):
        return Frame(t=t, files=port("mlx5_0", symbol_error=count, link_downed=1))

    begin = Frame(t=0, files={**start().files, **port("mlx5_0", symbol_error=0, link_downed=0)})
    frames = [begin, goes_down(100), comes_up(1000), errors(1001, 8), errors(1030, 16), errors(1090, 30)]

    assert not any(r == "symbol-errors" for _, row in changes(frames, 12_000) for r, _ in found(row))


def test_errors_around_a_bounce_that_no_rule_counts_are_none_of_a_bad_link_either():
    def counters(t, errors, bounces):
        return Frame(t=t, files=port("mlx5_0", symbol_error=errors, link_downed=bounces))

    begin = Frame(t=0, files={**start().files, **port("mlx5_0", symbol_error=0, link_downed=0)})
    rise = [counters(10_461, 10, 1), counters(10_490, 10, 2), counters(10_521, 20, 2), counters(10_581, 30, 2)]
    frames = [begin, goes_down(10_000), comes_up(10_200), *rise]

    assert not any(r == "symbol-errors" for _, row in changes(frames, 20_000) for r, _ in found(row))


def test_a_storm_is_counted_up_to_the_highest_limit_that_can_be_written():
    config = f'{CONFIG}[rules.port-down]\nhold = "1h"\n[rules.flap-storm]\nwarning = 60\ncritical = 64\n'
    frames = [start()]
    for n in range(40):
        frames += [goes_down(1001 + 10 * n), comes_up(1006 + 10 * n)]

    assert ("flap-storm", "critical") in found(rows(frames, [1500], config)[1500])


@pytest.mark.parametrize("first", [[], [Frame(t=50, remove=("class/infiniband/mlx5_0",)), start(61)]])
def test_a_bounce_that_only_its_counter_tells_is_found_when_the_counter_is_read_again(first):
    counter = path("mlx5_0", "counters/link_downed")
    frames = [
        start(),
        *first,
        Frame(t=100, errnos={counter: "EIO"}),
        Frame(t=200, files={counter: "1\n"}),
        Frame(t=300, errnos={counter: None}),
    ]

    assert rows(frames, [2000])[2000]["flaps"] == {"mlx5_0/1": 1}
