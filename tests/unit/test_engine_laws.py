"""Laws of the engine that no order of readings may break, tried with readings made by chance.

Every history is played in virtual time through the whole core: what a device may answer includes silence, errors and
nonsense.
"""

from __future__ import annotations

import re
from typing import Any

from core_world import CONFIG, DOWN, INIT, node, path, port, world
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ibmon.health.rules import RULES
from ibmon.recording import Frame, SchedulerAct
from ibmon.runtime.replay import play

OTHER = "mlx5_1"  # the device that chance leaves alone, beside mlx5_0 that it does not
HOUR = 3600.0
# Readings are half as dense as by default, so that more of them are tried in the same time.
SLOWER = (
    CONFIG
    + """
[sampling]
state_interval = "10s"
counter_interval = "10s"
slow_interval = "20s"
"""
)
# Rules that forget within the hour; those that remember for a day have cases of their own.
FORGETFUL = SLOWER + "".join(f"[rules.{rule.id}]\nenabled = false\n" for rule in RULES if rule.recover > HOUR)

WELL = port("mlx5_0")
FULL_RATE = "400 Gb/sec (4X NDR)\n"
TEXTS = (
    "4: ACTIVE\n",
    "1: DOWN\n",
    "2: INIT\n",
    "5: ACTIVE_DEFER\n",
    "0: NOP\n",
    "99: ?\n",
    "-1: X\n",
    "ACTIVE\n",
    "",
    "\0",
)
RATES = (FULL_RATE, "200 Gb/sec (2X NDR)\n", "10 Gb/sec (4X SDR)\n", "1e400 Gb/sec\n", "Gb/sec\n", "")
NUMBERS = ("0\n", "1\n", "255\n", "65535\n", "18446744073709551616\n", "N/A (no PMA)\n", "-3\n", "")
ERRORS = ("EIO", "EINVAL", "ENODEV", "ENOENT", "ETIMEDOUT", "ENOLINK", "EACCES")

_states = st.builds(lambda text: {"files": {path("mlx5_0", "state"): text}}, st.sampled_from(TEXTS))
_physical = st.builds(
    lambda text: {"files": {path("mlx5_0", "phys_state"): text}},
    st.sampled_from(("5: LinkUp\n", "2: Polling\n", "3: Disabled\n", "9: ?\n", "")),
)
_rates = st.builds(lambda text: {"files": {path("mlx5_0", "rate"): text}}, st.sampled_from(RATES))
_counters = st.builds(
    lambda name, text: {"files": {path("mlx5_0", f"counters/{name}"): text}},
    st.sampled_from(("link_downed", "symbol_error", "port_rcv_errors", "port_xmit_data")),
    st.sampled_from(NUMBERS),
)
_errors = st.builds(
    lambda name, code: {"errnos": {path("mlx5_0", name): code}},
    st.sampled_from(("state", "phys_state", "rate", "counters/link_downed")),
    st.sampled_from((*ERRORS, None)),
)
_absence = st.sampled_from(
    (
        {"remove": ("class/infiniband/mlx5_0",)},
        {"remove": (path("mlx5_0", "counters"),)},
        {"remove": (path("mlx5_0", "state"),)},
        {"files": WELL},
    )
)
_hangs = st.sampled_from(({"block": (path("mlx5_0", "state"),)}, {"block": (path("mlx5_0", "counters/link_downed"),)}))
_people = st.builds(
    lambda do: {"scheduler": SchedulerAct(do=do, reason="maintenance")},
    st.sampled_from(("drain", "resume", "hang", "down", "up")),
)
_restarts = st.sampled_from(
    (
        {"restart": True},
        {"boot_id": "another", "uptime": 30.0},
        {"wall_step": 86400.0},
        {"wall_step": -86400.0},
        {"suspend": 3600.0},
    )
)
_HEALED = {  # what puts everything right again, whatever happened before
    "remove": ("class/infiniband/mlx5_0",),
    "unblock": ("class/infiniband",),
    "scheduler": SchedulerAct(do="up"),
}


def stories(*what: st.SearchStrategy[dict[str, Any]], size: int = 12) -> st.SearchStrategy[list[Frame]]:
    """Frames after the first one, each some seconds after the one before."""
    steps = st.lists(st.tuples(st.sampled_from((1, 4, 5, 11, 30, 61, 130, 700)), st.one_of(*what)), max_size=size)

    def frames(steps: list[tuple[int, dict[str, Any]]]) -> list[Frame]:
        out, t = [Frame(t=0, files=node("mlx5_0", OTHER))], 0.0
        for wait, step in steps:
            t += wait
            out.append(Frame(t=t, **step))
        return out

    return steps.map(frames)


READINGS = (_states, _physical, _rates, _counters, _errors, _absence)
EVERYTHING = (*READINGS, _hangs, _people, _restarts)
tried = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def rows(frames: list[Frame], until: float, config: str = SLOWER) -> list[tuple[float, dict[str, Any]]]:
    return list(play(world(config), iter(frames), [until], until))


def verdicts(rows_: list[tuple[float, dict[str, Any]]], device: str) -> list[tuple[float, str]]:
    """When the health of a device's port became what."""
    out: list[tuple[float, str]] = []
    for time, row in rows_:
        health = row["ports"][f"{device}/1"]
        if not out or out[-1][1] != health:
            out.append((time, health))
    return out


@tried
@given(stories(*EVERYTHING))
def test_no_reading_and_no_event_makes_the_engine_raise(frames):
    for _, row in rows(frames, frames[-1].t + 200):
        assert set(row["ports"]) >= {"mlx5_0/1", f"{OTHER}/1"}


@tried
@given(stories(*READINGS, _hangs, _restarts))
def test_no_device_is_judged_by_what_another_one_answers(frames):
    assert {health for _, health in verdicts(rows(frames, frames[-1].t + 200), OTHER)} <= {"ok", "unknown"}
    calm = [frame for frame in frames if frame.boot_id is None and not frame.restart]
    assert verdicts(rows(calm, calm[-1].t + 200), OTHER) == [(0, "ok")]


@tried
@given(stories(_errors, _counters, _restarts))
def test_what_answers_with_errors_never_drains(frames):
    whole = [frame for frame in frames if "ENOLINK" not in frame.errnos.values()]  # by that the driver says: dead

    assert not any(row["drained"] for _, row in rows(whole, whole[-1].t + 550))


@tried
@given(stories(*EVERYTHING))
def test_a_node_whose_port_cannot_be_seen_is_neither_fit_nor_made_unfit_by_it(frames):
    for _, row in rows(frames, frames[-1].t + 200):
        if "unknown" in row["ports"].values():
            assert row["node"] in {"unknown", "unfit"}
            if row["node"] == "unfit":
                assert any(f["severity"] == "critical" for f in row["findings"])


@tried
@given(stories(*EVERYTHING))
def test_a_finding_always_has_a_way_out(frames):
    t = frames[-1].t + 100
    healed = [*frames, Frame(t=t, **_HEALED), Frame(t=t + 10, files=WELL)]
    last = rows(healed, t + 10 + HOUR, FORGETFUL)[-1][1]

    assert last["ports"]["mlx5_0/1"] == "ok"
    assert last["findings"] == []
    assert last["node"] == "fit"
    assert not last["drained"]


@tried
@given(stories(*READINGS, _restarts, _people))
def test_nobody_elses_drain_is_ever_written_over_or_lifted(frames):
    mine = [Frame(t=0, scheduler=SchedulerAct(do="drain", reason="hardware swap"))]
    quiet = [f for f in frames if f.scheduler is None or f.scheduler.do in ("hang", "down", "up")]
    it = world(SLOWER)
    for _, row in play(it, iter([quiet[0], *mine, *quiet[1:]]), [quiet[-1].t + 2000], quiet[-1].t + 2000):
        assert not row["drained"]
        assert row["calls"] == {"drain": 0, "release": 0}
    assert it.cluster.view("node0001").reason == "hardware swap"


def ticked(frames: list[Frame], seconds: int) -> list[tuple[float, dict[str, Any]]]:
    """The story with a tick in each second, whether anything is due or not: the last row of each second."""
    it = world()
    left = list(frames)
    out = []
    for second in range(seconds + 1):
        it.time = float(second)
        while left and left[0].t <= second:
            it.apply(left.pop(0))
        it.settle()
        out.append((it.time, it.row()))
    return out


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stories(*EVERYTHING, size=6))
def test_a_tick_in_each_second_and_ticks_only_when_something_is_due_see_the_same(frames):
    until = int(frames[-1].t) + 100
    seconds = [float(t) for t in range(until + 1)]
    by_event = dict(play(world(), iter(frames), seconds, until))
    for time, row in ticked(frames, until):
        assert _lasting(row) == _lasting(by_event[time]), f"at {time}"


def _lasting(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what says to the millisecond when a try was made, which may fall between two seconds.

    That are the writes so far, and the id that a drain gets after one which a person took away: of the moment at which
    that was seen.
    """
    reason = row["reason"] and re.sub(r"\[id \w+\]", "", row["reason"])
    return {key: value for key, value in row.items() if key != "calls"} | {"reason": reason}


DOWN_AND_UP = [
    Frame(t=0, files=node("mlx5_0", OTHER)),
    Frame(t=23, files=port("mlx5_0", DOWN, rate="10 Gb/sec (4X SDR)\n")),
    Frame(t=131, files=port("mlx5_0", INIT)),
    Frame(t=152, files=WELL),
    Frame(t=403, files=port("mlx5_0", DOWN)),
    Frame(t=412, files=WELL),
]


def told(frames: list[Frame]) -> list[tuple[float, dict[str, Any]]]:
    """What a node says of itself, at each change of it."""
    out: list[tuple[float, dict[str, Any]]] = []
    for time, row in rows(frames, 1300, CONFIG):
        seen = {key: row[key] for key in ("node", "ports", "findings", "alerts", "drained", "flaps")}
        if not out or out[-1][1] != seen:
            out.append((time, seen))
    return out


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(1, 1200), min_size=1, max_size=4))
def test_a_restart_at_any_time_changes_nothing_that_is_seen(at):
    restarts = [Frame(t=t, restart=True) for t in at]
    restarted, calm = told(sorted([*DOWN_AND_UP, *restarts], key=lambda frame: frame.t)), told(DOWN_AND_UP)

    assert [seen for _, seen in restarted] == [seen for _, seen in calm]
    for (time, _), (expected, _) in zip(restarted, calm, strict=True):
        assert abs(time - expected) <= 5, (
            "a daemon that starts reads at once, so it may see a change one reading earlier"
        )


def test_the_world_of_these_laws_does_drain():
    """Otherwise none of them would say anything."""
    assert any(row["drained"] for _, row in rows(DOWN_AND_UP, 1300, CONFIG))
