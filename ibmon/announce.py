"""What changed since it was last told: findings, alerts, fitness. Pure.

Keys are (rule, device, port, counter); numbers that move with time are no change. In observe mode nothing leaves the
node but metrics and events, so Send and Alerts are made in the other modes only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

from ibmon.messages import Alerts, Effect, Log, Notice, Send
from ibmon.model import Finding, Mode, NodeFitness, Now, Severity

Key = tuple[str, str, int, str]
State = tuple[str, bool, bool]
_WELL: Final = frozenset({NodeFitness.FIT, NodeFitness.WATCH})


def log(level: Literal["info", "warning", "error"], event: str, **fields: Any) -> Log:
    """A change of state for the log and the history; fields that are None are left out."""
    return Log(level, event, {k: v for k, v in fields.items() if v is not None})


class Announcer:
    """Remembers what was told. A restart tells nothing again: it begins from what was stored.

    Attributes:
        fitness: as it was written down last.
        heard: as receivers of webhooks were told last. A watch over what has not lasted yet is not told to them.
    """

    def __init__(
        self,
        node: str,
        fitness: NodeFitness,
        findings: Iterable[Finding],
        notices: Iterable[Notice] = (),
        heard: NodeFitness | None = None,
    ) -> None:
        self.node = node
        self.fitness = fitness
        self.heard = heard or fitness
        self._told: dict[Key, State] = {_key(f): _state(f) for f in findings}
        self._noticed = {notice.name for notice in notices}
        self._firing: tuple[dict[Key, str], tuple[Notice, ...]] | None = None

    def tell(
        self,
        findings: tuple[Finding, ...],
        fitness: NodeFitness,
        why: str,
        mode: Mode,
        now: Now,
        *,
        settled: bool,
        notices: tuple[Notice, ...] = (),
        acts: bool = True,
    ) -> list[Effect]:
        """The effects that say what is new. Until `settled` (everything was read once) unknown is not news.

        A daemon that does not act (another one speaks for the node) tells notices alone: they are about itself.
        """
        out = self._findings(findings)
        if fitness is not NodeFitness.UNKNOWN or settled:
            out.extend(self._fitness(findings, fitness, why, now))
        out.extend(self._notices(notices))
        silent = mode.rank < Mode.ALERT.rank
        if silent or not acts:
            own = [effect for effect in out if not isinstance(effect, Send)]
            return [*own, *self._alerts((), () if silent else notices)]
        return [*out, *self._alerts(findings, notices)]

    def _notices(self, notices: tuple[Notice, ...]) -> list[Effect]:
        before, self._noticed = self._noticed, {notice.name for notice in notices}
        out: list[Effect] = [log("warning", n.name, text=n.text) for n in notices if n.name not in before]
        return [*out, *(log("info", f"{name}-ended") for name in sorted(before - self._noticed))]

    def _findings(self, findings: tuple[Finding, ...]) -> list[Effect]:
        out: list[Effect] = []
        current = {_key(f): f for f in findings}
        for key, f in current.items():
            if self._told.get(key) == _state(f):
                continue
            out.append(
                log(
                    "warning",
                    "finding",
                    rule=f.rule,
                    port=f.subject,
                    severity=f.severity.value,
                    recovering=f.recovering or None,
                    maintenance=f.maintenance or None,
                    observed=f.observed,
                    limit=f.limit,
                )
            )
            if not f.maintenance:
                out.append(Send("finding", f"{f.rule} {f.subject}", {"state": "open", "finding": f}))
        for rule, device, port, counter in self._told.keys() - current.keys():
            subject = f"{device}/{port}" if port else device
            out.append(log("info", "finding-cleared", rule=rule, port=subject, counter=counter or None))
            cleared = {"rule": rule, "device": device, "port": port, "counter": counter}
            out.append(Send("finding", f"{rule} {subject}", {"state": "cleared", "finding": cleared}))
        self._told = {key: _state(f) for key, f in current.items()}
        return out

    def _fitness(self, findings: tuple[Finding, ...], fitness: NodeFitness, why: str, now: Now) -> list[Effect]:
        out: list[Effect] = []
        if fitness is not self.fitness:
            before, self.fitness = self.fitness, fitness
            level: Literal["info", "warning"] = "info" if fitness in _WELL else "warning"
            out.append(log(level, "fitness", fitness=fitness.value, was=before.value, why=why or None))
        if fitness is not self.heard and not _passing(fitness, findings):
            heard, self.heard = self.heard, fitness
            body = {
                "fitness": fitness.value,
                "previous": heard.value,
                "why": why,
                "since": now.wall,
                "findings": list(findings),
            }
            out.append(Send("fitness", self.node, body))
        return out

    def _alerts(self, findings: tuple[Finding, ...], notices: tuple[Notice, ...]) -> list[Effect]:
        firing = tuple(f for f in findings if f.alerts)
        now = ({_key(f): f.severity.value for f in firing}, notices)
        if now == self._firing:  # the first set is told even when it is empty: an earlier process may have left more
            return []
        self._firing = now
        return [Alerts(firing, notices)]


def _passing(fitness: NodeFitness, findings: Iterable[Finding]) -> bool:
    """Whether the node is watched for what has not lasted its `alert_hold` yet: if it ends now it leaves nothing."""
    return fitness is NodeFitness.WATCH and all(finding.severity is Severity.INFO for finding in findings)


def _key(finding: Finding) -> Key:
    return (finding.rule, finding.device, finding.port, finding.counter)


def _state(finding: Finding) -> State:
    return (finding.severity.value, finding.recovering, finding.maintenance)
