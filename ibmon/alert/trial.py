"""One test to each configured target, and what came back: what `ibmon test-alert` does. It retries and keeps nothing.

It is imported where somebody asks for it, because it brings urllib3.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from ibmon.alert import delivery, message
from ibmon.alert.access import AccessError
from ibmon.alert.alertmanager import HEADERS, access_of, transport_of
from ibmon.alert.alerts import Told, encode, trial_alert
from ibmon.alert.delivery import Answer, Verdict
from ibmon.alert.signature import SecretError, SecretFile
from ibmon.alert.transport import DeliveryError, Limits, Transport
from ibmon.alert.webhook import headers_of
from ibmon.config import AlertmanagerConfig, Config, WebhookConfig

LASTS: Final = 300.0
"""Seconds until a test alert expires: longer than the time for which Alertmanager gathers a group (30 s by default)."""

_WORDS: Final = 400  # bytes of an answer that are worth reading to a person


class Outcome(NamedTuple):
    """What one target said.

    `status` is None where there was no answer; `words` then says why, else it is what a target that did not take the
    test wrote about it.
    """

    target: str
    delivered: bool
    status: int | None
    words: str
    seconds: float


def attempts(config: Config, node: str, limits: Limits | None = None) -> Iterator[Outcome]:
    """Sends a test to one target after the other, Alertmanagers first, and yields what came of each."""
    limits = limits or Limits()
    names = delivery.alertmanager_names([target.url for target in config.alertmanager])
    for name, alertmanager in zip(names, config.alertmanager, strict=True):
        yield _attempt(name, partial(_to_alertmanager, alertmanager, node, limits))
    names = delivery.target_names([webhook.url for webhook in config.webhook])
    for name, webhook in zip(names, config.webhook, strict=True):
        yield _attempt(name, partial(_to_webhook, webhook, node, limits))


def _attempt(name: str, send: Callable[[], Answer]) -> Outcome:
    began = time.monotonic()
    try:
        answer = send()
    except (DeliveryError, AccessError, SecretError) as error:
        return Outcome(name, delivered=False, status=None, words=str(error), seconds=time.monotonic() - began)
    delivered = delivery.judge(answer.status) is Verdict.DELIVERED
    words = "" if delivered else "".join(c if c.isprintable() else " " for c in answer.words)
    return Outcome(name, delivered, answer.status, " ".join(words.split()), time.monotonic() - began)


def _to_alertmanager(target: AlertmanagerConfig, node: str, limits: Limits) -> Answer:
    now = time.time()
    body = encode([Told(trial_alert(node, now), now + LASTS)])
    access = access_of(target)
    return transport_of(target, access, limits).post(body, {**HEADERS, **access.headers()}, words=_WORDS)


def _to_webhook(target: WebhookConfig, node: str, limits: Limits) -> Answer:
    now = time.time()
    body = message.encode_trial(node, now)
    secret = SecretFile(target.secret_file) if target.secret_file else None
    headers = headers_of(f"msg_{uuid.uuid4().hex}", body, secret, now)
    return Transport(target.url, limits).post(body, headers, words=_WORDS)
