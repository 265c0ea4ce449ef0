"""The live side of reading: the reader pool, hotplug events, and the note of devices that hang across restarts.

Owns where reading happens: a running daemon reads in processes of their own, because a process with a thread in D
state can neither end nor give back what it holds. When to give a device up is decided in `ibmon.sampling`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from ibmon.config import DevicesConfig
from ibmon.messages import Abandon, DeviceFree, Discover, Event, Forget, OfReaders, Read, ReadListing
from ibmon.ports import Clock, Tree
from ibmon.sysfs import danger, ethtool, stallnote, watch, wire
from ibmon.sysfs.files import FileTree
from ibmon.sysfs.pool import ReaderPool
from ibmon.sysfs.process import ChildSource, Template
from ibmon.sysfs.source import LocalSource, Source

log = logging.getLogger(__name__)

CHECK_NOTE_SECONDS = 5.0


class Readers:
    """Everything that touches sysfs for a running daemon. Between its making and `start` it does nothing.

    Args:
        post: takes events from any thread.
        sysfs: the sysfs root.
        devices: which devices are read.
        runtime: the runtime directory.
        clock: time.
        tree: what is read instead of the directory `sysfs`, always in this process.
        isolate: read in processes of their own. Made while this process has one thread, they are copies of it.

    Attributes:
        live: whether what is read is this host's own sysfs.
    """

    def __init__(
        self,
        post: Callable[[Event], None],
        sysfs: Path,
        devices: DevicesConfig,
        runtime: Path,
        clock: Clock,
        tree: Tree | None = None,
        *,
        isolate: bool = False,
    ) -> None:
        self._post = post
        self._sysfs = sysfs
        self._devices = devices
        self._clock = clock
        self._tree = tree
        self._note = runtime / stallnote.FILE
        self._earlier = dict(stallnote.still_out(self._note))
        self._own: dict[str, stallnote.Entry] = {}
        self._checked = clock.now().monotonic
        self.live = tree is None and FileTree(sysfs).is_sysfs()
        self._platform = danger.Platform.host() if self.live else danger.Platform()
        self._watch: watch.Watch | None = None
        self._template = Template() if isolate and tree is None else None

    def start(self) -> None:
        """Begin to read, and to post."""
        self.pool = ReaderPool(
            self._post,
            self._source,
            self._clock,
            include=self._devices.include,
            exclude=self._devices.exclude,
            platform=self._platform,
        )
        if self.live:
            self._watch, source = watch.start(self._post)
            log.info("event=hotplug-events source=%s", source if self._watch else "none")
            if self._watch is None:
                log.warning("%s", source)

    def _source(self) -> Source:
        if self._template is not None:
            setup = wire.Setup(str(self._sysfs.absolute()), self._platform, ethtool=self.live)
            return ChildSource(self._template, setup)
        read = FileTree(self._sysfs) if self._tree is None else self._tree
        statistics = ethtool.Ethtool() if self.live else None
        return LocalSource(os.getpid(), read, self._clock, platform=self._platform, ethtool=statistics)

    @property
    def quarantined(self) -> frozenset[str]:
        """Devices in which a read of an earlier process still hangs."""
        return frozenset(self._earlier)

    def carry_out(self, effects: list[OfReaders]) -> None:
        """Do what the engine asked for; reads keep their order."""
        jobs: list[ReadListing | Discover | Read] = []
        for effect in effects:
            if not isinstance(effect, (Abandon, Forget)):
                jobs.append(effect)
            elif isinstance(effect, Abandon):
                self.pool.abandon(effect.device)
            else:
                self.pool.forget(effect.device)
        if jobs:
            self.pool.submit(jobs, collected=True)

    @property
    def asked(self) -> bool:
        """Whether something is to be collected."""
        return self.pool.asked

    def collect(self) -> list[Event]:
        """Events of what was asked for last, which are not posted then. It must be called soon after `carry_out`."""
        return self.pool.collect()

    def turn(self) -> None:
        """Once in every turn of the loop: keep the note true, and see whether earlier reads have ended."""
        self.pool.turn()
        now = self._clock.now()
        if self._earlier and now.monotonic - self._checked >= CHECK_NOTE_SECONDS:
            self._checked = now.monotonic
            still = stallnote.still_out(self._note)
            ended = [device for device in self._earlier if device not in still]
            for device in ended:
                del self._earlier[device]
                self._post(DeviceFree(device))
            if ended:
                self._write_note()
        self._keep_note()

    def _keep_note(self) -> None:
        """Write down who hangs now, when that has changed."""
        stuck = self.pool.stuck()
        if stuck.keys() == self._own.keys():
            return
        wall = self._clock.now().wall
        self._own = {device: self._own.get(device) or stallnote.entry(pid, wall) for device, pid in stuck.items()}
        self._write_note()

    def _write_note(self) -> None:
        try:
            stallnote.write(self._note, {**self._earlier, **self._own})
        except OSError as error:
            log.warning("%s cannot be written: %s", self._note, error.strerror)

    def close(self) -> bool:
        """Stop; whether no thread is left in a read. What still hangs is noted for the next process."""
        if self._watch is not None:
            self._watch.close()
        clean = self.pool.close()
        self._keep_note()
        if self._template is not None:
            self._template.close()
        return clean
