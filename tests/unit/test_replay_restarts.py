"""Replay: what a restart must not lose between the old process and the new one."""

from __future__ import annotations

from core_world import CONFIG, comes_up, goes_down, rows, start

from ibmon.recording import Frame


def test_an_alert_whose_finding_ends_with_the_restart_is_withdrawn():
    frames = [start(), goes_down(10), comes_up(100), Frame(t=700, restart=True)]
    seen = rows(frames, [699, 700])

    assert seen[699]["alerts"]
    assert seen[700]["findings"] == []
    assert seen[700]["alerts"] == []


def test_a_port_that_is_declared_by_its_old_name_stays_the_one_in_its_slot():
    card = "devices/pci0000:50/0000:5e:00.0/infiniband"

    def named(name: str) -> dict[str, dict[str, str]]:
        files = {
            f"{card}/{name}/ports/1/{f}": t for f, t in (("state", "4: ACTIVE\n"), ("rate", "400 Gb/sec (4X NDR)\n"))
        }
        links = {f"class/infiniband/{name}": f"../../{card}/{name}", f"{card}/{name}/device": "../../../0000:5e:00.0"}
        return {"files": files, "links": links}

    gone = ("class/infiniband", "devices")
    config = CONFIG.replace("mlx5_[0-1]/1", "mlx5_0/1")
    seen = rows([Frame(t=0, **named("mlx5_0")), Frame(t=100, remove=gone, **named("ibp94s0"))], [1000], config)

    assert seen[1000]["ports"] == {"ibp94s0/1": "ok"}
    assert seen[1000]["node"] == "fit"
