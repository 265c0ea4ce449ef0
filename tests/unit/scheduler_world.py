"""Nodes of one simulated cluster, played in virtual time; a scheduler whose states change as a test says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core_world import CONFIG

from ibmon.configfile import loads
from ibmon.drain.cluster import Cluster
from ibmon.engine import Engine, Identity
from ibmon.memory import load_memory
from ibmon.recording import Frame, Header
from ibmon.runtime.replay import World

CALM = '[sampling]\nstate_interval = "30s"\ncounter_interval = "30s"\nslow_interval = "60s"\n'


class Member(World):
    """One node of a cluster that others may share, read seldom. `flags` are its states at the scheduler by time."""

    def __init__(
        self,
        name: str = "node0001",
        cluster: Cluster | None = None,
        config: str = CONFIG,
        flags: Mapping[float, Sequence[str]] | None = None,
        **header: Any,
    ) -> None:
        self.name = name
        self.flags = flags or {}
        super().__init__(Header(**header), loads(config + CALM).config)
        if cluster is not None:
            self.cluster, self.scheduler = cluster, cluster.client(name)

    def _start(self) -> Engine:
        return Engine(
            self.config,
            Identity(self.name, self._boot_id, self._booted),
            self.now(),
            memory=load_memory(self.store.load()),
            owned=self.store.ownership(),
            phase=0.0,
        )

    def apply(self, frame: Frame) -> None:
        super().apply(frame)
        if frame.t in self.flags:
            self.cluster.set_flags(self.name, *self.flags[frame.t])

    @property
    def drained(self) -> bool:
        """Whether the node is drained, by whomever."""
        return self.cluster.view(self.name).drained

    @property
    def view(self) -> Any:
        """What the node says of its drain."""
        return self.engine.snapshot(self.now()).drain


def play_all(stories: Mapping[Member, Iterable[Frame]], until: float) -> Iterable[float]:
    """Play several nodes side by side to the end; every time at which anything was due."""
    waiting = {member: list(frames) for member, frames in stories.items()}
    while True:
        due = {
            member: min(max(member.engine.next_due(), member.time), frames[0].t if frames else float("inf"))
            for member, frames in waiting.items()
        }
        time = min(due.values())
        if time > until:
            return
        for member, at in due.items():
            if at <= time:
                member.time = time
                while waiting[member] and waiting[member][0].t <= time:
                    member.apply(waiting[member].pop(0))
                member.settle()
        yield time
