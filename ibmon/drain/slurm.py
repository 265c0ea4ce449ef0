"""Slurm as a scheduler, through scontrol: reads nodes, pools and leaves, sets and takes away a drain.

It writes nothing but State=DRAIN and State=UNDRAIN of its own node, and believes nothing that it cannot parse: an
empty or odd answer is an error, never "not drained".
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from ibmon.config import SlurmConfig
from ibmon.drain import process
from ibmon.drain.slurm_node import NodeName, Record, SlurmPool, forbids, holding, is_away, pools_of
from ibmon.drain.slurm_text import parse_nodes, parse_topology
from ibmon.model import NodeView
from ibmon.ports import SchedulerError

_STANDARD: Final = ("/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/usr/local/slurm/bin", "/opt/slurm/current/bin")
# Between the host lists of two switches, as they are expanded in one call. No host may be called so (RFC 1123).
_NEXT: Final = "_"
_LONGEST: Final = 100_000  # bytes of one argument; Linux takes 128 KiB (execve(2), MAX_ARG_STRLEN)


class Slurm:
    """One node's view of Slurm. Every method runs scontrol, each time with the configured deadline (seconds)."""

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
        self._name = NodeName(config.node_name, self._environ, self._known_as, hostname, full_hostname)

    @property
    def node_name(self) -> str:
        """This node's name in Slurm: configured, SLURMD_NODENAME, or asked once by the host name.

        NodeNameError where that gives no name or more than one; another SchedulerError where Slurm did not answer.
        """
        return self._name.find()

    def read_node(self) -> NodeView:
        """This node's state, reason and who set it, read now; SchedulerError for an answer that is not that."""
        name = self.node_name
        records = self._show(name)
        if [record.view.name for record in records] != [name]:
            raise SchedulerError(f"scontrol show node {name} gave {len(records)} nodes, not the one asked for")
        return records[0].view

    def read_pools(self) -> tuple[SlurmPool, ...]:
        """Every partition with its nodes, among them this node; SchedulerError where it is not there.

        The others are needed to see which partition holds the whole cluster.
        """
        return holding(self.read_fleet(), self.node_name)

    def read_fleet(self) -> tuple[SlurmPool, ...]:
        """Every partition, hidden ones too, with its nodes, whoever asks: one call, the same text as that of one node.

        Future nodes are not printed.
        """
        return pools_of(self._show())

    def read_topology(self) -> dict[str, str]:
        """The leaf switch (topology/tree) or block (topology/block) of each node; empty where Slurm knows none."""
        try:
            leaves = parse_topology(self._scontrol("show", "topology"))
        except ValueError as error:
            raise SchedulerError(f"scontrol show topology prints something unknown: {error}") from None
        found: dict[str, str] = {}
        for part in _batches(leaves):
            printed = self._scontrol("show", "hostnames", f",{_NEXT},".join(hosts for _, hosts in part)).splitlines()
            groups = "\n".join(printed).split(f"\n{_NEXT}\n")
            if len(groups) != len(part):
                raise SchedulerError(f"scontrol show hostnames gave {len(groups)} groups for {len(part)} host lists")
            for (leaf, _), hosts in zip(part, groups, strict=True):
                for host in hosts.split():
                    found.setdefault(host, leaf)
        return found

    def drain(self, reason: str) -> None:
        """Set State=DRAIN with this reason: no new jobs, running ones go on to their end."""
        self._update("State=DRAIN", f"Reason={reason}")

    def undrain(self) -> None:
        """Take the drain away with State=UNDRAIN, which (unlike RESUME) leaves every other state as it is."""
        self._update("State=UNDRAIN")

    def _known_as(self, host: str) -> list[str]:
        """Node names that Slurm has for a host name: the node of that name, else those that run on that host."""
        try:
            return [record.view.name for record in self._show(host) if record.view.name == host]
        except SchedulerError as error:
            if "not found" not in str(error).lower():
                raise
        return self._scontrol("show", "aliases", host).split()

    def _show(self, *name: str) -> list[Record]:
        text = self._scontrol("show", "node", *name, options=("--all", "--oneliner"))
        try:
            records = parse_nodes(text)
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
            raise SchedulerError(str(error), general=True) from None
        if output.status != 0:
            said = " ".join((output.stderr.strip() or output.stdout.strip()).split())[:200]
            text = f"scontrol {' '.join(arguments[:2])} failed with status {output.status}: {said or 'it said nothing'}"
            raise SchedulerError(text, forbidden=forbids(said), general=is_away(said))
        return output.stdout

    def _command(self, name: str) -> str:
        """Absolute path of a Slurm command."""
        if self._config.directory:
            path = Path(self._config.directory) / name
            if path.is_absolute() and os.access(path, os.X_OK):
                return str(path)
            raise SchedulerError(f"{path} cannot be run; set slurm.directory to where {name} is", general=True)
        known = [part for part in self._environ.get("PATH", "").split(os.pathsep) if part.startswith("/")]
        found = shutil.which(name, path=os.pathsep.join([*known, *_STANDARD]))
        if found is None:
            raise SchedulerError(f"{name} is not in PATH; set slurm.directory to where it is", general=True)
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


def _batches(leaves: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """The leaves in groups whose host lists fit into one argument together."""
    batch: list[tuple[str, str]] = []
    size = 0
    for leaf, hosts in leaves:
        if batch and size + len(hosts) > _LONGEST:
            yield batch
            batch, size = [], 0
        batch.append((leaf, hosts))
        size += len(hosts) + len(_NEXT) + 2
    if batch:
        yield batch
