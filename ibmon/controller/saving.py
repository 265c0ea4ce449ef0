"""When the ledger is saved, and what came of it last: the one who may let a drain out asks here. On one thread only.

It knows of the disk only what `Keeper` tells, and of the ledger nothing.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from ibmon.controller.fleet import FleetDesk
from ibmon.controller.keeping import Keeper, LedgerConflict
from ibmon.ports import Clock
from ibmon.runtime import logs

log = logging.getLogger(__name__)

AGAIN: Final = 5.0
"""Seconds until a saving that failed is tried again, unless a person or an alert asks for one before."""


class Saving:
    """Begins savings of a desk's ledger.

    Attributes:
        out: how many are under way.
        trouble: why the last one failed; empty where it did not.

    Args:
        keeper: writes.
        call: runs a function on this thread, from another one; RuntimeError where it has ended.
        clock: for when a saving is tried again.
        ended: called after each: whether another instance has written the ledger meanwhile.
    """

    def __init__(
        self, keeper: Keeper, call: Callable[[Callable[[], None]], object], clock: Clock, ended: Callable[[bool], None]
    ) -> None:
        self._keeper, self._call, self._clock, self._ended = keeper, call, clock, ended
        self.out = 0
        self.trouble = ""
        self._again = -math.inf

    def due(self, desk: FleetDesk, monotonic: float) -> bool:
        """Whether the ledger is to be saved now."""
        return desk.changed and monotonic >= self._again

    def begin(self, desk: FleetDesk) -> Future[None]:
        """Begin to save what the desk holds now; the future ends with StoreError where that fails."""
        revision = desk.revision
        saving = self._keeper.save(desk.ledger_bytes())
        self.out += 1

        def told(done: Future[None]) -> None:
            with contextlib.suppress(RuntimeError):
                self._call(lambda: self._end(desk, revision, done.exception()))

        saving.add_done_callback(told)
        return saving

    def works(self) -> None:
        """The ledger has been saved: what kept that from happening before is over."""
        if self.trouble:
            log.info(logs.line("saving-again", {}))
        self.trouble, self._again = "", -math.inf

    def _end(self, desk: FleetDesk, revision: int, error: BaseException | None) -> None:
        self.out -= 1
        if error is None:
            self.works()
            desk.saved(revision)
        else:
            why = str(error) or type(error).__name__
            if why != self.trouble:
                log.error("%s: nothing new is drained until the ledger can be saved", why)
            self.trouble, self._again = why, self._clock.now().monotonic + AGAIN
        self._ended(isinstance(error, LedgerConflict))
