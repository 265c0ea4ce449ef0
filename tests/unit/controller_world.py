"""A controller over a simulated cluster, its nodes over a real socket, and a clock that a test moves."""

from __future__ import annotations

import base64
import time

from ibmon.alert.signature import parse_secrets
from ibmon.config import ControllerConfig
from ibmon.configfile import loads
from ibmon.controller.daemon import Controller
from ibmon.controller.schedulers import WholeScheduler
from ibmon.drain.cluster import Cluster
from ibmon.drain.controller import ControllerClient
from ibmon.model import Mode, NodeFitness, Now, Severity
from ibmon.report import INTERVAL, FindingLine, Owned, Report, Wish, node_key

MASTER = "whsec_" + base64.b64encode(bytes(range(32))).decode()
NODES = tuple(f"node{number:04d}" for number in range(1, 101))
ID = "7f3a9c"
WHY = f"ibmon: port-down mlx5_0/1 DOWN/Polling 62s>60s [id {ID}]"
SECONDS = 20  # no test waits so long unless it fails


class Clock:
    """Runs only when told."""

    def __init__(self):
        self.ahead = 0.0

    def now(self):
        return Now(10_000.0 + self.ahead, 1_700_000_000.0 + self.ahead)


class World:
    """A controller with its cluster and its nodes."""

    def __init__(self, directory):
        self.directory = directory
        self.clock = Clock()
        self.cluster = Cluster(NODES, wall=lambda: self.clock.now().wall)
        (directory / "master.key").write_text(MASTER)
        (directory / "state").mkdir()
        self.seq = 0
        self.running = None

    def config(self, more=""):
        return loads(
            f'[action]\nmode = "drain"\nstop_file = "{self.directory}/STOP"\n'
            f'[controller]\nlisten = "127.0.0.1:0"\nmaster_key_file = "{self.directory}/master.key"\n{more}'
            f'[state]\ndirectory = "{self.directory}/state"\n'
        )

    def start(self, more=""):
        cluster = self.cluster
        pools = lambda: cluster.client(NODES[0]).read_pools()  # noqa: E731
        scheduler = WholeScheduler(pools, cluster.client, lambda _: {})
        self.running = Controller(self.config(more), scheduler=scheduler, look_seconds=0.05, clock=self.clock)
        self.running.start()
        return self.running

    def stop(self):
        if self.running is not None:
            self.running.close()
            self.running = None

    def report(self, node, fitness=NodeFitness.FIT, **more):
        """The reply to one report of a node."""
        key = self.directory / f"{node}.key"
        (master,) = parse_secrets(MASTER, "test")
        key.write_text("whsec_" + base64.b64encode(node_key(master, node)).decode())
        client = ControllerClient(
            ControllerConfig(url=self.running.server.url, key_file=str(key)), wall=lambda: self.clock.now().wall
        )
        self.seq += 1
        common = {"v": 1, "boot_id": "boot", "version": "1", "config_hash": "x", "mode": Mode.DRAIN}
        try:
            return client.send(
                Report(node=node, seq=self.seq, sent=self.clock.now().wall, fitness=fitness, **common, **more)
            )
        finally:
            client.close()

    def unfit(self, node, *, held=False):
        now = self.clock.now().wall
        finding = FindingLine("port-down", "mlx5_0", 1, Severity.CRITICAL, now - 100, drains=True)
        wish = Wish(drain=True, id=ID, reason=WHY, since=now)
        owned = Owned(ID, WHY, asked=now, held=held)
        return self.report(node, NodeFitness.UNFIT, findings=(finding,), intent=wish, owned=owned)

    def open_quorum(self):
        """Every node reports, for longer than a controller waits after its start."""
        for _ in range(3):
            for node in NODES[:5]:
                self.report(node)
            self.clock.ahead += INTERVAL
        self.fresh()

    def later(self, seconds):
        """So much time passes, and the scheduler is read anew: a look that was just ending would be the last."""
        self.clock.ahead += seconds
        self.running._worker.look()

    def fresh(self):
        """Wait until the scheduler was read at this time; the clock stands, so no look would come by itself."""
        self.running._worker.look()
        at = self.clock.now().monotonic
        self.until(lambda: self.running.desk.counts(Now(at, 0.0)).view_age == 0.0)

    def settled(self):
        """Wait until all has been done that follows from what was said: what must not come has had its time."""
        controller = self.running
        jobs = controller._worker._jobs
        idle = lambda: jobs.empty() and not (controller._planned or controller._saving.out or controller._ready)  # noqa: E731
        for _ in range(2):  # a job that the first turn let out is done before the second look
            self.clock.ahead += 0.001  # so that the view of before is not of now
            self.fresh()
            self.until(lambda: controller.server.call(idle).result(SECONDS))

    def until(self, holds):
        end = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.01)

    def drained(self, node):
        return self.cluster.view(node).drained
