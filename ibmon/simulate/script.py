"""Fault scripts: what happens to a built tree, composed from named faults and played as frames of a recording.

Owns what a fault looks like in the files (kernel texts and counters that go with it). Keeps no time of its own: frames
carry theirs, and `Player` is told what time it is.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, Protocol

from ibmon.recording import Frame, SchedulerAct
from ibmon.simulate.counters import PMA_BITS
from ibmon.simulate.tree import ACTIVE, DISABLED, DOWN, INIT, LINK_UP, POLLING, Placed, Port, Tree

# What `rate` prints without a link (core/sysfs.c; hw/mlx5/main.c for RoCE), and a link that lost half of its lanes.
_NO_LINK_RATE, _NO_LINK_RATE_ROCE = "10 Gb/sec (4X SDR)", "40 Gb/sec (4X QDR)"
_PACKET = 2900  # bytes in a mean packet of training traffic
_WORD = 4  # bytes that one count of port_*_data stands for

_Act = Callable[[float], Iterable[Frame]]


class Script:
    """A script under composition. Each method adds a fault at a time; `frames` gives all of them in order.

    Args:
        tree: the tree at the start.
        seed: of the jitter in `traffic`; the same seed gives the same frames.
    """

    def __init__(self, tree: Tree, *, seed: int = 0) -> None:
        self._tree = tree
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._now: dict[str, str] = {}
        self._acts: list[tuple[float, int, _Act]] = []
        self._number = 0

    def frames(self) -> Iterator[Frame]:
        """The whole tree at 0, then the faults by time, those of one time in the order they were added.

        It can be asked for once; without an end where an endless `traffic` is part of it.
        """
        self._now = dict(self._tree.files)
        yield self._tree.frame()
        while self._acts:
            t, _, act = heapq.heappop(self._acts)
            yield from act(t)

    def _at(self, t: float, act: _Act) -> None:
        heapq.heappush(self._acts, (t, self._number, act))
        self._number += 1

    def add(self, frame: Frame) -> None:
        """Any frame at its own time."""

        def act(_: float) -> Iterable[Frame]:
            self._now.update(frame.files)
            return (frame,)

        self._at(frame.t, act)

    # -------------------------------------------------------------------------------------------------------- a link

    def link_down(self, t: float, port: str, *, disabled: bool = False) -> None:
        """No link: nothing on the cable (Polling), or `disabled` on purpose. RoCE prints Disabled for both."""

        def act(at: float) -> Iterable[Frame]:
            spec = self._spec(port)
            phys = DISABLED if disabled or spec.ethernet else POLLING
            rate = _NO_LINK_RATE_ROCE if spec.ethernet else _NO_LINK_RATE
            files = {"state": DOWN, "phys_state": phys, "rate": rate}
            return self._set(at, port, files, moved={"counters/link_downed": 1}, carrier=False)

        self._at(t, act)

    def link_up(self, t: float, port: str) -> None:
        """The port as it was built: ACTIVE at its full rate."""

        def act(at: float) -> Iterable[Frame]:
            spec = self._spec(port)
            return self._set(at, port, {"state": ACTIVE, "phys_state": LINK_UP, "rate": spec.rate}, carrier=True)

        self._at(t, act)

    def init(self, t: float, port: str) -> None:
        """The cable is fine and no subnet manager has brought the port up."""

        def act(at: float) -> Iterable[Frame]:
            files = {"state": INIT, "phys_state": LINK_UP, "rate": self._spec(port).rate}
            return self._set(at, port, files, carrier=False)

        self._at(t, act)

    def half_rate(self, t: float, port: str) -> None:
        """The link trained with half of its lanes: 4X became 2X."""

        def act(at: float) -> Iterable[Frame]:
            rate = half_of(self._spec(port).rate)
            return self._set(at, port, {"state": ACTIVE, "phys_state": LINK_UP, "rate": rate}, carrier=True)

        self._at(t, act)

    def flap(self, t: float, port: str, *, seconds: float = 2, times: int = 1, every: float = 60) -> None:
        """The link goes away for `seconds`, `times` times, `every` so many seconds."""
        for number in range(times):
            self.link_down(t + number * every, port)
            self.link_up(t + number * every + seconds, port)

    # ------------------------------------------------------------------------------------------------------ counters

    def symbol_ramp(self, t: float, port: str, *, per_second: float, seconds: float, every: float = 5) -> None:
        """symbol_error rises steadily, to its maximum at most."""
        self.ramp(t, port, "symbol_error", per_second=per_second, seconds=seconds, every=every)

    def ramp(self, t: float, port: str, counter: str, *, per_second: float, seconds: float, every: float = 5) -> None:
        """A file of counters/ rises steadily, to its maximum at most."""
        self._repeat(
            t,
            t + seconds,
            every,
            lambda at, step: self._set(at, port, {}, moved={f"counters/{counter}": round(per_second * step)}),
        )

    def traffic(
        self,
        t: float,
        seconds: float,
        *,
        ports: Iterable[str] | None = None,
        load: float = 0.6,
        every: float = 5,
    ) -> None:
        """Data flows in both directions at `load` of the rate that the files show, while a port is ACTIVE.

        Args:
            t: start.
            seconds: for how long; ``math.inf`` is allowed.
            ports: as ``mlx5_3/1``; by default all that are ACTIVE in the tree.
            load: 0 to 1, a mean; each step differs by up to a tenth.
            every: seconds between two steps.
        """
        chosen = tuple(ports) if ports is not None else tuple(self._active())

        def step(at: float, length: float) -> Iterable[Frame]:
            files: dict[str, str] = {}
            for port in chosen:
                files |= self._flow(port, length * load * self._chance.uniform(0.9, 1.1))
            return self._changed(at, files)

        self._repeat(t, t + seconds, every, step)

    def _repeat(self, start: float, end: float, every: float, step: Callable[[float, float], Iterable[Frame]]) -> None:
        def act(at: float) -> Iterable[Frame]:
            if at + every <= end:
                self._at(at + every, act)
            return step(at, every)

        self._at(start + every, act)

    def _flow(self, port: str, full_seconds: float) -> dict[str, str]:
        """The counter files after so many seconds at full rate; none where there is no link (or no device)."""
        path = self._tree.port_path(port)
        if self._now.get(f"{path}/state") != f"{ACTIVE}\n":
            return {}
        words = int(float(self._now[f"{path}/rate"].split()[0]) * 1e9 / 8 * full_seconds) // _WORD
        packets = words * _WORD // _PACKET
        moved = {
            f"counters/{way}_{what}": amount
            for way in ("port_xmit", "port_rcv", "unicast_xmit", "unicast_rcv")
            for what, amount in (("data", words), ("packets", packets))
        }
        moved |= {"counters/port_xmit_wait": packets // 50, "hw_counters/rx_write_requests": packets // 60}
        return self._moved(path, moved)

    # ------------------------------------------------------------------------------------------------------- devices

    def vanish(self, t: float, device: str, *, how: Literal["bus", "driver", "class"] = "bus") -> None:
        """A device goes: off the PCI bus, from its driver (the function stays), or from the class alone."""

        def act(at: float) -> Iterable[Frame]:
            placed = self._tree.devices[device]
            gone = [*placed.entries, *placed.parts, *_bus_parts(placed, how)]
            self._now = {path: text for path, text in self._now.items() if not _within(path, gone)}
            return (Frame(t=at, remove=tuple(gone)),)

        self._at(t, act)

    def come_back(self, t: float, device: str) -> None:
        """The device is there as it was built, with hw_counters at zero: its driver was loaded anew."""

        def act(at: float) -> Iterable[Frame]:
            placed = self._tree.devices[device]
            back = self._tree.under((*placed.entries, *placed.parts, *_bus_parts(placed, "bus")))
            files = {path: "0\n" if _restarts(path) else text for path, text in back.files.items()}
            self._now |= files
            # Entries in class directories last, as the kernel does: what can be seen is complete.
            inner = {path: target for path, target in back.links.items() if path not in placed.entries}
            yield Frame(t=at, links=inner, files=files)
            yield Frame(t=at, links={path: target for path, target in back.links.items() if path in placed.entries})

        self._at(t, act)

    # -------------------------------------------------------------------------------------------------- surroundings

    def kernel_log(self, t: float, *lines: str) -> None:
        """Lines of the kernel log."""
        self.add(Frame(t=t, kmsg=lines))

    def scheduler(
        self, t: float, do: Literal["drain", "resume", "hang", "down", "up"], *, reason: str | None = None
    ) -> None:
        """An administrator's doing at the scheduler, or an outage of it."""
        self.add(Frame(t=t, scheduler=SchedulerAct(do=do, reason=reason)))

    # ------------------------------------------------------------------------------------------------------- helpers

    def _spec(self, port: str) -> Port:
        name, _, number = port.partition("/")
        return self._tree.devices[name].ports[int(number)]

    def _active(self) -> Iterator[str]:
        for name, placed in self._tree.devices.items():
            yield from (f"{name}/{port.number}" for port in placed.ports.values() if port.state == ACTIVE)

    def _set(
        self,
        t: float,
        port: str,
        files: Mapping[str, str],
        *,
        moved: Mapping[str, int] | None = None,
        carrier: bool | None = None,
    ) -> Iterable[Frame]:
        """A frame that sets port files and adds to counters; none where the port is not there or nothing changes."""
        path = self._tree.port_path(port)
        if f"{path}/state" not in self._now:
            return ()
        changes = {f"{path}/{file}": f"{text}\n" for file, text in files.items()} | self._moved(path, moved or {})
        if carrier is not None:
            changes |= self._carrier(port, up=carrier)
        return self._changed(t, changes)

    def _changed(self, t: float, files: Mapping[str, str]) -> Iterable[Frame]:
        new = {path: text for path, text in files.items() if self._now.get(path) != text}
        self._now |= new
        return (Frame(t=t, files=new),) if new else ()

    def _moved(self, path: str, amounts: Mapping[str, int]) -> dict[str, str]:
        """The counters that exist below a port's directory, raised; a narrow one sticks at its maximum."""
        files = {}
        for counter, amount in amounts.items():
            file = f"{path}/{counter}"
            if file in self._now:
                limit = (1 << PMA_BITS.get(counter.rpartition("/")[2], 64)) - 1
                files[file] = f"{min(limit, int(self._now[file]) + amount)}\n"
        return files

    def _carrier(self, port: str, *, up: bool) -> dict[str, str]:
        placed, spec = self._tree.devices[port.partition("/")[0]], self._spec(port)
        if placed.pci is None or spec.netdev is None:
            return {}
        path = f"{placed.pci.path}/net/{spec.netdev}"
        word = "up\n" if up else "down\n"
        if self._now.get(f"{path}/operstate") in {None, word}:
            return {}
        files = ("carrier_changes", "carrier_up_count" if up else "carrier_down_count")
        return {f"{path}/operstate": word} | {
            f"{path}/{file}": f"{int(self._now[f'{path}/{file}']) + 1}\n" for file in files
        }


def half_of(rate: str) -> str:
    """A `rate` text with half the lanes. Raises ValueError for a single lane, which has no half.

    >>> half_of("400 Gb/sec (4X NDR)")
    '200 Gb/sec (2X NDR)'
    """
    value, unit, width, speed = rate.split()
    lanes = int(width.strip("(X"))
    if lanes % 2:
        raise ValueError(f"{rate!r} cannot lose half of its lanes")
    return f"{float(value) / 2:g} {unit} ({lanes // 2}X {speed}"


def _bus_parts(placed: Placed, how: str) -> tuple[str, ...]:
    if placed.pci is None or how == "class":
        return ()
    if how == "bus":
        return (placed.pci.path, *placed.bus)
    return (f"{placed.pci.path}/driver", *(entry for entry in placed.bus if entry.startswith("bus/pci/drivers/")))


def _within(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place + "/") for place in places)


def _restarts(path: str) -> bool:
    return "/hw_counters/" in path and not path.endswith("/lifespan")


class Applies(Protocol):
    """What frames can be applied to: a directory, or a tree in memory."""

    def apply(self, frame: Frame, /) -> object:
        """Do what the frame says of files."""
        ...


class Player:
    """Plays frames onto a tree as time goes by. It never waits: `advance` is told the time.

    Args:
        frames: by time, possibly without an end.
        tree: what they are applied to.
        start: the moment of the monotonic clock that is t = 0.
    """

    def __init__(self, frames: Iterable[Frame], tree: Applies, start: float = 0.0) -> None:
        self._frames = iter(frames)
        self._tree = tree
        self._start = start
        self._next = next(self._frames, None)

    @property
    def next_due(self) -> float | None:
        """When the next frame is due on the monotonic clock; None when all were played."""
        return None if self._next is None else self._start + self._next.t

    def advance(self, now: float) -> list[Frame]:
        """Apply what is due at `now` (monotonic) and return it, for what it says of other things than files."""
        played = []
        while self._next is not None and self._start + self._next.t <= now:
            self._tree.apply(self._next)
            played.append(self._next)
            self._next = next(self._frames, None)
        return played
