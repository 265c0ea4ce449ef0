"""One of several instances leads: a Lease of Kubernetes, kept by a thread. The decisions are in `election`.

It asks the API for one object and writes nothing else. Trouble with the server ends a leadership in time and is a log
line, never an error of who asks `is_leader`.
"""

from __future__ import annotations

import logging
import math
import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Final

import msgspec

from ibmon.controller.election import DEFAULT, Candidate, Seen, Timing
from ibmon.controller.kubeobject import KubeObject
from ibmon.drain.kube_client import KubeClient, KubeError
from ibmon.drain.pace import spread
from ibmon.ports import SchedulerError
from ibmon.runtime import logs

log = logging.getLogger(__name__)

CALL_TIMEOUT: Final = 5.0
"""Seconds that a call of the client may take: half of the time in which a renewal must work (as client-go has it)."""
_RELEASED: Final = 1.0  # seconds, the smallest that the API takes: what a Lease without a holder promises


def boot_time() -> float:
    """Seconds since the boot, sleep included: a machine that was suspended must find its lease over."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def new_identity() -> str:
    """This process, as no other is called: the host name (in a pod the pod's) and chance."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


def _micro_time(wall: float) -> str:
    return datetime.fromtimestamp(wall, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaseLock:
    """One Lease at the server. Calls raise SchedulerError.

    Args:
        client: makes the calls, with a deadline of at most `CALL_TIMEOUT`.
        namespace: where the Lease is.
        name: what it is called.
    """

    def __init__(self, client: KubeClient, namespace: str, name: str) -> None:
        self._object = KubeObject(client, "coordination.k8s.io/v1", "Lease", namespace, name)

    @property
    def about(self) -> str:
        """The Lease as people call it."""
        return self._object.about

    def read(self) -> Seen | None:
        """The Lease as it stands, None where there is none."""
        return None if self._object.read() is None else self._seen()

    def write(self, holder: str, duration: float, wall: float) -> Seen:
        """Write a holder under the version that was read last; KubeError with `conflict` where that is not in force.

        Args:
            holder: who has it, empty for nobody.
            duration: seconds that the others shall wait.
            wall: the wall clock (seconds), for people who look.
        """
        before = self._spec()
        acquired = holder not in {"", before.holder_identity}
        at = _micro_time(wall)
        if at == before.renew_time:  # a clock that stands: a write that changes nothing is none for the others
            at = _micro_time(wall + 1e-6)
        transitions = before.lease_transitions or 0
        self._object.write(
            spec={
                "holderIdentity": holder,
                "leaseDurationSeconds": max(1, math.ceil(duration)),
                "acquireTime": at if acquired else before.acquire_time,
                "renewTime": at,
                "leaseTransitions": transitions + 1 if acquired and self._object.found else transitions,
            }
        )
        return self._seen()

    def _spec(self) -> _Spec:
        try:
            return msgspec.convert((self._object.found or {}).get("spec", {}), _Spec)
        except msgspec.ValidationError as error:
            raise SchedulerError(f"{self.about} is none: {error}") from None

    def _seen(self) -> Seen:
        spec = self._spec()
        return Seen(spec.holder_identity or "", float(spec.lease_duration_seconds or 0), self._object.version)


class Leader:
    """This process in the election; `start` begins, `close` gives a leadership back.

    Args:
        lock: the Lease.
        identity: see `new_identity`.
        timing: see there.
        clock: seconds that never go back and count sleep.
        wall: the wall clock (seconds); it decides nothing.
    """

    def __init__(
        self,
        lock: LeaseLock,
        identity: str,
        *,
        timing: Timing = DEFAULT,
        clock: Callable[[], float] = boot_time,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._lock = lock
        self._candidate = Candidate(identity, timing)
        self._clock = clock
        self._wall = wall
        self._closed = threading.Event()
        self._turns = 0
        self._led = False
        self._said = ""
        self._thread = threading.Thread(target=self._run, name="ibmon-lease", daemon=True)

    @property
    def identity(self) -> str:
        """Who this is in the Lease."""
        return self._candidate.identity

    @property
    def holder(self) -> str | None:
        """Who leads by what was seen last; None where that is not known, empty where nobody does."""
        return self._candidate.holder

    @property
    def term(self) -> int:
        """How often this process has begun to lead: where it has changed, what was known from before is void."""
        return self._candidate.term

    def is_leader(self) -> bool:
        """Whether this process may act at this moment; ask right before every write. It waits for nothing."""
        return self._candidate.leads(self._clock())

    def start(self) -> None:
        """Take part, from a thread of its own."""
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Lead no more, then give the Lease back so that another need not wait; within about so many seconds."""
        self._closed.set()
        self._candidate.resign()
        if self._thread.ident is not None:
            self._thread.join(seconds)
        if not self._thread.is_alive():  # else it waits for an answer, and the Lease ends by itself
            self._release()

    def turn(self) -> float:
        """One try to lead or to go on leading; seconds until the next one."""
        self._turns += 1
        try:
            self._try()
        except SchedulerError as error:
            self._candidate.lose_sight()
            self._say(str(error))
        except Exception:
            self._candidate.lose_sight()
            log.exception("a turn of the election failed")  # and the next one may not
        else:
            self._said = ""
        self._tell()
        if self._led:
            return self._candidate.timing.retry
        # Followers are spread over 1 to 2.2 periods, as in client-go.
        return self._candidate.timing.retry * (1 + 0.6 * spread(f"{self.identity}{self._turns}", 1.0))

    def _run(self) -> None:
        while not self._closed.is_set():
            self._closed.wait(self.turn())

    def _try(self) -> None:
        if self._candidate.must_look(self._clock()):
            self._look()
        for _ in range(2):
            if not self._candidate.may_claim(self._clock()) or self._claim():
                return
            self._look()  # whoever was quicker leads now, and this one does not

    def _look(self) -> None:
        seen = self._lock.read()
        self._candidate.observe(seen, self._clock())

    def _claim(self) -> bool:
        """Write oneself into the Lease; whether nobody else was quicker."""
        began = self._clock()
        candidate = self._candidate
        try:
            seen = self._lock.write(candidate.identity, candidate.timing.duration, self._wall())
        except KubeError as error:
            if error.conflict or error.missing:
                return False
            raise
        candidate.won(seen, began, self._clock())
        return True

    def _release(self) -> None:
        if self.holder != self.identity:
            return
        try:
            seen = self._lock.read()
            if seen is not None and seen.holder == self.identity:
                self._lock.write("", _RELEASED, self._wall())
                log.info("%s", logs.line("lease-released", {"lease": self._lock.about}))
        except SchedulerError as error:
            self._say(str(error))

    def _tell(self) -> None:
        """A change of leadership is one line."""
        leads = self.is_leader()
        if leads and not self._led:
            log.info("%s", logs.line("leading", {"lease": self._lock.about, "identity": self.identity}))
        elif self._led and not leads:
            holder = self.holder or "nobody"
            log.warning("%s", logs.line("not-leading", {"lease": self._lock.about, "holder": holder}))
        self._led = leads

    def _say(self, why: str) -> None:
        if why != self._said:
            log.warning("%s", logs.line("lease-trouble", {"lease": self._lock.about, "detail": why}))
        self._said = why
