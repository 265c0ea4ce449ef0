"""The controller under load, as a process of its own: `python -m bench.fleetserver DIR NODES VIEW_EVERY`.

The real server, signatures and fleet logic over a scheduler that is a value: no writes, a whole new view each
VIEW_EVERY seconds. Writes the port to DIR/port, and ends when standard input does.
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path

from ibmon.config import ControllerConfig, LimitsConfig
from ibmon.controller.api import Site
from ibmon.controller.auth import MasterKeys
from ibmon.controller.brain import World
from ibmon.controller.fleet import FleetDesk
from ibmon.controller.ledger import Ledger
from ibmon.controller.metrics import FleetMetrics
from ibmon.controller.server import FleetServer, calm_collector
from ibmon.controller.values import FleetSettings, FleetView
from ibmon.drain.cluster import Pool
from ibmon.model import Mode, NodeView, Now

LEAF = 32
"""Nodes on a leaf."""


def name(number: int) -> str:
    return f"gpu-{number:05}"


def view(nodes: int, began: float) -> FleetView:
    """A scheduler with all nodes in one partition and no drain, new objects throughout, as a reading makes them."""
    found = {name(n): NodeView(name(n), frozenset({"IDLE"})) for n in range(nodes)}
    groups = {name(n): f"leaf{n // LEAF}" for n in range(nodes)}
    return FleetView(found, (Pool("batch", tuple(found.values())),), groups, began)


def main() -> None:
    directory, nodes, every = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

    def now() -> Now:
        return Now(time.monotonic(), time.time())

    desk = FleetDesk(FleetSettings(mode=Mode.DRAIN, limits=LimitsConfig()), Ledger(), now())
    world = World(
        desk=desk, now=now, keys=MasterKeys(str(directory / "master.key")), tokens=None, metrics=FleetMetrics(),
        leader=lambda: True, save=Future, audit=lambda _: (), open_views=True,
        touched=lambda: desk.next_job(now()) and None,
    )  # fmt: skip
    server = FleetServer(ControllerConfig(listen="127.0.0.1:0"), Site(world))
    calm_collector()
    server.start()
    (directory / "port.new").write_text(str(server.address.port))
    (directory / "port.new").rename(directory / "port")
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    waited = 0.0
    while not ended.wait(waited):
        waited = every
        found = view(nodes, time.monotonic())
        server.call(lambda found=found: desk.scheduler(found, now())).result()
        server.call(desk.notes).result()
    server.close()


if __name__ == "__main__":
    main()
