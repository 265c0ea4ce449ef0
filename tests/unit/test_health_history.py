"""What happened to counters and links: rises, resets, wraps, saturation, flaps and their age over boots and clocks."""

from __future__ import annotations

import pytest

from ibmon.health.history import CounterHistory
from ibmon.health.links import FLAP_MERGE, MAX_FLAPS, LinkWatch
from ibmon.health.windows import BUCKET_SECONDS, MAX_BUCKETS, MAX_WALL_AGE, Moment, Window
from ibmon.model import Column, Layout, Level, Now, Sample, Tier

DAY = 86400.0
WALL = 1e9
COLUMNS = (
    Column(1, Level.ATTR, "state", Tier.STATE, counts=False),
    Column(1, Level.COUNTERS, "link_downed", Tier.COUNTER, maximum=255, error=True),
    Column(1, Level.COUNTERS, "port_rcv_data", Tier.COUNTER),
    Column(1, Level.HW, "wraps", Tier.COUNTER, modulus=2**32, error=True),
    Column(1, Level.HW, "gauge", Tier.COUNTER, counts=False),
    Column(1, Level.NET, "carrier_down_count", Tier.COUNTER, error=True),
)
LAYOUT = Layout.build("mlx5_0", 1, COLUMNS)
STATE, LINK_DOWNED, DATA, WRAPS, GAUGE, CARRIER = range(6)


def sample(**values):
    known = {column.name: values.get(column.name) for column in COLUMNS}
    return Sample(LAYOUT, tuple(known.values()), {}, {}, (None,) * len(Tier))


def at(t, wall=None):
    return Now(t, WALL + t if wall is None else wall)


class Counter:
    """One counter as it was read again and again."""

    def __init__(self, name):
        self.history, self.name, self.sample = CounterHistory(LAYOUT), name, sample()
        self.index = LAYOUT.index[next(k for k in LAYOUT.index if k[2] == name)]

    def read(self, value, t=0.0):
        """The rise that one more reading brings."""
        new = sample(**{self.name: value})
        rises = self.history.take(self.sample, new, (self.index,), at(t))
        self.sample = new
        return rises.get(self.index, 0)

    def rises(self, *values):
        return [self.read(value, float(t)) for t, value in enumerate(values)]


# ------------------------------------------------------------------------------------------------------------ counters


def test_the_first_value_is_a_baseline_and_later_ones_tell_their_rise():
    assert Counter("link_downed").rises(3, 3, 4, 9) == [0, 0, 1, 5]


def test_a_decrease_is_a_reset_and_the_new_value_is_a_lower_bound_of_the_rise():
    counter = Counter("link_downed")

    assert counter.rises(120, 0, 2, 1) == [0, 0, 2, 1]
    assert counter.history.resets == {LINK_DOWNED: 2}


def test_a_field_that_wraps_is_no_reset():
    counter = Counter("wraps")

    assert counter.rises(2**32 - 3, 4) == [0, 7]
    assert counter.history.resets == {}


def test_a_value_that_is_not_known_is_neither_a_rise_nor_a_reset():
    counter = Counter("link_downed")

    assert counter.rises(5, None, 5) == [0, 0, 0]
    assert counter.history.resets == {}


def test_a_counter_at_the_top_of_its_field_is_saturated_until_it_is_cleared():
    counter = Counter("link_downed")
    seen = []
    for value in (254, 255, 255, 0):
        counter.read(value)
        seen.append(counter.history.saturated[LINK_DOWNED])

    assert seen == [False, True, True, False]


def test_a_counter_without_a_top_is_never_saturated():
    counter = Counter("port_rcv_data")
    counter.rises(2**64 - 1)

    assert counter.history.saturated == {}


def test_a_gauge_rises_and_falls_without_meaning():
    counter = Counter("gauge")

    assert counter.rises(5, 9, 1) == [0, 0, 0]
    assert counter.history.resets == {}


def test_an_error_counter_that_rose_has_moved_for_about_an_hour():
    counter = Counter("link_downed")
    counter.read(0, 0.0)
    counter.read(2, 10.0)
    counter.read(3, 1900.0)

    assert counter.history.moved(1900.0) == {LINK_DOWNED: 3}
    assert counter.history.moved(5000.0) == {LINK_DOWNED: 3}
    assert counter.history.moved(1900.0 + 3600.0) == {}


def test_traffic_is_no_counter_that_moves():
    counter = Counter("port_rcv_data")
    counter.rises(0, 10**12)

    assert counter.history.moved(10.0) == {}


# --------------------------------------------------------------------------------------------------------------- flaps


class Link:
    """A link as it was seen."""

    def __init__(self):
        self.watch, self.boot = LinkWatch(), "boot-1"

    def see(self, t, state=4, *rises, counted=True, wall=None):
        return self.watch.take(
            sample(state=state), 1, dict.fromkeys(rises, 1), at(t, wall), self.boot, may_count=counted, grace=None
        )

    def flaps(self, t, wall=None, window=DAY):
        return self.watch.count(at(t, wall), self.boot, window)


def test_a_bounce_is_told_by_the_state_or_by_a_counter():
    for sign in ({"state": 1}, {"rises": (LINK_DOWNED,)}, {"rises": (CARRIER,)}):
        link = Link()
        link.see(0)
        assert link.see(10, sign.get("state", 4), *sign.get("rises", ()))
        assert link.flaps(10) == 1


def test_signs_of_one_bounce_are_one_flap():
    link = Link()
    link.see(0)
    link.see(10, 1)
    link.see(12, 1, LINK_DOWNED)
    link.see(20, 4, CARRIER)
    link.see(30, 4, LINK_DOWNED)

    assert link.flaps(30) == 1


def test_the_next_bounce_is_the_next_flap():
    link = Link()
    link.see(0)
    for n in range(5):
        t = 100.0 + n * (FLAP_MERGE + 11)
        assert link.see(t, 1)
        link.see(t + 5, 4)

    assert link.flaps(1000) == 5


def test_a_long_outage_is_one_flap_also_when_its_counter_comes_late():
    link = Link()
    link.see(0)
    for t in range(10, 1000, 10):
        link.see(t, 1)
    link.see(1000, 4, LINK_DOWNED)

    assert link.flaps(1000) == 1


def test_a_port_that_was_down_from_the_start_has_not_bounced():
    link = Link()
    link.see(0, 1)
    link.see(100, 4)

    assert link.flaps(100) == 0


def test_a_bounce_is_seen_across_a_restart_but_not_across_a_boot():
    before = Link()
    before.see(0)
    for boot, flaps in (("boot-1", 1), ("boot-2", 0)):
        after = Link()
        after.watch.memory, after.boot = before.watch.memory, boot
        after.see(10, 1)
        assert after.flaps(10) == flaps


def test_a_port_that_stays_up_over_a_restart_is_up_since_before():
    before = Link()
    before.see(0)
    after = Link()
    after.watch.memory = before.watch.memory
    after.see(100)

    assert after.watch.active_for(at(100), "boot-1") == 100


def test_init_has_a_link_and_is_no_bounce():
    link = Link()
    link.see(0)
    link.see(10, 2)
    link.see(20, 4)

    assert link.flaps(20) == 0


def test_a_state_that_could_not_be_read_is_no_bounce():
    link = Link()
    for t, state in enumerate((4, None, 4, None, 4)):
        link.see(t * 100.0, state)

    assert link.flaps(500) == 0


def test_a_bounce_in_a_grace_is_kept_and_not_counted():
    link = Link()
    link.see(0, counted=False)
    assert link.see(10, 1, counted=False)

    assert link.flaps(10) == 0
    assert len(link.watch.memory.flaps) == 1


def test_a_flap_is_counted_for_its_window():
    link = Link()
    link.see(0)
    link.see(10, 1)

    assert [link.flaps(t, window=100) for t in (10, 110, 111)] == [1, 1, 0]


def test_the_record_of_a_link_is_bounded():
    link = Link()
    link.see(0)
    for n in range(200):
        link.see(100.0 * n + 100, 1)
        link.see(100.0 * n + 110, 4)

    assert len(link.watch.memory.flaps) == MAX_FLAPS
    assert link.flaps(20110) == MAX_FLAPS


# ----------------------------------------------------------------------------------------------------- age and windows


@pytest.mark.parametrize(
    ("now", "boot", "age"),
    [
        (Now(150, WALL + 150), "a", 50),
        (Now(150, WALL - 9e8), "a", 50),  # the wall clock was set: within a boot it does not matter
        (Now(5, WALL + 5000), "b", 4900),
        (Now(5, WALL - 1000), "b", 0),  # set back: never negative
        (Now(5, WALL + 9e8), "b", MAX_WALL_AGE),  # set to nonsense: never older than the oldest memory
    ],
)
def test_age_is_monotonic_within_a_boot_and_wall_time_beyond_it(now, boot, age):
    assert Moment(100, WALL + 100, "a").age(now, boot) == age


def test_a_window_adds_what_rose_within_it():
    window = Window()
    for t in (0, 10, 70, 500):
        window = window.add(2, at(t), "a")

    assert window.total(1000, at(500), "a")[:3] == (8, 3, 0)
    assert window.total(435, at(500), "a")[:2] == (4, 2)
    assert window.total(100, at(700), "a")[:3] == (0, 0, None)


def test_a_total_says_when_it_will_be_less():
    window = Window().add(2, at(0), "a").add(3, at(100), "a")
    total = window.total(300, at(120), "a")

    assert window.total(300, at(120 + total.expires), "a").events == 5
    assert window.total(300, at(120 + total.expires + 0.01), "a").events == 3


def test_what_is_left_out_is_not_counted():
    window = Window().add(2, at(0), "a").add(3, at(200), "a")

    assert window.total(1000, at(300), "a", [(250, 350)]).events == 3


def test_a_window_is_bounded_and_loses_no_event():
    window = Window()
    for minute in range(2 * MAX_BUCKETS):
        window = window.add(1, at(minute * BUCKET_SECONDS), "a")

    assert len(window.buckets) == MAX_BUCKETS
    assert sum(bucket.count for bucket in window.buckets) == 2 * MAX_BUCKETS


def test_a_window_lives_over_a_reboot_by_wall_time():
    window = Window().add(2, at(50000), "a")
    after = Now(10, WALL + 50100)

    assert window.total(200, after, "b").events == 2
    assert window.add(1, after, "b").total(200, after, "b").events == 3
    assert window.total(50, after, "b").events == 0


def test_what_is_trimmed_is_what_is_too_old():
    window = Window().add(2, at(0), "a").add(3, at(1000), "a")

    assert [b.count for b in window.trim(500, at(1200), "a").buckets] == [3]
    assert window.trim(5000, at(1200), "a") is window
