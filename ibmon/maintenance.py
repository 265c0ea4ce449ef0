"""Maintenance windows: somebody works on this node or on some of its ports, until a time. Pure; the engine owns one.

Owns who is in a window, and what begins anew when it ends. Inside one nothing counts, no hold runs, nothing alerts and
the scheduler is not written to; everything is still read, shown and recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from ibmon.health.counts import span
from ibmon.health.desks import PortDesk, rule_of
from ibmon.health.evaluate import Episode
from ibmon.health.judge import Judge
from ibmon.health.rules import RULE_BY_ID
from ibmon.health.windows import Moment
from ibmon.messages import Answer, Person
from ibmon.model import Finding, Now, PortId
from ibmon.people import no_such

LONGEST = 7 * 86400.0
"""Seconds that a window may last at most: a forgotten one must not silence a node for good."""

MAX_WINDOWS = 32
START, STOP = "maintenance-start", "maintenance-stop"
ACTIONS = frozenset({START, STOP})


class Window(msgspec.Struct, frozen=True):
    """One window. `subjects` are ports or devices, none means the whole node; `seconds` count from `began`."""

    subjects: tuple[str, ...]
    began: Moment
    seconds: float
    reason: str
    user: str

    def left(self, now: Now, boot: str) -> float:
        """Seconds until it ends, at most zero when it has. A clock that was set back prolongs nothing beyond that."""
        return self.seconds - self.began.age(now, boot)

    def covers(self, device: str, port: int = 0) -> bool:
        """Whether a port, a device (port 0: any of its ports) or the node (no device) is in it."""
        if not self.subjects:
            return True
        if not device:
            return False
        if device in self.subjects:
            return True
        names = (PortId.parse(s) for s in self.subjects if "/" in s)
        return any(n.device == device and port in (0, n.port) for n in names)


class Ended(msgspec.Struct, frozen=True):
    """A window that is over: `by` is who ended it, None where its time was up. `at` is monotonic."""

    window: Window
    by: str | None
    at: float


class Maintenance:
    """The windows in force.

    Args:
        windows: those that were stored.
        now: the start of this process.
        boot: this boot's id; what was stored in another one goes on by wall time, from here on by monotonic time.
        margin: seconds after a window in which counters may still tell of it, as they are read that seldom.
    """

    def __init__(self, windows: Iterable[Window], now: Now, boot: str, margin: float) -> None:
        self.windows = tuple(_rebased(window, now, boot) for window in windows)
        self.margin = margin
        self._boot = boot
        self._now = now
        self._over: tuple[Ended, ...] = ()  # still told by counters
        self._stopped: list[Ended] = []

    # ------------------------------------------------------------------------------------- time

    def turn(self, now: Now) -> tuple[Ended, ...]:
        """What has ended since the last turn, each told once."""
        up = tuple(w for w in self.windows if now.monotonic >= w.began.monotonic + w.seconds)
        self.windows = tuple(w for w in self.windows if w not in up)
        ended = (*self._stopped, *(Ended(w, None, now.monotonic) for w in up))
        self._stopped.clear()
        self._over = (*(e for e in self._over if now.monotonic - e.at < self.margin), *ended)
        return ended

    def next_due(self) -> float:
        """Monotonic time at which the next window ends, or infinity."""
        return min((w.began.monotonic + w.seconds for w in self.windows), default=math.inf)

    # ------------------------------------------------------------------------------------- who is in one

    @property
    def on(self) -> bool:
        """Whether there is any window."""
        return bool(self.windows)

    def covers(self, device: str, port: int = 0) -> bool:
        """Whether a port, device or (without a device) the node is in a window."""
        return any(window.covers(device, port) for window in self.windows)

    def ports(self, ports: Iterable[PortId]) -> frozenset[PortId]:
        """Those of the ports that are in a window."""
        return frozenset(p for p in ports if self.covers(*p)) if self.windows else frozenset()

    def silences(self, device: str, port: int, now: Now) -> bool:
        """Whether what a counter of this port tells now may have happened in a window."""
        if self.covers(device, port):
            return True
        return any(e.window.covers(device, port) for e in self._over if now.monotonic - e.at < self.margin)

    def mark(self, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """The findings, those in a window marked: they do not alert."""
        if not self.windows:
            return findings
        return tuple(
            msgspec.structs.replace(f, alerts=False, maintenance=True) if self.covers(f.device, f.port) else f
            for f in findings
        )

    # ------------------------------------------------------------------------------------- people

    def asked(self, person: Person, known: Mapping[PortId, PortDesk], now: Now) -> Answer:
        """Begin or end a window by a person's word. One for the same ports takes the place of the one before."""
        names = {name for port in known for name in (str(port), port.device)}
        unknown = [subject for subject in person.subjects if subject not in names]
        if unknown:
            return Answer(person.ticket, done=False, text=no_such(unknown))
        done, text = self._start(person, now) if person.action == START else self._stop(person, now)
        return Answer(person.ticket, done=done, text=text)

    def _start(self, person: Person, now: Now) -> tuple[bool, str]:
        if not 0 < person.seconds <= LONGEST:
            return False, f"a window lasts more than nothing and at most {span(LONGEST)}"
        if not person.reason:
            return False, "give a reason: others will want to know why this node is silent"
        subjects = tuple(sorted(set(person.subjects)))
        kept = tuple(w for w in self.windows if w.subjects != subjects)
        if len(kept) >= MAX_WINDOWS:
            return False, f"there are {MAX_WINDOWS} windows; end one first, or begin one for the whole node"
        replaced = " (in place of the one before)" if len(kept) < len(self.windows) else ""
        began = Moment(now.monotonic, now.wall, self._boot)
        self.windows = (*kept, Window(subjects, began, person.seconds, person.reason, person.user))
        return True, f"maintenance of {_whom(subjects)} for {span(person.seconds)}{replaced}"

    def _stop(self, person: Person, now: Now) -> tuple[bool, str]:
        wanted = set(person.subjects)
        ended = tuple(w for w in self.windows if not wanted or wanted & set(w.subjects))
        if not ended:
            return False, f"there is no maintenance of {_whom(person.subjects)}"
        self.windows = tuple(w for w in self.windows if w not in ended)
        self._stopped.extend(Ended(w, person.user, now.monotonic) for w in ended)
        rest = f"; {len(self.windows)} more go on" if self.windows else ""
        return True, f"ended the maintenance of {', '.join(_whom(w.subjects) for w in ended)}{rest}"


def _whom(subjects: tuple[str, ...]) -> str:
    return ", ".join(subjects) or "this node"


def _rebased(window: Window, now: Now, boot: str) -> Window:
    age = window.began.age(now, boot)
    return msgspec.structs.replace(window, began=Moment(now.monotonic - age, window.began.wall, boot))


def begin_anew(ended: Iterable[Ended], judge: Judge, now: Now, boot: str, *, drained: bool) -> None:
    """What was in a window and is in none now: holds of state-like rules begin now, and so does an outage.

    A critical finding falls back to a warning until its hold is over again; but where our own drain of the node stands
    (`drained`) it stays, as the drain rests on it. What recovers goes on recovering.
    """
    windows = [e.window for e in ended]
    for port, desk in judge.ports.items():
        if port not in judge.silent and any(w.covers(*port) for w in windows):
            _restart(desk.episodes, keep_critical=drained)
            desk.judged = None
            desk.running.checked = now.monotonic
            down = desk.link.memory.down_since
            if down is not None:
                anew = Moment(now.monotonic, now.wall, boot)
                desk.link.memory = msgspec.structs.replace(desk.link.memory, down_since=anew)
    if not judge.node_silent and any(w.covers("") for w in windows):
        _restart(judge.node.episodes, keep_critical=drained)
        judge.node.checked = now.monotonic


def _restart(episodes: dict[str, Episode], *, keep_critical: bool) -> None:
    for key, episode in episodes.items():
        if episode.recovering or RULE_BY_ID[rule_of(key)].counts:
            continue
        if episode.severity == "critical" and keep_critical:
            continue
        severity = "warning" if episode.severity == "critical" else episode.severity
        episodes[key] = msgspec.structs.replace(episode, severity=severity, elapsed=0.0, held=0.0)
