"""The detection table says what the programs say, ibmon accuses no fit node, and the others' rules are as published."""

from __future__ import annotations

import functools
import math
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench import detection
from bench.detection import PAGE, Seen, accusations, benign_row, duration, fault_row
from bench.peers import gpud, nvsentinel
from bench.peers.view import Poll, PortView, View, polls
from bench.scenes import BENIGN, ELSEWHERE, FAULTS, T0, renamed
from ibmon.recording import Frame, Header
from ibmon.simulate.dgx import dgx

LONG = 7200.0
SHORT_FAULTS = [scene for scene in FAULTS if scene.end < LONG]
everyone = functools.lru_cache(maxsize=None)(detection.everyone)


def named(scenes, word):
    return next(scene for scene in scenes if word in scene.name)


def written(scene):
    """The cells of a scene in the page, without the number of its remark."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {scene.name}")]
    (cells,) = ([cell.strip() for cell in line.strip("| ").split("|")] for line in lines)
    return tuple(cells[1:])


@pytest.mark.parametrize("scene", BENIGN, ids=lambda s: s.name)
def test_a_fit_node_is_never_called_unfit(scene):
    assert everyone(scene)[0].spans == ()


def test_a_port_without_a_link_for_two_minutes_takes_the_node_away_and_gives_it_back():
    ((begin, end),) = everyone(named(ELSEWHERE, "leaf"))[0].spans

    assert 60 < begin < 70
    assert 120 + 600 <= end < 120 + 610


@pytest.mark.parametrize("scene", SHORT_FAULTS, ids=lambda s: s.name)
def test_the_page_says_of_a_fault_what_is_so(scene):
    assert written(scene) == fault_row(None, scene, everyone(scene))[1:], "python -m bench detection --write"


@pytest.mark.parametrize("scene", [*ELSEWHERE, *BENIGN], ids=lambda s: s.name)
def test_the_page_says_of_a_trifle_what_is_so(scene):
    assert written(scene) == benign_row(None, scene, everyone(scene))[1:], "python -m bench detection --write"


@pytest.mark.parametrize("scene", [s for s in FAULTS if s.end >= LONG], ids=lambda s: s.name)
def test_the_page_tells_of_the_long_recordings_too(scene):
    assert written(scene)[0] != "never"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "never"), (0.5, "1 s"), (62.5, "63 s"), (119.9, "120 s"), (262.5, "4 min"), (7500, "2.1 h")],
)
def test_a_duration_is_in_the_unit_that_people_would_take(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("spans", "text"),
    [
        ((), "0"),
        (((3.0, 33.0),), "1, 30 s"),
        (((0, 60.0), (100, 160.0)), "2, 2 min"),
        (((0, 9.0), (10, None)), "2, stays"),
    ],
)
def test_accusations_are_counted_with_their_time(spans, text):
    assert accusations(Seen(None, None, spans)) == text


def test_renamed_cards_keep_their_slots_and_everything_that_is_in_them():
    old, new = dgx(), renamed(dgx(), 4)

    assert new.devices["mlx5_7"].pci == old.devices["mlx5_3"].pci
    assert new.files[f"{new.port_path('mlx5_7/1')}/lid"] == old.files[f"{old.port_path('mlx5_3/1')}/lid"]
    assert new.links["class/infiniband/mlx5_7"].endswith("infiniband/mlx5_7")
    assert len(new.files) == len(old.files)


# ---------------------------------------------------------------------------------------------------- what others poll


def test_polls_do_not_come_back_while_a_read_hangs_and_follow_the_clocks():
    files = {"class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n"}
    frames = [
        Frame(t=0, files=files),
        Frame(t=15, block=("class/infiniband/mlx5_0",)),
        Frame(t=35, unblock=("class/infiniband/mlx5_0",), suspend=3600.0),
        Frame(t=45, boot_id="b", uptime=0.0),
    ]
    found = list(polls(frames, Header(boot_id="a", wall=1000.0), 10, 50))

    assert [p.monotonic for p in found] == [0, 10, 40, 50]
    assert [p.wall for p in found] == [1000, 1010, 4640, 4650]
    assert [p.boot_id for p in found] == ["a", "a", "a", "b"]
    assert [p.new for p in found] == [True, False, True, False]
    assert found[0].view.unreadable == ("mlx5_0/1",)  # it has no rate


def port(name="mlx5_0", state=4, phys=5, rate=400.0, layer="InfiniBand", **counters):
    return PortView(name, "1", layer, state, phys, rate, counters)


def fleet(*odd):
    """Eight good ports, some of them replaced."""
    ports = {f"mlx5_{n}": port(f"mlx5_{n}", link_downed=0) for n in range(8)}
    return (*(ports | {p.device: p for p in odd}).values(),)


def view(*ports, devices=None, virtual=()):
    return View(tuple(p.device for p in ports) if devices is None else devices, ports, virtual=frozenset(virtual))


def verdicts(program, interval, *views, boots=None):
    """(noted, bad) for a view a poll; None: the poll does not happen."""
    out = []
    for number, seen in enumerate(views):
        if seen is not None:
            t, boot = number * interval, boots[number] if boots else "boot"
            out.append(tuple(program(Poll(t, 1e9 + t, boot, seen, new=number == 0 or seen is not views[number - 1]))))
    return out


GOOD, EVENT, BAD = (False, False), (True, False), (True, True)


def of_gpud(*views):
    return [bad for _, bad in verdicts(gpud.Gpud(), gpud.INTERVAL, *views)]


def test_gpud_counts_ports_that_are_up_at_the_rate():
    for odd in (port("mlx5_3", state=1, phys=2, rate=10.0), port("mlx5_3", rate=200.0)):
        assert of_gpud(view(*fleet()), view(*fleet(odd)), view(*fleet())) == [False, True, False]


def test_gpud_sees_a_drop_after_four_minutes_and_distrusts_for_ten_more():
    good, init = view(*fleet()), view(*fleet(port("mlx5_3", state=2, link_downed=0)))
    found = of_gpud(good, *[init] * 9, *[good] * 21)

    assert found.index(True) == 1 + 240 / 30
    assert len(found) - 1 - found[::-1].index(True) == 9 + 600 / 30 - 1


def test_gpud_sees_no_drop_while_link_downed_moves():
    views = [view(*fleet(port("mlx5_3", state=2, link_downed=n // 4))) for n in range(40)]

    assert not any(of_gpud(*views))


def test_three_downs_of_two_looks_are_a_flap_to_gpud_that_stays():
    good, down = view(*fleet()), view(*fleet(port("mlx5_3", state=1, link_downed=0)))
    thrice, singles = [good, down, down] * 3, [good, down] * 3

    assert of_gpud(*thrice, *[good] * 100)[-1] is True
    assert of_gpud(*singles, *[good] * 100)[-1] is False


def test_gpud_takes_no_data_for_health_and_a_failed_scan_for_a_fault():
    others = view(*(port(f"ibp{n}s0", state=1) for n in range(8)))
    broken = View(("mlx5_0",), fleet(), unreadable=("mlx5_0/1",))

    assert of_gpud(view(devices=()), others, broken) == [False, False, True]


def of_nvsentinel(*views, boots=None):
    return verdicts(nvsentinel.NvSentinel(), nvsentinel.INTERVAL, *views, boots=boots)


def test_to_nvsentinel_a_port_that_goes_down_is_fatal_and_one_in_init_an_event():
    good = view(*fleet())
    down, init = view(*fleet(port("mlx5_3", state=1, phys=2))), view(*fleet(port("mlx5_3", state=2)))

    assert of_nvsentinel(good, down, init, good) == [GOOD, BAD, EVENT, GOOD]


@pytest.mark.parametrize(
    ("ports", "found"),
    [
        (fleet(port("mlx5_3", state=1, phys=2)), BAD),
        ([port("mlx5_0", state=1)], GOOD),
        ([port("mlx5_0"), port("mlx5_1", state=1)], GOOD),
        ([port(f"mlx5_{n}", state=1) for n in range(8)], GOOD),
    ],
    ids=["fewer than its peers", "a single card", "a tie", "all of them"],
)
def test_down_at_nvsentinels_first_look_is_fatal_only_beside_better_peers(ports, found):
    assert of_nvsentinel(view(*ports), view(*ports)) == [found, found]


def test_nvsentinel_misses_a_device_after_three_complete_listings():
    good, gone, blind = view(*fleet()), view(*fleet()[:7]), View(None)

    assert of_nvsentinel(good, gone, blind, gone, gone, good) == [GOOD, GOOD, GOOD, GOOD, BAD, GOOD]


def test_a_breach_stays_with_nvsentinel_until_a_reset_or_a_reboot():
    views = [view(port(link_downed=n)) for n in (3, 4, 4, 0)]

    assert of_nvsentinel(*views) == [GOOD, BAD, BAD, GOOD]
    assert of_nvsentinel(*views[:3], boots="aab") == [GOOD, BAD, GOOD]


def test_nvsentinel_leaves_virtual_functions_and_management_out():
    def odd(state, downed):
        ports = (port("mlx5_8", state=state, link_downed=downed), port("mlx5_9", state=state, layer="Ethernet"))
        return view(*fleet(*ports), virtual=["mlx5_8"])

    assert of_nvsentinel(odd(4, 0), odd(1, 1)) == [GOOD, GOOD]


@pytest.mark.parametrize(("per_hour", "found"), [(120, GOOD), (121, BAD)])
def test_nvsentinel_judges_symbol_errors_when_the_hour_is_over(per_hour, found):
    before, after = view(port(symbol_error=0)), view(port(symbol_error=per_hour))
    said = of_nvsentinel(before, *[None] * 99, *[before] * 3400, *[after] * 101)

    # The rise of one second is an event of its own.
    assert said[-2][1] is False
    assert said[-1][1] is found[1]


def test_a_fault_begins_when_the_page_says_that_it_does():
    assert (math.ceil(T0 / 5) * 5 - T0, math.ceil(T0 / 30) * 30 - T0, math.ceil(T0) - T0) == (2.5, 22.5, 0.5)
