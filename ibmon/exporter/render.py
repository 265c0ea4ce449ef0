"""Turns a snapshot into exposition text, once for each snapshot and format.

Owns the walk over the plan and the kept results. It must not read anything but the snapshot: a scrape between two
steps of the engine costs a copy, and the ages of the samples, which are the only text that depends on the moment.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ibmon.exporter.plan import NO_PLAN, Block, Plan, Planner, Values
from ibmon.exporter.samples import Lines, Samples, ages, build_info
from ibmon.exporter.text import OPENMETRICS_END, Format, kept_header
from ibmon.model import Now
from ibmon.snapshot import Snapshot

if TYPE_CHECKING:
    from zlib import _Compress

_NEVER = Now(0.0, 0.0)
_GZIP, _MEMORY = (
    16 + 14,
    7,
)  # a window of 16 KiB: half the memory and half the time to copy it, for a hundredth more bytes
_LEVEL = 1  # measured at 12 devices: a third of the time of level 6 for a seventh more bytes


class _Part:
    """Text that stands behind an earlier part; compressed when first asked for, and only this much of it."""

    def __init__(self, body: bytes, before: _Part | None = None) -> None:
        self.body = body
        self._before = before
        self._packed: tuple[bytes, _Compress] | None = None

    def text(self) -> bytes:
        """All up to the end of this part."""
        return self.body if self._before is None else self._before.text() + self.body

    def packed(self) -> tuple[bytes, _Compress]:
        """What a compressor gave so far that has taken in all up to the end of this part; it must be copied for use."""
        if self._packed is None:
            if self._before is None:
                head, packer = b"", zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP, _MEMORY)
            else:
                head, packer = self._before.packed()
                packer = packer.copy()
            self._packed = head + packer.compress(self.body), packer
        return self._packed

    def gzip(self, end: bytes) -> bytes:
        """All up to the end of this part and `end` behind it, as one gzip stream."""
        head, packer = self.packed()
        rest = packer.copy()
        return head + rest.compress(end) + rest.flush()


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
