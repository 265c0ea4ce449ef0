"""Delivery of messages to the configured webhooks: one thread a receiver, so that none waits for another.

Messages wait in the store's outbox, the newest of each subject; this owns when they are tried and what becomes of
them. It is imported only where a webhook is configured, because it brings urllib3.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from ibmon import __version__
from ibmon.alert import delivery, message
from ibmon.alert.delivery import DeliveryMetrics, Verdict
from ibmon.alert.signature import SecretError, SecretFile, sign
from ibmon.alert.target import TargetThread
from ibmon.alert.transport import DeliveryError, Limits, Transport
from ibmon.config import WebhookConfig
from ibmon.store import Message, Outbox, Store

log = logging.getLogger(__name__)


class WebhookSender:
    """`ports.Sender` for all webhooks. `close` it; what was not delivered waits in the outbox for the next process.

    Args:
        store: in its outbox messages wait.
        webhooks: the receivers; ValueError for a URL that cannot be one.
        node: the node's name, told in each message.
        metrics: counts attempts, failures and what waits, by `delivery.target_names`.
        limits: seconds that one attempt may take.
        wall: the wall clock, for the time of an event and of a signature.
    """

    def __init__(
        self,
        store: Store,
        webhooks: Sequence[WebhookConfig],
        *,
        node: str,
        metrics: DeliveryMetrics,
        limits: Limits | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._outbox = store.outbox
        self._node = node
        self._wall = wall
        names = delivery.target_names([webhook.url for webhook in webhooks])
        self._outbox.keep_targets(names)
        self._receivers = [
            _Receiver(name, webhook, self._outbox, metrics, limits or Limits(), wall)
            for name, webhook in zip(names, webhooks, strict=True)
        ]
        for receiver in self._receivers:
            receiver.start()

    def send(self, topic: str, subject: str, body: dict[str, Any]) -> None:
        """Queue a message for every receiver that wants its topic; an older one of the same subject is replaced."""
        now = self._wall()
        receivers = [receiver for receiver in self._receivers if topic in receiver.topics]
        if not receivers:
            return
        text = message.encode(topic, self._node, body, now)
        # One id for all receivers and all attempts: it names the event (webhook-id).
        mark = f"msg_{uuid.uuid4().hex}"
        for receiver in receivers:
            self._outbox.put(Message(receiver.target, f"{topic} {subject}", topic, mark, text, now))
            receiver.wake()

    def close(self, seconds: float = 1.0) -> None:
        """Stop, also an attempt that is under way, within so many seconds."""
        for receiver in self._receivers:
            receiver.stop()
        deadline = time.monotonic() + seconds
        for receiver in self._receivers:
            receiver.join(max(0.0, deadline - time.monotonic()))


class _Receiver(TargetThread):
    """One webhook and its thread."""

    def __init__(
        self,
        target: str,
        webhook: WebhookConfig,
        outbox: Outbox,
        metrics: DeliveryMetrics,
        limits: Limits,
        wall: Callable[[], float],
    ) -> None:
        super().__init__(f"webhook-{target}", Transport(webhook.url, limits))
        self.target = target
        self.topics = frozenset(webhook.events)
        self._secret = SecretFile(webhook.secret_file) if webhook.secret_file else None
        self._outbox = outbox
        self._metrics = metrics
        self._wall = wall
        self._backoff = delivery.backoff()

    def _run(self) -> None:
        while self._goes_on():
            waiting = self._outbox.take(self.target)
            self._metrics.outbox(self.target, self._outbox.pending(self.target))
            if waiting is None:
                self._work.wait()
            elif (pause := self._attempt_safely(waiting)) > 0:
                self._stopped.wait(pause)

    def _attempt_safely(self, waiting: Message) -> float:
        """As `_attempt`; a fault of our own ends neither the thread nor the message."""
        try:
            return self._attempt(waiting)
        except Exception:
            log.exception("event=webhook-fault target=%s", self.target)
            self._outbox.behind(waiting)
            return self._failed("a fault of ibmon", 0.0)

    def _attempt(self, waiting: Message) -> float:
        """Try one message once; the seconds to leave this receiver alone afterwards."""
        try:
            headers = headers_of(waiting.id, waiting.body, self._secret, self._wall())
            answer = self._transport.post(waiting.body, headers)
        except (DeliveryError, SecretError) as error:
            return 0.0 if self._stopped.is_set() else self._failed(str(error), 0.0)
        verdict = delivery.judge(answer.status)
        if verdict is Verdict.DELIVERED:
            self._outbox.done(waiting)
            self._metrics.delivery(self.target, arrived=True)
            if self._backoff.failures:
                log.info("event=webhook-delivering target=%s failures=%d", self.target, self._backoff.failures)
            self._backoff.reset()
            return 0.0
        if verdict is Verdict.REFUSED:
            self._outbox.done(waiting)
            self._metrics.delivery(self.target, arrived=False)
            why = "dropped; look at url and secret_file"
            log.error('event=webhook-refused target=%s status=%d why="%s"', self.target, answer.status, why)
            return 0.0
        if verdict is Verdict.REFUSED_NOW:
            self._outbox.behind(waiting)
        return self._failed(f"HTTP {answer.status}", delivery.retry_after(answer.retry_after, self._wall()))

    def _failed(self, why: str, at_least: float) -> float:
        """Count a failure, tell the first of a row, and say how long to wait."""
        self._metrics.delivery(self.target, arrived=False)
        if not self._backoff.failures:
            log.warning('event=webhook-failing target=%s why="%s; trying until it is delivered"', self.target, why)
        return max(self._backoff.next(), at_least)


def headers_of(message_id: str, body: bytes, secret: SecretFile | None, wall: float) -> dict[str, str]:
    """The headers of one attempt; the signature covers the time of the attempt, as the standard wants.

    SecretError where the secret cannot be had.
    """
    now = int(wall)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"ibmon/{__version__}",
        "webhook-id": message_id,
        "webhook-timestamp": str(now),
    }
    if secret is not None:
        headers["webhook-signature"] = sign(secret.secrets(), message_id, now, body)
    return headers
