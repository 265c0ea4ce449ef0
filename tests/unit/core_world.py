"""Small worlds for tests of the core: a node's tree as frames, played in virtual time, and what was seen of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ibmon.configfile import loads
from ibmon.messages import Alerts, Answer, Log, Notice, Observe, Person, Send
from ibmon.recording import Frame, Header
from ibmon.runtime.replay import World, play

CONFIG = """
[action]
mode = "drain"
boot_grace = "0s"
[inventory]
mode = "declared"
[[port]]
match = "mlx5_[0-1]/1"
rate = 400
"""
ACTIVE = "4: ACTIVE\n"
DOWN = "1: DOWN\n"
INIT = "2: INIT\n"


def path(device: str, name: str, port: int = 1) -> str:
    """A file of a port."""
    return f"class/infiniband/{device}/ports/{port}/{name}"


def port(
    device: str, state: str = ACTIVE, physical: str | None = None, rate: str = "400 Gb/sec (4X NDR)\n", **counters: int
) -> dict[str, str]:
    """The files of a port; the physical state follows the logical one where it is not given."""
    physical = physical or ("2: Polling\n" if state == DOWN else "5: LinkUp\n")
    return {
        path(device, "state"): state,
        path(device, "phys_state"): physical,
        path(device, "link_layer"): "InfiniBand\n",
        path(device, "rate"): rate,
        **{path(device, f"counters/{name}"): f"{value}\n" for name, value in counters.items()},
    }


def node(*devices: str) -> dict[str, str]:
    """The files of a node whose ports are all well."""
    return {file: text for device in devices for file, text in port(device, link_downed=0).items()}


def start(t: float = 0, *devices: str) -> Frame:
    """The first frame: two healthy ports where no others are named."""
    return Frame(t=t, files=node(*(devices or ("mlx5_0", "mlx5_1"))))


def goes_down(t: float, device: str = "mlx5_0") -> Frame:
    """The link of a device goes."""
    return Frame(t=t, files=port(device, DOWN, rate="10 Gb/sec (4X SDR)\n"))


def comes_up(t: float, device: str = "mlx5_0") -> Frame:
    """The link of a device is back at full rate."""
    return Frame(t=t, files=port(device))


class Site(World):
    """A recorded host with people: at a frame's time they ask the engine for something."""

    def __init__(self, config=CONFIG, **header):
        self.people: dict[float, Person] = {}
        self.answers: list[Answer] = []
        self.logs: list[tuple[float, str, dict]] = []
        self.sent: list[tuple[float, Send]] = []
        self.looks: list[float] = []
        self.notices: tuple[Notice, ...] = ()
        super().__init__(Header(**header), loads(config).config)

    def apply(self, frame):
        super().apply(frame)
        if frame.t in self.people:
            self._carry_out(self.engine.step(self.people[frame.t], self.now()))

    def _start(self):
        engine = super()._start()
        step = engine.step
        engine.step = lambda event, now: self._noted(step(event, now))
        return engine

    def _noted(self, effects):
        for effect in effects:
            if isinstance(effect, Answer):
                self.answers.append(effect)
            elif isinstance(effect, Log):
                self.logs.append((self.time, effect.event, effect.fields))
            elif isinstance(effect, Send):
                self.sent.append((self.time, effect))
            elif isinstance(effect, Observe):
                self.looks.append(self.time)
            elif isinstance(effect, Alerts):
                self.notices = effect.notices
        return effects

    def told(self, event):
        return [(t, fields) for t, name, fields in self.logs if name == event]


def world(config: str = CONFIG, **header: Any) -> World:
    """A host on which nothing has happened yet."""
    return World(Header(**header), loads(config).config)


def rows(
    frames: Iterable[Frame], at: Sequence[float], config: str = CONFIG, until: float | None = None, **header: Any
) -> dict[float, dict[str, Any]]:
    """The last row at each time of `at`."""
    stop = max(at) if until is None else until
    return {time: row for time, row in play(world(config, **header), iter(list(frames)), at, stop) if time in at}


def changes(
    frames: Iterable[Frame], until: float, config: str = CONFIG, at: Sequence[float] = (), **header: Any
) -> list[tuple[float, dict[str, Any]]]:
    """Every row that is printed, with its time."""
    return list(play(world(config, **header), iter(list(frames)), at, until))
