"""What cannot be seen ends nothing: no finding, and no word that speaks for several ports."""

import pytest
from core_world import CONFIG, INIT, changes, path, port, rows, start

from ibmon.recording import Frame

HOUR = 3600
STATE = path("mlx5_0", "state")
BLIND = [
    Frame(t=400, errnos={STATE: "EIO"}),
    Frame(t=400, block=("class/infiniband/mlx5_0",)),
    Frame(t=400, remove=("class/infiniband/mlx5_0",)),
]
WAYS = pytest.mark.parametrize("blind", BLIND, ids=["unreadable", "hangs", "absent"])


def found(row):
    return {(f["rule"], f["port"]) for f in row["findings"]}


@WAYS
def test_a_driver_that_said_dead_is_not_well_because_the_device_says_nothing_any_more(blind):
    dead = Frame(t=100, errnos={STATE: "ENOLINK"})
    told = rows([start(), dead, blind], [300, 4 * HOUR])

    assert ("driver-fault", "mlx5_0") in found(told[300])
    assert ("driver-fault", "mlx5_0") in found(told[4 * HOUR])


def test_a_driver_fault_ends_when_the_device_answers_again():
    frames = [start(), Frame(t=100, errnos={STATE: "ENOLINK"}), Frame(t=400, errnos={STATE: None})]

    assert ("driver-fault", "mlx5_0") not in found(rows(frames, [401 + HOUR])[401 + HOUR])


def test_a_device_that_hung_and_is_gone_has_not_answered():
    hangs = Frame(t=100, block=("class/infiniband/mlx5_0",))
    told = rows([start(), hangs, Frame(t=900, remove=("class/infiniband/mlx5_0",))], [800, 4 * HOUR])

    assert ("device-stalled", "mlx5_0") in found(told[800])
    assert ("device-stalled", "mlx5_0") in found(told[4 * HOUR])


@WAYS
def test_ports_that_wait_for_a_subnet_manager_go_on_waiting_when_one_of_them_is_not_seen(blind):
    waiting = Frame(t=100, files={**port("mlx5_0", INIT), **port("mlx5_1", INIT)})
    told = changes([start(), waiting, blind], 2000)

    late = [row for t, row in told if t > 200]
    assert all(("port-init", "") in found(row) for row in late)
    assert not any(("port-init", "mlx5_1/1") in found(row) for row in late)
    assert all(row["ports"]["mlx5_1/1"] == "degraded" for row in late)


def test_the_wait_for_a_subnet_manager_is_over_when_a_port_that_is_seen_is_active():
    waiting = Frame(t=100, files={**port("mlx5_0", INIT), **port("mlx5_1", INIT)})
    told = rows([start(), waiting, BLIND[0], Frame(t=600, files=port("mlx5_1"))], [700])

    assert ("port-init", "") not in found(told[700])


def test_a_module_that_hovers_below_its_limit_has_not_cooled():
    pci = "devices/pci0000:00/0000:1a:00.0"
    hwmon, config = f"{pci}/hwmon/hwmon0", CONFIG.replace("mlx5_[0-1]", "mlx5_0")
    files = {p.replace("class/infiniband", f"{pci}/infiniband"): t for p, t in port("mlx5_0").items()}
    files |= {f"{hwmon}/name": "mlx5\n", f"{hwmon}/temp1_label": "module0\n", f"{hwmon}/temp1_input": "50000\n"}
    links = {
        "class/infiniband/mlx5_0": f"../../{pci}/infiniband/mlx5_0",
        f"{pci}/infiniband/mlx5_0/device": "../../../0000:1a:00.0",
    }

    def degrees(t, value):
        return Frame(t=t, files={f"{hwmon}/temp1_input": f"{value}000\n"})

    hot = [Frame(t=0, files=files, links=links), degrees(100, 70)]
    for value, ends in ((66, False), (65, True)):
        told = rows([*hot, degrees(1000, 69), degrees(2000, value)], [1900, 5000], config)
        assert ("module-temperature", "mlx5_0") in found(told[1900])
        assert (told[5000]["findings"] == []) is ends
