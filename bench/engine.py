"""What thinking costs: one step of the engine over a whole pass of readings, and a replayed day."""

from __future__ import annotations

import io
import time
from pathlib import Path

from bench import tree
from bench.figure import Figure, Table, Target, median
from bench.settings import Settings
from ibmon.config import Config
from ibmon.engine import Engine, Identity
from ibmon.messages import Discovered, ListingDone, Poll, ReadDone, Tick
from ibmon.model import Now, Tier
from ibmon.recording import Frame, Header, Writer
from ibmon.runtime import replay
from ibmon.runtime.host import HostClock
from ibmon.sysfs.discover import discover, list_devices
from ibmon.sysfs.files import FileTree
from ibmon.sysfs.reader import reader

TICK_LIMITS = {tree.NODE: 1.0, tree.LARGE: 15.0}
"""Milliseconds."""
REPLAY_LIMIT = 60.0
"""Seconds for a day of the simulated node."""

METHOD = """\
CPU of this process, median. *Taking in*: the readings of all columns of all devices, with judging of their
ports. *Tick*: judging all ports, deciding, encoding what would be saved. *Snapshot*: the picture for the
exporter. The replayed recording is a node of {size} ports on which nothing happens for {hours:.0f} h, read and
judged as often as the daemon does it."""


def _passes(root: Path, rounds: int) -> tuple[float, float, float]:
    """CPU seconds of taking a full pass in, of the tick after it, and of the snapshot."""
    files, clock = FileTree(root), HostClock()
    began = clock.now()
    engine = Engine(Config(), Identity("bench", "boot", began.monotonic - 86_400), began)
    listing = list_devices(files, ("*",), (), began)
    engine.step(ListingDone(listing), began)
    for number, name in enumerate(listing.names or (), 1):
        engine.step(Discovered(name, discover(files, name, number)), began)
    engine.step(Poll(), began)
    pread = reader(files, clock)
    devices = [known.device for known in engine.devices.present.values()]
    pass_ = [pread.read(device, tuple(range(len(device.layout.columns)))) for device in devices]
    costs: list[tuple[float, float, float]] = []
    for turn in range(rounds):
        now = Now(began.monotonic + 5.0 * turn, began.wall + 5.0 * turn)
        marks = [time.process_time()]
        for reading in pass_:
            engine.step(ReadDone(reading, tuple(Tier)), now)
        marks.append(time.process_time())
        engine.step(Tick(), now)
        marks.append(time.process_time())
        engine.snapshot(now)
        marks.append(time.process_time())
        costs.append((marks[1] - marks[0], marks[2] - marks[1], marks[3] - marks[2]))
    pread.close()
    taking, tick, picture = zip(*costs, strict=True)
    return median(taking), median(tick), median(picture)


def _replay(seconds: float, scratch: Path) -> tuple[float, float]:
    """Wall and CPU seconds that replaying so many seconds of the simulated node takes."""
    file = scratch / "day.jsonl"
    with Writer(file, Header()) as out:
        out.write(tree.build(tree.NODE).frame())
        out.write(Frame(t=seconds))
    wall, cpu = time.perf_counter(), time.process_time()
    replay.main(file, Config(), (), seconds, None, io.StringIO())
    return time.perf_counter() - wall, time.process_time() - cpu


def measure(settings: Settings) -> Figure:
    """Both, as tables."""
    rows, targets = [], []
    for size in settings.sizes:
        costs = _passes(tree.write(size, settings.scratch), settings.rounds)
        rows.append((f"{size} devices", *(f"{cost * 1e3:.2f}" for cost in costs)))
        if size in TICK_LIMITS:
            targets.append(Target(f"one tick, {size} ports", costs[1] * 1e3, TICK_LIMITS[size], "ms"))
    wall, cpu = _replay(settings.day, settings.scratch)
    speed = Table(
        ("replay", "virtual s", "wall s", "CPU s", "times faster than life"),
        [
            (
                f"{tree.NODE} ports, nothing happens",
                f"{settings.day:.0f}",
                f"{wall:.1f}",
                f"{cpu:.1f}",
                f"{settings.day / wall:.0f}",
            )
        ],
    )
    targets.append(Target(f"replay of {settings.day / 3600:.3g} h", wall, REPLAY_LIMIT, "s"))
    table = Table(("CPU ms", "taking in", "tick", "snapshot"), rows)
    return Figure("The engine", METHOD.format(size=tree.NODE, hours=settings.day / 3600), (table, speed), targets)
