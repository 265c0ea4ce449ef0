"""What the engine keeps across restarts, as one versioned value. Pure; the store holds it as bytes."""

from __future__ import annotations

import msgspec

from ibmon.drain.intent import DrainMemory
from ibmon.health import kernel_log
from ibmon.health.desks import PortMemory
from ibmon.health.evaluate import Episode
from ibmon.health.inventory import Learned
from ibmon.health.judge import Judge
from ibmon.maintenance import Window
from ibmon.model import NodeFitness

VERSION = 1


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's state as it is stored. `saved` is monotonic time, believed only within the same boot.

    `fitness` is the last that was written down, `heard` the last that receivers of webhooks were told, None: the same.
    """

    boot_id: str
    saved: float
    ports: dict[str, PortMemory]
    drain: DrainMemory
    fitness: NodeFitness = NodeFitness.UNKNOWN
    heard: NodeFitness | None = None
    node: dict[str, Episode] = {}
    kernel: dict[str, tuple[kernel_log.Line, ...]] = {}
    maintenance: tuple[Window, ...] = ()
    version: int = VERSION

    def encode(self) -> bytes:
        """The form in which it is stored."""
        return msgspec.json.encode(self)


def load_memory(data: bytes | None) -> Memory | None:
    """The stored state, or None where there is none that this version understands."""
    if data is None:
        return None
    try:
        memory = msgspec.json.decode(data, type=Memory)
    except msgspec.DecodeError:
        return None
    return memory if memory.version == VERSION else None


def remember(judge: Judge, memory: dict[str, PortMemory]) -> bool:
    """Bring the stored state of every slot up to date; whether what was learned changed."""
    changed = False
    for port, desk in judge.ports.items():
        known = memory.get(desk.expected.slot)
        was = known.learned if known else Learned(str(port), desk.expected.role, active=False, best_rate=None)
        best = max((r for r in (was.best_rate, desk.best_rate) if r is not None), default=None)
        active = was.active or desk.best_rate is not None
        device = desk.expected.device
        card = (device.node_guid or "") if device else ""
        name = desk.expected.known_as or str(port)
        learned = Learned(name, desk.expected.role, active, best, was.accepted, card or was.card) if device else was
        kept = PortMemory(
            learned, dict(desk.episodes), desk.link.memory, dict(desk.windows), dict(desk.last), dict(desk.self_cleared)
        )
        if kept != known and (active or kept.episodes or kept.windows):
            memory[desk.expected.slot] = kept
            changed = changed or known is None or known.learned != learned
    return changed
