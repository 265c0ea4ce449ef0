"""What a daemon has said, as `ibmon check` and `ibmon wait` find it."""

from __future__ import annotations

import json
import time

from exporter_snapshots import port_view, snapshot

from ibmon.model import Finding, Intent, Mode, NodeFitness, Now, Ownership, PortHealth, Severity
from ibmon.runtime import host
from ibmon.runtime.verdict import FILE, VerdictFile
from ibmon.snapshot import DrainView

REASON = "ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id 7f3a9c]"
WHY = "port-down mlx5_3/1 DOWN/Polling 62s>60s"
FINDING = Finding(
    "port-down", "mlx5_3", 1, "", severity=Severity.CRITICAL, onset=1.7e9, observed="DOWN/Polling", limit="ACTIVE",
    text="DOWN/Polling 62s>60s", drains=True,
)  # fmt: skip
HELD = Ownership("7f3a9c", REASON, 1.7e9, held=True)
WANTED = Intent(drain=True, reason=REASON, id="7f3a9c", since=1.7e9)


def shot(fitness, **facts):
    """A snapshot of this boot and this moment, as the daemon would take it."""
    usual = {"at": Now(time.monotonic(), time.time()), "boot_id": host.boot_id()}
    ports = [port_view("mlx5_0", expected=True), port_view("mlx5_3", expected=True, health=PortHealth.FAILED)]
    return snapshot(ports=ports, fitness=NodeFitness(fitness), **{**usual, **facts})


def unfit(**facts):
    return shot("unfit", **{"why": WHY, "findings": (FINDING,), **facts})


def drained(**facts):
    usual = {"mode": Mode.DRAIN, "drain": DrainView(WANTED, HELD)}
    return unfit(**{**usual, **facts})


def said(config, what):
    """Let the daemon have said this: a snapshot, a document, or raw text."""
    if isinstance(what, str | bytes):
        (config.parent / FILE).write_bytes(what.encode() if isinstance(what, str) else what)
    elif isinstance(what, dict):
        (config.parent / FILE).write_text(json.dumps(what))
    else:
        VerdictFile(config.parent).write(what)
