"""A daemon that sees less than the host has: no sysfs, devices lent to a pod, no counters, no /dev."""

from __future__ import annotations

import pytest
from core_world import world

from ibmon.recording import Frame
from ibmon.runtime.replay import play
from ibmon.simulate.dgx import dgx
from ibmon.simulate.script import Script
from ibmon.simulate.tree import Pci, Port, Tree, device

HOUR = 3600.0
CONFIG = """
[sampling]
state_interval = "60s"
counter_interval = "60s"
slow_interval = "60s"
[action]
mode = "drain"
boot_grace = "0s"
[inventory]
mode = "declared"
[[port]]
match = "mlx5_[0-7]/1"
"""


def seen(frames, at, config=CONFIG):
    """The rows at these times."""
    return {t: row for t, row in play(world(config), iter(list(frames)), at, max(at)) if t in at}


def scripted(*acts):
    """Frames of a whole node to which something happens."""
    script = Script(dgx())
    for act in acts:
        act(script)
    return script.frames()


def rules(row):
    return {(f["rule"], f["severity"]) for f in row["findings"]}


def test_a_root_without_a_class_directory_is_an_alert_and_never_a_drain():
    row = seen([Frame(t=0, dirs=("proc",))], [12 * HOUR])[12 * HOUR]

    assert row["node"] == "unknown"
    assert {alert["rule"] for alert in row["alerts"]} == {"monitor-blind"}
    assert not row["drained"]
    assert row["calls"] == {"drain": 0, "release": 0}


def test_a_root_whose_class_directory_comes_later_is_judged_from_then_on():
    tree = dgx().frame(1200)
    rows = seen([Frame(t=0, dirs=("proc",)), tree], [1199, 1300, 3 * HOUR])

    assert [rows[t]["node"] for t in (1199, 3 * HOUR)] == ["unknown", "fit"]
    assert set(rows[1300]["ports"].values()) <= {"ok", "ignored"}
    assert not rows[3 * HOUR]["alerts"]


def test_a_class_directory_without_infiniband_is_a_node_without_rdma():
    config = CONFIG.partition("[inventory]")[0]
    row = seen([Frame(t=0, dirs=("class/net", "bus/pci/devices"))], [2 * HOUR], config)[2 * HOUR]

    assert (row["node"], row["findings"], row["alerts"]) == ("fit", [], [])


def test_a_device_that_is_lent_to_a_pod_is_no_lost_card():
    lent = scripted(
        lambda s: s.vanish(600, "mlx5_3", how="class"),
        lambda s: s.come_back(600 + 2 * HOUR, "mlx5_3"),
    )
    rows = seen(lent, [599, 1500, 2 * HOUR, 3 * HOUR])

    assert not any(row["drained"] or row["calls"]["drain"] for row in rows.values())
    assert rows[2 * HOUR]["node"] != "unfit"
    assert not any(severity == "critical" for row in rows.values() for _, severity in rules(row))
    assert rows[3 * HOUR]["node"] == "fit"
    assert rows[3 * HOUR]["findings"] == []


@pytest.mark.parametrize("how", ["bus", "driver"])
def test_a_card_that_is_gone_from_the_bus_or_has_lost_its_driver_is_lost(how):
    row = seen(scripted(lambda s: s.vanish(600, "mlx5_3", how=how)), [1500])[1500]

    assert ("device-missing", "critical") in rules(row)
    assert row["drained"]
    assert row["reason"].startswith("ibmon: device-missing mlx5_3")


def bare(**port) -> Tree:
    """Two devices as a container shows them: no network interfaces, no character devices."""
    tree = Tree(dirs=("class/infiniband",))
    for number in range(8):
        place = Pci(address=f"0000:{number + 1}8:00.0", above=f"pci0000:{number + 1}7/0000:{number + 1}7:01.0")
        tree |= device(f"mlx5_{number}", ports=(Port(**port),), pci=place)
    return tree


@pytest.mark.parametrize("kind", [{"counters": None}, {"hw_counters": None}, {"counters": None, "hw_counters": None}])
def test_devices_without_counters_are_judged_by_their_state(kind):
    tree = bare(**kind)
    down = {
        f"{tree.port_path('mlx5_3/1')}/{name}": text for name, text in (("state", "1: DOWN\n"), ("phys_state", "2\n"))
    }
    rows = seen([tree.frame(), Frame(t=600, files=down)], [599, 900])

    assert rows[599]["node"] == "fit"
    assert set(rows[599]["ports"].values()) == {"ok"}
    assert rows[900]["ports"]["mlx5_3/1"] == "failed"
    assert rows[900]["drained"]


def test_without_character_devices_and_interfaces_nothing_is_missing():
    tree = bare()
    kept = {path: text for path, text in tree.files.items() if "infiniband_verbs" not in path}
    links = {path: to for path, to in tree.links.items() if "infiniband_verbs" not in path}
    row = seen([Tree(kept, links, tree.dirs).frame()], [2 * HOUR])[2 * HOUR]

    assert (row["node"], row["findings"]) == ("fit", [])
