"""What both ways to Slurm share: this node's one name, nodes with their partitions, partitions as pools.

It asks nobody: who knows the nodes hands in how.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from ibmon.model import NodeView
from ibmon.ports import SchedulerError

# No list, no range: such a name would address other nodes in an update.
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
# How slurmctld refuses by permission (slurm_strerror: ESLURM_USER_ID_MISSING, ESLURM_ACCESS_DENIED).
_FORBIDDEN: Final = re.compile(
    r"invalid user id|access/permission denied|access denied|permission denied", re.IGNORECASE
)
# How it is said that slurmctld does not answer, or not this caller (src/common/slurm_errno.c, Slurm 20.11 to 25.05).
_AWAY: Final = re.compile(
    r"unable to contact slurm controller|controller in standby|communication connection failure|socket timed out"
    r"|zero bytes were transmitted|message (?:send|receive) failure|protocol authentication error"
    r"|invalid authentication credential|incompatible versions|header lengths are longer|connection refused",
    re.IGNORECASE,
)


class NodeNameError(SchedulerError):
    """Slurm does not know this host by exactly one node name, so nothing can be asked or done for it."""

    def __init__(self, text: str) -> None:
        super().__init__(text, unnamed=True)


class SlurmPool(msgspec.Struct):
    """A partition with all its nodes."""

    name: str
    nodes: tuple[NodeView, ...]


class Record(NamedTuple):
    """One node as Slurm tells it: the node and the partitions that hold it."""

    view: NodeView
    partitions: tuple[str, ...]


def pools_of(records: Iterable[Record]) -> tuple[SlurmPool, ...]:
    """The partitions that these nodes make, by name. A node without a partition is in none."""
    pools: dict[str, list[NodeView]] = {}
    for record in records:
        for partition in record.partitions:
            pools.setdefault(partition, []).append(record.view)
    return tuple(SlurmPool(name, tuple(nodes)) for name, nodes in sorted(pools.items()))


def holding(pools: tuple[SlurmPool, ...], node: str) -> tuple[SlurmPool, ...]:
    """The same pools; SchedulerError where none of them has this node, so that its limits are not known."""
    if not any(view.name == node for pool in pools for view in pool.nodes):
        raise SchedulerError(f"Slurm tells {len(pools)} partitions, and {node} is not there")
    return pools


def forbids(said: str) -> bool:
    """Whether Slurm's words are a refusal by permission."""
    return bool(_FORBIDDEN.search(said))


def is_away(said: str) -> bool:
    """Whether Slurm's words are of a slurmctld that does not answer, so that they say nothing of a single node."""
    return bool(_AWAY.search(said))


class NodeName:
    """This node's name in Slurm, found once.

    Args:
        configured: slurm.node_name, or empty.
        environ: of slurmd, which says SLURMD_NODENAME there.
        known_as: the names that Slurm has for a host name; it may raise SchedulerError.
        hostname: this host's name.
        full_hostname: the same with its domain.
    """

    def __init__(
        self,
        configured: str,
        environ: Mapping[str, str],
        known_as: Callable[[str], list[str]],
        hostname: Callable[[], str] = socket.gethostname,
        full_hostname: Callable[[], str] = socket.getfqdn,
    ) -> None:
        self._configured = configured
        self._environ = environ
        self._known_as = known_as
        self._hostname = hostname
        self._full_hostname = full_hostname
        self._found: str | None = None

    def find(self) -> str:
        """Configured, SLURMD_NODENAME, or asked once by the host name.

        NodeNameError where that gives no name or more than one; another SchedulerError where Slurm did not answer.
        """
        if self._found is None:
            self._found = self._search()
        return self._found

    def _search(self) -> str:
        given = self._configured or self._environ.get("SLURMD_NODENAME", "")
        if given:
            return _checked(given)
        tried: list[str] = []
        # The full name may need the resolver, so it is looked up only where the short one was not known.
        for find in (self._hostname, self._full_hostname):
            host = find() if tried else find().split(".", maxsplit=1)[0]
            names = [] if host in tried else self._known_as(_checked(host))
            tried.append(host)
            if len(names) > 1:
                raise NodeNameError(f"Slurm knows {host} as {', '.join(names)}; set slurm.node_name")
            if names:
                return _checked(names[0])
        raise NodeNameError(f"Slurm knows no node {' or '.join(dict.fromkeys(tried))}; set slurm.node_name")


def _checked(name: str) -> str:
    if not _NODE_NAME.fullmatch(name):
        raise NodeNameError(f"{name!r} is not the name of one node; set slurm.node_name")
    return name
