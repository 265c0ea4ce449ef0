"""What is done by the wall clock and matters to no verdict: pruning, compacting, certificates, a daily summary.

APScheduler keeps the times; a job only queues a chore for the engine's thread, which does it between two ticks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

Chore = Literal["prune", "compact", "reread", "summary"]

MISFIRE_SECONDS = 3600
"""A job that was late (the host slept) is still done within this time, once."""


class Housekeeping:
    """Calls `queue` with the name of a chore when its time has come; `queue` must not block."""

    def __init__(self, queue: Callable[[Chore], None]) -> None:
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "misfire_grace_time": MISFIRE_SECONDS, "max_instances": 1},
            timezone="UTC",
            daemon=True,
        )
        # The jitter keeps a fleet that was booted together from doing it together.
        self._scheduler.add_job(queue, "interval", args=["reread"], hours=1, jitter=300, id="reread")
        self._scheduler.add_job(queue, "interval", args=["prune"], hours=6, jitter=1800, id="prune")
        self._scheduler.add_job(queue, "cron", args=["summary"], hour=0, minute=0, jitter=300, id="summary")
        self._scheduler.add_job(queue, "cron", args=["compact"], day_of_week="sun", hour=3, jitter=3600, id="compact")
        self._scheduler.start()

    def close(self) -> None:
        """Stop the clock; a chore that was queued stays queued."""
        self._scheduler.shutdown(wait=False)
