"""A device that is looked at again and is what it was goes on being read, and keeps what is known of it.

Hotplug of one device makes all of them be looked at again, and so does time.
"""

from __future__ import annotations

import itertools

import pytest

from ibmon.config import Config
from ibmon.engine import Engine, Identity
from ibmon.messages import Discover, Discovered, Hotplug, ListingDone, Poll, Read, ReadDone, ReadListing, Tick
from ibmon.model import Now, PortId
from ibmon.recording import Frame
from ibmon.sampling import REDISCOVER_SECONDS
from ibmon.simulate.dgx import dgx
from ibmon.sysfs.contents import gone
from ibmon.sysfs.discover import discover, list_devices
from ibmon.sysfs.reader import TreeReader
from ibmon.virtualtree import VirtualTree


class Reads:
    """An engine and a reader that, as the daemon's, knows a device by its newest generation only."""

    def __init__(self):
        self.t = 1e6
        self.tree = VirtualTree()
        self.tree.apply(dgx().frame())
        self.known = {}
        self.reader = TreeReader(self.tree, self)
        self.engine = Engine(Config(), Identity("node", "boot", 0.0), self.now())

    def now(self):
        return Now(self.t, 1e9 + self.t)

    def perform(self, effect):
        if isinstance(effect, ReadListing):
            return ListingDone(list_devices(self.tree, ["*"], [], self.now()))
        if isinstance(effect, Discover):
            self.known[effect.device] = discover(self.tree, effect.device, effect.generation)
            return Discovered(effect.device, self.known[effect.device])
        device = self.known[effect.device]
        if device.layout.generation != effect.generation:
            now = self.now()
            return ReadDone(gone(effect.device, effect.generation, effect.columns, now, now), effect.tiers)
        return ReadDone(self.reader.read(device, effect.columns), effect.tiers)

    def go_on(self, seconds, *events):
        for event in events:
            self.carry_out(self.engine.step(event, self.now()))
        for _ in range(int(seconds // 5)):
            self.carry_out(self.engine.step(Poll(), self.now()))
            self.engine.step(Tick(), self.now())
            self.t += 5
        return self.engine.snapshot(self.now())

    def carry_out(self, effects):
        while effects:
            wanted = [e for e in effects if isinstance(e, ReadListing | Discover | Read)]
            effects = list(itertools.chain(*(self.engine.step(self.perform(e), self.now()) for e in wanted)))


@pytest.mark.parametrize(("events", "seconds"), [((Hotplug(),), 120), ((), REDISCOVER_SECONDS + 120)])
def test_every_device_is_read_after_all_were_looked_at_again(events, seconds):
    reads = Reads()
    before = reads.go_on(120)
    generations = {v.device.name: v.device.layout.generation for v in before.devices}

    after = reads.go_on(seconds, *events)

    assert after.fitness.value == "fit"
    assert all(v.device.layout.generation > generations[v.device.name] for v in after.devices)
    assert not any(v.read_errors for v in after.devices)
    assert all(reads.t - v.sampled.monotonic <= 10 for v in after.devices)


def test_what_is_known_of_a_device_outlives_another_look_at_it():
    reads = Reads()
    reads.go_on(120)
    port = dgx().port_path("mlx5_0/1")
    reads.tree.apply(dgx().frame().__class__(t=1, files={f"{port}/counters/symbol_error": "7\n"}))
    before = reads.go_on(120)

    after = reads.go_on(120, Hotplug())

    def values(snapshot):
        [view] = [v for v in snapshot.devices if v.device.name == "mlx5_0"]
        assert view.sample.layout is view.device.layout
        return view.sample.values

    assert values(after) == values(before)
    assert after.ports[0].moved == before.ports[0].moved != ()


@pytest.mark.parametrize("replugged", [False, True])
def test_what_a_counter_rose_by_while_it_could_not_be_read_counts_also_on_a_card_that_has_come_back(replugged):
    reads = Reads()
    card = reads.tree.realpath("class/infiniband/mlx5_0")
    file = f"{card}/ports/1/counters/symbol_error"
    reads.go_on(300)
    if replugged:
        reads.tree.apply(Frame(t=0, remove=(card, "class/infiniband/mlx5_0")))
        reads.go_on(60)
        reads.tree.apply(dgx().frame())
        reads.go_on(300)
    value = int(reads.tree.read(file))
    reads.tree.apply(Frame(t=0, errnos={file: "EIO"}))
    reads.go_on(70)
    reads.tree.apply(Frame(t=0, errnos={file: None}, files={file: f"{value + 1000}\n"}))
    reads.go_on(120)

    window = reads.engine.judge.ports[PortId("mlx5_0", 1)].windows["counters/symbol_error"]
    assert sum(bucket.count for bucket in window.buckets) == 1000
