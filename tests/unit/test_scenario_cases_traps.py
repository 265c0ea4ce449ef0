"""What looks like a fault and is none: the traps that false alarms in the field are made of, one test each.

A trap that has a case of its own in tests/cases is not repeated here.
"""

from __future__ import annotations

import pytest
from core_world import CONFIG, DOWN, changes, comes_up, goes_down, node, path, port, rows, start

from ibmon.health.rules import JUDGED_COUNTERS
from ibmon.recording import Frame
from ibmon.simulate.dgx import COMPUTE, MANAGEMENT, STORAGE, dgx
from ibmon.simulate.script import Script

HOUR, DAY = 3600.0, 86400.0
SLOW = '[sampling]\nstate_interval = "60s"\ncounter_interval = "60s"\nslow_interval = "60s"\n'
LEARN = '[action]\nmode = "drain"\nboot_grace = "0s"\n[inventory]\ntrust = "learned"\n' + SLOW
EIGHT = tuple(f"mlx5_{n}" for n in range(8))
ALL_EIGHT = CONFIG.replace("[0-1]", "[0-7]")


def counters(t, device="mlx5_0", **values):
    return Frame(t=t, files={path(device, name.replace("__", "/")): f"{value}\n" for name, value in values.items()})


def quiet(seen):
    """Whether nothing was found, told or done in any row, and the node was fit."""
    return not any(row["findings"] or row["alerts"] or row["drained"] or row["node"] != "fit" for _, row in seen)


# ------------------------------------------------------------------------------------------------ boots and resets


def test_errors_that_are_counted_while_links_come_up_after_a_boot_accuse_nobody():
    config = CONFIG.replace('"0s"', '"10m"') + SLOW
    first = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", symbol_error=0, port_rcv_errors=0, link_downed=0)})
    errors = {"counters__symbol_error": 60000, "counters__port_rcv_errors": 60000, "counters__link_downed": 40}
    bring_up = [counters(60 * n, **{k: v * n // 25 for k, v in errors.items()}) for n in range(1, 26)]

    assert quiet(changes([first, *bring_up], 6 * HOUR, config, uptime=20.0))


def test_counts_from_before_the_boot_are_no_bounces_of_this_one():
    first = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", link_downed=250)})
    reboot = Frame(t=600, boot_id="b", uptime=20.0, files=port("mlx5_0", link_downed=251))
    seen = changes([first, reboot], HOUR, CONFIG + SLOW)

    assert quiet(seen)
    assert seen[-1][1]["flaps"] == {}


def test_a_driver_that_is_loaded_anew_brings_no_bounces_and_no_errors():
    loaded = {"link_downed": 3, "symbol_error": 500, "port_rcv_errors": 90}
    first = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", link_downed=0, symbol_error=0, port_rcv_errors=0)})
    reload = [Frame(t=600, remove=("class/infiniband/mlx5_0",)), Frame(t=610, files=port("mlx5_0", **loaded))]

    seen = changes([first, *reload], 2 * HOUR)

    assert not any(row["findings"] or row["alerts"] for _, row in seen)
    assert seen[-1][1]["flaps"] == {}


@pytest.mark.parametrize("every", [60, 300, 900])
def test_a_tool_that_clears_counters_again_and_again_makes_no_flaps(every):
    first = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", link_downed=5, symbol_error=1000)})
    cleared = {"counters__link_downed": 0, "counters__symbol_error": 0}

    assert quiet(changes([first, *(counters(every * n, **cleared) for n in range(1, 9))], 2 * HOUR, CONFIG + SLOW))


# ------------------------------------------------------------------------------------------ errors made elsewhere


@pytest.mark.parametrize(
    "name",
    [
        "counters__port_rcv_switch_relay_errors",  # multicast that comes back
        "counters__VL15_dropped",  # sweeps of the subnet manager
        "counters__port_xmit_wait",  # congestion
        "counters__port_rcv_remote_physical_errors",  # another hop
        "counters__port_xmit_discards",
        "hw_counters__local_ack_timeout_err",  # a peer that died
        "hw_counters__packet_seq_err",
        "hw_counters__out_of_sequence",
        "hw_counters__rnr_nak_retry_err",  # a receiver that is slow
        "hw_counters__np_cnp_sent",
        "hw_counters__rp_cnp_handled",
    ],
)
def test_what_others_cause_is_no_alert_about_this_port(name):
    first = Frame(t=0, files={**node("mlx5_0", "mlx5_1"), path("mlx5_0", name.replace("__", "/")): "0\n"})
    storm = [counters(60 * n, **{name: 900 * 60 * n}) for n in range(1, 20)]
    seen = changes([first, *storm], 2 * HOUR, CONFIG + SLOW)

    assert not any(row["alerts"] or row["drained"] for _, row in seen)
    assert not {row["node"] for _, row in seen} & {"unfit", "unknown"}


def test_bits_that_the_error_correction_repaired_are_never_judged():
    assert not [name for name in JUDGED_COUNTERS if "corrected" in name or "err_lane" in name or "raw" in name]


def test_counters_of_infiniband_say_nothing_about_an_ethernet_port():
    ethernet = {path("mlx5_0", "link_layer"): "Ethernet\n"}
    zero = {"symbol_error": 0, "port_rcv_errors": 0, "local_link_integrity_errors": 0}
    first = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", **zero), **ethernet})
    names = [f"counters__{name}" for name in zero]
    rising = [counters(60 * n, **dict.fromkeys(names, min(15, n) if n < 15 else 15)) for n in range(1, 30)]
    seen = changes([first, *rising], 3 * HOUR, CONFIG + SLOW)

    assert not any(row["alerts"] or row["drained"] for _, row in seen)


# --------------------------------------------------------------------------------------- ports that are not for jobs


@pytest.mark.parametrize("name", [*STORAGE, *MANAGEMENT])
def test_a_port_that_serves_no_job_drains_no_node(name):
    script = Script(dgx())
    script.link_down(600, f"{name}/1")
    declared = LEARN + f'[[port]]\nmatch = "{STORAGE[0]}/1"\nrole = "storage"\n'
    declared += f'[[port]]\nmatch = "{STORAGE[1]}/1"\nrole = "storage"\n'
    seen = rows(list(script.frames()), [HOUR], declared)[HOUR]

    assert not seen["drained"]
    assert seen["node"] in {"fit", "watch"}


def test_each_port_is_held_against_its_own_rate():
    script = Script(dgx())
    seen = rows(list(script.frames()), [2 * HOUR], LEARN)[2 * HOUR]

    assert seen["findings"] == []
    assert {seen["ports"][f"{name}/1"] for name in (*COMPUTE, *STORAGE, *MANAGEMENT)} == {"ok"}


# -------------------------------------------------------------------------------------------------- single moments


@pytest.mark.parametrize("error", ["EIO", "EAGAIN", "ENODEV", "EINTR"])
@pytest.mark.parametrize("name", ["state", "rate", "counters/link_downed"])
def test_one_read_that_fails_is_no_event(name, error):
    broken = [Frame(t=100, errnos={path("mlx5_0", name): error}), Frame(t=106, errnos={path("mlx5_0", name): None})]
    seen = changes([start(), *broken], 600)

    assert not any(row["findings"] or row["alerts"] for _, row in seen)
    assert seen[-1][1]["flaps"] == {}


@pytest.mark.parametrize("text", ["2.5 Gb/sec (1X SDR)", "10 Gb/sec (4X SDR)", "5 Gb/sec (1X DDR)"])
def test_the_rate_of_a_port_that_is_down_is_no_second_fault(text):
    down = Frame(t=100, files=port("mlx5_0", DOWN, rate=f"{text}\n"))
    seen = changes([start(), down], 900)

    assert {f["rule"] for _, row in seen for f in row["findings"]} == {"port-down"}


@pytest.mark.parametrize(
    ("text", "layer"),
    [("10 Gb/sec (4X SDR)", "InfiniBand"), ("2.5 Gb/sec (1X SDR)", "InfiniBand"), ("40 Gb/sec (4X QDR)", "Ethernet")],
)
def test_a_rate_that_the_kernel_cannot_name_is_unknown_and_an_alert_and_no_drain(text, layer):
    shown = {path("mlx5_0", "rate"): f"{text}\n", path("mlx5_0", "link_layer"): f"{layer}\n"}
    seen = changes([Frame(t=0, files={**port("mlx5_0"), **port("mlx5_1"), **shown})], HOUR)
    last = seen[-1][1]

    assert last["ports"] == {"mlx5_0/1": "unknown", "mlx5_1/1": "ok"}
    assert last["node"] == "unknown"
    assert last["alerts"] == [{"rule": "rate-low", "port": "mlx5_0/1", "severity": "warning"}]
    assert not any(row["drained"] for _, row in seen)


def test_a_peer_that_reboots_costs_one_bounce_and_nothing_else():
    seen = changes([start(), goes_down(100), comes_up(125)], 2 * HOUR)

    assert not any(row["findings"] or row["alerts"] or row["drained"] for _, row in seen)
    assert seen[-1][1]["flaps"] == {"mlx5_0/1": 1}


def test_a_switch_that_takes_all_ports_for_a_moment_is_no_fault_of_the_node():
    frames = [start(0, *EIGHT), *(goes_down(100, n) for n in EIGHT), *(comes_up(120, n) for n in EIGHT)]
    seen = changes(frames, HOUR, ALL_EIGHT)

    assert not any(row["findings"] or row["alerts"] or row["drained"] for _, row in seen)
    assert set(seen[-1][1]["flaps"].values()) == {1}


def test_all_ports_down_at_once_are_one_drain():
    frames = [start(0, *EIGHT), *(goes_down(100, name) for name in EIGHT)]
    seen = changes(frames, HOUR, ALL_EIGHT + SLOW)

    assert seen[-1][1]["calls"] == {"drain": 1, "release": 0}
    assert len({row["reason"] for _, row in seen if row["drained"]}) == 1
