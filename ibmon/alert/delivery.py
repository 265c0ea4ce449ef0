"""What a receiver's answer means for a message, what targets are called, and how long to wait. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from ibmon.backoff import Backoff

RETRY_BASE: Final = 2.0
RETRY_CAP: Final = 300.0
MAX_RETRY_AFTER: Final = 3600.0
_JITTER: Final = 0.2

# The receiver, or something before it, is not ready; the message is not at fault.
_LATER: Final = frozenset({408, 425, 429, 502, 503, 504})


class DeliveryMetrics(Protocol):
    """Where deliveries are counted; called from the threads of the targets."""

    def delivery(self, target: str, *, arrived: bool) -> None:
        """One attempt ended."""
        ...

    def outbox(self, target: str, pending: int) -> None:
        """So much waits."""
        ...


class Verdict(Enum):
    """What an HTTP status means."""

    DELIVERED = "delivered"
    LATER = "later"  # try this message again first
    REFUSED_NOW = "refused now"  # try again, the others first
    REFUSED = "refused"  # it will never be taken: drop it


class Answer(NamedTuple):
    """The part of an HTTP answer that matters: its status, how long to wait, and the words that were asked for."""

    status: int
    retry_after: str | None = None
    words: str = ""


def judge(status: int) -> Verdict:
    """What to do after this status.

    Redirects are not followed: a signed message goes where the configuration says. Like other 3xx and 4xx they would
    be the same the next time, so the message is dropped (and the drop told); a wrong address needs a person.
    """
    if 200 <= status < 300:
        return Verdict.DELIVERED
    if status in _LATER:
        return Verdict.LATER
    return Verdict.REFUSED if 300 <= status < 500 else Verdict.REFUSED_NOW


def retry_after(text: str | None, now_wall: float) -> float:
    """Seconds that a Retry-After header asks for (a number or an HTTP date), 0 without or for nonsense.

    Never more than `MAX_RETRY_AFTER`: a receiver cannot silence a node for good.
    """
    if text is None:
        return 0.0
    text = text.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:12])
    else:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now_wall
        except (ValueError, OverflowError):
            return 0.0
    return min(MAX_RETRY_AFTER, max(0.0, seconds))


def backoff(cap: float | None = None) -> Backoff:
    """The waiting times after failures of one receiver: at most 100 attempts in the first six hours.

    `cap` (seconds) is for those that must hear sooner.
    """
    cap = RETRY_CAP if cap is None else min(cap, RETRY_CAP)
    return Backoff(min(RETRY_BASE, cap), cap, jitter=_JITTER)


def target_names(urls: Sequence[str]) -> tuple[str, ...]:
    """What each receiver is called in metrics, logs and the outbox: ``host`` or ``host:port``, the second ``host#2``.

    Paths are left out because many receivers have their secret in it. ValueError for what is no http(s) URL, or one
    with a password.
    """
    names: list[str] = []
    for number, url in enumerate(urls, 1):
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"webhook {number}: the url is not http://host... or https://host...")
        if parts.username is not None or parts.password is not None:
            raise ValueError(f"webhook {number}: a url with a password is not supported; use secret_file")
        name = parts.netloc.lower()
        same = sum(1 for known in names if known.partition("#")[0] == name)
        names.append(f"{name}#{same + 1}" if same else name)
    return tuple(names)


def alertmanager_names(urls: Sequence[str]) -> tuple[str, ...]:
    """What each Alertmanager is called: as `target_names`, with ``am:`` before it, so that no webhook has its name."""
    return tuple(f"am:{name}" for name in target_names(urls))
