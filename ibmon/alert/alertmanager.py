"""Telling Alertmanagers what fires: one thread each, so that none waits for another, and the engine for none.

Alerts are desired state: whoever is told gets all that holds now, again before it expires, and each end explicitly.
It is imported only where an Alertmanager is configured, because it brings urllib3.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ibmon import __version__
from ibmon.alert import delivery
from ibmon.alert.access import Access, AccessError
from ibmon.alert.alertrecord import AlertRecord
from ibmon.alert.alerts import PATH, Told, encode, from_finding, from_notice
from ibmon.alert.board import Batch, Board, Entry
from ibmon.alert.delivery import DeliveryMetrics, Verdict
from ibmon.alert.target import TargetThread
from ibmon.alert.transport import DeliveryError, Limits, Transport
from ibmon.config import AlertmanagerConfig
from ibmon.messages import Notice
from ibmon.model import Finding, PortId

log = logging.getLogger(__name__)

PROMISES = 4
"""An alert is told to hold for so many resend intervals (as Prometheus does): three may be lost before it expires."""

SKEW = 2.0
"""Seconds by which an end is dated back. An end in the future of Alertmanager's clock would be taken for a promise, and
of two promises the longer one holds (`Alert.Merge` in its types/types.go): the alert would go on until that is over."""

_SPREAD = 0.1
HEADERS = {"Content-Type": "application/json", "User-Agent": f"ibmon/{__version__}"}


class AlertmanagerSender:
    """All configured Alertmanagers. `close` it; what fires then is repeated by the next process, or expires.

    Args:
        directory: where the record of what was told is kept; None keeps none.
        targets: the Alertmanagers; several of a cluster all get everything, and see to it that people hear it once.
        node: the node's name, a label of each alert.
        source: the address of this node's page, the link of each alert; empty if there is none to give.
        metrics: counts attempts, failures and what was not told yet, by `delivery.alertmanager_names`.
        limits: seconds that one attempt may take.
        wall: the wall clock, for the times that are told.
    """

    def __init__(
        self,
        directory: str | Path | None,
        targets: Sequence[AlertmanagerConfig],
        *,
        node: str,
        source: str,
        metrics: DeliveryMetrics,
        limits: Limits | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        limits = limits or Limits()
        self._node = node
        keep_ends = PROMISES * max(target.resend_interval for target in targets) + limits.total
        board = self._board = Board(AlertRecord(directory, node), keep_ends, wall=wall)
        names = delivery.alertmanager_names([target.url for target in targets])
        self._targets = [
            _Target(name, target, board, source, metrics, limits, wall)
            for name, target in zip(names, targets, strict=True)
        ]
        for target in self._targets:
            target.start()

    def fire(
        self, findings: Iterable[Finding], rails: Mapping[PortId, int | None], notices: Iterable[Notice] = ()
    ) -> None:
        """All findings and notices that should alert now; what fired before and is not among them has ended."""
        told = [from_finding(finding, self._node, rails) for finding in findings]
        self._board.show([*told, *(from_notice(notice, self._node) for notice in notices)])
        for target in self._targets:
            target.wake()

    def close(self, seconds: float = 1.0) -> None:
        """Stop, also an attempt that is under way, within so many seconds. Nothing is ended by it."""
        for target in self._targets:
            target.stop()
        deadline = time.monotonic() + seconds
        for target in self._targets:
            target.join(max(0.0, deadline - time.monotonic()))


def access_of(config: AlertmanagerConfig) -> Access:
    """The credentials and certificates for an Alertmanager."""
    return Access(
        basic_auth_file=config.basic_auth_file,
        bearer_token_file=config.bearer_token_file,
        ca=config.ca,
        client_cert=config.client_cert,
        client_key=config.client_key,
    )


def transport_of(config: AlertmanagerConfig, access: Access, limits: Limits) -> Transport:
    """The way to an Alertmanager's alerts; its address may have a path (a route prefix, a proxy)."""
    return Transport(config.url.rstrip("/") + PATH, limits, access.context)


class _Target(TargetThread):
    """One Alertmanager and its thread."""

    def __init__(
        self,
        name: str,
        config: AlertmanagerConfig,
        board: Board,
        source: str,
        metrics: DeliveryMetrics,
        limits: Limits,
        wall: Callable[[], float],
    ) -> None:
        self._access = access_of(config)
        super().__init__(name, transport_of(config, self._access, limits))
        self._name = name
        self._config = config
        self._board = board
        self._source = source
        self._metrics = metrics
        self._wall = wall
        # Never slower than it repeats anyway: an Alertmanager that is back must hear before its alerts expire.
        self._backoff = delivery.backoff(cap=config.resend_interval)
        self._told = 0
        self._resend_at = math.inf
        self._not_before = -math.inf

    def _run(self) -> None:
        while self._goes_on():
            try:
                pause = self._turn()
            except Exception:  # a fault of our own must not silence the node
                log.exception("event=alertmanager-fault target=%s", self._name)
                self._failed("a fault of ibmon", 0.0)
                pause = 0.0
            if pause > 0:
                self._work.wait(pause if pause < threading.TIMEOUT_MAX else None)

    def _turn(self) -> float:
        """Tell what is due, if anything is; the seconds until something may be."""
        batch = self._board.batch()
        if batch is None:
            return math.inf
        self._board.save()
        news = self._tell_pending(batch)
        due = -math.inf if news else self._resend_at if batch.entries else math.inf
        wait = max(due, self._not_before) - time.monotonic()
        if wait > 0:
            return wait
        self._attempt(batch)
        return 0.0

    def _tell_pending(self, batch: Batch) -> int:
        """How many alerts stand there otherwise than this Alertmanager was told; also as a metric."""
        news = sum(entry.version > self._told for entry in batch.entries)
        self._metrics.outbox(self._name, news)
        return news

    def _attempt(self, batch: Batch) -> None:
        """Tell all of it once."""
        promise = self._wall() + PROMISES * self._config.resend_interval
        told = [Told(entry.alert, _ends(entry, promise)) for entry in batch.entries]
        body = encode(told, source=self._source, runbook_url=self._config.runbook_url)
        try:
            answer = self._transport.post(body, {**HEADERS, **self._access.headers()})
        except (DeliveryError, AccessError) as error:
            if not self._stopped.is_set():
                self._failed(str(error), 0.0)
            return
        verdict = delivery.judge(answer.status)
        if verdict is Verdict.DELIVERED:
            self._delivered(batch)
        elif verdict is Verdict.REFUSED:  # it will say so again: no more often than it hears of us anyway
            self._failed(f"HTTP {answer.status}, look at its url and credentials", self._config.resend_interval)
        else:
            asked = delivery.retry_after(answer.retry_after, self._wall())
            self._failed(f"HTTP {answer.status}", asked)

    def _delivered(self, batch: Batch) -> None:
        self._told = batch.version
        self._tell_pending(batch)
        self._metrics.delivery(self._name, arrived=True)
        if self._backoff.failures:
            log.info("event=alertmanager-delivering target=%s failures=%d", self._name, self._backoff.failures)
        self._backoff.reset()
        early = 1 - _SPREAD * random.random()  # noqa: S311 - so that the nodes of one event do not stay in step
        self._resend_at = time.monotonic() + early * self._config.resend_interval

    def _failed(self, why: str, at_least: float) -> None:
        """Count a failure, tell the first of a row, and leave the Alertmanager alone for a while."""
        self._metrics.delivery(self._name, arrived=False)
        if not self._backoff.failures:
            log.warning('event=alertmanager-failing target=%s why="%s; trying until it is told"', self._name, why)
        self._not_before = time.monotonic() + max(self._backoff.next(), at_least)


def _ends(entry: Entry, promise: float) -> float:
    return promise if entry.ended is None else entry.ended - SKEW
