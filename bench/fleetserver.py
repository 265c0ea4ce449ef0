"""`ibmon controller` under load, as a process of its own: `python -m bench.fleetserver DIR NODES LOOK_SECONDS`.

The daemon itself, over a scheduler in memory that is read anew each LOOK_SECONDS. DIR holds master.key; the port is
written to DIR/port. It ends when standard input does.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import msgspec

from ibmon.configfile import load
from ibmon.controller.daemon import Controller
from ibmon.controller.server import calm_collector
from ibmon.controller.values import FleetView
from ibmon.drain.cluster import Cluster, Pool, SimulatedScheduler

LEAF = 32
"""Nodes on a leaf."""

CONFIG = """
[action]
mode = "drain"
[controller]
listen = "127.0.0.1:0"
master_key_file = "{directory}/master.key"
[state]
directory = "{directory}/state"
"""


def name(number: int) -> str:
    return f"gpu-{number:05}"


class Fleet:
    """All nodes in one partition, as `ibmon.controller.schedulers.FleetScheduler`."""

    def __init__(self, nodes: int) -> None:
        self._cluster = Cluster([name(n) for n in range(nodes)], wall=time.time)
        self._groups = {name(n): f"leaf{n // LEAF}" for n in range(nodes)}
        self._first = name(0)

    def read(self) -> FleetView:
        """New objects throughout, as reading a real one makes."""
        [pool] = self._cluster.pools_of(self._first)
        nodes = {node.name: msgspec.structs.replace(node) for node in pool.nodes}
        return FleetView(nodes, (Pool(pool.name, tuple(nodes.values())),), dict(self._groups))

    def node(self, name: str) -> SimulatedScheduler:
        return self._cluster.client(name)

    def check(self, _name: str) -> tuple[str, ...]:
        return ()


def main() -> None:
    directory, nodes, every = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    file = directory / "ibmon.toml"
    file.write_text(CONFIG.format(directory=directory))
    controller = Controller(load(file), scheduler=Fleet(nodes), look_seconds=every)
    controller.start()
    calm_collector()
    (directory / "port.new").write_text(str(controller.server.address.port))
    (directory / "port.new").rename(directory / "port")
    threading.Thread(target=lambda: (sys.stdin.read(), controller.stop()), daemon=True).start()
    controller.loop()
    controller.close()


if __name__ == "__main__":
    main()
