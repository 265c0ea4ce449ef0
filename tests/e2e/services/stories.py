"""What happens to the nodes of the simulated fleet: the demo's scenarios, and what they do not tell.

Data only. `services/simfleet.py` plays them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ibmon.health.rules import RULES
from ibmon.health.windows import Moment
from ibmon.maintenance import Window
from ibmon.model import Finding, Severity
from ibmon.recording import Frame
from ibmon.simulate.dgx import COMPUTE, dgx
from ibmon.simulate.scenarios import SCENARIOS, Scenario, Sections
from ibmon.snapshot import Snapshot

if TYPE_CHECKING:
    from ibmon.simulate.script import Script

DAY = 86_400.0


def _as_it_is(snapshot: Snapshot) -> Snapshot:
    return snapshot


class Story(NamedTuple):
    """One node: its scenario, and what of it is not the scenario's matter.

    Attributes:
        scenario: what happens.
        begin: seconds of it that have passed when the first scrape comes.
        ago: seconds by which its wall clock is behind, so that what it did lies in the past.
        freezes: when its loop stands still; it serves on.
        silent: it never answers a scrape.
        shows: what differs from what its engine shows: what happens to a daemon and not to ports.
        failing: whether its saves and messages fail.
    """

    scenario: Scenario
    begin: float = 0.0
    ago: float = 0.0
    freezes: float = math.inf
    silent: bool = False
    shows: Callable[[Snapshot], Snapshot] = _as_it_is
    failing: bool = False


def _plain(script: Script) -> None:
    del script


def _down(script: Script) -> None:
    script.link_down(20, "mlx5_3/1")


def _no_subnet_manager(script: Script) -> None:
    for device in COMPUTE:
        script.init(8, f"{device}/1")


def _no_scheduler(script: Script) -> None:
    script.scheduler(2, "down")
    script.link_down(4, "mlx5_6/1")


_CONGESTED = ("counters/port_xmit_wait", "hw_counters/np_cnp_sent", "hw_counters/rp_cnp_handled")
_RISING = (
    "hw_counters/out_of_sequence", "hw_counters/packet_seq_err", "hw_counters/local_ack_timeout_err",
    "hw_counters/rnr_nak_retry_err", "hw_counters/roce_slow_restart", "counters/link_error_recovery",
    "counters/port_rcv_errors", "counters/port_rcv_remote_physical_errors", "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors", "counters/port_xmit_discards", *_CONGESTED,
)  # fmt: skip


def _worn(script: Script) -> None:
    """A narrow PCIe link, a hot module, errors of all kinds, a full counter and a file that cannot be read."""
    tree = dgx()
    path, other = tree.port_path("mlx5_2/1"), tree.port_path("mlx5_4/1")
    pci = tree.devices["mlx5_2"].pci
    assert pci is not None
    files = {f"{pci.path}/current_link_width": "8\n", f"{other}/counters/symbol_error": "65535\n"}
    files |= {name: "91000\n" for name in tree.files if name.startswith(f"{pci.path}/hwmon/") and "temp2_in" in name}
    script.add(Frame(t=2, files=files, errnos={f"{other}/counters/VL15_dropped": "EINVAL"}))
    for second in range(3, 400):
        narrow = second // 30 + 1
        files = {
            f"{path}/{name}": f"{min(narrow, 15) if 'local_link' in name or 'overrun' in name else second * 40}\n"
            for name in _RISING
            if name != "counters/link_error_recovery"
        }
        script.add(Frame(t=second, files={**files, f"{path}/counters/link_error_recovery": f"{min(second, 255)}\n"}))


def _blind(script: Script) -> None:
    """A driver that refuses every counter of errors."""
    tree = dgx()
    names = [f"{tree.port_path(f'{device}/1')}/counters/symbol_error" for device in tree.devices]
    script.add(Frame(t=1, errnos=dict.fromkeys(names, "EIO")))


def _respected(snapshot: Snapshot) -> Snapshot:
    """Somebody resumed the node at the scheduler."""
    return msgspec.structs.replace(snapshot, drain=msgspec.structs.replace(snapshot.drain, overridden=True))


def _orphaned(snapshot: Snapshot) -> Snapshot:
    """The state directory was lost while the node was drained."""
    return msgspec.structs.replace(snapshot, drain=msgspec.structs.replace(snapshot.drain, orphaned=True))


def _troubled(snapshot: Snapshot) -> Snapshot:
    """A file with a mistake, a second daemon, and a person who works on the node."""
    work = Window((), Moment(snapshot.at.monotonic, snapshot.at.wall, snapshot.boot_id), 3600.0, "cable", "root")
    return msgspec.structs.replace(snapshot, config_valid=False, actions_enabled=False, maintenance=(work,))


def _everything(snapshot: Snapshot) -> Snapshot:
    """Every rule has found something: what takes days, or an adapter of another kind, no story can tell in a minute."""
    found = tuple(
        Finding(
            rule=rule.id,
            severity=Severity.INFO if rule.id == "counter-saturated" else Severity.WARNING,
            device="" if rule.scope == "node" else "mlx5_0",
            port=1 if rule.scope == "port" else 0,
            counter="",
            onset=snapshot.at.wall,
            observed=None,
            limit=None,
            text="",
        )
        for rule in RULES
    )
    return msgspec.structs.replace(snapshot, findings=found)


def _scenario(story: Callable[[Script], None], config: Sections | None = None) -> Scenario:
    return Scenario("", story, ((0, ""),), math.inf, config=config or {})


_OBSERVING = {"action": {"mode": "observe"}}
STORIES: Final = {
    "gpu-01": Story(SCENARIOS["cable"]),
    "gpu-02": Story(SCENARIOS["flapping-cable"]),
    "gpu-03": Story(SCENARIOS["half-rate"]),
    "gpu-04": Story(SCENARIOS["vanished-hca"]),
    "gpu-05": Story(SCENARIOS["symbol-errors"], begin=90),
    "gpu-06": Story(SCENARIOS["hung-card"]),
    "gpu-07": Story(SCENARIOS["reboot"]),
    "gpu-08": Story(SCENARIOS["healthy"]),
    **{f"gpu-{number:02}": Story(_scenario(_no_subnet_manager)) for number in (9, 10, 11)},
    **{f"gpu-{number:02}": Story(_scenario(_down)) for number in (12, 13, 14)},
    "gpu-15": Story(_scenario(_down, _OBSERVING)),
    "gpu-16": Story(_scenario(_worn)),
    "gpu-17": Story(_scenario(_down), shows=_respected),
    "gpu-18": Story(_scenario(_down), shows=_orphaned),
    "gpu-19": Story(_scenario(_plain), begin=5, freezes=5),
    "gpu-20": Story(_scenario(_plain), silent=True),
    "gpu-21": Story(_scenario(_plain)),
    "gpu-22": Story(_scenario(_down), begin=35, ago=2 * DAY),
    "gpu-23": Story(_scenario(_plain), shows=_troubled, failing=True),
    "gpu-24": Story(_scenario(_no_scheduler)),
    "gpu-25": Story(_scenario(_blind)),
    "gpu-26": Story(_scenario(_plain), shows=_everything),
}
"""By the node's name."""
COMPATIBLE = "gpu-21"
"""The node of which only node_exporter's names are kept: a site saves series and keeps its dashboards."""
