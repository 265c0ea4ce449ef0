"""Puts the snapshot together from the working state of the rooms. Pure; reads only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ibmon.devices import Devices
from ibmon.drain.intent import DrainDesk
from ibmon.health.desks import PortDesk, rule_of
from ibmon.health.evaluate import Episode
from ibmon.health.judge import Judge
from ibmon.model import Column, Finding, Intent, NodeFitness, Now, PortHealth, PortId, Severity
from ibmon.snapshot import DrainView, PortView

Moved = Mapping[str, Mapping[int, tuple[tuple[Column, int], ...]]]

_DIGITS = re.compile(r"(\d+)")

NOTHING_WANTED = Intent(drain=False)


def drain_view(desk: DrainDesk) -> DrainView:
    """Where the drain of this node stands."""
    return DrainView(
        intent=desk.intent or NOTHING_WANTED,
        asks=desk.asks,
        owned=desk.owned,
        blocked=desk.blocked,
        would=desk.would,
        overridden=desk.override is not None,
        asked=desk.asked,
        orphaned=desk.orphans.orphan is not None,
        action_errors=dict(desk.errors),
    )


def why(judge: Judge, findings: Sequence[Finding], fitness: NodeFitness, *, listed: bool) -> str:
    """One line that says why the node is not plainly fit."""
    blind = judge.blindness() if fitness is NodeFitness.UNKNOWN and listed else ""
    if blind:
        return blind
    worst = sorted(findings, key=lambda f: (not f.drains, -f.severity.rank, f.recovering))
    if worst and worst[0].severity is not Severity.INFO:
        first = worst[0]
        state = " (recovering)" if first.recovering else ""
        return " ".join(part for part in (first.rule, first.subject, first.text) if part) + state
    for rule, episode in judge.node.episodes.items():
        return f"{rule} {episode.words} {int(episode.held)}s"
    for port, desk in judge.ports.items():
        if judge.health(port) is PortHealth.UNKNOWN:
            return f"{port} cannot be read" if listed else "nothing was read yet"
        for key, episode in desk.episodes.items():
            if episode.severity != "info":
                return f"{rule_of(key)} {port} {episode.words} {int(episode.held)}s"
    return "" if listed else "class/infiniband was not read yet"


def port_views(judge: Judge, devices: Devices, now: Now, boot_id: str) -> tuple[PortView, ...]:
    """Every port that is present or expected, in the order in which people count: mlx5_2 before mlx5_10."""
    moved = {name: devices.moved(name, now.monotonic) for name in devices.present}
    return tuple(_port_view(judge, port, moved, now, boot_id) for port in sorted(judge.ports, key=_counted))


def _runs_on(rule: str, desk: PortDesk, episode: Episode) -> bool:
    """Whether the hold of an episode runs: the condition is there, and time will make it critical."""
    chosen = desk.settings.get(rule)
    if chosen is None or chosen.rule.counts or episode.recovering or episode.severity in ("info", "critical"):
        return False
    return rule in desk.running.conditions and desk.running.conditions[rule].reach == "critical"


def _counted(port: PortId) -> tuple[list[tuple[int, str]], int]:
    """A sort key in which digits count as numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in _DIGITS.split(port.device)], port.port


def _port_view(judge: Judge, port: PortId, moved: Moved, now: Now, boot_id: str) -> PortView:
    desk = judge.ports[port]
    row, facts = desk.expected, desk.facts
    running = {rule: episode for rule, episode in desk.episodes.items() if _runs_on(rule, desk, episode)}
    return PortView(
        id=port,
        role=row.role,
        health=judge.health(port),
        present=row.port is not None,
        expected=row.expected,
        slot=row.slot,
        declared=row.declared,
        trusted=row.trusted,
        rail=row.rail,
        link_layer=row.port.link_layer if row.port else None,
        netdev=row.port.netdev if row.port else None,
        state=facts.state if facts else None,
        physical_state=facts.physical_state if facts else None,
        rate=facts.rate if facts else None,
        expected_rate=row.rate if row.expected else None,
        speed_word=facts.speed_word if facts else None,
        width=facts.width if facts else None,
        flaps=desk.link.count(now, boot_id),
        moved=moved.get(port.device, {}).get(port.port, ()),
        hold={rule: max(0.0, desk.settings[rule].hold - episode.elapsed) for rule, episode in running.items()},
        onset={rule: episode.onset for rule, episode in running.items()},
    )
