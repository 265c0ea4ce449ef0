"""The live side of reading: the thread pool, hotplug events, and the note of devices that hang across restarts."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from ibmon.config import DevicesConfig
from ibmon.messages import Abandon, DeviceFree, Discover, Event, Forget, Read, ReadListing
from ibmon.ports import Clock, Tree
from ibmon.sysfs import danger, ethtool, stallnote, watch
from ibmon.sysfs.files import FileTree
from ibmon.sysfs.pool import ReaderPool

log = logging.getLogger(__name__)

CHECK_NOTE_SECONDS = 5.0


class Readers:
    """Everything that touches sysfs for a running daemon. `post` takes events from any thread.

    `tree` is read instead of the directory `sysfs` where somebody brings one.

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
    ) -> None:
        self._post = post
        self._clock = clock
        self._note = runtime / stallnote.FILE
        self._earlier = dict(stallnote.still_out(self._note))
        self._noted: frozenset[str] = frozenset()
        self._checked = clock.now().monotonic
        files = FileTree(sysfs)
        self.live = live = tree is None and files.is_sysfs()
        self.pool = ReaderPool(
            post,
            files if tree is None else tree,
            clock,
            include=devices.include,
            exclude=devices.exclude,
            platform=danger.Platform.host() if live else danger.Platform(),
            ethtool=ethtool.Ethtool() if live else None,
        )
        self._watch: watch.Watch | None = None
        if live:
            self._watch, source = watch.start(post)
            log.info("event=hotplug-events source=%s", source if self._watch else "none")
            if self._watch is None:
                log.warning("%s", source)

    @property
    def quarantined(self) -> frozenset[str]:
        """Devices in which a read of an earlier process still hangs."""
        return frozenset(self._earlier)

    def carry_out(self, effects: list[ReadListing | Discover | Read | Abandon | Forget]) -> None:
        """Do what the engine asked for; reads keep their order."""
        jobs: list[ReadListing | Discover | Read] = []
        for effect in effects:
            if isinstance(effect, Abandon):
                self.pool.abandon(effect.device)
            elif isinstance(effect, Forget):
                self.pool.forget(effect.device)
            else:
                jobs.append(effect)
        if jobs:
            self.pool.submit(jobs)

    def turn(self) -> None:
        """Once in every turn of the loop: keep the note true, and see whether earlier reads have ended."""
        now = self._clock.now()
        if self._earlier and now.monotonic - self._checked >= CHECK_NOTE_SECONDS:
            self._checked = now.monotonic
            still = stallnote.still_out(self._note)
            for device in [d for d in self._earlier if d not in still]:
                del self._earlier[device]
                self._post(DeviceFree(device))
            self._write_note()
        if self.pool.stuck() != self._noted:
            self._write_note()

    def _write_note(self) -> None:
        self._noted = self.pool.stuck()
        own = {device: stallnote.own(self._clock.now().wall) for device in self._noted}
        try:
            stallnote.write(self._note, {**self._earlier, **own})
        except OSError as error:
            log.warning("%s cannot be written: %s", self._note, error.strerror)

    def close(self) -> bool:
        """Stop; whether no thread is left in a read. What still hangs is noted for the next process."""
        if self._watch is not None:
            self._watch.close()
        clean = self.pool.close()
        if self.pool.stuck() != self._noted or not clean:
            self._write_note()
        return clean
