"""What a report costs the controller's core: `python -m bench.controller_core [NODES]`, without sockets and signatures.

Prints microseconds a report for a quiet fleet, for one in which 1 % is unfit, and for a subnet manager's absence that
everybody shows, with the longest pause of the event loop that a view of the scheduler makes, and bytes a node.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
import tracemalloc

import msgspec

from ibmon.config import LimitsConfig
from ibmon.controller.fleet import FleetDesk
from ibmon.controller.ledger import Ledger
from ibmon.controller.room import Room
from ibmon.controller.values import DrainJob, FleetSettings, FleetView
from ibmon.model import Mode, NodeFitness, NodeView, Now, Severity
from ibmon.report import INTERVAL, FindingLine, Owned, Report, Wish

WALL = 1_800_000_000.0


class _Pool(msgspec.Struct):
    name: str
    nodes: tuple[NodeView, ...]


class _Fleet:
    def __init__(self, count: int) -> None:
        self.names = [f"gpu-{i:05d}" for i in range(count)]
        self.seq = dict.fromkeys(self.names, 0)
        self.at = 0.0
        views = {name: NodeView(name, frozenset({"IDLE"})) for name in self.names}
        nodes = tuple(views.values())
        half = len(nodes) // 2
        pools = (_Pool("all", nodes), _Pool("a", nodes[:half]), _Pool("b", nodes[half:]))
        leaves = {name: f"leaf-{i // 16}" for i, name in enumerate(self.names)}
        self.view = FleetView(views, pools, leaves)
        settings = FleetSettings(mode=Mode.DRAIN, limits=LimitsConfig())
        self.desk = FleetDesk(settings, Ledger(), self.now)

    @property
    def now(self) -> Now:
        return Now(self.at, WALL + self.at)

    def body(self, name: str, finding: FindingLine | None) -> bytes:
        self.seq[name] += 1
        mark = f"{int(name[4:]):06x}"
        reason = f"ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id {mark}]"
        bad = finding is not None
        return msgspec.json.encode(
            Report(
                v=1,
                node=name,
                boot_id="0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0",
                seq=self.seq[name],
                sent=WALL + self.at,
                version="0.1.0",
                config_hash="0123456789abcdef",
                mode=Mode.DRAIN,
                fitness=NodeFitness.UNFIT if bad else NodeFitness.FIT,
                rails="oooooooo",
                findings=(finding,) if finding else (),
                intent=Wish(drain=True, id=mark, reason=reason, since=WALL) if bad else Wish(),
                owned=Owned(mark, reason, WALL) if bad else None,
            )
        )

    def round(self, findings: dict[str, FindingLine]) -> tuple[list[float], float]:
        """Half a minute: every node reports once, a view comes. Seconds a report, and the view's pause."""
        self.at += INTERVAL
        decoder = msgspec.json.Decoder(Report)
        reports = [decoder.decode(self.body(name, findings.get(name))) for name in self.names]
        now, costs = self.now, []
        for report in reports:
            begun = time.perf_counter()
            self.desk.report(report, now)
            self.desk.next_due()
            job = self.desk.next_job(now)
            costs.append(time.perf_counter() - begun)
            assert not isinstance(job, DrainJob) or findings
        begun = time.perf_counter()
        self.desk.scheduler(self.view, now)
        self.desk.next_job(now)
        pause = time.perf_counter() - begun
        self.desk.notes()
        return costs, pause


def _line(title: str, fleet: _Fleet, findings: dict[str, FindingLine]) -> None:
    costs, pauses = [], []
    for _ in range(3):
        some, pause = fleet.round(findings)
        costs += some
        pauses.append(pause)
    mean, worst = statistics.mean(costs), max(costs)
    print(f"{title:<30} {mean * 1e6:8.1f} us a report, worst {worst * 1e3:6.1f} ms; a view {max(pauses) * 1e3:6.1f} ms")


def _finding(rule: str, onset: float) -> FindingLine:
    return FindingLine(rule=rule, device="mlx5_3", port=1, rail=3, severity=Severity.CRITICAL, onset=onset, drains=True)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    fleet = _Fleet(count)
    fleet.desk.scheduler(fleet.view, fleet.now)
    _line(f"{count} nodes, all fit", fleet, {})
    few = {name: _finding("port-down", WALL + i * 70.0) for i, name in enumerate(fleet.names[::100])}
    _line("1 % unfit, one after another", fleet, few)
    everybody = {name: _finding("port-init", fleet.at + WALL) for name in fleet.names}
    _line("all in INIT at once", fleet, everybody)
    begun = time.perf_counter()
    fleet.desk.fleet(fleet.now)
    print(f"GET /api/v1/fleet in the last state: {(time.perf_counter() - begun) * 1e3:.1f} ms")
    gc.collect()
    tracemalloc.start()
    quiet = _Fleet(count)
    names = tracemalloc.get_traced_memory()[0]
    quiet.round({})
    gc.collect()
    core = tracemalloc.get_traced_memory()[0] - names
    tracemalloc.stop()
    print(f"memory: {core / count:.0f} bytes a node for its report and what is known of it at the scheduler")
    print(f"ledger: {len(quiet.desk.ledger_bytes()) / count:.0f} bytes a node")
    room = Room(LimitsConfig())
    begun = time.perf_counter()
    room.load(quiet.view, quiet.now)
    print(f"a view alone: {(time.perf_counter() - begun) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
