"""Clocks that are set and hosts that sleep: no verdict fires, clears or stalls by it.

Every story is played twice, once with the disturbance; what is seen must be the same at the same monotonic times.
"""

from __future__ import annotations

import functools
import re

import pytest
from core_world import CONFIG, DOWN, changes, comes_up, goes_down, node, path, port, rows, start, world
from prometheus_client.parser import text_string_to_metric_families

from ibmon.exporter.render import Renderer
from ibmon.exporter.text import Format
from ibmon.recording import Frame
from ibmon.runtime.replay import play

DAY = 86400.0
BRIEF = """
[sampling]
state_interval = "10s"
counter_interval = "10s"
slow_interval = "10s"
[rules.port-down]
recover = "200s"
[rules.rate-low]
recover = "200s"
[rules.device-missing]
recover = "200s"
[rules.link-flap]
window = "10m"
recover = "10m"
[rules.flap-storm]
recover = "10m"
[rules.symbol-errors]
window = "10m"
warning_per_hour = 5
critical_per_hour = 20
recover = "10m"
"""


CONFIG_OF_A_SITE = CONFIG.replace('boot_grace = "0s"', 'boot_grace = "10m"') + BRIEF


def bounce(t: float, seconds: float = 20) -> list[Frame]:
    return [goes_down(t), comes_up(t + seconds)]


def symbols(t: float, value: int) -> Frame:
    return Frame(t=t, files={path("mlx5_0", "counters/symbol_error"): f"{value}\n"})


STORIES = {
    "nothing at all": ([start()], 600),
    "a port that is down for good": ([start(), goes_down(100)], 600),
    "a port that is down for less than its alert": ([start(), goes_down(100), comes_up(120)], 600),
    "a port that is down between alert and drain": ([start(), goes_down(100), comes_up(150)], 600),
    "a drain and its recovery": ([start(), goes_down(100), comes_up(300)], 900),
    "a recovery with a blip": ([start(), goes_down(100), comes_up(300), *bounce(400)], 1100),
    "half the rate": ([start(), Frame(t=100, files=port("mlx5_0", rate="200 Gb/sec (2X NDR)\n"))], 600),
    "three flaps within the window": ([start(), *bounce(50), *bounce(250), *bounce(440)], 2000),
    "two flaps beyond the window": ([start(), *bounce(50), *bounce(700)], 2000),
    "errors that rise and stop": ([start(), *(symbols(90 * n, 9 * n) for n in range(8))], 2000),
    "a device that goes and comes": (
        [start(), Frame(t=100, remove=("class/infiniband/mlx5_0",)), Frame(t=400, files=node("mlx5_0"))],
        900,
    ),
    "a port that nobody can read": ([start(), Frame(t=100, errnos={path("mlx5_0", "state"): "EIO"})], 600),
}
DISTURBANCES = {
    "a day forward": {"wall_step": DAY},
    "a day back": {"wall_step": -DAY},
    "an hour asleep": {"suspend": 3600.0},
    "a month asleep": {"suspend": 30 * DAY},
}
MOMENTS = (106.0, 145.0, 345.0, 450.0)  # while a hold runs, between alert and drain, in a recovery, among flaps


def judged(frames: list[Frame], until: float) -> list[tuple[float, str]]:
    """Everything that is seen of a story, without the ids, which are made from the wall clock."""
    found = changes(sorted(frames, key=lambda frame: frame.t), until, CONFIG + BRIEF)
    return [(t, re.sub(r"\[id \w+\]", "[id]", repr(row))) for t, row in found]


@functools.cache
def undisturbed(story: str) -> list[tuple[float, str]]:
    return judged(*STORIES[story])


@pytest.mark.parametrize("story", STORIES)
def test_a_story_is_one(story):
    assert len(undisturbed(story)) > (story != "nothing at all")


@pytest.mark.parametrize("disturbance", DISTURBANCES)
@pytest.mark.parametrize("story", STORIES)
def test_a_clock_that_is_set_and_a_host_that_sleeps_change_no_verdict(story, disturbance):
    frames, until = STORIES[story]
    disturbed = [*frames, *(Frame(t=t, **DISTURBANCES[disturbance]) for t in MOMENTS)]

    assert judged(disturbed, until) == undisturbed(story)


@pytest.mark.parametrize("story", STORIES)
def test_a_clock_that_jumps_to_and_fro_changes_no_verdict(story):
    frames, until = STORIES[story]
    jumps = [Frame(t=60.5 + 45 * n, wall_step=DAY * (-1) ** n) for n in range(20) if 60.5 + 45 * n < until]

    assert judged([*frames, *jumps], until) == undisturbed(story)


def verdicts(row: dict) -> dict:
    """A row without the numbers that count old moments, and without the id."""
    findings = {(f["rule"], f["port"], f["severity"]) for f in row["findings"]}
    return {**row, "reason": None, "findings": findings}


def test_a_boot_with_a_clock_at_1970_changes_no_verdict():
    wall = world().now().wall
    story = [start(), *bounce(50), *bounce(250), *bounce(440), goes_down(700)]
    reboot = Frame(t=800, boot_id="b", uptime=30, files=port("mlx5_0"))
    wrong = [Frame(t=800, wall_step=-wall), reboot, Frame(t=820, wall_step=wall)]
    at = [799, 800, 810, 830, 900, 1200, 2000]
    right, set_later = (rows([*story, *end], at, CONFIG + BRIEF) for end in ([reboot], wrong))

    assert right[799]["drained"]
    assert not right[2000]["drained"]
    for t in at:
        assert verdicts(set_later[t]) == verdicts(right[t]), t


def test_old_bounces_are_not_taken_for_new_ones_while_a_booting_hosts_clock_is_wrong():
    wall = world().now().wall
    story = [start(), *bounce(50), *bounce(250), *bounce(440)]
    boot = Frame(t=2500, wall_step=-wall, boot_id="b", uptime=30)
    seen = rows([*story, boot, Frame(t=2520, wall_step=wall)], [900, 2499, 2510, 2530, 3600], CONFIG_OF_A_SITE)

    assert seen[900]["drained"]
    for t in (2499, 2510, 2530, 3600):
        assert not seen[t]["drained"], t
        assert not seen[t]["alerts"], t


def test_a_port_that_was_down_in_the_first_read_after_a_sleep_has_held_no_time():
    frames = [start(), Frame(t=100, suspend=2400, files=port("mlx5_0", DOWN)), comes_up(105)]
    seen = changes(frames, 300)

    assert not any(row["alerts"] or row["drained"] for _, row in seen)


def test_a_host_that_sleeps_again_and_again_gains_no_hold():
    frames = [start()]
    for n in range(10):
        frames += [Frame(t=100 + 60 * n, suspend=3600, files=port("mlx5_0", DOWN)), comes_up(115 + 60 * n)]
    seen = changes(frames, 800)

    assert not any(f["rule"] == "port-down" for _, row in seen for f in row["findings"])


@pytest.mark.parametrize("step", [DAY, -DAY, -400 * DAY])
def test_no_age_and_no_duration_in_the_metrics_is_negative(step):
    frames = [start(), *bounce(50), goes_down(400), Frame(t=450, wall_step=step)]
    host = world()
    for time, _ in play(host, iter(frames), [451, 500, 700], 700):
        text = Renderer(node_exporter=False).render(host.engine.snapshot(host.now()), Format.TEXT, monotonic=time)
        for family in text_string_to_metric_families(text.decode()):
            if "seconds" in family.name or family.name.endswith("age"):
                assert all(sample.value >= 0 for sample in family.samples), family.name
