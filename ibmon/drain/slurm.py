"""Slurm as a scheduler, through scontrol: reads this node and the pools, sets and takes away a drain.

It writes nothing but State=DRAIN and State=UNDRAIN of its own node, and believes nothing that it cannot parse: an
empty or odd answer is an error, never "not drained".
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from ibmon.config import SlurmConfig
from ibmon.drain import process
from ibmon.drain.slurm_text import Record, parse_nodes
from ibmon.model import NodeView
from ibmon.ports import SchedulerError

_STANDARD: Final = ("/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/usr/local/slurm/bin", "/opt/slurm/current/bin")
# No list, no range: such a name would address other nodes in an update.
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_FORBIDDEN: Final = re.compile(
    r"invalid user id|access/permission denied|access denied|permission denied", re.IGNORECASE
)


class NodeNameError(SchedulerError):
    """Slurm does not know this host by exactly one node name, so nothing can be asked or done for it."""


class SlurmPool(msgspec.Struct):
    """A partition with all its nodes."""

    name: str
    nodes: tuple[NodeView, ...]


class Slurm:
    """One node's view of Slurm. Every method runs one scontrol with the configured deadline (seconds)."""

    def __init__(
        self,
        config: SlurmConfig,
        *,
        environ: Mapping[str, str] | None = None,
        hostname: Callable[[], str] = socket.gethostname,
        full_hostname: Callable[[], str] = socket.getfqdn,
    ) -> None:
        self._config = config
        self._environ = os.environ if environ is None else environ
        self._hostname = hostname
        self._full_hostname = full_hostname
        self._name: str | None = None

    @property
    def node_name(self) -> str:
        """This node's name in Slurm: configured, SLURMD_NODENAME, or asked once by the host name.

        NodeNameError where that gives no name or more than one; another SchedulerError where Slurm did not answer.
        """
        if self._name is None:
            self._name = self._find_name()
        return self._name

    def read_node(self) -> NodeView:
        """This node's state, reason and who set it, read now; SchedulerError for an answer that is not that."""
        name = self.node_name
        records = self._show(name)
        if [record.view.name for record in records] != [name]:
            raise SchedulerError(f"scontrol show node {name} gave {len(records)} nodes, not the one asked for")
        return records[0].view

    def read_pools(self) -> tuple[SlurmPool, ...]:
        """Every partition, hidden ones too, with its nodes: one call, the same text as that of one node.

        The others are needed to see which partition holds the whole cluster. Future nodes are not printed.
        """
        pools: dict[str, list[NodeView]] = {}
        records = self._show()
        if not any(record.view.name == self.node_name for record in records):
            raise SchedulerError(f"scontrol show node prints {len(records)} nodes, and {self.node_name} is not there")
        for record in records:
            for partition in record.partitions:
                pools.setdefault(partition, []).append(record.view)
        return tuple(SlurmPool(name, tuple(nodes)) for name, nodes in sorted(pools.items()))

    def drain(self, reason: str) -> None:
        """Set State=DRAIN with this reason: no new jobs, running ones go on to their end."""
        self._update("State=DRAIN", f"Reason={reason}")

    def undrain(self) -> None:
        """Take the drain away with State=UNDRAIN, which (unlike RESUME) leaves every other state as it is."""
        self._update("State=UNDRAIN")

    def _find_name(self) -> str:
        given = self._config.node_name or self._environ.get("SLURMD_NODENAME", "")
        if given:
            return _checked(given)
        tried: list[str] = []
        # The full name may need the resolver, so it is looked up only where the short one was not known.
        for find in (self._hostname, self._full_hostname):
            host = find() if tried else find().split(".", maxsplit=1)[0]
            names = [] if host in tried else self._known_as(host)
            tried.append(host)
            if len(names) > 1:
                raise NodeNameError(f"Slurm knows {host} as {', '.join(names)}; set slurm.node_name")
            if names:
                return names[0]
        raise NodeNameError(f"Slurm knows no node {' or '.join(dict.fromkeys(tried))}; set slurm.node_name")

    def _known_as(self, host: str) -> list[str]:
        """Node names that Slurm has for a host name: the node of that name, else those that run on that host."""
        try:
            return [record.view.name for record in self._show(_checked(host)) if record.view.name == host]
        except SchedulerError as error:
            if "not found" not in str(error).lower():
                raise
        return self._scontrol("show", "aliases", host).split()

    def _show(self, *name: str) -> list[Record]:
        text = self._scontrol("show", "node", *name, options=("--all", "--oneliner"))
        try:
            records = list(parse_nodes(text))
        except ValueError as error:
            raise SchedulerError(f"scontrol show node prints something unknown: {error}") from None
        if not records:
            raise SchedulerError("scontrol show node prints nothing")
        return records

    def _update(self, *settings: str) -> None:
        self._scontrol("update", f"NodeName={self.node_name}", *settings)

    def _scontrol(self, *arguments: str, options: tuple[str, ...] = ()) -> str:
        """Run scontrol; its standard output, or SchedulerError with what it said."""
        try:
            output = process.run(
                [self._command("scontrol"), *options, *arguments],
                timeout=self._config.timeout,
                environment=self._environment(),
            )
        except process.CommandError as error:
            raise SchedulerError(str(error)) from None
        if output.status != 0:
            said = " ".join((output.stderr.strip() or output.stdout.strip()).split())[:200]
            text = f"scontrol {' '.join(arguments[:2])} failed with status {output.status}: {said or 'it said nothing'}"
            raise SchedulerError(text, forbidden=bool(_FORBIDDEN.search(said)))
        return output.stdout

    def _command(self, name: str) -> str:
        """Absolute path of a Slurm command."""
        if self._config.directory:
            path = Path(self._config.directory) / name
            if path.is_absolute() and os.access(path, os.X_OK):
                return str(path)
            raise SchedulerError(f"{path} cannot be run; set slurm.directory to where {name} is")
        known = [part for part in self._environ.get("PATH", "").split(os.pathsep) if part.startswith("/")]
        found = shutil.which(name, path=os.pathsep.join([*known, *_STANDARD]))
        if found is None:
            raise SchedulerError(f"{name} is not in PATH; set slurm.directory to where it is")
        return found

    def _environment(self) -> dict[str, str]:
        """What scontrol may know: nothing that changes whom it asks, as whom, or how it prints.

        With SLURM_JWT every client uses that token instead of munge; SLURM_CLUSTERS would ask another cluster.
        """
        kept = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}
        conf = self._environ.get("SLURM_CONF")
        if conf and Path(conf).exists():
            kept["SLURM_CONF"] = conf
        return kept


def _checked(name: str) -> str:
    if not _NODE_NAME.fullmatch(name):
        raise NodeNameError(f"{name!r} is not the name of one node; set slurm.node_name")
    return name
