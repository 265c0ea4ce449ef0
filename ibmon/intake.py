"""The engine's intake: what was listed, discovered, read and heard goes into devices, windows and link history. Pure.

It asks for reads and never judges; verdicts are made at the tick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from ibmon.announce import log
from ibmon.devices import NOTHING, Change, Devices, at_once
from ibmon.health import kernel_log
from ibmon.health.judge import Judge
from ibmon.messages import (
    Abandon,
    DeviceFree,
    Discovered,
    Effect,
    Forget,
    Hotplug,
    KernelLine,
    ListingDone,
    Poll,
    ReadDone,
    ReadListing,
)
from ibmon.model import PORT_STATE_TEXT, Now, PortId, Tier
from ibmon.sampling import Sampler

BRING_UP_GRACE = 600.0
"""Seconds after an ACTIVE that begins inside boot grace in which nothing of that port is counted."""

COUNT_GRACE_FACTOR = 3
"""Count-like rules wait three times the boot grace: counters jump while links are brought up (OCI waits 30 min)."""


class Intake:
    """Handles the host's events; `out` collects the effects of the step that runs.

    Args:
        devices: what is there.
        sampler: the reading plan.
        judge: where counts and link history go.
        boot: this boot's id, and `booted` its monotonic time.
        grace: the boot grace in force (seconds).
        inventory_changed: called when a device came, went or changed.
        silenced: whether what a counter of this device and port tells now may have happened in a maintenance window.
    """

    def __init__(
        self,
        devices: Devices,
        sampler: Sampler,
        judge: Judge,
        *,
        boot: str,
        booted: float,
        grace: Callable[[], float],
        inventory_changed: Callable[[], None],
        silenced: Callable[[str, int, Now], bool],
    ) -> None:
        self.devices = devices
        self.sampler = sampler
        self.judge = judge
        self.kernel: dict[str, tuple[kernel_log.Line, ...]] = {}
        self.out: list[Effect] = []
        self._boot = boot
        self._booted = booted
        self._grace = grace
        self._inventory_changed = inventory_changed
        self._silenced = silenced

    def _log(self, level: Literal["info", "warning", "error"], event: str, **fields: Any) -> None:
        self.out.append(log(level, event, **fields))

    def poll(self, _: Poll, now: Now) -> None:
        """Ask for the reads that are due; mark devices whose read is overdue."""
        for effect in self.sampler.due(now.monotonic):
            if isinstance(effect, Abandon):
                self.devices.stall(effect.device)
                self._log("warning", "device-stalled", device=effect.device)
            if isinstance(effect, ReadListing):
                effect = ReadListing(self._lost_functions())  # noqa: PLW2901 - the same effect, completed
            self.out.append(effect)

    def _lost_functions(self) -> tuple[str, ...]:
        """PCI addresses of expected devices that the newest listing did not hold."""
        names = self.devices.names or frozenset()
        lost = {
            d.expected.slot.rpartition("/")[0]
            for p, d in self.judge.ports.items()
            if d.expected.expected and p.device not in names
        }
        return tuple(sorted(slot for slot in lost if ":" in slot))

    def hotplug(self, _: Hotplug, now: Now) -> None:
        """The kernel's word that something changed: list, and look at every device's facts again."""
        self.sampler.hotplug(now.monotonic)
        for name in [n for n, p in self.devices.present.items() if not p.stalled]:
            self.out.append(self.sampler.discover(name, now.monotonic))

    def freed(self, event: DeviceFree, now: Now) -> None:
        """A read of an earlier process has ended: its device may be read again."""
        self.sampler.quarantined -= {event.device}
        self.sampler.hotplug(now.monotonic)

    def kernel_line(self, event: KernelLine, now: Now) -> None:
        """Keep what a kernel log line says of a device."""
        found = kernel_log.match(event.text)
        if found is None:
            return
        address, pattern = found
        at = (n for n, p in self.devices.present.items() if p.device.pci and p.device.pci.address == address)
        if self._silenced(next(at, ""), 0, now):
            self._log("info", "kernel-log", pci=address, kind=pattern.kind, maintenance=True)
            return
        before = self.kernel.get(address, ())
        self.kernel[address] = after = kernel_log.add(before, pattern.kind, now, self._boot, event.age)
        if set(after) - set(before):
            self._log("warning", "kernel-log", pci=address, kind=pattern.kind, meaning=pattern.meaning)

    def listed(self, event: ListingDone, now: Now) -> None:
        """Compare the listing with what is known: discover what is new, drop what has gone."""
        self.sampler.listed()
        before = self.devices.names
        unreadable = self.devices.listing_errno is not None
        new, gone = self.devices.list(event.listing)
        if self.devices.names is None:
            if not unreadable:
                self._log("error", "class-unreadable", errno=event.listing.errno)
            return
        if not self.devices.names and (before is None or before):
            self._log("info", "no-rdma-devices")
        for name in sorted(gone):
            self.devices.present.pop(name)
            self.sampler.drop(name)
            self.out.append(Forget(name))
            self._log("warning", "device-gone", device=name)
        for name in sorted(new - set(self.sampler.discovering) - self.sampler.quarantined):
            self.out.append(self.sampler.discover(name, now.monotonic))
        if gone:
            self._inventory_changed()

    def discovered(self, event: Discovered, now: Now) -> None:
        """Take in the facts of a device that is new or has changed."""
        device = event.device
        self.sampler.discovering.pop(event.name, None)
        self.sampler.quarantined -= {event.name}
        if device is None or (self.devices.names is not None and event.name not in self.devices.names):
            return  # the next listing tells what became of it
        known = event.name in self.devices.present
        if not self.devices.add(device):
            self.sampler.renew(device.layout)
            return
        if known:
            self._forget_counters(event.name)
        self.sampler.add(device.layout, now.monotonic)
        self.sampler.read_now(event.name, now.monotonic)
        self._log(
            "info", "device-changed" if known else "device-found", device=device.name, driver=device.driver,
            function=device.function.value, ports=len(device.ports), guid=device.node_guid,
        )  # fmt: skip
        self._inventory_changed()

    def read(self, event: ReadDone, now: Now) -> None:
        """Lay a reading over the sample, count, and follow the links."""
        reading = event.reading
        stalled = (schedule := self.sampler.devices.get(reading.device)) is not None and schedule.stalled
        self.sampler.done(reading, now.monotonic)
        change = self.devices.read(reading, event.tiers)
        if change is None:
            return
        if stalled:
            self._log("info", "device-answers", device=reading.device)
        if change.gone:
            self.out.append(self.sampler.discover(reading.device, now.monotonic))
            self.sampler.hotplug(now.monotonic)
        if change is not NOTHING:
            self._count(reading.device, change, now)
        self._follow_links(reading.device, change, now)
        if change.states:
            self._follow_states(event, change, now)

    def _follow_links(self, name: str, change: Change, now: Now) -> None:
        """Let the history of every link of a device take in what its new sample tells."""
        present = self.devices.present[name]
        for port in present.device.ports:
            desk = self.judge.ports[port.id]
            if desk.link.was_active and not change.links:
                continue  # it was up, and nothing tells otherwise
            flapped = desk.link.take(
                present.sample,
                port.id.port,
                change.rises,
                now,
                self._boot,
                may_count=self.may_count(port.id, now) and not self.judge.down_is_known(port.id),
                grace=BRING_UP_GRACE if now.monotonic - self._booted < self._grace() else None,
                carrier=port.link_layer == "Ethernet",
            )
            if flapped:
                self._log("info", "flap", port=str(port.id), counted=desk.link.memory.flaps[-1].counted)

    def _follow_states(self, event: ReadDone, change: Change, now: Now) -> None:
        """Tell what state a port came into, and ask at once for what that makes stale."""
        name = event.reading.device
        layout = self.devices.present[name].device.layout
        extra: tuple[int, ...] = ()
        for number, (before, after) in change.states.items():
            if before is not None:
                self._log(
                    "info", "port-state", port=f"{name}/{number}", was=PORT_STATE_TEXT.get(before, str(before)),
                    state="unreadable" if after is None else PORT_STATE_TEXT.get(after, str(after)),
                )  # fmt: skip
                if Tier.SLOW not in event.tiers:
                    extra += at_once(layout, number)
        self.out.extend(self.sampler.out_of_turn(name, extra, now.monotonic))

    def _count(self, name: str, change: Change, now: Now) -> None:
        """Remember rises of judged counters, also those since the last value before a restart or a failed read."""
        present, boot = self.devices.present[name], self._boot
        for i in (*change.firsts, *change.rises):
            judged = present.judged.get(i)
            if judged is None:
                continue
            port, key = judged
            desk = self.judge.ports.get(port)
            if desk is None:
                continue
            value = present.sample.values[i]
            rise = change.rises.get(i, 0)
            if i in change.firsts and (present.first or i in present.based) and value is not None:
                last = desk.last.get(key)
                if last is not None and last[1] == boot and value > last[0]:
                    rise = change.rises[i] = value - last[0]
            if value is not None:
                desk.last[key] = (value, boot)
                present.based.add(i)
            if rise and self.may_count(port, now) and not desk.link.in_bring_up(now):
                self.judge.count(port, key, rise, now, boot)

    def may_count(self, port: PortId, now: Now) -> bool:
        """Whether counts mean anything: links train, drop and settle for a while after a boot, and in maintenance."""
        settled = now.monotonic - self._booted >= COUNT_GRACE_FACTOR * self._grace()
        return settled and not self._silenced(*port, now)

    def _forget_counters(self, name: str) -> None:
        """The driver loaded this device anew: its counters begin again, and nothing is to be told from that."""
        for port, desk in self.judge.ports.items():
            if port.device == name:
                desk.last.clear()
