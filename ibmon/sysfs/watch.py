"""The kernel's word that RDMA devices came, went or were renamed.

Owns one thread and one netlink socket. It only says that something happened; what there is now, a listing tells, and
it is taken anyway from time to time, because events can be lost and other network namespaces get none.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ibmon.messages import Hotplug

log = logging.getLogger(__name__)

SUBSYSTEM: Final = "infiniband"

DEBOUNCE_SECONDS: Final = 1.0
"""From the first event to ours: udev often renames a device right after the kernel added it."""

_UDEVD: Final = Path("/run/udev/control")


class Watch:
    """Posts a `Hotplug` a second after each first event of a burst, until it is closed.

    Args:
        post: takes the event; called from the thread of this watch.
        monitor: a started `pyudev.Monitor`, or what behaves like one (`fileno`, `poll(timeout)`).
        debounce: seconds from a first event to the `Hotplug`; what comes in between adds none.
    """

    def __init__(self, post: Callable[[Hotplug], None], monitor: Any, debounce: float = DEBOUNCE_SECONDS) -> None:
        self._post = post
        self._monitor = monitor
        self._debounce = debounce
        self._stop_read, self._stop_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="ibmon-udev", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop at once."""
        if self._stop_write < 0:
            return
        os.write(self._stop_write, b"x")
        self._thread.join()
        os.close(self._stop_write)
        os.close(self._stop_read)
        self._stop_write = -1

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._stop_read, select.POLLIN)
        poll.register(self._monitor.fileno(), select.POLLIN)
        due: float | None = None
        while True:
            wait = None if due is None else max(0.0, due - time.monotonic())
            ready = {fd for fd, _ in poll.poll(None if wait is None else wait * 1000)}
            if self._stop_read in ready:
                return
            try:
                seen = bool(ready) and self._drain()
            except OSError as error:
                log.warning("hotplug events ended, the periodic listing goes on: %s", error)
                return
            if seen and due is None:
                due = time.monotonic() + self._debounce
            if due is not None and time.monotonic() >= due:
                due = None
                self._post(Hotplug())

    def _drain(self) -> bool:
        """Take all that waits; whether there was anything, an overrun of the socket included."""
        seen = False
        try:
            while self._monitor.poll(timeout=0) is not None:
                seen = True
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return True  # events were lost, so something happened
        return seen


def start(post: Callable[[Hotplug], None], udevd: Path = _UDEVD) -> tuple[Watch | None, str]:
    """Watch the host's RDMA devices.

    With udevd its own events are taken, which come when names and links are settled; without it the kernel's.

    Returns:
        The watch and the source that it listens to, or None and why there is none.
    """
    try:
        import pyudev
    except ImportError as error:
        return None, f"no hotplug events: {error}"
    source = "udev" if udevd.exists() else "kernel"
    try:
        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source=source)
        monitor.filter_by(SUBSYSTEM)
        with contextlib.suppress(OSError):  # it needs a privilege to grow; the default holds hundreds of events
            monitor.set_receive_buffer_size(1 << 20)
        monitor.start()
        return Watch(post, monitor), source
    except (ImportError, OSError, ValueError) as error:
        return None, f"no hotplug events: {error or type(error).__name__}"
