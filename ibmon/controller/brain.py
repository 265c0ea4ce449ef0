"""What the server needs of the fleet's logic and of the daemon around it. Interfaces only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from ibmon.controller.auth import MasterKeys
from ibmon.controller.metrics import FleetMetrics
from ibmon.controller.tokens import TokenFile
from ibmon.controller.values import AlertSeen, Ask, Counts, Fleet, NodeRow, Refused, Told
from ibmon.model import Now
from ibmon.report import Reply, Report


class Brain(Protocol):
    """The fleet's logic. Every method is called on the server's thread, and none waits for anything."""

    def report(self, report: Report, now: Now) -> Reply | Refused:
        """A report whose signature is right."""

    def alert(self, seen: AlertSeen, now: Now) -> object:
        """One alert of an Alertmanager; one that comes again changes nothing."""

    def ask(self, ask: Ask, now: Now) -> Told:
        """An operator's request."""

    def fleet(self, now: Now) -> Fleet:
        """The whole at one instant."""

    def counts(self, now: Now) -> Counts:
        """What metrics show."""

    def nodes(self, now: Now) -> Sequence[NodeRow]:
        """Every node in a line."""

    def node(self, name: str, now: Now) -> Mapping[str, Any] | None:
        """All that is known of a node; None where there is none of that name."""


class Page(Protocol):
    """A file of the web page as it is served: type, bytes, entity tag, further headers."""

    def __call__(self, path: str, /) -> tuple[str, bytes, str, Mapping[str, str]] | None:
        """The file of a path; None where there is none."""


def _nothing() -> None:
    """Nobody wants to know."""


@dataclass(frozen=True)
class World:
    """Everything that requests are answered from.

    Args:
        desk: the fleet's logic.
        now: both clocks.
        keys: the fleet's master keys.
        tokens: who may look and act; None where no file is configured.
        metrics: what the controller says of itself.
        leader: whether this instance is the one that decides.
        save: begins to make durable what the desk holds now; called on the server's thread right after a change. The
            future ends when it is durable, or with an error whose text is shown to the person who asked.
        audit: the newest lines of the audit log, so many at most, newest first. Called on another thread: it may read
            files.
        pages: the web page.
        open_views: whether looking needs no token.
        touched: called after each report, alert or request that changed something: there may be work.
    """

    desk: Brain
    now: Callable[[], Now]
    keys: MasterKeys
    tokens: TokenFile | None
    metrics: FleetMetrics
    leader: Callable[[], bool]
    save: Callable[[], Future[None]]
    audit: Callable[[int], Sequence[Mapping[str, Any]]]
    pages: Page | None = None
    open_views: bool = False
    touched: Callable[[], None] = _nothing
