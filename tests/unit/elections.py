"""A world for elections: a server with one Lease, candidates with ways to it that fail, and time that a test moves."""

from __future__ import annotations

from ibmon.controller.election import Seen
from ibmon.controller.lease import Leader
from ibmon.drain.kube_client import KubeError
from ibmon.ports import SchedulerError

DURATION, RENEW, RETRY = 15.0, 10.0, 2.0


class World:
    """A server with one Lease, the clock of all, and what was sent and has not arrived."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.lease: Seen | None = None
        self.versions = 0
        self.late: list[tuple[float, Lock, tuple[str, float], str | None]] = []

    def advance(self, seconds: float) -> None:
        """Let time pass, and what was on its way arrive in its turn."""
        until = self.now + seconds
        for sent in sorted((s for s in self.late if s[0] <= until), key=lambda s: s[0]):
            self.late.remove(sent)
            self.now = max(self.now, sent[0])
            self.put(*sent[2], sent[3])
        self.now = until

    def put(self, holder: str, duration: float, version: str | None) -> bool:
        if (self.lease.version if self.lease else None) != version:
            return False
        self.versions += 1
        self.lease = Seen(holder, duration, str(self.versions))
        return True


class Lock:
    """A candidate's way to the server; each half of a call may take time, and it may be cut."""

    about = "lease x/y"

    def __init__(self, world: World) -> None:
        self.world = world
        self.there = self.back = 0.0
        self.cut = False
        self.loses_answers = False
        self.arrives_after: float | None = None
        self.known: str | None = None

    def read(self) -> Seen | None:
        self._go()
        found = self.world.lease
        self.known = found.version if found else None
        self.world.advance(self.back)
        return found

    def write(self, holder: str, duration: float, wall: float) -> Seen:
        if self.arrives_after is not None:
            at = self.world.now + self.arrives_after
            self.world.late.append((at, self, (holder, duration), self.known))
            self.world.advance(5.0)
            raise SchedulerError("no answer within 5 s")
        self._go()
        if not self.world.put(holder, duration, self.known):
            raise KubeError("changed in the same moment", 409)
        self.known = self.world.lease.version
        if self.loses_answers:
            raise SchedulerError("the connection ended")
        written = self.world.lease
        self.world.advance(self.back)
        return written

    def _go(self) -> None:
        self.world.advance(self.there)
        if self.cut:
            raise SchedulerError("cut off")


class Pod:
    """One candidate with its own way and a clock that may run fast or slow."""

    def __init__(self, world: World, name: str, rate: float = 1.0) -> None:
        self.lock = Lock(world)
        self.world = world
        self.leader = Leader(self.lock, name, clock=lambda: world.now * rate, wall=lambda: 0.0)


def leading(*pods):
    return [pod.leader.is_leader() for pod in pods]


def live(world, *pods, seconds):
    """All take their turns each two seconds."""
    for _ in range(int(seconds / RETRY)):
        world.advance(RETRY)
        for pod in pods:
            pod.leader.turn()
