"""What people may ask of a running daemon: clear findings, accept or forget ports, learn anew. Pure.

Everything here is a person's word against what the daemon remembers; it is answered in one line and written down with
the person's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ibmon.health.desks import PortDesk, PortMemory, rule_of
from ibmon.health.evaluate import Episode
from ibmon.health.judge import Judge
from ibmon.health.kernel_log import Line
from ibmon.health.links import NO_LINK
from ibmon.messages import Answer, Person
from ibmon.model import PortId

LINK_RULES = frozenset({"link-flap", "flap-storm", "long-outage"})


def answer(person: Person, judge: Judge, memory: dict[str, PortMemory], kernel: dict[str, tuple[Line, ...]]) -> Answer:
    """Do what was asked for, in the judge's working state, in what is remembered, and in what the kernel log said."""
    chosen, unknown = _chosen(person.subjects, judge)
    if unknown:
        return Answer(person.ticket, done=False, text=no_such(unknown))
    request = _Request(person, chosen, judge, memory, kernel)
    done, text = {
        "clear": request.clear,
        "accept": request.accept,
        "forget": request.forget,
        "learn": request.learn,
    }[person.action]()
    return Answer(person.ticket, done=done, text=text)


def no_such(names: Iterable[str]) -> str:
    """The answer to a person who named what is not here."""
    return f"no such port or device: {', '.join(names)}; 'ibmon inventory show' lists them"


def _chosen(subjects: Iterable[str], judge: Judge) -> tuple[dict[PortId, PortDesk], list[str]]:
    """The ports that subjects name, and the subjects that name none. No subject is every port."""
    wanted = tuple(subjects)
    if not wanted:
        return dict(judge.ports), []
    chosen = {p: d for p, d in judge.ports.items() if str(p) in wanted or p.device in wanted}
    named = {name for p in chosen for name in (str(p), p.device)}
    return chosen, [subject for subject in wanted if subject not in named]


class _Request(NamedTuple):
    """One request and what it is about; each method does one and says whether and what was done."""

    person: Person
    chosen: dict[PortId, PortDesk]
    judge: Judge
    memory: dict[str, PortMemory]
    kernel: dict[str, tuple[Line, ...]]

    def clear(self) -> tuple[bool, str]:
        """Somebody says: repaired. Findings end, counts and link history begin anew."""
        ended = sum(self._clear_port(desk) for desk in self.chosen.values())
        if not self.person.subjects:
            ended += self._end(self.judge.node.episodes)
        ports = f"{len(self.chosen)} port{'' if len(self.chosen) == 1 else 's'}"
        what = f"{ended} finding{'' if ended == 1 else 's'} on {ports}"
        return True, f"cleared {what}; what is still bad will be found again"

    def _clear_port(self, desk: PortDesk) -> int:
        rules = self.person.rules
        desk.self_cleared = {r: m for r, m in desk.self_cleared.items() if rules and r not in rules}
        if not rules or LINK_RULES & set(rules):
            link = desk.link.memory
            kept = {name: getattr(link, name) for name in ("active_since", "down_since", "last_sign")}
            desk.link.memory = msgspec.structs.replace(NO_LINK, **kept)
        if not rules or "driver-fault" in rules:
            self.kernel.pop(desk.expected.slot.rpartition("/")[0], None)
        # What was counted until now was repaired with the rest: it would be found again at once.
        counted = {key.partition(":")[2] for key in desk.episodes if rule_of(key) in rules}
        desk.windows = {k: w for k, w in desk.windows.items() if rules and k.partition("/")[2] not in counted}
        return self._end(desk.episodes)

    def _end(self, episodes: dict[str, Episode]) -> int:
        keys = [k for k in episodes if not self.person.rules or rule_of(k) in self.person.rules]
        for key in keys:
            del episodes[key]
        return len(keys)

    def accept(self) -> tuple[bool, str]:
        """These ports belong here, at the rate they run at now."""
        slots = {port: desk.expected.slot for port, desk in self.chosen.items()}
        seen = {port for port, slot in slots.items() if slot in self.memory and self.memory[slot].learned.active}
        if self.person.subjects and (never := sorted(str(port) for port in slots if port not in seen)):
            return False, f"{', '.join(never)} was never ACTIVE here, so there is nothing to accept"
        names = []
        for port in seen:
            desk = self.chosen[port]
            known, facts = self.memory[desk.expected.slot], desk.facts
            rate = known.learned.best_rate
            if facts is not None and facts.active and facts.fresh and facts.rate:
                rate = desk.best_rate = facts.rate
            learned = msgspec.structs.replace(known.learned, accepted=True, best_rate=rate)
            self.memory[desk.expected.slot] = msgspec.structs.replace(known, learned=learned)
            desk.episodes.pop("rate-low", None)
            names.append(str(port))
        return (True, f"accepted {', '.join(sorted(names))}") if names else (False, "no port was ever ACTIVE here")

    def forget(self) -> tuple[bool, str]:
        """These ports are no longer expected; one that is there is learned again when it is seen ACTIVE."""
        if not self.person.subjects:
            return False, "name the ports to forget; to begin anew with all there is learn"
        declared = sorted(str(port) for port, desk in self.chosen.items() if desk.expected.declared)
        if declared:
            return False, f"{', '.join(declared)}: declared in the configuration, so remove it there"
        for desk in self.chosen.values():
            self._drop(desk)
        return True, f"forgot {', '.join(sorted(map(str, self.chosen)))}"

    def learn(self) -> tuple[bool, str]:
        """Begin anew with what is ACTIVE from now on; accepted ports stay."""
        anew = []
        for desk in self.chosen.values():
            known = self.memory.get(desk.expected.slot)
            if known is not None and not known.learned.accepted:
                self._drop(desk)
                anew.append(desk)
        return True, f"learning {len(anew)} port{'' if len(anew) == 1 else 's'} anew; accepted ones stay"

    def _drop(self, desk: PortDesk) -> None:
        self.memory.pop(desk.expected.slot, None)
        desk.best_rate = None
        desk.episodes.clear()
