"""Replay: what happens at one time and in which order, and what the outside world may do meanwhile."""

from __future__ import annotations

import io
import json

import pytest
from core_world import CONFIG, INIT, changes, comes_up, goes_down, node, path, port, rows, start

from ibmon.configfile import loads
from ibmon.recording import Frame, RecordingError, SchedulerAct
from ibmon.runtime import replay


def scheduler(t: float, do: str, **more: str) -> Frame:
    return Frame(t=t, scheduler=SchedulerAct(do=do, **more))


def write(tmp_path, *lines: dict) -> object:
    file = tmp_path / "recording.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def recording(tmp_path, *frames: dict) -> object:
    return write(tmp_path, {"ibmon_recording": 1}, {"t": 0, "set": node("mlx5_0", "mlx5_1")}, *frames)


def output(file, at=(), until=None, metrics_at=None, config=CONFIG) -> str:
    out = io.StringIO()
    replay.main(file, loads(config).config, at, until, metrics_at, out)
    return out.getvalue()


# ------------------------------------------------------------------------------------------------ order at one time


def test_a_frame_is_seen_by_the_read_of_the_same_second():
    assert rows([start(), goes_down(10)], [10])[10]["ports"]["mlx5_0/1"] == "failed"


def test_two_frames_of_one_time_are_both_done_before_anything_is_read():
    assert rows([start(), goes_down(10), comes_up(10)], [10])[10]["ports"]["mlx5_0/1"] == "ok"


def test_between_reads_nothing_is_seen():
    seen = rows([start(), goes_down(11)], [14.9, 15])

    assert seen[14.9]["ports"]["mlx5_0/1"] == "ok"
    assert seen[15]["ports"]["mlx5_0/1"] == "failed"


def test_a_device_that_comes_is_told_by_the_kernel_and_read_at_once():
    seen = rows([start(0, "mlx5_1"), Frame(t=7, files=node("mlx5_0"))], [6, 7])

    assert seen[6]["ports"]["mlx5_0/1"] == "failed"
    assert seen[7]["ports"]["mlx5_0/1"] == "ok"


def test_a_device_that_goes_is_seen_at_once():
    seen = rows([start(), Frame(t=7, remove=("class/infiniband/mlx5_0",))], [6, 7])

    assert (seen[6]["ports"]["mlx5_0/1"], seen[7]["ports"]["mlx5_0/1"]) == ("ok", "failed")


def test_the_drain_stands_in_the_row_of_the_second_that_asked_for_it():
    seen = rows([start(), goes_down(10)], [69, 70])

    assert not seen[69]["drained"]
    assert seen[70]["drained"]
    assert seen[70]["node"] == "unfit"


# ------------------------------------------------------------------------------------------------- what is printed


def test_a_row_comes_at_each_change_and_at_each_time_asked_for():
    times = [time for time, _ in changes([start(), goes_down(10)], 100, at=[33, 50])]

    assert times == [0, 10, 33, 40, 50, 70]  # 40: the alert, 70: critical and drained


def test_a_time_asked_for_twice_is_told_once():
    assert [time for time, _ in changes([start()], 50, at=[33, 33.0])] == [0, 33]


def test_numbers_that_only_grow_are_no_change():
    frames = [start(), *(Frame(t=t, files={path("mlx5_0", "counters/port_xmit_data"): f"{t}\n"}) for t in (5, 15, 25))]

    assert [time for time, _ in changes(frames, 100)] == [0]


def test_until_is_inclusive(tmp_path):
    file = recording(tmp_path, {"t": 10, "set": port("mlx5_0", "1: DOWN\n")})
    last = json.loads(output(file, until=70).splitlines()[-1])

    assert (last["t"], last["drained"]) == (70, True)


def test_what_lies_beyond_until_does_not_happen(tmp_path):
    file = recording(tmp_path, {"t": 10, "set": port("mlx5_0", "1: DOWN\n")})

    assert [json.loads(line)["t"] for line in output(file, at=(5, 80), until=69).splitlines()] == [0, 5, 10, 40]


def test_without_until_it_ends_with_the_last_frame_or_the_last_time_asked_for(tmp_path):
    file = recording(tmp_path, {"t": 10, "set": port("mlx5_0", "1: DOWN\n")})

    assert [json.loads(line)["t"] for line in output(file).splitlines()] == [0, 10]
    assert [json.loads(line)["t"] for line in output(file, at=[45]).splitlines()] == [0, 10, 40, 45]


def test_a_row_has_the_keys_of_the_contract(tmp_path):
    file = recording(tmp_path, {"t": 10, "set": port("mlx5_0", "1: DOWN\n")})
    row = json.loads(output(file, until=70).splitlines()[-1])

    assert row == {
        "t": 70,
        "node": "unfit",
        "ports": {"mlx5_0/1": "failed", "mlx5_1/1": "ok"},
        "findings": [
            {
                "rule": "port-down",
                "port": "mlx5_0/1",
                "severity": "critical",
                "observed": "DOWN/Polling",
                "limit": "ACTIVE",
            }
        ],
        "alerts": [{"rule": "port-down", "port": "mlx5_0/1", "severity": "critical"}],
        "drained": True,
        "reason": row["reason"],
        "flaps": {"mlx5_0/1": 1},
        "calls": {"drain": 1, "release": 0},
    }
    assert row["reason"].startswith("ibmon: port-down mlx5_0/1 DOWN/Polling 60s>60s [id ")


def test_metrics_at_prints_the_exposition_of_that_time_and_nothing_else(tmp_path):
    file = recording(tmp_path, {"t": 10, "set": port("mlx5_0", "1: DOWN\n")})
    text = output(file, metrics_at=9)

    assert text.startswith("# HELP ")
    assert 'ibmon_port_state{device="mlx5_0",port="1"} 4' in text
    assert 'ibmon_port_state{device="mlx5_0",port="1"} 1' in output(file, metrics_at=10)


def test_the_same_recording_gives_the_same_output(tmp_path):
    file = recording(tmp_path, {"t": 10, "set": port("mlx5_0", "1: DOWN\n")}, {"t": 400, "restart": True})

    assert output(file, until=2000) == output(file, until=2000)


def test_a_recording_that_cannot_be_used_is_an_error_with_its_line(tmp_path):
    with pytest.raises(RecordingError, match=":3: unknown key 'sett', perhaps 'set'"):
        output(recording(tmp_path, {"t": 1, "sett": {}}))


# ----------------------------------------------------------------------------------- restarts, reboots, clocks


def test_a_restart_changes_nothing_that_is_seen():
    story = [start(), goes_down(10)]
    seen = rows([*story, Frame(t=100, restart=True)], [70, 99, 100, 130])

    assert seen[99]["drained"]
    assert seen[99] == seen[100] == seen[130]


def test_a_restart_in_the_midst_of_a_hold_does_not_start_it_anew():
    assert rows([start(), goes_down(10), Frame(t=40, restart=True)], [69, 70])[70]["drained"]


def test_a_drain_of_before_the_reboot_is_given_back_after_it():
    frames = [start(), goes_down(10), Frame(t=300, boot_id="b", uptime=20, files=port("mlx5_0"))]
    seen = rows(frames, [299, 310, 899, 905])

    assert [seen[t]["drained"] for t in seen] == [True, True, True, False]
    assert seen[905]["calls"] == {"drain": 1, "release": 1}


def test_no_hold_runs_in_the_grace_of_a_boot():
    config = CONFIG.replace('"0s"', '"600s"')
    seen = rows([start(), goes_down(10)], [650, 660, 661], config, uptime=0)

    assert [seen[t]["drained"] for t in seen] == [False, True, True]
    assert seen[650]["ports"]["mlx5_0/1"] == "failed"


@pytest.mark.parametrize("interval", ["5s", "10s", "20s"])
def test_the_time_before_the_end_of_a_grace_counts_for_no_hold(interval):
    config = CONFIG.replace('"0s"', '"600s"') + f'[sampling]\nstate_interval = "{interval}"\n'
    seen = rows([start(), goes_down(10)], [629, 659, 660], config, uptime=0)

    assert [f["rule"] for f in seen[629]["findings"]] == []
    assert [seen[t]["drained"] for t in seen] == [False, False, True]


def test_the_holds_of_a_port_that_came_up_in_the_grace_of_a_boot_begin_ten_minutes_after_that():
    config = CONFIG.replace('"0s"', '"600s"')
    down = Frame(t=0, files={**node("mlx5_0", "mlx5_1"), path("mlx5_0", "state"): "1: DOWN\n"})
    frames = [down, comes_up(500), goes_down(700)]
    seen = rows(frames, [710, 1129, 1130, 1159, 1160], config, uptime=0)

    assert {seen[t]["ports"]["mlx5_0/1"] for t in seen} == {"failed"}
    assert [len(seen[t]["alerts"]) for t in seen] == [0, 0, 1, 1, 1]
    assert [seen[t]["drained"] for t in seen] == [False, False, False, False, True]


@pytest.mark.parametrize("other", [goes_down(700, "mlx5_1"), Frame(t=700, restart=True, files=goes_down(0).files)])
def test_no_other_port_and_no_restart_has_that_time(other):
    config = CONFIG.replace('"0s"', '"600s"')
    down = Frame(t=0, files={**node("mlx5_0", "mlx5_1"), path("mlx5_0", "state"): "1: DOWN\n"})

    assert rows([down, comes_up(500), other], [760], config, uptime=0)[760]["drained"]


@pytest.mark.parametrize("step", [7200.0, -7200.0])
def test_a_step_of_the_wall_clock_moves_no_hold_and_no_recovery(step):
    frames = [start(), goes_down(10), Frame(t=40, wall_step=step), comes_up(100), Frame(t=300, wall_step=-step)]
    seen = rows(frames, [69, 70, 699, 700])

    assert [seen[t]["drained"] for t in seen] == [False, True, True, False]


def test_a_night_asleep_is_no_time_in_which_anything_was_observed():
    frames = [start(), goes_down(10), Frame(t=40, suspend=36000)]

    seen = rows(frames, [69, 70])

    assert [seen[t]["drained"] for t in seen] == [False, True]


# ----------------------------------------------------------------------------------- the scheduler and its people


def test_a_drain_that_is_not_ours_is_neither_overwritten_nor_lifted():
    frames = [start(), scheduler(5, "drain", reason="hardware swap"), goes_down(10), comes_up(300)]
    seen = rows(frames, [200, 2000])

    for row in seen.values():
        assert not row["drained"]
        assert row["calls"] == {"drain": 0, "release": 0}
    assert seen[200]["alerts"]


def test_a_reason_that_a_person_has_edited_makes_the_drain_theirs():
    frames = [start(), goes_down(10), scheduler(200, "drain", reason="ibmon: kept for RMA"), comes_up(300)]
    seen = rows(frames, [199, 2000])

    assert seen[199]["drained"]
    assert not seen[2000]["drained"]
    assert seen[2000]["calls"]["release"] == 0


def test_an_operator_who_resumes_a_bad_node_is_respected():
    frames = [start(), goes_down(10), scheduler(200, "resume")]
    seen = rows(frames, [199, 1000, 20000])

    assert seen[199]["drained"]
    assert [seen[t]["drained"] for t in (1000, 20000)] == [False, False]
    assert seen[20000]["calls"]["drain"] == 1
    assert seen[20000]["alerts"]


def test_the_override_ends_after_its_time():
    config = CONFIG.replace('mode = "drain"', 'mode = "drain"\noverride_ttl = "1h"')
    seen = rows([start(), goes_down(10), scheduler(200, "resume")], [3600, 4200], config)

    assert [seen[t]["drained"] for t in seen] == [False, True]


def test_a_second_port_ends_the_override():
    frames = [start(), goes_down(10), scheduler(200, "resume"), goes_down(1000, "mlx5_1")]
    seen = rows(frames, [1059, 1060])

    assert [seen[t]["drained"] for t in seen] == [False, True]


def test_a_new_boot_ends_the_override():
    frames = [start(), goes_down(10), scheduler(200, "resume"), Frame(t=1000, boot_id="b", uptime=0)]
    seen = rows(frames, [999, 1000])

    assert [seen[t]["drained"] for t in seen] == [False, True]


def test_a_scheduler_that_hangs_is_asked_again_until_it_answers():
    frames = [start(), scheduler(5, "hang"), goes_down(10), scheduler(1000, "up")]
    seen = rows(frames, [200, 999, 1400])

    assert [seen[t]["drained"] for t in seen] == [False, False, True]
    assert seen[999]["node"] == "unfit"
    assert seen[999]["ports"]["mlx5_1/1"] == "ok"


def test_a_scheduler_that_is_down_when_the_port_returns_gives_the_node_back_later():
    frames = [start(), goes_down(10), comes_up(100), scheduler(300, "down"), scheduler(2000, "up")]
    seen = rows(frames, [299, 1999, 2400])

    assert [seen[t]["drained"] for t in seen] == [True, True, False]


def test_a_node_that_is_well_makes_no_call():
    assert rows([start()], [7200])[7200]["calls"] == {"drain": 0, "release": 0}


@pytest.mark.parametrize("mode", ["observe", "alert"])
def test_below_drain_mode_the_scheduler_is_never_written_to(mode):
    seen = rows([start(), goes_down(10)], [5000], CONFIG.replace('mode = "drain"', f'mode = "{mode}"'))

    assert seen[5000]["calls"] == {"drain": 0, "release": 0}
    assert seen[5000]["node"] == "unfit"
    assert bool(seen[5000]["alerts"]) is (mode == "alert")


# ----------------------------------------------------------------------------------- what cannot be read


def test_a_read_that_hangs_makes_its_device_unknown_and_no_other():
    frames = [start(), Frame(t=10, block=(path("mlx5_0", "state"),)), Frame(t=5000, unblock=(path("mlx5_0", "state"),))]
    seen = rows(frames, [9, 15, 4999, 5000])

    assert [seen[t]["ports"]["mlx5_0/1"] for t in seen] == ["ok", "unknown", "unknown", "recovering"]
    assert {seen[t]["ports"]["mlx5_1/1"] for t in seen} == {"ok"}


def test_a_restart_while_a_read_hangs_does_not_read_that_device_again():
    blocked = (path("mlx5_0", "state"),)
    frames = [start(), Frame(t=10, block=blocked), Frame(t=100, restart=True), Frame(t=200, unblock=blocked)]
    seen = rows(frames, [110, 199, 205])

    assert [seen[t]["ports"]["mlx5_0/1"] for t in seen] == ["unknown", "unknown", "ok"]
    assert {seen[t]["ports"]["mlx5_1/1"] for t in seen} == {"ok"}


@pytest.mark.parametrize("error", ["EIO", "EACCES", "EINVAL", "ETIMEDOUT"])
def test_a_state_that_cannot_be_read_never_drains_and_is_never_health(error):
    frames = [start(), Frame(t=10, errnos={path("mlx5_0", "state"): error})]
    seen = rows(frames, [60, 5000])

    for row in seen.values():
        assert row["ports"]["mlx5_0/1"] == "unknown"
        assert row["node"] == "unknown"
        assert not row["drained"]


@pytest.mark.parametrize("error", ["EIO", "EACCES", "EINVAL", "ETIMEDOUT", "EBUSY", "ECANCELED"])
def test_a_state_that_fails_six_times_in_a_row_alerts_however_rarely_it_is_asked_for(error):
    frames = [start(), Frame(t=10, errnos={path("mlx5_0", "state"): error})]
    frames += [Frame(t=1000, errnos={path("mlx5_0", "state"): None})]
    seen = rows(frames, [999, 1200])

    assert [a["rule"] for a in seen[999]["alerts"]] == ["monitor-blind"]
    assert [a["rule"] for a in seen[1200]["alerts"]] == []
    assert seen[1200]["node"] == "fit"


def test_where_the_probe_of_a_device_fails_no_port_of_it_was_read():
    config = CONFIG.replace("mlx5_[0-1]/1", "mlx5_0/[12]")
    files = {**port("mlx5_0"), **{file.replace("ports/1", "ports/2"): text for file, text in port("mlx5_0").items()}}
    errors = {path("mlx5_0", "state", n): "ETIMEDOUT" for n in (1, 2)}
    seen = rows([Frame(t=0, files=files), Frame(t=10, errnos=errors)], [999], config)

    assert [a["port"] for a in seen[999]["alerts"]] == ["mlx5_0/1", "mlx5_0/2"]


def test_a_class_that_cannot_be_listed_makes_the_node_unknown_and_no_port_missing():
    seen = rows([start(), Frame(t=10, errnos={"class/infiniband": "EIO"})], [200])

    assert not seen[200]["drained"]
    assert not any(f["rule"] == "device-missing" for f in seen[200]["findings"])


def test_ports_that_all_wait_for_a_manager_are_degraded_whichever_waited_first():
    first = Frame(t=100, files=port("mlx5_0", INIT))
    seen = rows([start(), first, Frame(t=130, files=port("mlx5_1", INIT))], [110, 150, 400])

    assert seen[110]["ports"] == {"mlx5_0/1": "failed", "mlx5_1/1": "ok"}
    for t in (150, 400):
        assert seen[t]["ports"] == {"mlx5_0/1": "degraded", "mlx5_1/1": "degraded"}
        assert seen[t]["node"] == "unknown"
    assert [f["port"] for f in seen[400]["findings"]] == [""]


def test_init_is_not_down():
    seen = rows([start(), Frame(t=10, files=port("mlx5_0", INIT))], [400])

    assert {f["rule"] for f in seen[400]["findings"]} == {"port-init"}
    assert not seen[400]["drained"]
