"""When a drain is ours, allowed and possible: ownership, reason text, limits, scheduler states. Pure.

Owns the rules that every scheduler write must pass; it reads nothing, writes nothing and knows no clock.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from ibmon.config import LimitsConfig
from ibmon.model import BlockCode, Finding, Intent, Mode, NodeView, Ownership

PREFIX: Final = "ibmon: "
MAX_REASON: Final = 200

# ----------------------------------------------------------------------------------------------- reason

# Slurm prints "[user@time]" behind a reason (src/api/node_info.c); some tools hand it on with the text.
_ATTRIBUTION: Final = re.compile(r"\s*\[[^\[\]\s]*@[0-9A-Za-z:.+-]+\]\s*$")
_OURS: Final = re.compile(r"ibmon: [ -~]*\[id ([0-9a-z]{4,32})\]")


def reason_text(findings: Iterable[Finding], drain_id: str) -> str:
    """The reason of a drain: ``ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s (+2 more) [id 7f3a9c]``.

    Made of the worst drain-capable finding; the other ports, devices or the node are only counted. At most
    `MAX_REASON` printable ASCII characters in one line, and the id is never cut off. ValueError without such a
    finding: nothing may be drained without a cause.
    """
    causes = sorted((f for f in findings if f.drains), key=_worst_first)
    if not causes:
        raise ValueError("no drain-capable finding, so no reason to drain")
    first = causes[0]
    more = len({f.subject for f in causes} - {first.subject})
    tail = (f" (+{more} more)" if more else "") + f" [id {drain_id}]"
    head = _plain(f"{PREFIX}{first.rule} {first.subject} {first.text}")
    return head[: MAX_REASON - len(tail)].rstrip() + tail


def _worst_first(finding: Finding) -> tuple[int, float, str, str]:
    return (-finding.severity.rank, finding.onset, finding.subject, finding.rule)


def _plain(text: str) -> str:
    """The text in one line of printable ASCII without square brackets: those mark the id and Slurm's own note."""
    ascii_only = "".join(c if " " <= c <= "~" else " " if c.isspace() else "?" for c in text)
    return " ".join(ascii_only.replace("[", "(").replace("]", ")").split())


def bare_reason(text: str) -> str:
    """A reason without what Slurm appends to it (user and time)."""
    return _ATTRIBUTION.sub("", text).strip()


def parse_reason(text: str | None) -> str | None:
    """The id in a reason that has the form of ours, else None."""
    match = _OURS.fullmatch(bare_reason(text)) if text else None
    return match.group(1) if match else None


def claims(view: NodeView) -> bool:
    """Whether this drain carries our prefix: some ibmon's doing, by its own word. What the limits count."""
    return view.drained and view.reason is not None and view.reason.startswith(PREFIX)


def owns(record: Ownership | None, view: NodeView) -> bool:
    """Whether this node's drain is ours: our prefix, our id and our recorded text, all three and unchanged."""
    if record is None or view.reason is None or not view.drained:
        return False
    return parse_reason(view.reason) == record.id and bare_reason(view.reason) == bare_reason(record.reason)


# ----------------------------------------------------------------------------------------------- states


class StateRule(NamedTuple):
    """Whether a drain may be set, and ours taken away, while a state word stands; `why` answers a no."""

    drain: bool
    undrain: bool
    why: str = ""


_REBOOT = StateRule(drain=False, undrain=False, why="a reboot is under way: Slurm keeps its own note of the drain")
_POWER = StateRule(drain=False, undrain=False, why="power saving has the node")
_KIND = StateRule(drain=True, undrain=False, why="not a plain node: a person or its power manager gives it back")

# Words of `scontrol show node` (Slurm 20.11 to 25.05, src/common/slurm_protocol_defs.c). A word that is not here
# may do neither. Changing a drain while a reboot waits makes Slurm forget to lift it (NHC issues 83, 84).
STATES: Final[dict[str, StateRule]] = {
    "IDLE": StateRule(drain=True, undrain=True),
    "MIXED": StateRule(drain=True, undrain=True),
    "ALLOCATED": StateRule(drain=True, undrain=True),
    "COMPLETING": StateRule(drain=True, undrain=True),
    "PLANNED": StateRule(drain=True, undrain=True),
    "RESERVED": StateRule(drain=True, undrain=True),
    "DRAIN": StateRule(drain=True, undrain=True),  # whose it is, `owns` says
    # Kubernetes: somebody else's cordon. Our taint stands beside it and goes without it.
    "CORDONED": StateRule(drain=True, undrain=True),
    "PERFCTRS": StateRule(drain=True, undrain=False, why="a job uses the network performance counters"),
    "BLOCKED": StateRule(drain=True, undrain=False, why="another job's exclusive topology blocks it"),
    "CLOUD": _KIND,
    "DYNAMIC_NORM": _KIND,
    "DYNAMIC_FUTURE": _KIND,
    "DOWN": StateRule(drain=False, undrain=False, why="it is down already"),
    "FAIL": StateRule(drain=False, undrain=False, why="it is marked as failing"),
    "ERROR": StateRule(drain=False, undrain=False, why="it is in error"),
    "UNKNOWN": StateRule(drain=False, undrain=False, why="it has not registered yet"),
    "INVALID": StateRule(drain=False, undrain=False, why="its registration was refused"),
    "INVALID_REG": StateRule(drain=False, undrain=False, why="its registration was refused"),
    "NOT_RESPONDING": StateRule(drain=True, undrain=False, why="it does not answer the scheduler"),
    "FUTURE": StateRule(drain=False, undrain=False, why="it does not exist yet"),
    "MAINT": StateRule(drain=False, undrain=False, why="it is in a maintenance reservation"),
    "REBOOT": _REBOOT,
    "REBOOT_REQUESTED": _REBOOT,
    "REBOOT_ISSUED": _REBOOT,
    "REBOOT_CANCEL": _REBOOT,
    "POWER": _POWER,
    "POWER_DOWN": _POWER,
    "POWER_UP": _POWER,
    "POWER_DRAIN": _POWER,
    "POWERED_DOWN": _POWER,
    "POWERING_DOWN": _POWER,
    "POWERING_UP": _POWER,
}
_UNKNOWN_STATE: Final = StateRule(drain=False, undrain=False, why="ibmon does not know this state")
# `POWER` is how Slurm before 21.08 wrote POWERED_DOWN.
_NOT_COUNTED: Final = frozenset({"POWERED_DOWN", "POWER", "FUTURE"})
_UNAVAILABLE: Final = frozenset({"DOWN", "DRAIN", "CORDONED", "FAIL", "ERROR", "NOT_RESPONDING"})


def drain_obstacle(flags: frozenset[str]) -> str | None:
    """Why a node in this state is not drained (``MAINT: it is in ...``), or None where it may be."""
    return _obstacle(flags, lambda rule: rule.drain)


def undrain_obstacle(flags: frozenset[str]) -> str | None:
    """Why our drain of a node in this state stays, or None where it may be taken away."""
    return _obstacle(flags, lambda rule: rule.undrain)


def _obstacle(flags: frozenset[str], allows: Callable[[StateRule], bool]) -> str | None:
    if not flags:
        return "the scheduler names no state"
    for flag in sorted(flags):
        rule = STATES.get(flag, _UNKNOWN_STATE)
        if not allows(rule):
            return f"{flag}: {rule.why}"
    return None


# ----------------------------------------------------------------------------------------------- limits


class Pool(Protocol):
    """A partition or node pool with all its nodes."""

    @property
    def name(self) -> str:
        """The scheduler's name of it."""
        ...

    @property
    def nodes(self) -> tuple[NodeView, ...]:
        """Every node in it, this one among them or not."""
        ...


def allowed(n: int, limits: LimitsConfig) -> int:
    """How many of `n` counted nodes ibmon may hold drained: min(n // 4, max(min_nodes, share of n)).

    Under four nodes none, unless the site wrote `min_nodes` itself.
    """
    if n < 4:
        return min(n, limits.min_nodes) if limits.min_nodes_set else 0
    share = math.floor(limits.max_drained * n + 1e-9)  # 0.29 * 100 is 28.999999999999996
    return min(n // 4, max(limits.min_nodes, share))


def counted(pool: Pool) -> tuple[NodeView, ...]:
    """The nodes of a pool that count: all but powered-down and future ones."""
    return tuple(node for node in pool.nodes if counts(node.flags))


def choose_pools(pools: Sequence[Pool], node: str, limits: LimitsConfig) -> tuple[Pool, ...]:
    """The pools whose limits hold for a node.

    Those that the configuration names, else all that contain it except those that hold every node of all `pools`;
    if none remain, those. Empty when none contains it (then nothing may be drained).
    """
    mine = tuple(pool for pool in pools if any(view.name == node for view in pool.nodes))
    if limits.partitions is not None:
        return tuple(pool for pool in mine if pool.name in limits.partitions)
    everyone = {view.name for pool in pools for view in pool.nodes}
    parts = tuple(pool for pool in mine if len({view.name for view in pool.nodes}) < len(everyone))
    return parts or mine


def limit_gate(pools: Sequence[Pool] | None, node: str, limits: LimitsConfig, now_wall: float) -> BlockCode | None:
    """Why the fleet limits forbid one more drain now, counted at the scheduler; None where there is room.

    `pools` is None when they could not be read.
    """
    chosen = choose_pools(pools, node, limits) if pools else ()
    if not chosen:
        return BlockCode.LIMIT_UNREADABLE
    codes = [tally_gate(tally(pool), limits, now_wall) for pool in chosen]
    return next((code for code in codes if code), None)


class Tally(NamedTuple):
    """A pool as its limit sees it: nodes that count, since when each of ours is drained, and how many are away."""

    nodes: int
    ours: tuple[float | None, ...]
    unavailable: int


def counts(flags: frozenset[str]) -> bool:
    """Whether a node in this state counts for the limits: all but powered-down and future ones do."""
    return not flags & _NOT_COUNTED


def unavailable(flags: frozenset[str]) -> bool:
    """Whether a node in this state gets no work, whoever's doing that is."""
    return bool(flags & _UNAVAILABLE)


def tally(pool: Pool) -> Tally:
    """The numbers of one pool."""
    nodes = counted(pool)
    ours = tuple(view.since for view in nodes if claims(view))
    return Tally(len(nodes), ours, sum(1 for view in nodes if unavailable(view.flags)))


def tally_gate(numbers: Tally, limits: LimitsConfig, now_wall: float) -> BlockCode | None:
    """Why a pool with these numbers has no room for one more drain now, or None where it has."""
    if len(numbers.ours) >= allowed(numbers.nodes, limits):
        return BlockCode.LIMIT_NODES
    if numbers.unavailable > limits.max_unavailable * numbers.nodes + 1e-9:
        return BlockCode.MAX_UNAVAILABLE
    if limits.new_per_minute <= 0:
        return BlockCode.LIMIT_RATE
    window = rate_window(limits)
    known = [since for since in numbers.ours if since is not None]
    if len(known) < len(numbers.ours):
        return BlockCode.LIMIT_UNREADABLE
    recent = sum(1 for since in known if since > now_wall - window)
    return BlockCode.LIMIT_RATE if recent >= max(1, math.floor(limits.new_per_minute)) else None


def rate_window(limits: LimitsConfig) -> float:
    """Seconds within which new drains are counted: below one a minute it grows, 0.5 is one in two minutes."""
    return 60.0 / min(1.0, limits.new_per_minute)


def beyond_limit(pools: Sequence[Pool], node: str, limits: LimitsConfig) -> bool:
    """Whether this node's drain is one too many, after nodes that cannot see each other have all drained.

    Ours are sorted by (time, name) and only those behind the limit answer True, so that the others stay.
    """
    for pool in choose_pools(pools, node, limits):
        nodes = counted(pool)
        ours = sorted((view for view in nodes if claims(view)), key=_drain_order)
        if any(view.name == node for view in ours[allowed(len(nodes), limits) :]):
            return True
    return False


def _drain_order(view: NodeView) -> tuple[float, str]:
    return (math.inf if view.since is None else view.since, view.name)


# ------------------------------------------------------------------------------------------------- gate


def write_gate(mode: Mode, *, stop: bool) -> BlockCode | None:
    """Why nothing at all may be written to a scheduler now (the stop, then the mode)."""
    if stop:
        return BlockCode.STOP
    return None if mode is Mode.DRAIN else BlockCode.MODE


def node_gate(view: NodeView, record: Ownership | None, intent: Intent) -> BlockCode | None:
    """Why this node is not drained as the scheduler shows it; None where it may be, or where our drain stands."""
    if owns(record, view) or owns(intended(intent), view):
        return None
    if view.drained:
        return BlockCode.FOREIGN_DRAIN
    return BlockCode.SCHEDULER_STATE if drain_obstacle(view.flags) else None


def intended(intent: Intent) -> Ownership:
    """The record that a drain by this intent has until it was read back."""
    return Ownership(id=intent.id, reason=intent.reason, asked=intent.since)


def gate(
    view: NodeView,
    pools: Sequence[Pool] | None,
    limits: LimitsConfig,
    *,
    mode: Mode,
    stop: bool,
    now_wall: float,
    record: Ownership | None,
    intent: Intent,
) -> BlockCode | None:
    """Why a drain that is due is not made now, the first that applies in a fixed order; None: go on.

    The order is that of what a person must change first: stop, mode, somebody else's drain, the node's state at the
    scheduler, the limits. A drain of ours that stands already has no obstacle but stop and mode.
    """
    code = write_gate(mode, stop=stop) or node_gate(view, record, intent)
    if code or view.drained:
        return code
    return limit_gate(pools, view.name, limits, now_wall)
