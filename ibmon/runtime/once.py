"""One pass over the hardware without a daemon: for `ibmon metrics` and `ibmon status --direct`.

Knows no history: holds have not run, so it judges only what a single look can tell.
"""

from __future__ import annotations

from pathlib import Path

from ibmon.config import Config
from ibmon.engine import Engine, Identity
from ibmon.messages import Discover, Discovered, Effect, Event, ListingDone, Poll, Read, ReadDone, ReadListing, Tick
from ibmon.runtime import host
from ibmon.snapshot import Snapshot
from ibmon.sysfs import danger, ethtool
from ibmon.sysfs.discover import discover, list_devices
from ibmon.sysfs.files import FileTree
from ibmon.sysfs.reader import reader

ROUNDS = 8
"""Exchanges that one pass takes at most: the listing, the facts, the values, and what these change."""


def snapshot(config: Config, sysfs: Path) -> Snapshot:
    """The node as one look shows it. A read that hangs hangs the caller, who can be interrupted."""
    tree = FileTree(sysfs)
    clock = host.HostClock()
    identity = Identity(host.node_name(config.node.name), host.boot_id(), host.booted())
    engine = Engine(config, identity, clock.now(), enabled=False, default_route=host.default_route())
    live = tree.is_sysfs()
    platform = danger.Platform.host() if live else danger.Platform()
    statistics = ethtool.Ethtool() if live else None
    files = reader(tree, clock, ethtool=statistics)

    def perform(effect: Effect) -> Event | None:
        match effect:
            case ReadListing():
                wanted = (config.devices.include, config.devices.exclude)
                return ListingDone(list_devices(tree, *wanted, clock.now(), effect.functions))
            case Discover():
                found = discover(tree, effect.device, effect.generation, platform=platform, ethtool=statistics)
                return Discovered(effect.device, found)
            case Read():
                return ReadDone(files.read(engine.devices.present[effect.device].device, effect.columns), effect.tiers)
            case _:
                return None

    for _ in range(ROUNDS):
        effects = engine.step(Poll(), clock.now())
        while effects:
            effects = [
                more for event in map(perform, effects) if event is not None for more in engine.step(event, clock.now())
            ]
        engine.step(Tick(), clock.now())
        if engine.devices.ever_listed and not engine.sampler.discovering:
            seen = [p.seen_state() for p in engine.devices.present.values()]
            if None not in seen:
                break
    files.close()
    return engine.snapshot(clock.now())
