"""Where the server listens: from the words of the configuration to a listening socket.

Owns parsing and binding. It must not accept or speak.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Final, NamedTuple

from ibmon.exporter.errors import ExporterError

_KEY: Final = "exporter.listen"
_BACKLOG: Final = 64
_NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)  # a machine without IPv6: IPv4 may do
_FORM: Final = "write :PORT, HOST:PORT or [IPV6]:PORT, as in :19315 or [::1]:19315"


class Address(NamedTuple):
    """Host and port; an empty host is every address of the machine, port 0 any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str, key: str = _KEY) -> Address:
    """The address that this key of the configuration names; ExporterError for any other shape."""
    host, colon, digits = text.strip().rpartition(":")
    if not colon or not (digits.isascii() and digits.isdigit()) or int(digits) > 65535:
        raise ExporterError(f"{key}: {text!r} has no port; {_FORM}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not host:
            raise ExporterError(f"{key}: {text!r} is no address; {_FORM}")
    elif ":" in host:
        raise ExporterError(f"{key}: {text!r} needs brackets around an IPv6 address; {_FORM}")
    return Address(host, int(digits))


def open_listener(address: Address, key: str = _KEY) -> socket.socket:
    """A listening socket; for every address one that takes IPv6 and IPv4, where the machine has both.

    `key` of the configuration is named in errors.

    Raises:
        ExporterError: the port is in use or not allowed, or the host is not one of this machine.
    """
    failure: OSError | None = None
    for family, target in _targets(address, key):
        try:
            return _listen(family, target, both=not address.host)
        except OSError as error:  # noqa: PERF203 - two rounds at most
            failure = error
            if error.errno not in _NO_SUCH_FAMILY:
                break
    reason = os.strerror(failure.errno) if failure and failure.errno else "no address"
    raise ExporterError(f"{key}: cannot listen on {address}: {reason}") from failure


def _targets(address: Address, key: str) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    if not address.host:
        return [(socket.AF_INET6, ("::", address.port)), (socket.AF_INET, ("0.0.0.0", address.port))]  # noqa: S104
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        raise ExporterError(f"{key}: host {address.host!r} cannot be resolved: {error}") from error
    return [(family, (str(target[0]), address.port)) for family, _, _, _, target in found]


def _listen(family: socket.AddressFamily, target: tuple[str, int], *, both: bool) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart must not wait for TIME_WAIT
        if family is socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        listener.bind(target)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
