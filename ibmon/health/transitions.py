"""The life of a finding as a table: which step leads from which state to which, and what makes it. Pure, for people.

`ibmon/health/evaluate.py` makes the steps; tests hold that it makes these and no others. The diagrams are drawn from
here.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from ibmon.health.evaluate import Episode

State = Literal["nothing", "seen", "warning", "critical", "recovering"]


class Step(NamedTuple):
    """One step: it is made when `when` is true, and never otherwise."""

    before: State
    after: State
    when: str


STATES: Final[dict[State, str]] = {
    "nothing": "The rule has nothing to say about the port.",
    "seen": "A good read shows the condition. Port health shows it at once and the node is `watch`; nobody is alerted.",
    "warning": "A finding, with an alert where the rule's action and the mode allow it. A rule that only informs has "
    "`info` here, which neither alerts nor changes a port's health.",
    "critical": "A finding that may drain the node, where the rule's action and the mode allow it.",
    "recovering": "The condition is gone and not yet for long enough. Severity, alert and drain stay as they were.",
}

STEPS: Final = (
    Step("nothing", "seen", "the condition is read and a hold must run first, or a grace lasts"),
    Step("nothing", "warning", "the condition is read and alert_hold is 0s"),
    Step("nothing", "critical", "the condition is read, it is a critical one, and hold is 0s"),
    Step("seen", "nothing", "a good read: what ended before its alert leaves nothing but its flap counts"),
    Step("seen", "warning", "observed for alert_hold"),
    Step("seen", "critical", "observed for hold, where that is no longer than alert_hold"),
    Step("warning", "critical", "a critical condition observed for hold"),
    Step("warning", "recovering", "a good read"),
    Step("warning", "nothing", "a good read, and recover has passed already (0s, or the last bad moment is so old)"),
    Step("critical", "warning", "only count-like rules: below the critical limit for recover"),
    Step("critical", "recovering", "a good read"),
    Step("critical", "nothing", "a good read, and recover has passed already (0s, or the last bad moment is so old)"),
    Step("recovering", "nothing", "good reads for recover without a break"),
    Step("recovering", "warning", "the condition is read again; a warning's hold starts anew"),
    Step("recovering", "critical", "the condition is read again; what had been critical is so at once"),
)
"""A read that tells nothing makes no step, from any state. Time counts while reads come, and only then."""


def state_of(episode: Episode | None) -> State:
    """The state that an episode is in."""
    if episode is None:
        return "nothing"
    if episode.recovering:
        return "recovering"
    if episode.severity is None:
        return "seen"
    return "critical" if episode.severity == "critical" else "warning"
