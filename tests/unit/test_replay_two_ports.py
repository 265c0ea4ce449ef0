"""Adapters with two ports: one of them speaks for the device, and what is open about it has a way out whoever does."""

import pytest
from core_world import ACTIVE, CONFIG, DOWN, changes, node, port, rows

from ibmon.recording import Frame

ADDRESS = "devices/pci0000:00/0000:1a:00.0"
CLASS = "class/infiniband/mlx5_0"
LEARNED = '[action]\nmode = "drain"\nboot_grace = "0s"\n[inventory]\ntrust = "learned"\n'


def two_ports(*states):
    """An adapter with a PCI address and as many ports as states."""
    files, links = {}, {CLASS: f"../../{ADDRESS}/infiniband/mlx5_0"}
    for number, state in enumerate(states, start=1):
        for path, text in port("mlx5_0", state).items():
            files[path.replace(CLASS, f"{ADDRESS}/infiniband/mlx5_0").replace("/1/", f"/{number}/")] = text
    links[f"{ADDRESS}/infiniband/mlx5_0/device"] = "../../../0000:1a:00.0"
    links["bus/pci/devices/0000:1a:00.0"] = f"../../../{ADDRESS}"
    links[f"{ADDRESS}/driver"] = "../../../bus/pci/drivers/mlx5_core"
    for end in ("current", "max"):
        files |= {f"{ADDRESS}/{end}_link_speed": "32.0 GT/s PCIe\n", f"{ADDRESS}/{end}_link_width": "16\n"}
    return files, links


def frames(*states):
    files, links = two_ports(*states)
    return Frame(t=0, dirs=("bus/pci/drivers/mlx5_core",), files={**files, **node("mlx5_1")}, links=links)


def width(t, lanes):
    return Frame(t=t, files={f"{ADDRESS}/current_link_width": f"{lanes}\n"})


def test_a_finding_about_a_device_goes_with_the_port_that_speaks_for_it_from_now_on():
    up = {path: text for path, text in two_ports(ACTIVE)[0].items() if "/ports/" in path}
    story = [frames(DOWN, ACTIVE), width(100, 8), Frame(t=1000, files=up), width(2000, 16)]
    told = changes(story, 4000, LEARNED)
    findings = [(t, [f["rule"] for f in row["findings"]]) for t, row in told]

    assert max(len(rules) for _, rules in findings) == 1
    assert findings[-1] == (2340, [])


@pytest.mark.parametrize(
    ("first", "second", "drained"),
    [
        ("compute", "storage", True),
        ("storage", "compute", True),
        ("management", "compute", True),
        ("storage", "storage", False),
    ],
)
def test_a_lost_device_has_lost_its_compute_port_whichever_that_is(first, second, drained):
    config = CONFIG.replace(
        '[[port]]\nmatch = "mlx5_[0-1]/1"\n',
        f'[[port]]\nmatch = "mlx5_0/1"\nrole = "{first}"\n[[port]]\nmatch = "mlx5_0/2"\nrole = "{second}"\n'
        '[[port]]\nmatch = "mlx5_1/1"\n',
    )
    gone = Frame(t=100, remove=(CLASS, ADDRESS, "bus/pci/devices/0000:1a:00.0"))
    seen = rows([frames(ACTIVE, ACTIVE), gone], [300], config)[300]

    assert [(f["rule"], f["severity"]) for f in seen["findings"]] == [("device-missing", "critical")]
    assert seen["drained"] is drained


def test_a_port_that_alone_is_lost_stays_so_over_a_restart():
    second = {path.replace("/1/", "/2/"): text for path, text in port("mlx5_0").items()}
    both = Frame(t=0, files={**node("mlx5_0", "mlx5_1"), **second})
    story = [both, Frame(t=100, remove=(f"{CLASS}/ports/2",)), Frame(t=300, restart=True)]
    told = rows(story, [250, 320], LEARNED)

    assert told[250]["findings"] == told[320]["findings"] != []
    assert told[320]["ports"]["mlx5_0/1"] == "ok"


def test_what_was_open_about_a_port_ends_when_its_device_is_given_to_a_virtual_machine():
    files = {p: t for p, t in two_ports(DOWN)[0].items() if "/ports/" in p}
    given = Frame(
        t=300,
        remove=(CLASS, f"{ADDRESS}/infiniband", f"{ADDRESS}/driver"),
        dirs=("bus/pci/drivers/vfio-pci",),
        links={f"{ADDRESS}/driver": "../../../bus/pci/drivers/vfio-pci"},
    )
    told = rows([frames(ACTIVE), Frame(t=100, files=files), given], [200, 900, 910], LEARNED)

    assert [told[t]["drained"] for t in (200, 900, 910)] == [True, True, False]
    assert told[910]["ports"]["mlx5_0/1"] == "ignored"
    assert told[910]["findings"] == []
