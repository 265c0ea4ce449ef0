"""Replay: a port that its device does not have, though the device is there."""

from __future__ import annotations

import pytest
from core_world import CONFIG, node, port, rows, start

from ibmon.recording import Frame

TWO_PORTS = CONFIG.replace("mlx5_[0-1]/1", "mlx5_0/[12]")
SECOND = {file.replace("ports/1", "ports/2"): text for file, text in port("mlx5_0").items()}
GONE = Frame(t=105, remove=("class/infiniband/mlx5_0/ports/2",))


@pytest.mark.parametrize(
    "frames", [[Frame(t=0, files=node("mlx5_0"))], [Frame(t=0, files=node("mlx5_0") | SECOND), GONE]]
)
def test_it_is_missing_and_its_device_is_not(frames):
    seen = rows(frames, [112, 400], TWO_PORTS)

    assert seen[112]["ports"] == {"mlx5_0/1": "ok", "mlx5_0/2": "failed"}
    assert [(f["rule"], f["port"]) for f in seen[400]["findings"]] == [("device-missing", "mlx5_0/2")]
    assert seen[400]["drained"]


def test_a_file_that_is_not_there_any_more_is_looked_for_at_once():
    seen = rows([start(), Frame(t=101, remove=("class/infiniband/mlx5_0/ports",))], [112, 400])

    assert seen[112]["ports"]["mlx5_0/1"] == "failed"
    assert [f["port"] for f in seen[400]["findings"]] == ["mlx5_0"]


def test_where_the_driver_still_has_the_function_it_is_not_known_what_became_of_the_port():
    top = "devices/pci0000:00/0000:3b:00.0"
    files = {f"{top}/infiniband/{f.removeprefix('class/infiniband/')}": t for f, t in node("mlx5_0").items()}
    links = {"class/infiniband/mlx5_0": f"../../{top}/infiniband/mlx5_0", f"{top}/infiniband/mlx5_0/device": "../.."}
    links |= {f"{top}/driver": "../../../bus/pci/drivers/mlx5_core"}
    whole = Frame(t=0, files=files, links=links, dirs=("bus/pci/drivers/mlx5_core",))
    config = CONFIG.replace("mlx5_[0-1]/1", "mlx5_0/1")
    seen = rows([whole, Frame(t=101, remove=(f"{top}/infiniband/mlx5_0/ports",))], [2000], config)

    assert not seen[2000]["drained"]
    assert seen[2000]["ports"]["mlx5_0/1"] == "unknown"
    assert seen[2000]["node"] == "unknown"
