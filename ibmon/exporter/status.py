"""The status document: what /api/v1/status answers and what /run/ibmon/verdict.json holds.

Pure. The shape is a contract with `check`, hooks and other programs: keys are added, never changed or removed, and
docs/status.md says what each means.
Rates are in bytes per second, speeds in transfers per second, times in Unix seconds, `None` is "not known".
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ibmon import __version__
from ibmon.exporter.plan import counter_label
from ibmon.exporter.totals import totals
from ibmon.model import PHYSICAL_STATE_TEXT, PORT_STATE_TEXT, Column, Finding, Level, Now, PortId, Tier
from ibmon.snapshot import DeviceView, DrainView, PortView, Snapshot

VERSION: Final = 1
"""Of the shape; grows only with a change that an old reader would misunderstand."""

TTL: Final = 60.0
"""Seconds after which a reader must take the document for no knowledge at all."""


def status_document(snapshot: Snapshot) -> dict[str, Any]:
    """The whole picture as plain values that any JSON encoder takes.

    Top level: `v`, `version`, `node`, `boot_id`, `monotonic` and `wall` (when it was made), `ttl`, `sequence`,
    `mode`, `fitness`, `why` (one line for people), `up`, `listing_errno`, `actions_enabled`, `config`,
    `devices_expected`, `devices`, `ports`, `quarantined`, `findings`, `drain`, `maintenance` (None outside of every
    window), `rules_available`. A port of the device
    itself does not exist: `port` 0 in a finding means the device, and with an empty `device` the node. The `totals` of
    a port are sums since its counters began (`ibmon.exporter.totals`); rates are the reader's business.
    """
    devices = {view.device.name: view for view in snapshot.devices}
    return _document(
        snapshot,
        [{**_device(view), "sample_age_seconds": _age(view, snapshot.at)} for view in snapshot.devices],
        [{**_port(row), "totals": _totals(row, devices.get(row.id.device))} for row in snapshot.ports],
    )


class StatusText:
    """`status_document` as JSON, again and again: what has not changed since the last time is not encoded anew.

    It is written at each tick, and on a healthy node most of it stays as it was. To be used by one thread.
    """

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._views: tuple[DeviceView, ...] = ()
        self._rows: tuple[PortView, ...] = ()
        self._texts: list[bytes] = []  # of the devices, without the age of their samples
        self._list = b"[]"  # of the ports
        self._devices: dict[str, _Kept] = {}
        self._ports: dict[PortId, _Kept] = {}
        self._sums: dict[PortId, _Kept] = {}

    def encode(self, snapshot: Snapshot) -> bytes:
        """The document of a snapshot."""
        views, rows, at = snapshot.devices, snapshot.ports, snapshot.at
        same = _only_later(self._views, views)
        if not same:
            before, self._devices = self._devices, {}
            self._texts = [self._device(view, before.get(view.device.name)) for view in views]
        if not same or rows is not self._rows:
            self._list = self._port_list(rows, {view.device.name: view for view in views})
        self._views, self._rows = views, rows
        aged = zip(self._texts, [self._encode(_age(view, at)) for view in views], strict=True)
        devices = b",".join([b'%b,"sample_age_seconds":%b}' % both for both in aged])
        return self._encode(_document(snapshot, msgspec.Raw(b"[%b]" % devices), msgspec.Raw(self._list)))

    def _device(self, view: DeviceView, kept: _Kept | None) -> bytes:
        key = (view.device, view.stalled, view.read_errors, view.saturated, _pci_link(view))
        if kept is None or kept.key != key:
            kept = _Kept(key, self._open(_device(view)))
        self._devices[view.device.name] = kept
        return kept.text

    def _port_list(self, rows: Sequence[PortView], devices: Mapping[str, DeviceView]) -> bytes:
        before = self._ports, self._sums
        self._ports, self._sums = {}, {}
        parts = []
        for row in rows:
            device = devices.get(row.id.device)
            kept, sums = before[0].get(row.id), before[1].get(row.id)
            if kept is None or (kept.key is not row and kept.key != row):
                kept = _Kept(row, self._open(_port(row)))
            source = device and (device.stalled, device.sample.read_at[Tier.COUNTER], device.sample.values)
            if sums is None or sums.key != source:
                sums = _Kept(source, self._encode(_totals(row, device)))
            self._ports[row.id], self._sums[row.id] = kept, sums
            parts.append(b'%b,"totals":%b}' % (kept.text, sums.text))
        return b"[%b]" % b",".join(parts)

    def _open(self, value: dict[str, Any]) -> bytes:
        """An object to which something can be added: it is not closed."""
        return self._encode(value)[:-1]


class _Kept(NamedTuple):
    """A piece of JSON and what it was made of."""

    key: object
    text: bytes


def _only_later(before: Sequence[DeviceView], after: Sequence[DeviceView]) -> bool:
    """Whether nothing differs that the document shows of these devices, but the age of their samples."""
    if len(before) != len(after):
        return False
    for old, new in zip(before, after, strict=True):
        if old is not new and not (
            old.device is new.device
            and old.stalled == new.stalled
            and old.read_errors == new.read_errors
            and old.saturated == new.saturated
            and old.sample.values is new.sample.values
            and old.sample.read_at[Tier.COUNTER] == new.sample.read_at[Tier.COUNTER]
        ):
            return False
    return True


def _document(snapshot: Snapshot, devices: object, ports: object) -> dict[str, Any]:
    return {
        "v": VERSION,
        "version": __version__,
        "node": snapshot.node,
        "boot_id": snapshot.boot_id,
        "monotonic": snapshot.at.monotonic,
        "wall": snapshot.at.wall,
        "ttl": TTL,
        "sequence": snapshot.sequence,
        "mode": snapshot.mode.value,
        "fitness": snapshot.fitness.value,
        "why": snapshot.why,
        "up": snapshot.up,
        "listing_errno": _errno(snapshot.listing_errno),
        "actions_enabled": snapshot.actions_enabled,
        "config": {"valid": snapshot.config_valid, "hash": snapshot.config_hash},
        "devices_expected": snapshot.devices_expected,
        "devices": devices,
        "ports": ports,
        "quarantined": list(snapshot.quarantined),
        "findings": [_finding(finding) for finding in snapshot.findings],
        "drain": _drain(snapshot.drain),
        "maintenance": _maintenance(snapshot),
        "rules_available": dict(snapshot.rules_available),
    }


def _age(view: DeviceView, at: Now) -> float | None:
    return None if view.sampled is None else max(0.0, at.monotonic - view.sampled.monotonic)


def _totals(view: PortView, device: DeviceView | None) -> dict[str, Any] | None:
    return None if device is None else totals(device, view.id.port)


def _device(view: DeviceView) -> dict[str, Any]:
    """All but the age of its sample."""
    device = view.device
    return {
        "device": device.name,
        "function": device.function.value,
        "driver": device.driver,
        "node_guid": device.node_guid,
        "sys_image_guid": device.sys_image_guid,
        "board_id": device.board_id,
        "hca_type": device.hca_type,
        "firmware_version": device.firmware_version,
        "uverbs": device.uverbs,
        "pci": _pci(view),
        "stalled": view.stalled,
        "read_errors": {_errno(code): count for code, count in sorted(view.read_errors.items())},
        "saturated": [_column(device.layout.columns[i]) for i, full in sorted(view.saturated.items()) if full],
    }


def _pci(view: DeviceView) -> dict[str, Any] | None:
    pci = view.device.pci
    if pci is None:
        return None
    speed, width = _pci_link(view)
    return {
        "address": pci.address,
        "numa_node": pci.numa_node,
        "speed": speed,
        "width": width,
        "expected_speed": pci.expected_speed,
        "expected_width": pci.expected_width,
    }


def _pci_link(view: DeviceView) -> tuple[int | None, int | None]:
    """Speed and width of a device's PCI link."""
    if view.stalled:
        return None, None
    sample = view.sample
    return sample.get(0, Level.PCI, "current_link_speed"), sample.get(0, Level.PCI, "current_link_width")


def _port(view: PortView) -> dict[str, Any]:
    """All but the sums of its counters."""
    return {
        "device": view.id.device,
        "port": view.id.port,
        "role": view.role.value,
        "rail": view.rail,
        "health": view.health.value,
        "present": view.present,
        "expected": view.expected,
        "slot": view.slot,
        "declared": view.declared,
        "trusted": view.trusted,
        "link_layer": view.link_layer,
        "netdev": view.netdev,
        "state": _word(PORT_STATE_TEXT, view.state),
        "physical_state": _word(PHYSICAL_STATE_TEXT, view.physical_state),
        "rate": view.rate,
        "expected_rate": view.expected_rate,
        "speed": view.speed_word,
        "width": view.width,
        "flaps": view.flaps,
        "moved": [{**_column(column), "rise": rise} for column, rise in view.moved],
        "hold": dict(view.hold),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "device": finding.device,
        "port": finding.port,
        "counter": finding.counter,
        "severity": finding.severity.value,
        "onset": finding.onset,
        "observed": finding.observed,
        "limit": finding.limit,
        "text": finding.text,
        "recovering": finding.recovering,
        "drains": finding.drains,
        "maintenance": finding.maintenance,
    }


def _drain(drain: DrainView) -> dict[str, Any]:
    intent, owned = drain.intent, drain.owned
    return {
        "wanted": intent.drain,
        "id": intent.id,
        "reason": intent.reason,
        "since": intent.since if intent.drain else None,
        "active": owned is not None and owned.held,
        "owned": owned and {"id": owned.id, "reason": owned.reason, "asked": owned.asked, "held": owned.held},
        "blocked": drain.blocked.value if drain.blocked else None,
        "would": drain.would,
        "overridden": drain.overridden,
        "asked": drain.asked
        and {
            "user": drain.asked.user,
            "asked": drain.asked.asked,
            "outcome": drain.asked.outcome,
            "code": drain.asked.code.value if drain.asked.code else None,
            "detail": drain.asked.detail,
        },
        "orphaned": drain.orphaned,
        "action_errors": dict(drain.action_errors),
    }


def _maintenance(snapshot: Snapshot) -> dict[str, Any] | None:
    """The windows in force; `until` is when the last of them ends. No `ports` in a window: the whole node."""
    if not snapshot.maintenance:
        return None
    left = [window.left(snapshot.at, snapshot.boot_id) for window in snapshot.maintenance]
    return {
        "until": snapshot.at.wall + max(left),
        "windows": [
            {
                "ports": list(window.subjects),
                "since": window.began.wall,
                "until": snapshot.at.wall + seconds,
                "user": window.user,
                "reason": window.reason,
            }
            for window, seconds in zip(snapshot.maintenance, left, strict=True)
        ],
    }


def _column(column: Column) -> dict[str, Any]:
    return {"port": column.port, "counter": counter_label(column)}


def _errno(code: int | None) -> str | None:
    return None if code is None else errno.errorcode.get(code, str(code))


def _word(texts: Mapping[int, str], value: int | None) -> str | None:
    """The kernel's word for a number, the number itself where it has none."""
    return None if value is None else texts.get(value, str(value))
