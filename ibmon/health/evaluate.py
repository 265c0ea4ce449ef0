"""Time and severity of one rule on one port: from a condition that was seen to a finding, and back.

``nothing -> seen -> warning -> critical -> recovering -> nothing``. What moves an episode on is the time in which its
condition was observed without a break; time in which nobody could look counts for neither side.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from ibmon.health.facts import Condition, Verdict
from ibmon.health.settings import Settings
from ibmon.model import Severity

EPSILON = 1e-6
"""Sums of floating-point seconds may fall short of a hold by this much."""

WAITS = ", again: waits for ibmon clear"

Level = Literal["info", "warning", "critical"]


class Episode(msgspec.Struct, frozen=True, array_like=True):
    """A rule that has something to say about a port. Stored as it is: times are seconds elapsed, never clock values.

    `severity` is None while only seen. `elapsed` is observed time with the condition, or, when `recovering`, without
    it (a count-like rule recovers from its last bad moment instead, which its window remembers). `onset` is wall time,
    for texts. `observed`, `limit` and `words` are those of the newest bad read; `held` is observed time with the
    condition, `hold` the limit in force then. What `waits` ends by a person's word alone.
    """

    severity: Level | None
    recovering: bool
    elapsed: float
    onset: float
    observed: float | str | None
    limit: float | str | None
    words: str
    hold: float
    held: float
    waits: bool = False

    @property
    def level(self) -> Severity | None:
        """The severity as the model's word."""
        return None if self.severity is None else Severity(self.severity)


def advance(
    episode: Episode | None,
    condition: Condition,
    settings: Settings,
    observed_for: float,
    *,
    may_start: bool,
    wall: float,
) -> Episode | None:
    """The episode after `observed_for` more seconds in which the previous condition held, and now this `condition`.

    `may_start` is False inside a grace: conditions are shown, but no hold runs.
    """
    if condition.verdict is Verdict.UNKNOWN:
        return episode
    if condition.verdict is Verdict.GOOD:
        return _good(episode, condition, settings, observed_for)
    bad = _bad(episode, condition, settings, observed_for if may_start else 0.0, wall)
    return _escalate(bad, condition, settings) if may_start else bad


def wait(episode: Episode) -> Episode:
    """The episode as one that recovers by a person's word alone, whatever is read."""
    words = f"{episode.words.removesuffix(WAITS)}{WAITS}"
    return msgspec.structs.replace(episode, recovering=True, waits=True, words=words)


def start_over(episode: Episode) -> Episode:
    """The episode as one that waits for nobody any more: it may recover by itself, from now on."""
    return msgspec.structs.replace(episode, waits=False, elapsed=0.0, words=episode.words.removesuffix(WAITS))


def _good(episode: Episode | None, condition: Condition, settings: Settings, observed_for: float) -> Episode | None:
    if episode is None or episode.severity is None:
        return None  # a condition that ended before its alert leaves nothing
    if episode.waits:
        return wait(episode)
    if settings.rule.counts:
        if condition.quiet + EPSILON >= settings.recover:
            return None
        return msgspec.structs.replace(episode, recovering=True, elapsed=0.0)
    if condition.near or (not episode.recovering and settings.recover > 0):
        return msgspec.structs.replace(episode, recovering=True, elapsed=0.0)
    if not episode.recovering:
        return None
    elapsed = episode.elapsed + observed_for
    return None if elapsed + EPSILON >= settings.recover else msgspec.structs.replace(episode, elapsed=elapsed)


def _bad(
    episode: Episode | None, condition: Condition, settings: Settings, observed_for: float, wall: float
) -> Episode:
    observed, limit, words = condition.observed, condition.limit, condition.words
    if episode is None:
        return Episode(None, False, 0.0, wall, observed, limit, words, settings.hold, 0.0)  # noqa: FBT003 - array_like
    if episode.recovering:
        # The same fault again: what was reached stays, a warning's hold starts anew.
        held = episode.held if episode.severity == "critical" else 0.0
        episode = msgspec.structs.replace(episode, recovering=False, elapsed=held, held=held)
    elif episode.severity != "critical":
        # Beyond the last hold nothing depends on the time any more, and what is stored stands still.
        held = min(episode.held + observed_for, max(settings.hold, settings.alert_hold, episode.held))
        held = held if settings.rule.counts else episode.held + observed_for
        episode = msgspec.structs.replace(episode, elapsed=held, held=held)
    return msgspec.structs.replace(episode, observed=observed, limit=limit, words=words)


def _escalate(episode: Episode, condition: Condition, settings: Settings) -> Episode:
    """Raise the severity that time and condition have earned.

    It falls only where a count has been below its critical limit for the recover time.
    """
    severity: Level | None = episode.severity
    if condition.reach == "critical" and episode.elapsed + EPSILON >= settings.hold:
        severity = "critical"
    elif severity == "critical":
        if condition.reach == "critical" or not settings.rule.counts or condition.quiet < settings.recover:
            return episode
        severity = "warning"
    elif episode.elapsed + EPSILON >= settings.alert_hold:
        severity = "info" if condition.reach == "info" else "warning"
    return msgspec.structs.replace(episode, severity=severity, hold=settings.hold)


def due_in(episode: Episode, condition: Condition, settings: Settings) -> float:
    """Seconds of further observation until this episode changes by itself; infinity if only a read can change it."""
    if episode.recovering and (episode.waits or condition.near):
        return math.inf
    if episode.recovering:
        gone = condition.quiet if settings.rule.counts else episode.elapsed
        return max(0.0, settings.recover - gone)
    if episode.severity == "critical" or (condition.reach != "critical" and episode.severity is not None):
        return math.inf
    limit = settings.alert_hold if episode.severity is None else settings.hold
    return max(0.0, limit - episode.elapsed)
