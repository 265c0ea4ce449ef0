"""Replay: a fault that waits for a person stands still until then, and time goes on beside it."""

from __future__ import annotations

import msgspec
import pytest
from core_world import CONFIG, Site, node, path, start

from ibmon.messages import Person
from ibmon.recording import Frame
from ibmon.runtime.replay import play

GONE = ("class/infiniband/mlx5_0",)
TWICE = (start(), Frame(t=100, remove=GONE), Frame(t=400, files=node("mlx5_0")),
         Frame(t=2000, remove=GONE), Frame(t=2400, files=node("mlx5_0")))  # fmt: skip


def seen(site: Site, frames: tuple[Frame, ...], at: list[float]) -> dict[float, dict]:
    return {t: row for t, row in play(site, iter(frames), at, max(at)) if t in at}


@pytest.fixture
def site():
    site = Site()
    turns = 0
    due = site.engine.next_due

    def counted():
        nonlocal turns
        turns += 1
        assert turns < 300_000, f"the engine turns on the spot at t={site.time}"
        return due()

    site.engine.next_due = counted
    return site


def test_a_device_that_vanishes_twice_a_day_waits_for_a_person(site):
    got = seen(site, TWICE, [1900, 3100, 100_000])

    assert not got[1900]["drained"]
    for t in (3100, 100_000):
        assert got[t]["drained"]
        assert got[t]["ports"]["mlx5_0/1"] == "recovering"
        assert [f["rule"] for f in got[t]["findings"] if f["port"] == "mlx5_0"] == ["device-missing"]


def test_it_still_waits_after_it_vanished_a_third_time_and_a_day_has_gone_by(site):
    third = (Frame(t=90_000, remove=GONE), Frame(t=90_400, files=node("mlx5_0")))

    assert seen(site, TWICE + third, [95_000])[95_000]["drained"]


def test_a_persons_word_ends_it(site):
    site.people[4000] = Person(1, "clear", "ada")

    got = seen(site, (*TWICE, Frame(t=4000)), [3999, 4010])

    assert got[3999]["drained"]
    assert not got[4010]["drained"]
    assert got[4010]["ports"]["mlx5_0/1"] == "ok"


def test_another_card_in_the_slot_needs_no_persons_word_but_must_be_well_first():
    guid = path("mlx5_0", "", 1).replace("ports/1/", "node_guid")
    first = msgspec.structs.replace(start(), files={**node("mlx5_0", "mlx5_1"), guid: "0011:2233:4455:6600\n"})
    back = {**node("mlx5_0"), guid: "0011:2233:4455:6600\n"}
    frames = (first, Frame(t=100, remove=GONE), Frame(t=400, files=back), Frame(t=2000, remove=GONE),
              Frame(t=2400, files=back), Frame(t=5000, remove=GONE),
              Frame(t=5010, files={**node("mlx5_0"), guid: "0011:2233:4455:66ff\n"}))  # fmt: skip

    got = seen(Site(CONFIG), frames, [4999, 5500, 5700])

    assert got[4999]["drained"]
    assert got[5500]["drained"]
    assert not got[5700]["drained"]
