"""systemd's readiness and watchdog protocol (sd_notify(3)): datagrams to the socket that it names."""

from __future__ import annotations

import os
import socket


class Notifier:
    """Tells systemd how the service stands; does nothing where no NOTIFY_SOCKET is given."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        environment = dict(os.environ) if environment is None else environment
        address = environment.get("NOTIFY_SOCKET", "")
        # A leading @ is the abstract namespace, whose names begin with a zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if address else None
        usec, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        wanted = usec.isdigit() and (not pid or pid == str(os.getpid()))
        self.watchdog_seconds: float | None = int(usec) / 1e6 if wanted else None

    def send(self, *lines: str) -> None:
        """Send assignments such as ``READY=1``; a systemd that does not listen any more is no reason to stop."""
        if self._socket is None:
            return
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            return

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
