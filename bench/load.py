"""What a fleet asks of its scheduler in direct mode: every node's own desk and `reconcile`, in virtual time."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Sequence

from bench.figure import Figure, Table, Target
from bench.settings import Settings
from ibmon.config import ActionConfig
from ibmon.drain import reconcile
from ibmon.drain.cluster import Cluster
from ibmon.drain.intent import DrainDesk, DrainMemory
from ibmon.drain.pace import JITTER
from ibmon.model import Finding, Mode, NodeFitness, Now, Severity
from ibmon.runtime.memory_store import MemoryStore

NODES = 5000
UNFIT = 50
WALL = 1.9e9
APART, TOGETHER = "one after the other", "together"
WINDOW = 10
"""Seconds over which a peak is taken: one drain is five calls within a second, however seldom it is."""
AVERAGE_LIMIT, PEAK_LIMIT = 1.0, 5.0
"""Calls a second."""

METHOD = """\
{nodes} nodes, each with the daemon's own desk, `reconcile` and limits, on one simulated scheduler, in virtual
time; 1 % of them become unfit and stay so for {hours:.3g} h. Each `scontrol` counts, reads and writes alike. *One
after the other*: at random moments of the first hour. *Together*: in the same second, as when a leaf switch
dies; each waits a part of its own of {jitter:.0f} s first. The peak is the mean of the ten seconds with the most
calls, beside it the busiest second. All nodes remember their state, so none looks because it has lost it."""

BAD = (
    Finding(
        "port-down", "mlx5_0", 1, "", Severity.CRITICAL, WALL, "DOWN/Polling", "ACTIVE", "DOWN/Polling 62s>60s",
        drains=True,
    ),
)  # fmt: skip


class _Node:
    """One node: what it wants, what it remembers, and its way to the scheduler."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.desk = DrainDesk(name, "boot", DrainMemory(), None, Now(0.0, WALL))
        self.client = cluster.client(name)
        self.store = MemoryStore()
        self.findings: tuple[Finding, ...] = ()


def play(onsets: Sequence[float], seconds: float, nodes: int = NODES) -> Counter[int]:
    """Calls by second; the first nodes become unfit at `onsets`."""
    now = 0.0
    cluster = Cluster(nodes, wall=lambda: WALL + now)
    action = ActionConfig(mode=Mode.DRAIN, scheduler="slurm")
    gates = reconcile.Gates(mode=lambda: Mode.DRAIN, stop=lambda: False, limits=action.limits)
    fleet = [_Node(cluster, f"node{number:04d}") for number in range(1, nodes + 1)]
    calls: Counter[int] = Counter()
    due = [(onset, number) for number, onset in enumerate(onsets)]
    due += [(0.0, number) for number in range(nodes)]
    heapq.heapify(due)
    while due and due[0][0] <= seconds:
        now, number = heapq.heappop(due)
        node, instant = fleet[number], Now(now, WALL + now)
        if number < len(onsets) and now >= onsets[number]:
            node.findings = BAD
        fitness = NodeFitness.UNFIT if node.findings else NodeFitness.FIT
        wanted = node.desk.decide(node.findings, fitness, action, instant, stopped=False, enabled=True, jitter=JITTER)
        for request in wanted:
            before = sum(node.client.calls.values())
            done = reconcile.carry_out(request, node.client, node.store, gates, instant)
            calls[int(now)] += sum(node.client.calls.values()) - before
            node.desk.done(done, instant)
            node.desk.decide(node.findings, fitness, action, instant, stopped=False, enabled=True, jitter=JITTER)
        next_due = node.desk.next_due(action)
        if next_due <= seconds:
            heapq.heappush(due, (max(next_due, now + 0.001), number))
    return calls


def _busiest(calls: Counter[int], window: int) -> float:
    """Calls a second in the busiest so many seconds."""
    return max((sum(calls[s + i] for i in range(window)) for s in calls), default=0) / window


def measure(settings: Settings) -> Figure:
    """Both stories, as one table."""
    seconds = settings.day / 4
    chance = random.Random(4)
    stories = {
        APART: [chance.uniform(0, min(3600.0, seconds / 2)) for _ in range(UNFIT)],
        TOGETHER: [1.0] * UNFIT,
    }
    rows, targets = [], []
    for name, onsets in stories.items():
        calls = play(onsets, seconds)
        average, peak = sum(calls.values()) / seconds, _busiest(calls, WINDOW)
        busiest = max(calls.values(), default=0)
        rows.append((name, f"{sum(calls.values())}", f"{average:.2f}", f"{peak:.1f}", f"{busiest}"))
        targets.append(Target(f"scheduler calls a second, {name}", average, AVERAGE_LIMIT))
        targets.append(Target(f"scheduler calls a second at the peak, {name}", peak, PEAK_LIMIT))
    table = Table((f"{NODES} nodes, {UNFIT} unfit", "calls", "a second", "peak", "busiest second"), rows)
    return Figure(
        "Load on the scheduler", METHOD.format(nodes=NODES, hours=seconds / 3600, jitter=JITTER), (table,), targets
    )
