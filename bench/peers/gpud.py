"""The InfiniBand verdict of gpud (leptonai/gpud at 4a8de33a, 2026-08-22; components/accelerator/nvidia/infiniband).

Rules as published: `threshold_default.go`, `component.go`, `store/scan_drops.go`, `store/scan_flaps.go`. It polls every
30 s and keeps wall-clock times. Only InfiniBand ports of devices whose name begins with ``mlx`` are looked at. Nobody
is drained by gpud itself: *Unhealthy* is what sites hang their drains on.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.peers.view import Poll, PortView, Verdict
from ibmon.model import PhysicalState, PortState

INTERVAL = 30.0
PORTS, RATE = 8, 400.0  # what it expects of an H100 node
DROP_SECONDS = 240.0
DROP_STICKY = 600.0
FLAP_DOWN_SECONDS = 25.0
FLAPS = 3
FLAP_WINDOW = 5 * 86400.0


@dataclass
class _Run:
    """Polls in a row in which a port was not ACTIVE: first, last (wall seconds), and the count it began with."""

    first: float
    last: float
    link_downed: int | None


class Gpud:
    """The verdict, poll after poll."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._flaps: dict[str, list[float]] = {}
        self._dropped: dict[str, float] = {}

    def __call__(self, poll: Poll) -> Verdict:
        """Unhealthy: a scan that fails, too few ports, a drop of late, or a flap on record."""
        view = poll.view
        if view.devices is not None and any(name.startswith("mlx") for name in view.unreadable):
            return Verdict(noted=True, bad=True)  # one attribute that fails ends the scan, and that is Unhealthy
        ports = [p for p in view.ports if p.device.startswith("mlx") and p.link_layer == "InfiniBand"]
        if not ports:
            return Verdict(noted=False, bad=False)  # "no infiniband port data": evaluation is skipped
        for port in ports:
            self._follow(port, poll.wall)
        usable = [p for p in ports if p.phys_state == PhysicalState.LINK_UP and p.rate >= RATE]
        dropped = any(poll.wall - at < DROP_STICKY for at in self._dropped.values())
        flapping = any(sum(poll.wall - at <= FLAP_WINDOW for at in ats) >= FLAPS for ats in self._flaps.values())
        bad = len(usable) < PORTS or dropped or flapping
        return Verdict(noted=bad, bad=bad)

    def _follow(self, port: PortView, now: float) -> None:
        """Drops and flaps of one port; the link's history is that of its logical state."""
        run = self._runs.get(port.name)
        if port.state == PortState.ACTIVE:
            if run is not None and run.last - run.first >= FLAP_DOWN_SECONDS:
                self._flaps.setdefault(port.name, []).append(now)
            self._runs.pop(port.name, None)
            return
        downed = port.counters.get("link_downed")
        if run is None or run.link_downed != downed:
            self._runs[port.name] = _Run(now, now, downed)
            return
        run.last = now
        if now - run.first >= DROP_SECONDS:
            self._dropped[port.name] = now
