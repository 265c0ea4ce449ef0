"""Time and severity of one rule on one port: from a condition that was seen to a finding, and back.

``nothing -> seen -> alert (warning) -> held (critical) -> recovering -> nothing``. What moves an episode on is the
time in which its condition was observed without a break; time in which nobody could look counts for neither side.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ibmon.health.rules import Condition, Settings, Verdict
from ibmon.model import Severity

EPSILON = 1e-6
"""Sums of floating-point seconds may fall short of a hold by this much."""


class Episode(msgspec.Struct, frozen=True, array_like=True):
    """A rule that has something to say about a port. Stored as it is: times are seconds elapsed, never clock values.

    `severity` is None while only seen. `elapsed` is observed time with the condition, or, when `recovering`, without
    it. `onset` is wall time, for texts. `observed`, `limit` and `words` are those of the newest bad read.
    """

    severity: Literal["warning", "critical"] | None
    recovering: bool
    elapsed: float
    onset: float
    observed: float | str | None
    limit: float | str | None
    words: str
    hold: float  # the hold that was passed or is running, for the text `62s>60s`
    held: float  # observed seconds with the condition up to now

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
        return _good(episode, settings, observed_for)
    bad = _bad(episode, condition, settings, observed_for if may_start else 0.0, wall)
    return _escalate(bad, settings) if may_start else bad


def _good(episode: Episode | None, settings: Settings, observed_for: float) -> Episode | None:
    if episode is None or episode.severity is None:
        return None  # a condition that ended before its alert leaves nothing
    if not episode.recovering:
        return msgspec.structs.replace(episode, recovering=True, elapsed=0.0) if settings.recover > 0 else None
    elapsed = episode.elapsed + observed_for
    if elapsed + EPSILON >= settings.recover:
        return None
    return msgspec.structs.replace(episode, elapsed=elapsed)


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
    elif episode.severity != "critical":  # beyond the hold nothing depends on the time any more
        elapsed = episode.elapsed + observed_for
        episode = msgspec.structs.replace(episode, elapsed=elapsed, held=elapsed)
    return msgspec.structs.replace(episode, observed=observed, limit=limit, words=words)


def _escalate(episode: Episode, settings: Settings) -> Episode:
    """Raise the severity that the elapsed time has earned; it never falls while the condition holds."""
    if episode.elapsed + EPSILON >= settings.hold:
        severity: Literal["warning", "critical"] = "critical"
    elif episode.elapsed + EPSILON >= settings.alert_hold:
        if episode.severity == "critical":
            return episode
        severity = "warning"
    else:
        return episode
    return msgspec.structs.replace(episode, severity=severity, hold=settings.hold)


def due_in(episode: Episode, settings: Settings) -> float | None:
    """Seconds of further observation until this episode changes by itself; None if only a new read can change it."""
    if episode.recovering:
        return max(0.0, settings.recover - episode.elapsed)
    if episode.severity == "critical":
        return None
    limit = settings.alert_hold if episode.severity is None else settings.hold
    return max(0.0, limit - episode.elapsed)
