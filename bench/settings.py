"""How long and how often is measured: the values behind the page, and tiny ones that only show that all runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """What every measurement is given.

    Attributes:
        scratch: a directory for trees, states and logs.
        sizes: devices of the trees.
        rounds: how often one thing is measured where it takes milliseconds.
        watch: seconds for which the daemons are left running.
        every: seconds between two scrapes meanwhile.
        hang: seconds for which a file hangs.
        day: virtual seconds that a replay lasts.
        nodes: how many report to the controller.
        report_every: seconds between two reports of a node.
        fleet: nodes that a Prometheus is asked for.
    """

    scratch: Path
    sizes: tuple[int, ...] = (12, 256)
    rounds: int = 60
    watch: float = 120.0
    every: float = 15.0
    hang: float = 60.0
    day: float = 86_400.0
    nodes: int = 20_000
    report_every: float = 30.0
    fleet: int = 200


def tiny(scratch: Path) -> Settings:
    """Measures nothing worth knowing, in a second or two."""
    return Settings(
        scratch,
        sizes=(12,),
        rounds=2,
        watch=1.0,
        every=0.5,
        hang=1.0,
        day=120.0,
        nodes=50,
        report_every=0.5,
        fleet=2,
    )
