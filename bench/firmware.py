"""Firmware commands that reading costs an adapter: the files really read in a virtual hour, each at its price.

Counts on a tree in memory that the engine reads through replay's world; prices are those of mlx5 in Linux 6.12, written
down here once more and not taken from `ibmon.sysfs.price`, whose arithmetic is thereby checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from bench import tree
from bench.figure import Figure, Table, Target
from bench.settings import Settings
from ibmon.config import Config
from ibmon.recording import Header
from ibmon.runtime.replay import World, play
from ibmon.simulate.counters import HW_NAMES, PMA_BITS
from ibmon.sysfs import price
from ibmon.sysfs.reader import TreeReader
from ibmon.virtualtree import VirtualTree

LIMIT = 150.0
HOUR = 3600.0
SCRAPES_PER_MINUTE = 4

METHOD = """\
The simulated node is read for a virtual hour by the engine with default intervals; every read of a file is
counted at its price in mlx5's code paths (Linux 6.12; `state`, `phys_state`, `rate` 5 on InfiniBand and 2 on
Ethernet, a file of `counters/` 1, a set of `hw_counters/` 3 when its first file is read first, else 3 for each
file). node_exporter is counted from the files that a scrape of it opens, every 15 s: 1.5 reads state, physical
state, rate and `counters/`; 1.12 also `hw_counters/` in the order of names, which never arms the kernel's
cache."""

_QUERY: Final = {"state", "phys_state", "rate", "lid", "sm_lid", "lid_mask_count", "sm_sl", "cap_mask"}
_ARMS: Final = "rx_write_requests"
_LIFESPAN: Final = 0.010

Read = tuple[float, str]
"""When (seconds), and which path."""


class CountingTree(VirtualTree):
    """A tree that remembers every read of a file, failed ones too."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.reads: list[Read] = []

    def read(self, path: str) -> bytes:
        """The content, after noting that it was asked for."""
        self.reads.append((self.time, path))
        return super().read(path)


class CountingWorld(World):
    """Replay's world on a tree that counts."""

    def __init__(self, config: Config) -> None:
        super().__init__(Header(), config)
        self.tree: CountingTree = CountingTree()
        self._reader = TreeReader(self.tree, self)

    def settle(self) -> None:
        """As always, with the time noted for the reads that follow."""
        self.tree.time = self.time
        super().settle()


def commands(reads: Iterable[Read], *, ethernet: bool) -> int:
    """Firmware commands of these reads of one port, in their order."""
    armed, total = -1.0, 0
    for at, path in reads:
        above, _, name = path.rpartition("/")
        directory = above.rpartition("/")[2]
        if directory == "hw_counters" and name != "lifespan":
            if at - armed > _LIFESPAN or armed < 0:
                total += 3
            if name == _ARMS:
                armed = at
        elif directory in {"counters", "pkeys"}:
            total += 1
        elif name in _QUERY and directory.isdigit():
            total += 2 if ethernet else 5
    return total


def scrape(directory: str, version: str) -> Iterator[str]:
    """The files of a port that node_exporter 1.5 or 1.12 reads for one scrape, as far as they cost anything."""
    yield from (f"{directory}/{name}" for name in ("state", "phys_state", "rate"))
    yield from (f"{directory}/counters/{name}" for name in sorted(PMA_BITS))
    if version == "1.12":
        yield from (f"{directory}/hw_counters/{name}" for name in sorted(HW_NAMES))


def ours(seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """By port of the simulated node: commands per minute as counted, and as `ibmon.sysfs.price` computes them."""
    config = Config()
    built = tree.build(tree.NODE)
    world = CountingWorld(config)
    for _ in play(world, iter([built.frame()]), (), seconds):
        pass
    reads: dict[str, list[Read]] = {}
    for at, path in world.tree.reads:
        with suppress(OSError):  # a file that is not there costs nothing
            if at >= seconds:
                break  # the pass at the end belongs to the next hour
            parts = world.tree.realpath(path).split("/")
            if "ports" in parts:
                where = parts.index("ports")
                reads.setdefault(f"{parts[where - 1]}/{parts[where + 1]}", []).append((at, path))
    counted, computed = {}, {}
    for known in world.engine.devices.present.values():
        for port in known.device.ports:
            layer = port.link_layer == "Ethernet"
            counted[str(port.id)] = commands(reads[str(port.id)], ethernet=layer) * 60 / seconds
        computed[str(known.device.ports[0].id)] = price.per_minute(known.device, config.sampling)
    return counted, computed


def measure(settings: Settings) -> Figure:
    """A row for each program and kind of port."""
    seconds = min(HOUR, settings.day)
    counted, computed = ours(seconds)
    ports = {"InfiniBand": "mlx5_0/1", "Ethernet": "mlx5_10/1"}
    rows: list[tuple[str, ...]] = [
        ("ibmon", *(f"{counted[port]:.0f}" for port in ports.values())),
        ("ibmon, by its own arithmetic", *(f"{computed[port]:.0f}" for port in ports.values())),
    ]
    rows += [
        (
            f"node_exporter {version}, every 15 s",
            *(str(theirs(version, ethernet=layer == "Ethernet")) for layer in ports),
        )
        for version in ("1.12", "1.5")
    ]
    worst = max(value for port, value in counted.items() if port not in {"mlx5_10/1", "mlx5_11/1"})
    table = Table(("commands per minute and port", *ports), rows)
    target = Target("firmware commands per minute, InfiniBand port", worst, LIMIT)
    return Figure("Firmware commands", METHOD, (table,), (target,))


def theirs(version: str, *, ethernet: bool) -> int:
    """Firmware commands per minute and port that node_exporter costs.

    Reads of different files are set a second apart: so it may be in the worst case, and the order of names gives the
    same in the best one, as the file that arms the cache comes last.
    """
    one = list(enumerate(scrape("ports/1", version)))
    return commands(one, ethernet=ethernet) * SCRAPES_PER_MINUTE
