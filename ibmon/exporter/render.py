"""Turns a snapshot into exposition text, once for each snapshot and format.

Owns the walk over the plan and the kept results. It must not read anything but the snapshot: a scrape between two
steps of the engine costs the ages of the samples, which are the only text that depends on the moment.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from ibmon.exporter.plan import NO_PLAN, Block, Plan, Planner, Values
from ibmon.exporter.samples import Lines, Samples, ages, build_info
from ibmon.exporter.text import OPENMETRICS_END, Format, kept_header
from ibmon.model import Now
from ibmon.snapshot import Snapshot

_NEVER = Now(0.0, 0.0)
_LEVEL = 1  # measured at 12 devices: a third of the time of level 6 for a seventh more bytes
_WINDOW, _MEMORY = 13, 6
"""8 KiB and 4096 symbols: what a compressor clears when it is made costs more than it gains with larger ones."""
_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\x04\xff"  # RFC 1952: deflate, no time, the fastest way, no system
_TRAILER = struct.Struct("<II")  # checksum and length modulo 2**32


class _Packed(NamedTuple):
    """Compressed text that more may follow, the checksum of its plain form, and the length of that."""

    data: bytes
    checksum: int
    length: int


_NOTHING = _Packed(_HEADER, zlib.crc32(b""), 0)


class _Part:
    """Text that stands behind an earlier part; compressed when first asked for, and only this much of it."""

    def __init__(self, body: bytes, before: _Part | None = None) -> None:
        self.body = body
        self._before = before
        self._packed: _Packed | None = None

    def text(self) -> bytes:
        """All up to the end of this part."""
        return self.body if self._before is None else self._before.text() + self.body

    def packed(self) -> _Packed:
        """All up to the end of this part."""
        if self._packed is None:
            before = _NOTHING if self._before is None else self._before.packed()
            self._packed = _behind(before, self.body, zlib.Z_FULL_FLUSH)
        return self._packed

    def gzip(self, end: bytes) -> bytes:
        """All up to the end of this part and `end` behind it, as one gzip stream."""
        data, checksum, length = _behind(self.packed(), end, zlib.Z_FINISH)
        return data + _TRAILER.pack(checksum, length & 0xFFFF_FFFF)


def _behind(before: _Packed, body: bytes, ending: int) -> _Packed:
    """Text compressed by itself behind other text, so that neither is compressed again when only one changes."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -_WINDOW, _MEMORY)
    data = before.data + packer.compress(body) + packer.flush(ending)
    return _Packed(data, zlib.crc32(body, before.checksum), before.length + len(body))


class _Kept(NamedTuple):
    """What one format was rendered from last, and the parts: what stands still, and with what moves behind it."""

    key: object
    quiet: _Part
    snapshot: Snapshot
    whole: _Part


class Renderer:
    """Renders snapshots; safe to call from several threads."""

    def __init__(self, *, node_exporter: bool = False) -> None:
        self._lock = threading.Lock()
        self._planner = Planner(node_exporter=node_exporter)
        self._plan = NO_PLAN
        self._samples = Samples(node_exporter=node_exporter)
        self._kept: dict[Format, _Kept] = {}

    def render(
        self,
        snapshot: Snapshot | None,
        fmt: Format,
        *,
        monotonic: float,
        self_metrics: bytes = b"",
        gzip: bool = False,
    ) -> bytes:
        """The exposition of a snapshot at the time `monotonic`, with finished text of self metrics behind it.

        Without a snapshot (nothing was read yet) only what does not come from one.
        """
        with self._lock:
            if snapshot is None:
                end = _join([build_info()], fmt) + _end(self_metrics, fmt)
                return _Part(b"").gzip(end) if gzip else end
            kept = self._kept.get(fmt)
            if kept is None or kept.snapshot is not snapshot:
                kept = self._kept[fmt] = self._anew(snapshot, fmt, kept)
            end = _join([ages(snapshot, monotonic)], fmt) + _end(self_metrics, fmt)
            return kept.whole.gzip(end) if gzip else kept.whole.text() + end

    def _anew(self, snapshot: Snapshot, fmt: Format, before: _Kept | None) -> _Kept:
        """A snapshot's parts. What stands still is taken from the one before, which on a healthy node is most of it."""
        layouts = tuple(v.device.layout for v in snapshot.devices)
        if layouts != self._plan.layouts:  # layouts compare by identity
            self._plan = self._planner.plan([v.device for v in snapshot.devices])
        plan, values = self._plan, _values(snapshot)
        key = _still(snapshot, plan, values)
        if before is not None and before.key == key:
            quiet = before.quiet
        else:
            lines = _join(self._samples.lines(snapshot, plan.clashes), fmt)
            quiet = _Part(lines + _columns(plan.quiet, values, fmt))
        return _Kept(key, quiet, snapshot, _Part(_columns(plan.busy, values, fmt), quiet))


def _values(snapshot: Snapshot) -> list[Values]:
    """The values of each device. One that hangs has none: its series end."""
    return [(None,) * len(v.sample.values) if v.stalled else v.sample.values for v in snapshot.devices]


def _still(snapshot: Snapshot, plan: Plan, values: Sequence[Values]) -> object:
    """All that the text of what stands still is made of."""
    node = msgspec.structs.replace(snapshot, sequence=0, at=_NEVER, devices=())
    devices = [
        (v.device, v.stalled, v.read_errors, v.resets, v.saturated, pick(now))
        for v, now, pick in zip(snapshot.devices, values, plan.still, strict=True)
    ]
    return plan.layouts, node, devices


def _columns(blocks: Iterable[Block], values: Sequence[Values], fmt: Format) -> bytes:
    """The text of the columns of some families."""
    out: list[str] = []
    for headers, divisor, entries in blocks:
        if divisor == 1:
            lines = [f"{s}{v * factor}\n" for d, c, s, factor in entries if (v := values[d][c]) is not None]
        else:
            lines = [f"{s}{v / divisor!r}\n" for d, c, s, _ in entries if (v := values[d][c]) is not None]
        if lines:
            out.append(headers[fmt])
            out += lines
    return "".join(out).encode()


def _join(families: Iterable[Lines], fmt: Format) -> bytes:
    return "".join(part for family, lines in families if lines for part in (kept_header(family, fmt), *lines)).encode()


def _end(self_metrics: bytes, fmt: Format) -> bytes:
    return self_metrics + OPENMETRICS_END if fmt is Format.OPENMETRICS else self_metrics
