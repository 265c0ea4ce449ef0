"""Turns a snapshot into exposition text, once for each snapshot and format.

Owns the walk over the plan and the kept results. It must not read anything but the snapshot: a scrape between two
steps of the engine costs a copy, and the ages of the samples, which are the only text that depends on the moment.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ibmon.exporter.plan import Plan, Planner
from ibmon.exporter.samples import Lines, Samples, ages, build_info
from ibmon.exporter.text import OPENMETRICS_END, Format, kept_header
from ibmon.snapshot import Snapshot

if TYPE_CHECKING:
    from zlib import _Compress

_GZIP = 16 + zlib.MAX_WBITS
_LEVEL = 1  # measured at 12 devices: a third of the time of level 6 for a seventh more bytes


class _Kept:
    """The text of one snapshot in one format, without its end; its compressed form is made when first asked for."""

    def __init__(self, snapshot: Snapshot, body: bytes) -> None:
        self.snapshot = snapshot
        self.body = body
        self._packed: tuple[bytes, _Compress] | None = None

    def gzip(self, end: bytes) -> bytes:
        """Body and end as one gzip stream: the compressor that has taken in the body is copied, not run again."""
        if self._packed is None:
            packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
            self._packed = packer.compress(self.body), packer
        head, packer = self._packed
        rest = packer.copy()
        return head + rest.compress(end) + rest.flush()


class Renderer:
    """Renders snapshots; safe to call from several threads."""

    def __init__(self, *, node_exporter: bool = False) -> None:
        self._lock = threading.Lock()
        self._planner = Planner(node_exporter=node_exporter)
        self._plan = Plan((), (), ())
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
            kept = self._kept.get(fmt)
            if kept is None or kept.snapshot is not snapshot:
                if snapshot is None:
                    return _finish(_join([build_info()], fmt) + _end(self_metrics, fmt), gzip=gzip)
                kept = self._kept[fmt] = _Kept(snapshot, self._body(snapshot, fmt))
            assert snapshot is not None  # noqa: S101 - for the type checker: kept.snapshot is snapshot
            end = _join([ages(snapshot, monotonic)], fmt) + _end(self_metrics, fmt)
            return kept.gzip(end) if gzip else kept.body + end

    def _body(self, snapshot: Snapshot, fmt: Format) -> bytes:
        layouts = tuple(v.device.layout for v in snapshot.devices)
        if layouts != self._plan.layouts:  # layouts compare by identity
            self._plan = self._planner.plan([v.device for v in snapshot.devices])
        fixed = _join(self._samples.lines(snapshot, self._plan.clashes), fmt)
        return fixed + _columns(self._plan, snapshot, fmt)


def _columns(plan: Plan, snapshot: Snapshot, fmt: Format) -> bytes:
    """The text of all columns. A device that hangs has no values: its series end."""
    values = [(None,) * len(v.sample.values) if v.stalled else v.sample.values for v in snapshot.devices]
    out: list[str] = []
    for headers, divisor, entries in plan.blocks:
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


def _finish(text: bytes, *, gzip: bool) -> bytes:
    if not gzip:
        return text
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return packer.compress(text) + packer.flush()
