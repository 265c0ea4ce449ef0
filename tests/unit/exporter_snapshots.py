"""Small snapshots for the exporter's tests, every part of which a test may replace."""

from __future__ import annotations

import msgspec

from ibmon.model import (
    BlockCode,
    Column,
    Device,
    Finding,
    Intent,
    Layout,
    Level,
    Mode,
    NodeFitness,
    Now,
    Ownership,
    Pci,
    Port,
    PortHealth,
    PortId,
    Role,
    Sample,
    Severity,
    Tier,
)
from ibmon.snapshot import DeviceView, DrainView, PortView, Snapshot

AT = Now(1000.0, 1_700_000_000.0)
READ = Now(998.5, 1_699_999_998.5)
NDR = 50_000_000_000  # bytes per second


def device_view(name, values, *, ports=(1,), stalled=False, sampled=READ, saturated=(), resets=(), errors=(), **facts):
    """A device with `values` by (port, level, file name); the columns stand in that order."""
    columns = tuple(Column(port, level, file, Tier.COUNTER) for port, level, file in values)
    layout = Layout.build(name, 1, columns)
    device = Device(name, layout, tuple(Port(PortId(name, n)) for n in ports), **facts)
    sample = Sample(layout, tuple(values.values()), {}, {}, (sampled,) * len(Tier))
    return DeviceView(
        device,
        sample,
        stalled=stalled,
        sampled=sampled,
        read_errors=dict(errors),
        resets={layout.index[key]: count for key, count in dict(resets).items()},
        saturated={layout.index[key]: full for key, full in dict(saturated).items()},
    )


def port_view(name, number=1, **facts):
    """A compute port that is well, unless `facts` say otherwise."""
    return PortView(PortId(name, number), **{"role": Role.COMPUTE, "health": PortHealth.OK, **facts})


def snapshot(devices=(), ports=(), **facts):
    """A fit node in observe mode, unless `facts` say otherwise."""
    usual = {
        "sequence": 1,
        "at": AT,
        "node": "node1",
        "boot_id": "0b1d",
        "mode": Mode.OBSERVE,
        "fitness": NodeFitness.FIT,
        "up": True,
        "listing_errno": None,
        "devices_expected": len(devices),
        "findings": (),
        "drain": DrainView(Intent(drain=False)),
        "config_hash": "c0ffee",
    }
    return Snapshot(devices=tuple(devices), ports=tuple(ports), **{**usual, **facts})


def next_of(before):
    """The same node one step later."""
    return msgspec.structs.replace(before, sequence=before.sequence + 1)


def port_values(port=1, **counters):
    """An ACTIVE port of four lanes with some files of counters/."""
    attributes = {"state": 4, "phys_state": 5, "rate": NDR, "width": 4}
    return {
        **{(port, Level.ATTR, name): value for name, value in attributes.items()},
        **{(port, Level.COUNTERS, name): value for name, value in counters.items()},
    }


def typical():
    """Two devices: an InfiniBand card with everything, and a two-port card of which little is known."""
    full = device_view(
        "mlx5_0",
        {
            **port_values(symbol_error=3, port_xmit_data=2**62, port_rcv_data=7, link_downed=255, VL15_dropped=None),
            (1, Level.HW, "lifespan"): 10,
            (1, Level.HW, "out_of_sequence"): 12,
            (1, Level.NET, "carrier_down_count"): 2,
            (0, Level.DEVICE_HW, "vhca_id_errors"): 1,
            (0, Level.PCI, "current_link_speed"): 32_000_000_000,
            (0, Level.PCI, "current_link_width"): 8,
        },
        saturated={(1, Level.COUNTERS, "link_downed"): True, (1, Level.COUNTERS, "symbol_error"): False},
        resets={(1, Level.HW, "out_of_sequence"): 2, (1, Level.COUNTERS, "symbol_error"): 1},
        errors={22: 4, 19: 1},
        driver="mlx5_core",
        node_guid="b83f:d203:00aa:0001",
        sys_image_guid="b83f:d203:00aa:0000",
        board_id="MT_0000000838",
        hca_type="MT4129",
        firmware_version="28.41.1000",
        pci=Pci("0000:1a:00.0", max_speed=32_000_000_000, max_width=16, slot_max_width=16),
    )
    two = device_view("mlx4_0", {**port_values(1, symbol_error=1), **port_values(2, symbol_error=2)}, ports=(1, 2))
    return snapshot(
        [two, full],
        [
            port_view("mlx4_0", 1, role=Role.IGNORED, health=PortHealth.IGNORED),
            port_view("mlx4_0", 2, role=Role.IGNORED, health=PortHealth.IGNORED),
            port_view(
                "mlx5_0", expected=True, rail=0, link_layer="InfiniBand", netdev="ib0", expected_rate=NDR, flaps=1
            ),
            port_view("mlx5_1", expected=True, present=False, health=PortHealth.FAILED),
        ],
        devices_expected=2,
    )


FINDING = Finding("port-down", "mlx5_1", 1, "", Severity.CRITICAL, 1.5e9, "DOWN", None, "DOWN/Polling 62s>60s")


def bad():
    """The typical node with a port down, drained, and the drain taken away by an operator."""
    drain = DrainView(
        Intent(drain=True, id="7f3a9c", reason="ibmon: port-down", since=1.5e9),
        Ownership("7f3a9c", "ibmon: port-down", 1.6e9, held=True),
        blocked=BlockCode.OVERRIDE,
        would=1,
    )
    return msgspec.structs.replace(
        typical(), fitness=NodeFitness.UNFIT, why="port-down mlx5_1/1", findings=(FINDING,), drain=drain
    )
