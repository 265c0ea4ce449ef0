"""The link history of one port: flap episodes, transitions, outages, since when it is up. Pure and bounded."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ibmon.health.facts import Outage
from ibmon.health.windows import MAX_WALL_AGE, Moment
from ibmon.model import Level, Now, PortState, Sample

FLAP_MERGE = 60.0
"""Signs of a bounce this close together (seconds) are one episode: a state seen, `link_downed`, the carrier."""

FLAP_WINDOW = 86400.0
"""Seconds within which the flaps lie that are shown. A rule has its own window."""

MAX_FLAPS, MAX_TRANSITIONS, MAX_OUTAGES = 64, 64, 64
"""A limit above these is refused where the configuration is read (`configkeys.REMEMBERED`)."""

SIGNS = ((Level.COUNTERS, "link_downed"), (Level.NET, "carrier_down_count"), (Level.PHY, "link_down_events_phy"))
"""Counters that tell of a bounce between two reads. One at its maximum tells nothing; the others still do."""


class Flap(msgspec.Struct, frozen=True, array_like=True):
    """One bounce of a link. `counted` is False inside a grace: recorded, but no rule counts it."""

    at: Moment
    counted: bool


class LinkMemory(msgspec.Struct, frozen=True, array_like=True):
    """What is stored of a link's history. `again`: it fell while an earlier fall was not over for the rules."""

    flaps: tuple[Flap, ...] = ()
    transitions: tuple[Moment, ...] = ()
    outages: tuple[Outage, ...] = ()
    active_since: Moment | None = None
    down_since: Moment | None = None
    last_sign: Moment | None = None
    again: bool = False


NO_LINK = LinkMemory()


@dataclass(slots=True)
class LinkWatch:
    """The working state; `memory` is all that must outlive the process."""

    memory: LinkMemory = NO_LINK
    was_active: bool | None = None
    bring_up_until: float | None = None  # monotonic

    def take(
        self,
        sample: Sample,
        port: int,
        rises: dict[int, int],
        now: Now,
        boot: str,
        *,
        may_count: bool,
        known: bool = False,
        grace: float | None,
        carrier: bool = True,
    ) -> bool:
        """Look at a new sample of the port; True when a new flap begins.

        Args:
            sample: the device's newest sample.
            port: the port's number.
            rises: what rose with this reading, by column.
            now: the time of the reading.
            boot: id of this boot.
            may_count: False inside a grace.
            known: whether the port is down for the rules already, or recovers from it: a bounce is no new one then.
            grace: seconds for which nothing counts after an ACTIVE that begins now, inside boot grace; else None.
            carrier: whether the carrier of the port's interface tells of the link. That of IPoIB does not: it is lost
                with the subnet manager, and when somebody takes the interface down.
        """
        state = sample.get(port, Level.ATTR, "state")
        # INIT and ARMED have a link: without a subnet manager no port is ACTIVE, and none of them has bounced.
        active = None if state is None else state >= PortState.INIT
        moment = Moment(now.monotonic, now.wall, boot)
        may_count = may_count and not self.in_bring_up(now)
        since = self.memory.active_since
        if self.was_active is None and since is not None and since.boot == boot:
            self.was_active = True  # up when an earlier process of this boot last looked: down now is a bounce
        dip = self.was_active is True and active is False
        signs = (sign for sign in SIGNS if carrier or sign[0] is not Level.NET)
        counted = any(i is not None and i in rises for i in (sample.layout.column(port, *sign) for sign in signs))
        if active is not None:
            self._transition(active, moment, counts=may_count, known=known)
            if active and self.was_active is False and grace is not None:
                self.bring_up_until = now.monotonic + grace
            self.was_active = active
        return self._sign(dip or counted, moment, now, boot, active=active, may_count=may_count and not known)

    def _transition(self, active: bool, moment: Moment, *, counts: bool, known: bool) -> None:  # noqa: FBT001 - private
        if self.was_active is active:
            return
        memory = self.memory
        since, down = memory.active_since, memory.down_since
        if active:
            if since is None or self.was_active is False or since.boot != moment.boot:
                since = moment
            outages = memory.outages
            if down is not None and self.was_active is False and down.boot == moment.boot:
                # One that made the port known as down counts; one that began while it was known is part of that.
                outage = Outage(moment, moment.monotonic - down.monotonic, counts and not memory.again)
                outages = (*outages, outage)[-MAX_OUTAGES:]
            memory = msgspec.structs.replace(memory, outages=outages, active_since=since, down_since=None, again=False)
        else:
            again = known if down is None else memory.again
            memory = msgspec.structs.replace(memory, active_since=None, down_since=down or moment, again=again)
        if self.was_active is not None and counts and not known:
            transitions = (*memory.transitions, moment)[-MAX_TRANSITIONS:]
            memory = msgspec.structs.replace(memory, transitions=transitions)
        self.memory = memory

    def _sign(
        self,
        sign: bool,  # noqa: FBT001
        moment: Moment,
        now: Now,
        boot: str,
        *,
        active: bool | None,
        may_count: bool,
    ) -> bool:
        """Merge signs into episodes: a new one begins where the last sign is old enough and the link was up since."""
        memory, last = self.memory, self.memory.last_sign
        new = sign and (last is None or last.age(now, boot) > FLAP_MERGE)
        if new:
            kept = tuple(f for f in memory.flaps if f.at.age(now, boot) < MAX_WALL_AGE)
            memory = msgspec.structs.replace(memory, flaps=(*kept, Flap(moment, may_count))[-MAX_FLAPS:])
        # While the link stays down its bounce is still going on.
        if sign or (active is False and last is not None):
            memory = msgspec.structs.replace(memory, last_sign=moment)
        self.memory = memory
        return new

    def in_bring_up(self, now: Now) -> bool:
        """Whether the port is in its bring-up grace."""
        return self.bring_up_until is not None and now.monotonic < self.bring_up_until

    def active_for(self, now: Now, boot: str) -> float | None:
        """Seconds since the link came up, as far as it was seen; None while it is down."""
        since = self.memory.active_since
        return None if since is None or since.boot != boot else since.age(now, boot)

    def retrained(self) -> tuple[Moment, ...]:
        """When the link fell or came up, as far as it is remembered."""
        fell = (flap.at for flap in self.memory.flaps)
        return (*fell, *(outage.ended for outage in self.memory.outages))

    def count(self, now: Now, boot: str, window: float = FLAP_WINDOW) -> int:
        """Counted flaps within the window (seconds)."""
        return sum(1 for f in self.memory.flaps if f.counted and f.at.age(now, boot) <= window)
