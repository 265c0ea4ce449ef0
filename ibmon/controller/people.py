"""What operators ask for: stop and start, waves, windows, giving back. Each is in the ledger before it is answered."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from ibmon.controller.bars import Bars
from ibmon.controller.cases import Case
from ibmon.controller.ledger import Book, GivingBack, Names, Wave, Window
from ibmon.controller.notebook import Notebook
from ibmon.controller.room import Room
from ibmon.controller.roster import Roster
from ibmon.controller.values import Ask, Stop, Told
from ibmon.drain import policy
from ibmon.health.counts import span
from ibmon.maintenance import LONGEST
from ibmon.model import Mode, NodeView, Now

MAX_ENTRIES: Final = 1000
"""Waves, and windows, at most: more is a script that went wrong."""

_PATTERN: Final = frozenset("*?[")


class Standing:
    """A drain that ibmon could give back: whose, since when, and for what rule or alert."""

    def __init__(self, node: str, drain_id: str, reason: str, since: float | None) -> None:
        self.node, self.id, self.reason, self.since = node, drain_id, reason, since

    @property
    def rule(self) -> str:
        """The first word behind the prefix."""
        return self.reason.removeprefix(policy.PREFIX).partition(" ")[0]


def standing(cases: Iterable[Case], bare: Iterable[NodeView]) -> list[Standing]:
    """What stands by a record, and what stands without one, by node name."""
    known = [Standing(c.node, c.id, c.reason, c.since) for c in cases if c.held and c.stands is not False]
    lost = [Standing(view.name, policy.parse_reason(view.reason) or "", view.reason or "", view.since) for view in bare]
    return sorted([*known, *lost], key=lambda one: one.node)


class PeopleDesk:
    """Carries out what people ask of the controller, as far as that is writing it down."""

    def __init__(self, book: Book, roster: Roster, room: Room, bars: Bars, notebook: Notebook) -> None:
        self._book, self._roster, self._room, self._bars, self._notebook = book, roster, room, bars, notebook

    def ask(self, ask: Ask, drains: list[Standing], unheard: list[Standing], now: Now) -> Told:
        """Do what was asked, or say why not.

        `drains` are those that could be given back; `unheard` those on nodes of which nothing was heard, which a
        person must name one by one, as nobody else knows whose they are.
        """
        if not self._bars.leader:
            return Told(done=False, text="another instance leads; ask that one")
        if ask.action == "stop":
            return self._stop(ask, now)
        if ask.action == "start":
            return self._start(ask)
        if ask.action == "mode":
            return self._mode(ask, now)
        if ask.action == "maintenance-start":
            return self._begin(ask, now)
        if ask.action == "maintenance-stop":
            return self._end(ask)
        return self._release(ask, [*drains, *(one for one in unheard if one.node in ask.nodes)], now)

    # ------------------------------------------------------------------------------------- stop and start

    def _stop(self, ask: Ask, now: Now) -> Told:
        if self._book.stop is not None:
            return Told(done=True, text=f"stopped already, by {self._book.stop.by}")
        self._book.stop = Stop(ask.user, now.wall, ask.reason)
        self._book.touch()
        self._log("stop", ask)
        return Told(done=True, text="stopped: no scheduler is written to; nodes obey with their next report")

    def _start(self, ask: Ask) -> Told:
        if self._book.stop is None:
            return Told(done=True, text="no stop is in force")
        by = self._book.stop.by
        self._book.stop = None
        self._book.touch()
        self._log("start", ask)
        return Told(done=True, text=f"the stop of {by} is over")

    # ------------------------------------------------------------------------------------- waves

    def _mode(self, ask: Ask, now: Now) -> Told:
        book = self._book
        if ask.mode is None:
            kept = () if ask.all else tuple(wave for wave in book.waves if wave.nodes != ask.nodes)
            if len(kept) == len(book.waves):
                named = "; ".join(" ".join(wave.nodes[:5]) for wave in book.waves[-20:]) or "none"
                return Told(done=False, text=f"there is no wave for exactly these nodes; waves: {named}")
            book.waves = kept
            text = "these nodes go by the configuration and the remaining waves again"
        else:
            if problem := self._unknown(ask.nodes):
                return problem
            kept = tuple(wave for wave in book.waves if wave.nodes != ask.nodes)
            if len(kept) >= MAX_ENTRIES:
                return Told(done=False, text=f"there are {MAX_ENTRIES} waves already; take some away")
            book.waves = (*kept, Wave(ask.nodes, ask.mode, ask.user, now.wall))
            text = f"mode {ask.mode.value}"
        book.touch()
        nodes = self._named(ask.nodes)
        self._log("mode", ask, mode=ask.mode.value if ask.mode else None)
        return Told(done=True, text=f"{text} ({_nodes(len(nodes))} now)", nodes=nodes)

    # ------------------------------------------------------------------------------------- windows

    def _begin(self, ask: Ask, now: Now) -> Told:
        if not 0 < ask.seconds <= LONGEST:
            return Told(done=False, text=f"a window lasts more than nothing and at most {span(LONGEST)}")
        if not ask.reason.strip():
            return Told(done=False, text="say why: a window without a reason is nobody's")
        leaf = self._leaf(ask.group)
        if ask.group and not leaf:
            return Told(done=False, text=f"the topology has no group {ask.group!r}")
        if ask.nodes and (problem := self._unknown(ask.nodes)):
            return problem
        nodes = tuple(dict.fromkeys((*ask.nodes, *leaf)))
        if not nodes:
            return Told(done=False, text="name nodes, patterns or a group")
        if len(self._book.windows) >= MAX_ENTRIES:
            return Told(done=False, text=f"there are {MAX_ENTRIES} windows already; end some")
        until = now.wall + ask.seconds
        mark = hashlib.sha256(f"{ask.user}|{now.wall:.3f}|{nodes}|{len(self._book.windows)}".encode()).hexdigest()[:6]
        self._book.windows = (*self._book.windows, Window(mark, nodes, ask.reason, ask.user, until))
        self._book.touch()
        self._log("maintenance-start", ask, id=mark, until=until)
        named = self._named(nodes)
        return Told(done=True, text=f"window {mark} for {span(ask.seconds)} ({_nodes(len(named))} now)", nodes=named)

    def _end(self, ask: Ask) -> Told:
        """End the windows with these ids, node lists or names, or all."""
        leaf = self._leaf(ask.group)
        wanted = {*ask.nodes, *leaf}

        def meant(window: Window) -> bool:
            return ask.all or window.id in wanted or (bool(wanted) and set(window.nodes) <= wanted)

        over = tuple(window for window in self._book.windows if meant(window))
        if not over:
            have = "; ".join(f"{window.id}: {' '.join(window.nodes[:5])}" for window in self._book.windows) or "none"
            return Told(done=False, text=f"no window of these nodes alone; windows: {have}")
        self._book.windows = tuple(window for window in self._book.windows if not meant(window))
        self._book.touch()
        ids = [window.id for window in over]
        self._log("maintenance-stop", ask, ids=ids)
        return Told(done=True, text=f"ended: {', '.join(ids)}", nodes=tuple(n for window in over for n in window.nodes))

    # ------------------------------------------------------------------------------------- giving back

    def _release(self, ask: Ask, drains: list[Standing], now: Now) -> Told:
        if not (ask.all or ask.nodes or ask.group or ask.rule or ask.seconds):
            return Told(done=False, text="say which: nodes, a group, a rule, an age, or all")
        if self._book.stop is not None:
            return Told(done=False, text=f"stopped by {self._book.stop.by}: nothing is written; start first")
        leaf, named = set(self._leaf(ask.group)), Names(ask.nodes)

        def meant(drain: Standing) -> bool:
            return (
                (not ask.nodes or drain.node in named)
                and (not ask.group or drain.node in leaf)
                and (not ask.rule or drain.rule == ask.rule)
                and (not ask.seconds or (drain.since is not None and now.wall - drain.since <= ask.seconds))
            )

        chosen = [drain for drain in drains if meant(drain)]
        able = [drain for drain in chosen if self._bars.mode_of(drain.node) is Mode.DRAIN]
        nodes = tuple(drain.node for drain in able)
        barred = "" if len(able) == len(chosen) else f"; {len(chosen) - len(able)} more are not in mode drain"
        if not able:
            return Told(done=False, text=f"no drain of ibmon is meant by that{barred}")
        if ask.dry_run:
            return Told(done=True, text=f"would give back {_nodes(len(nodes))}{barred}", nodes=nodes)
        for drain in able:
            self._book.releases[drain.node] = GivingBack(drain.id, ask.user, now.wall)
        self._book.touch()
        for drain in able:
            self._log("release", ask, node=drain.node, id=drain.id, was=drain.reason)
        return Told(done=True, text=f"giving back {_nodes(len(nodes))}{barred}", nodes=nodes)

    # ------------------------------------------------------------------------------------- names

    def _leaf(self, group: str) -> tuple[str, ...]:
        if not group:
            return ()
        return tuple(sorted(node for node, leaf in self._room.groups.items() if leaf == group))

    def _named(self, patterns: tuple[str, ...]) -> tuple[str, ...]:
        names = self._room.nodes.keys() | self._roster.seen.keys()
        named = Names(patterns)
        return tuple(sorted(node for node in names if node in named))

    def _unknown(self, nodes: tuple[str, ...]) -> Told | None:
        """Refuse names that nobody knows: a typing error must not look like success."""
        if not nodes:
            return Told(done=False, text="name nodes or patterns ('*' for all)")
        plain = [node for node in nodes if not _PATTERN & set(node)]
        missing = [node for node in plain if node not in self._room.nodes and node not in self._roster.seen]
        return Told(done=False, text=f"no such node: {', '.join(missing)}") if missing else None

    def _log(self, event: str, ask: Ask, **more: object) -> None:
        fields = {"user": ask.user, "nodes": list(ask.nodes) or None, "group": ask.group, "rule": ask.rule}
        self._notebook.tell("info", event, **{**fields, "reason": ask.reason, **more})


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
