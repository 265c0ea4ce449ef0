"""The verdict of NVSentinel's nic-health-monitor (NVIDIA/NVSentinel, main as of 2026-08-21, 42672ae8).

Rules as published: `pkg/checks/state`, `charts/nic-health-monitor/values.yaml`, `pkg/config`. State and counters are
polled every second. A fatal event cordons the node; a counter's breach stays until the counter is reset or the host is
rebooted. Virtual functions and the management interface (here: Ethernet beside InfiniBand) are out of its scope.
Left out: character devices, the kernel log (off in its production chart), and its analyzer of repeated events.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.peers.view import Poll, PortView, Verdict
from ibmon.model import PhysicalState, PortState

INTERVAL = 1.0
MISSES = 3
"""Complete listings in a row without a device, until it counts as gone."""

ANY_RISE = ("link_downed", "excessive_buffer_overrun_errors", "local_link_integrity_errors", "rnr_nak_retry_err")
"""Counters of which one more is fatal."""


class Velocity(NamedTuple):
    """More than `limit` in `seconds`, looked at when such a window is over."""

    counter: str
    limit: float
    seconds: float
    fatal: bool = False


VELOCITIES = (
    Velocity("symbol_error", 120, 3600.0, fatal=True),
    Velocity("symbol_error", 10, 1.0),
    Velocity("link_error_recovery", 5, 60.0),
    Velocity("port_rcv_errors", 10, 1.0),
    Velocity("local_ack_timeout_err", 1, 1.0),
    Velocity("port_xmit_discards", 100, 1.0),
    Velocity("roce_slow_restart", 10, 1.0),
)


@dataclass
class _Boot:
    """What is remembered within one boot."""

    boot_id: str
    known: set[str] = field(default_factory=set)  # devices
    misses: Counter[str] = field(default_factory=Counter)
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    windows: dict[tuple[str, Velocity], tuple[float, int]] = field(default_factory=dict)
    down_from_the_start: set[str] = field(default_factory=set)  # and nothing speaks against it
    latched: dict[tuple[str, str, bool], bool] = field(default_factory=dict)  # (port, counter, velocity?) -> fatal


class NvSentinel:
    """The verdict, poll after poll."""

    def __init__(self) -> None:
        self._boot = _Boot("")

    def __call__(self, poll: Poll) -> Verdict:
        """Bad: a fatal condition of a port or device holds, or a fatal breach of a counter is latched."""
        if poll.boot_id != self._boot.boot_id:
            self._boot = _Boot(poll.boot_id)
        if poll.view.devices is None:
            return self._verdict(set(), set())
        ports = [p for p in poll.view.ports if p.device not in poll.view.virtual and p.link_layer == "InfiniBand"]
        self._enumerate(poll.view.devices, ports)
        fatal, noted = self._states(ports)
        for port in ports:
            if poll.new:
                self._rises(port)
            self._velocities(port, poll.monotonic)
            self._boot.counters[port.name] = dict(port.counters) if poll.new else self._boot.counters[port.name]
        return self._verdict(fatal, noted)

    def _verdict(self, fatal: set[str], noted: set[str]) -> Verdict:
        boot = self._boot
        gone = any(count >= MISSES for count in boot.misses.values())
        bad = bool(fatal) or gone or any(boot.latched.values())
        return Verdict(noted=bad or bool(noted) or bool(boot.latched), bad=bad)

    def _enumerate(self, devices: tuple[str, ...], ports: list[PortView]) -> None:
        boot = self._boot
        boot.known |= {port.device for port in ports}
        for device in boot.known:
            boot.misses[device] = 0 if device in devices else boot.misses[device] + 1

    def _states(self, ports: list[PortView]) -> tuple[set[str], set[str]]:
        """Ports that are fatally down, and those that are only worth an event."""
        boot, fatal, noted = self._boot, set(), set()
        first = [p for p in ports if p.name not in boot.counters]
        weak = _below_their_peers(ports) if first else set()
        for port in ports:
            down = port.state == PortState.DOWN or port.phys_state == PhysicalState.DISABLED
            if not down:
                boot.down_from_the_start.discard(port.name)
                if port.state in (PortState.INIT, PortState.ARMED) or port.phys_state != PhysicalState.LINK_UP:
                    noted.add(port.name)
                continue
            if port.name not in boot.counters and port.device not in weak:
                boot.down_from_the_start.add(port.name)
            if port.name not in boot.down_from_the_start:
                fatal.add(port.name)
        return fatal, noted

    def _rises(self, port: PortView) -> None:
        """One more of some counters is a breach; a decrease of any ends its breaches."""
        latched = self._boot.latched
        for name, before in self._boot.counters.get(port.name, {}).items():
            now = port.counters.get(name, before)
            if now < before:
                for key in [k for k in latched if k[:2] == (port.name, name)]:
                    del latched[key]
            elif now > before and name in ANY_RISE:
                latched[port.name, name, False] = True

    def _velocities(self, port: PortView, now: float) -> None:
        boot = self._boot
        for rule in VELOCITIES:
            value = port.counters.get(rule.counter)
            if value is None:
                continue
            began, count = boot.windows.get((port.name, rule), (now, value))
            if value < count:
                began, count = now, value
            if now - began >= rule.seconds:
                if (value - count) * rule.seconds / (now - began) > rule.limit:
                    key = (port.name, rule.counter, True)
                    boot.latched[key] = boot.latched.get(key, False) or rule.fatal
                began, count = now, value
            boot.windows[port.name, rule] = (began, count)


def _below_their_peers(ports: list[PortView]) -> set[str]:
    """Devices with fewer ACTIVE ports than most of at least two; nobody where there is no clear or no positive mode."""
    active: Counter[str] = Counter({port.device: 0 for port in ports})
    for port in ports:
        active[port.device] += port.state == PortState.ACTIVE
    counts = Counter(active.values()).most_common(2)
    if len(active) < 2 or counts[0][0] == 0 or (len(counts) > 1 and counts[0][1] == counts[1][1]):
        return set()
    return {device for device, count in active.items() if count < counts[0][0]}
