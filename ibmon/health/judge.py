"""The node's verdict: runs the rule table over every port, remembers episodes, says health, findings and fitness.

Pure: facts and time come in, values go out. What must outlive the process is `PortMemory` and the node's episodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ibmon.config import Config
from ibmon.health import correlate
from ibmon.health.checks import rate_unknown, trained
from ibmon.health.counts import HORIZON
from ibmon.health.desks import PortDesk, PortMemory, Running, carriers, hand_over, rule_of, still_judged
from ibmon.health.evaluate import Episode, due_in, start_over, wait
from ibmon.health.facts import GOOD, UNKNOWN, Condition, PortFacts, Verdict
from ibmon.health.inventory import Expected
from ibmon.health.links import NO_LINK
from ibmon.health.rules import RULE_BY_ID, RULES
from ibmon.health.settings import Rule, Settings, settings
from ibmon.health.windows import Moment, Window
from ibmon.model import Finding, Mode, NodeFitness, Now, PortHealth, PortId, Role, Severity

HEALTH_ORDER = (
    PortHealth.IGNORED,
    PortHealth.OK,
    PortHealth.WARNING,
    PortHealth.RECOVERING,
    PortHealth.DEGRADED,
    PortHealth.FAILED,
    PortHealth.UNKNOWN,
)
NODE = PortId("", 0)
NO_TIME = Now(0.0, 0.0)
LAST_INSTANT = 1e-3
"""Seconds after which something that ages out has left its window for certain."""

DAY = 86400.0
NODE_RULES = correlate.NODE_RULES
BLINDING = (correlate.ALL_MISSING, correlate.ALL_INIT, correlate.BLIND)


class Judge:
    """All ports of the node. `longest_gap` is the time (seconds) for which a read is believed."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.ports: dict[PortId, PortDesk] = {}
        self.node = Running()
        self.node_conditions: dict[str, Condition] = dict.fromkeys(NODE_RULES, UNKNOWN)
        self.longest_gap = 3 * config.sampling.state_interval
        self.silent: frozenset[PortId] = frozenset()  # ports in a maintenance window: their holds do not run
        self.node_silent = False  # the node as a whole is in one
        self._node_settings = {r: settings(config, RULE_BY_ID[r], NODE, Role.COMPUTE) for r in NODE_RULES}

    # ----------------------------------------------------------------------------------- inventory

    def assign(
        self,
        config: Config,
        inventory: dict[PortId, Expected],
        memory: Mapping[str, PortMemory],
        arrived: Mapping[str, str] | None = None,
    ) -> None:
        """Take a new inventory into force; what runs on a slot stays with it, whatever the port is called now.

        `arrived` tells by slot under which name a port was expected that nobody had seen yet.
        """
        self.config = config
        self.longest_gap = 3 * config.sampling.state_interval
        self._node_settings = {r: settings(config, RULE_BY_ID[r], NODE, Role.COMPUTE) for r in NODE_RULES}
        by_slot = {desk.expected.slot: desk for desk in self.ports.values()}
        by_slot |= {slot: by_slot[name] for slot, name in (arrived or {}).items() if name in by_slot}
        speaking = carriers(inventory.values())
        desks: dict[PortId, PortDesk] = {}
        carried: set[PortId] = set()
        for port, expected in sorted(inventory.items()):
            rules = {r.id: settings(config, r, port, expected.role) for r in RULES}
            desk = by_slot.get(expected.slot) or self._desk(expected, rules, memory.get(expected.slot))
            desk.judged = None
            desk.expected, desk.settings = expected, rules
            if desk.carries:
                carried.add(port)
            desk.carries = speaking.get(port.device) == port
            desks[port] = desk
        for port, desk in desks.items():
            if not desk.carries and port.device in speaking:
                hand_over(desk, desks[speaking[port.device]], carried=port in carried)
            desk.running.episodes = still_judged(desk.episodes, desk.settings) if desk.expected.expected else {}
        self.ports = desks
        self.node.episodes = still_judged(self.node.episodes, self._node_settings)

    @staticmethod
    def _desk(expected: Expected, rules: dict[str, Settings], known: PortMemory | None) -> PortDesk:
        desk = PortDesk(expected, rules)
        if known is not None:
            desk.running.episodes = dict(known.episodes)
            desk.link.memory = known.link
            desk.windows, desk.last = dict(known.windows), dict(known.last)
            desk.self_cleared = dict(known.self_cleared)
        return desk

    # ----------------------------------------------------------------------------------- evaluation

    def count(self, port: PortId, key: str, rise: int, now: Now, boot: str) -> None:
        """A judged counter of the port rose."""
        windows = self.ports[port].windows
        windows[key] = windows.get(key, Window()).add(rise, now, boot).trim(HORIZON, now, boot)
        self.ports[port].rises += 1

    def down_is_known(self, port: PortId) -> bool:
        """Whether the port is critically down or recovering from it: a bounce then restarts that, and is no new one."""
        episode = self.ports[port].episodes.get("port-down")
        return episode is not None and episode.severity == "critical"

    def evaluate(self, port: PortId, facts: PortFacts, now: Now, *, may_start: bool) -> None:
        """Run every rule over the port with the time since its last evaluation.

        Most ports say the same most of the time: where the facts are those of the last time, no hold or recovery runs
        and nothing ages out, there is nothing to find.
        """
        desk = self.ports[port]
        may_start = may_start and port not in self.silent
        observed = self._elapsed(desk.running, now)
        desk.facts = facts
        if facts.active and facts.fresh and facts.rate:
            desk.best_rate = max(facts.rate, desk.best_rate or 0)
        if not desk.expected.expected:
            desk.wake = math.inf
            return
        seen = (may_start, desk.rises, facts._replace(now=NO_TIME, active_for=None))
        if seen == desk.judged and now.monotonic < desk.wake:
            return
        self._judge(desk, facts, now, observed, may_start=may_start)
        desk.judged, desk.wake = seen, self._wake(desk, now, may_start=may_start)

    def _judge(self, desk: PortDesk, facts: PortFacts, now: Now, observed: float, *, may_start: bool) -> None:
        spoken: set[str] = set()
        for rule in RULES:
            chosen = desk.settings[rule.id]
            if not chosen.enabled or rule.scope == "node":
                continue
            if rule.scope == "device" and not desk.carries and not _own_loss(rule, desk, facts):
                continue
            for condition in (*_said(rule, facts, chosen), *_of_gone_counters(rule, desk, facts)):
                key = f"{rule.id}:{condition.counter}" if condition.counter else rule.id
                spoken.add(key)
                open_before = desk.episodes.get(key)
                desk.running.move(key, condition, chosen, observed, may_start=may_start, wall=now.wall)
                if rule.once_a_day and open_before is not None and key not in desk.episodes:
                    self._cleared_by_itself(desk, key, open_before, facts)
        # What no rule speaks of now (a counter that has gone, a rule that was switched off) was not seen.
        desk.running.conditions = {k: desk.running.conditions[k] for k in spoken} | dict.fromkeys(
            desk.episodes.keys() - spoken, UNKNOWN
        )
        desk.running.held_back = not may_start

    @staticmethod
    def _wake(desk: PortDesk, now: Now, *, may_start: bool) -> float:
        """When the port must be looked at again though nothing changes: at once while a hold or a recovery runs."""
        wake = math.inf
        for key, condition in desk.running.conditions.items():
            wake = min(wake, now.monotonic + condition.expires)
            episode = desk.episodes.get(key)
            if episode is None or condition.verdict is Verdict.UNKNOWN or not (may_start or episode.recovering):
                continue
            if due_in(episode, condition, desk.settings[rule_of(key)]) < math.inf:
                return -math.inf
        return wake

    @staticmethod
    def _cleared_by_itself(desk: PortDesk, key: str, episode: Episode, facts: PortFacts) -> None:
        """Such a rule clears once in 24 hours by itself; the second time it waits for a person."""
        before = desk.self_cleared.get(key)
        if episode.severity != "critical":
            return
        if before is not None and before.age(facts.now, facts.boot) < DAY:
            desk.episodes[key] = wait(episode)
        else:
            desk.self_cleared[key] = Moment(facts.now.monotonic, facts.now.wall, facts.boot)

    def new_card(self, port: PortId) -> None:
        """Another card sits in the port's slot: its history begins anew, and that is no finding.

        What was open about the port's state must still recover: a drain ends when the new card was well long enough.
        """
        desk = self.ports[port]
        open_still = {k: e for k, e in desk.episodes.items() if not RULE_BY_ID[rule_of(k)].counts}
        desk.running.episodes = {k: start_over(e) if e.waits else e for k, e in open_still.items()}
        desk.windows.clear()
        desk.last.clear()
        desk.self_cleared.clear()
        desk.link.memory = NO_LINK
        desk.best_rate = None

    def evaluate_node(self, facts: correlate.NodeFacts, now: Now, *, may_start: bool) -> frozenset[str]:
        """Run the correlations; the rules of single ports that they speak for."""
        may_start = may_start and not self.node_silent
        observed = self._elapsed(self.node, now)
        self.node_conditions = correlate.conditions(facts, self._node_settings)
        for rule, condition in self.node_conditions.items():
            chosen = self._of_node(rule)
            if chosen.enabled:
                self.node.move(rule, condition, chosen, observed, may_start=may_start, wall=now.wall)
        self.node.held_back = not may_start
        return correlate.explained(self.node_conditions, self.node.episodes)

    def _of_node(self, rule: str) -> Settings:
        episode = self.node.episodes.get(rule)
        critical = episode is not None and episode.severity == "critical"
        interval = self.config.sampling.state_interval
        return correlate.settings_for(rule, self._node_settings[rule], interval, critical=critical)

    def _elapsed(self, running: Running, now: Now) -> float:
        """Seconds since the subject's last evaluation, as far as they count as observed."""
        before, running.checked = running.checked, now.monotonic
        return 0.0 if before is None else min(max(0.0, now.monotonic - before), self.longest_gap)

    def next_due(self, *, may_start: bool) -> float:
        """The earliest monotonic time at which an episode changes by itself."""
        times = [math.inf]
        for port, desk in self.ports.items():
            grace = desk.link.bring_up_until
            brought_up = grace is None or desk.running.checked is None or desk.running.checked >= grace
            if desk.episodes and grace is not None and not brought_up:
                times.append(grace)
            if desk.wake == -math.inf:
                starts = may_start and port not in self.silent and brought_up
                times.extend(self._dues(desk.running, desk.settings, may_start=starts))
            else:
                times.append(desk.wake + LAST_INSTANT)
        of_node = {r: self._of_node(r) for r in NODE_RULES}
        times.extend(self._dues(self.node, of_node, may_start=may_start and not self.node_silent))
        return min(times)

    @staticmethod
    def _dues(running: Running, chosen: Mapping[str, Settings], *, may_start: bool) -> Iterable[float]:
        if running.checked is None:
            return
        for key, condition in running.conditions.items():
            if condition.expires < math.inf:
                yield running.checked + condition.expires + LAST_INSTANT
            episode = running.episodes.get(key)
            if episode is None or condition.verdict is Verdict.UNKNOWN or not (may_start or episode.recovering):
                continue
            yield running.checked + due_in(episode, condition, chosen[rule_of(key)])

    def available(self) -> dict[str, bool]:
        """By rule, whether its source can be read for any expected port; a rule without a case here is not told."""
        out: dict[str, bool] = {}
        running = [(d.running, d.settings) for d in self.ports.values() if d.expected.expected]
        running.append((self.node, self._node_settings))
        for subject, chosen in running:
            for key, condition in subject.conditions.items():
                rule = rule_of(key)
                if chosen[rule].enabled:
                    out[rule] = out.get(rule, False) or condition.verdict is not Verdict.UNKNOWN
        return out

    # ----------------------------------------------------------------------------------- verdicts

    def health(self, port: PortId) -> PortHealth:
        """The verdict on one port."""
        desk = self.ports[port]
        if not desk.expected.expected:
            return PortHealth.IGNORED
        facts = desk.facts
        if facts is None:
            return PortHealth.UNKNOWN
        absent = facts.listed is False
        if not absent and (facts.stalled or not facts.fresh or facts.state is None):
            return PortHealth.UNKNOWN
        if absent:
            return self._health_of_absent(port)
        if desk.settings["rate-low"].enabled and rate_unknown(facts):
            return PortHealth.UNKNOWN
        no_manager = trained(facts) and correlate.waits_for_manager(self.node_conditions, self.node.episodes)
        worst = PortHealth.DEGRADED if no_manager else PortHealth.OK
        for key, episode in self._speaking_for(port, desk):
            if no_manager and key == "port-init":
                continue  # it was the first to wait, and waits for what all wait for
            worst = max(worst, shown_health(RULE_BY_ID[rule_of(key)], episode), key=HEALTH_ORDER.index)
        return worst

    def _health_of_absent(self, port: PortId) -> PortHealth:
        """A port whose device is not listed: failed, unless its PCI function tells another story."""
        if self.node_conditions[correlate.ALL_MISSING].verdict is Verdict.BAD:
            return PortHealth.FAILED
        carrier = next((d for p, d in self.ports.items() if p.device == port.device and d.carries), None)
        own = self.ports[port]
        if own.facts is not None and own.facts.lost:
            carrier = own
        condition = carrier.running.conditions.get("device-missing", UNKNOWN) if carrier else UNKNOWN
        if condition.verdict is Verdict.GOOD:
            return PortHealth.IGNORED  # given to somebody else on purpose
        return PortHealth.FAILED if condition.verdict is Verdict.BAD else PortHealth.UNKNOWN

    def _speaking_for(self, port: PortId, desk: PortDesk) -> Iterable[tuple[str, Episode]]:
        """The port's own episodes and those of its device."""
        yield from desk.episodes.items()
        if not desk.carries:
            carrier = next((d for p, d in self.ports.items() if p.device == port.device and d.carries), None)
            for key, episode in carrier.episodes.items() if carrier else ():
                if RULE_BY_ID[rule_of(key)].scope == "device":
                    yield key, episode

    def findings(self) -> tuple[Finding, ...]:
        """Everything that has passed its alert hold and not yet recovered, sorted by subject and rule."""
        found = []
        for port, desk in self.ports.items():
            for key, episode in desk.episodes.items():
                if episode.level is not None:
                    chosen = desk.settings[rule_of(key)]
                    subject = PortId(port.device, 0) if chosen.rule.scope == "device" and desk.carries else port
                    judged = desk.expected.role is Role.COMPUTE
                    found.append(_finding(subject, key, episode, chosen, judged=judged, trusted=desk.expected.trusted))
        compute = [d.expected for d in self.ports.values() if d.expected.expected and d.expected.role is Role.COMPUTE]
        for rule, episode in self.node.episodes.items():
            if episode.level is not None:
                trusted = any(e.trusted for e in compute)
                found.append(_finding(NODE, rule, episode, self._of_node(rule), judged=bool(compute), trusted=trusted))
        return tuple(sorted(found, key=lambda f: (f.device, f.port, f.rule, f.counter)))

    def hold(self, finding: Finding) -> float:
        """Seconds that a finding's condition has to last until it is critical, as they are in force for its subject."""
        for port, desk in self.ports.items():
            if port.device == finding.device and (finding.port == port.port or (finding.port == 0 and desk.carries)):
                return desk.settings[finding.rule].hold
        return self._of_node(finding.rule).hold if finding.rule in NODE_RULES else 0.0

    def holding(self) -> bool:
        """Whether a hold runs that may end in a finding that drains: what is wrong now, and not yet for long enough."""
        of_ports = (
            (desk.running, desk.settings)
            for desk in self.ports.values()
            if desk.expected.expected and desk.expected.trusted and desk.expected.role is Role.COMPUTE
        )
        return any(_holds(running, chosen) for running, chosen in of_ports)

    def fitness(self, findings: Iterable[Finding], *, seen: bool) -> NodeFitness:
        """The verdict on the node. `seen` is whether all that is there has been read once.

        Unfit needs evidence, fit needs sight: a compute port that nobody can see makes the node unknown, and so does
        what is no fault of this node (no subnet manager) or may be none (no device at all, for a while).
        """
        if any(f.drains for f in findings):
            return NodeFitness.UNFIT
        if not seen or self.blindness():
            return NodeFitness.UNKNOWN
        episodes = [e for d in self.ports.values() for e in d.episodes.values()] + list(self.node.episodes.values())
        return NodeFitness.WATCH if any(e.severity != "info" for e in episodes) else NodeFitness.FIT

    def blindness(self) -> str:
        """What keeps the node from being seen to be fit, in words; empty where all that matters is seen."""
        for rule in BLINDING:
            if self.node_conditions[rule].verdict is Verdict.BAD:
                episode = self.node.episodes.get(rule)
                return f"{rule} {episode.words} {int(episode.held)}s" if episode else rule
        for port, desk in self.ports.items():
            compute = desk.expected.expected and desk.expected.role is Role.COMPUTE
            if compute and self.health(port) is PortHealth.UNKNOWN:
                return self._unseen(port, desk)
        return ""

    def _unseen(self, port: PortId, desk: PortDesk) -> str:
        """Why a port's health is unknown, in words."""
        for key, episode in self._speaking_for(port, desk):
            rule = RULE_BY_ID[rule_of(key)]
            if shown_health(rule, episode) is PortHealth.UNKNOWN:
                return f"{rule.id} {port} {episode.words} {int(episode.held)}s"
        if desk.facts is None:
            return f"{port} was not read yet"
        if rate_unknown(desk.facts):
            return f"{port} shows the rate of a speed that its kernel does not know"
        return f"{port} does not answer" if desk.facts.stalled else f"{port} cannot be read"


def _holds(running: Running, chosen: Mapping[str, Settings]) -> bool:
    for key, episode in running.episodes.items():
        rule, condition = chosen[rule_of(key)], running.conditions.get(key, UNKNOWN)
        wrong = condition.verdict is Verdict.BAD and condition.reach == "critical" and episode.severity != "critical"
        if wrong and rule.action is Mode.DRAIN and not rule.rule.counts:
            return True
    return False


def _own_loss(rule: Rule, desk: PortDesk, facts: PortFacts) -> bool:
    """Whether a port that does not speak for its device speaks for itself: the device is there, the port is not."""
    return rule.id == "device-missing" and (facts.lost or rule.id in desk.episodes)


def _said(rule: Rule, facts: PortFacts, chosen: Settings) -> Iterable[Condition]:
    """What a rule says; of a device that was given to a virtual machine there is nothing to be said any more."""
    for condition in rule.check(facts, chosen):
        yield GOOD if facts.given_away and condition.verdict is Verdict.UNKNOWN else condition


def _of_gone_counters(rule: Rule, desk: PortDesk, facts: PortFacts) -> Iterable[Condition]:
    """What is open about counters that the port has no more (another driver, a card that came back without them).

    No rule speaks of them, so nothing else could end it: they are good, and quiet since they last rose.
    """
    if not desk.episodes or not ((facts.listed and facts.fresh) or facts.given_away):
        return
    counters = [key.partition(":")[2] for key in desk.episodes if key.startswith(f"{rule.id}:")]
    here = {key.partition("/")[2] for key in facts.present} if counters else set()
    for name in counters:
        if name not in here:
            windows = (w for k, w in desk.windows.items() if k.endswith(f"/{name}"))
            ages = [w.total(HORIZON, facts.now, facts.boot).quiet for w in windows]
            quiet = min((age for age in ages if age is not None), default=math.inf)
            yield Condition(Verdict.GOOD, quiet=quiet, counter=name)


def shown_health(rule: Rule, episode: Episode) -> PortHealth:
    """What a port shows while this episode runs."""
    if episode.severity == "info":
        return PortHealth.OK
    if episode.recovering:
        return PortHealth.RECOVERING
    if rule.warning_health is not None and episode.severity != "critical":
        return rule.warning_health
    return rule.health


def _finding(subject: PortId, key: str, episode: Episode, chosen: Settings, *, judged: bool, trusted: bool) -> Finding:
    severity = episode.level or Severity.INFO
    text = episode.words
    if not chosen.rule.counts and severity is not Severity.INFO:
        text = f"{text} {int(episode.held)}s"
        if severity is Severity.CRITICAL:
            text += f">{int(episode.hold)}s"
    return Finding(
        rule=chosen.rule.id,
        device=subject.device,
        port=subject.port,
        counter=key.partition(":")[2],
        severity=severity,
        onset=episode.onset,
        observed=episode.observed,
        limit=episode.limit,
        text=text.strip(),
        recovering=episode.recovering,
        alerts=chosen.action.rank >= Mode.ALERT.rank and severity is not Severity.INFO,
        drains=severity is Severity.CRITICAL and chosen.action is Mode.DRAIN and judged,
        trusted=trusted,
    )
