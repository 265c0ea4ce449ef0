"""The node's verdict: runs the rule table over every port, remembers episodes, says health, findings and fitness.

Pure: facts and time come in, values go out. What must outlive the process is `PortMemory`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from ibmon.config import Config
from ibmon.health.evaluate import Episode, advance, due_in
from ibmon.health.history import Flap, FlapWatch
from ibmon.health.inventory import Expected, Learned
from ibmon.health.rules import RULE_BY_ID, RULES, PortFacts, Settings, Verdict, settings
from ibmon.model import Finding, Mode, NodeFitness, Now, PortHealth, PortId, PortState, Role, Severity

HEALTH_ORDER = (
    PortHealth.IGNORED,
    PortHealth.OK,
    PortHealth.WARNING,
    PortHealth.RECOVERING,
    PortHealth.DEGRADED,
    PortHealth.FAILED,
)


class PortMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """One slot's state as it is stored: what was learned, what runs, and how often it bounced."""

    learned: Learned
    episodes: dict[str, Episode] = {}
    flaps: tuple[Flap, ...] = ()


@dataclass(slots=True)
class PortDesk:
    """The working state of one port: its row of the inventory and everything that runs."""

    expected: Expected
    settings: dict[str, Settings]
    episodes: dict[str, Episode] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    flaps: FlapWatch = field(default_factory=FlapWatch)
    best_rate: int | None = None  # of this boot, while ACTIVE
    checked: float | None = None  # monotonic time of the last evaluation
    facts: PortFacts | None = None


class Judge:
    """All ports of the node. `longest_gap` is the time (seconds) for which a read is believed."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.ports: dict[PortId, PortDesk] = {}
        self.longest_gap = 3 * config.sampling.state_interval

    # ----------------------------------------------------------------------------------- inventory

    def assign(self, config: Config, inventory: dict[PortId, Expected], memory: dict[str, PortMemory]) -> None:
        """Take a new inventory into force; what runs on a slot stays with it, whatever the port is called now."""
        self.config = config
        self.longest_gap = 3 * config.sampling.state_interval
        by_slot = {desk.expected.slot: desk for desk in self.ports.values()}
        desks: dict[PortId, PortDesk] = {}
        for port, expected in inventory.items():
            rules = {r.id: settings(config, r, port, expected.role) for r in RULES}
            desk = by_slot.get(expected.slot)
            if desk is None:
                desk = PortDesk(expected, rules)
                known = memory.get(expected.slot)
                if known is not None:
                    desk.episodes = {r: e for r, e in known.episodes.items() if r in RULE_BY_ID}
                    desk.flaps.flaps = known.flaps
            else:
                desk.expected, desk.settings = expected, rules
            desk.episodes = {r: e for r, e in desk.episodes.items() if desk.settings[r].enabled and expected.expected}
            desks[port] = desk
        self.ports = desks

    # ----------------------------------------------------------------------------------- evaluation

    def evaluate(self, port: PortId, facts: PortFacts, now: Now, *, may_start: bool) -> None:
        """Run every rule over the port with the time since its last evaluation."""
        desk = self.ports[port]
        before = desk.checked
        elapsed = 0.0 if before is None else min(max(0.0, now.monotonic - before), self.longest_gap)
        desk.checked, desk.facts = now.monotonic, facts
        if facts.state in (PortState.ACTIVE, PortState.ACTIVE_DEFER) and facts.fresh and facts.rate:
            desk.best_rate = max(facts.rate, desk.best_rate or 0)
        if not desk.expected.expected:
            return
        for rule in RULES:
            chosen = desk.settings[rule.id]
            if not chosen.enabled:
                continue
            condition = rule.check(facts)
            observed = 0.0 if desk.verdicts.get(rule.id) is Verdict.UNKNOWN else elapsed
            desk.verdicts[rule.id] = condition.verdict
            episode = advance(
                desk.episodes.get(rule.id), condition, chosen, observed, may_start=may_start, wall=now.wall
            )
            if episode is None:
                desk.episodes.pop(rule.id, None)
            else:
                desk.episodes[rule.id] = episode

    def next_due(self, *, may_start: bool) -> float | None:
        """The earliest monotonic time at which an episode changes by itself."""
        times = []
        for desk in self.ports.values():
            for rule, episode in desk.episodes.items():
                if desk.checked is None or desk.verdicts.get(rule) is Verdict.UNKNOWN:
                    continue
                wait = due_in(episode, desk.settings[rule]) if may_start or episode.recovering else None
                if wait is not None:
                    times.append(desk.checked + wait)
        return min(times, default=None)

    # ----------------------------------------------------------------------------------- verdicts

    def health(self, port: PortId) -> PortHealth:
        """The verdict on one port."""
        desk = self.ports[port]
        if not desk.expected.expected:
            return PortHealth.IGNORED
        facts = desk.facts
        absent = facts is not None and facts.listed is False
        if facts is None or (not absent and (facts.stalled or not facts.fresh or facts.state is None)):
            return PortHealth.UNKNOWN
        worst = PortHealth.OK
        for rule, episode in desk.episodes.items():
            health = PortHealth.RECOVERING if episode.recovering else RULE_BY_ID[rule].health
            worst = max(worst, health, key=HEALTH_ORDER.index)
        return worst

    def findings(self) -> tuple[Finding, ...]:
        """Everything that has passed its alert hold and not yet recovered, sorted by port and rule."""
        found = []
        for port, desk in self.ports.items():
            for rule, episode in desk.episodes.items():
                if episode.level is not None:
                    found.append(self._finding(port, desk, rule, episode, episode.level))
        return tuple(sorted(found, key=lambda f: (f.device, f.port, f.rule)))

    @staticmethod
    def _finding(port: PortId, desk: PortDesk, rule: str, episode: Episode, severity: Severity) -> Finding:
        chosen = desk.settings[rule]
        seconds, hold = int(episode.held), int(episode.hold)
        text = f"{episode.words} {seconds}s"
        if severity is Severity.CRITICAL:
            text += f">{hold}s" if seconds > hold else f">={hold}s"
        return Finding(
            rule=rule,
            device=port.device,
            port=port.port,
            counter="",
            severity=severity,
            onset=episode.onset,
            observed=episode.observed,
            limit=episode.limit,
            text=text.strip(),
            recovering=episode.recovering,
            alerts=chosen.action.rank >= Mode.ALERT.rank,
            drains=(
                severity is Severity.CRITICAL and chosen.action is Mode.DRAIN and desk.expected.role is Role.COMPUTE
            ),
            trusted=desk.expected.trusted,
        )

    def fitness(self, findings: Iterable[Finding], *, listed: bool) -> NodeFitness:
        """The verdict on the node. `listed` is whether a complete listing was ever seen.

        Unfit needs evidence, fit needs sight: a compute port that nobody can see makes the node unknown.
        """
        if any(f.drains for f in findings):
            return NodeFitness.UNFIT
        compute = [p for p, d in self.ports.items() if d.expected.expected and d.expected.role is Role.COMPUTE]
        if not listed or any(self.health(p) is PortHealth.UNKNOWN for p in compute):
            return NodeFitness.UNKNOWN
        if any(d.episodes for d in self.ports.values()):
            return NodeFitness.WATCH
        return NodeFitness.FIT

    # ----------------------------------------------------------------------------------- memory

    def learn(self, port: PortId) -> Learned:
        """What is to be remembered of the port's slot now."""
        desk = self.ports[port]
        known = Learned(str(port), desk.expected.role, active=False, best_rate=None)
        return msgspec.structs.replace(known, active=desk.best_rate is not None, best_rate=desk.best_rate)
