"""The scheduler as the controller needs it: all nodes in one read, and each node by its name for a write.

Reads only; writes are `reconcile`'s, through what `node` gives. Each backend is imported where it is used.
"""

from __future__ import annotations

import fnmatch
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from ibmon.config import Config
from ibmon.configtree import ConfigError
from ibmon.controller.values import FleetView
from ibmon.drain.policy import Pool
from ibmon.ports import Scheduler, SchedulerError

log = logging.getLogger(__name__)

TOPOLOGY_SECONDS: Final = 600.0
"""How long what was told of the topology is taken for true; cables are not moved more often."""

LABEL, FILE = "label:", "file:"

Topology = Callable[[frozenset[str]], Mapping[str, str]]
"""From the nodes' names to the leaf that each hangs on; a node without one is left out. SchedulerError."""


class FleetScheduler(Protocol):
    """One scheduler with all its nodes. Every call has a deadline and raises SchedulerError."""

    def read(self) -> FleetView:
        """Every node and pool, read now."""
        ...

    def node(self, name: str) -> Scheduler:
        """One node, for `reconcile`."""
        ...

    def check(self, name: str, /) -> tuple[str, ...]:
        """What would keep a drain of this node from happening, one line each; it changes nothing."""
        ...


class WholeScheduler:
    """A scheduler's whole view, made of its pools and of a topology that is asked seldom.

    Args:
        pools: reads every pool.
        node: gives the view of one node.
        topology: tells who hangs where.
        check: tells what would keep a drain of a node from happening; by default it is not known before a drain.
    """

    def __init__(
        self,
        pools: Callable[[], Iterable[Pool]],
        node: Callable[[str], Scheduler],
        topology: Topology,
        check: Callable[[str], tuple[str, ...]] = lambda _: (),
    ) -> None:
        self._pools = pools
        self._topology = topology
        self.node = node
        self.check = check
        self._groups: Mapping[str, str] = {}
        self._trouble = ""  # why the topology could not be learned the last time
        self._asked: tuple[float, frozenset[str]] | None = None

    def read(self) -> FleetView:
        """Every node and pool, read now; SchedulerError, also where there is none."""
        began = time.monotonic()
        pools = tuple(self._pools())
        nodes = {view.name: view for pool in pools for view in pool.nodes}
        if not nodes:
            raise SchedulerError("the scheduler names no node at all")
        return FleetView(nodes, pools, self._who_hangs_where(frozenset(nodes)), began)

    def _who_hangs_where(self, names: frozenset[str]) -> Mapping[str, str]:
        now = time.monotonic()
        if self._asked is None or self._asked[1] != names or now - self._asked[0] >= TOPOLOGY_SECONDS:
            try:
                groups = self._topology(names)
            except SchedulerError as error:
                if self._asked is None:
                    raise
                # Cables do not move because a file is edited just now: nobody waits for that with drains.
                if str(error) != self._trouble:
                    log.warning("%s; the topology that was known before holds", error)
                self._trouble = str(error)
            else:
                self._groups, self._asked, self._trouble = groups, (now, names), ""
        return self._groups


def configured(config: Config, reported: Callable[[], Iterable[str]]) -> FleetScheduler | None:
    """The scheduler that `action.scheduler` names, None for none; ConfigError for one that has no fleet.

    `reported` are the nodes that have reported: the executable of a site is asked about one of them.
    """
    kind, given = config.action.scheduler, _given_topology(config.controller.topology)
    if config.controller.topology.startswith(LABEL) and kind != "kubernetes":
        raise ConfigError(
            [f'controller.topology: labels are of Kubernetes, and action.scheduler is "{kind}"; write file:/PATH']
        )
    if kind == "slurm":
        from ibmon.runtime.schedulers import slurm

        whole = slurm(config.slurm)
        return WholeScheduler(
            whole.read_fleet,
            lambda name: slurm(msgspec.structs.replace(config.slurm, node_name=name)),
            given or (lambda _: whole.read_topology()),
        )
    if kind == "kubernetes":
        from ibmon.drain.kube_fleet import KubernetesFleet

        cluster = KubernetesFleet(config.kubernetes)
        label = config.controller.topology.removeprefix(LABEL)
        by_label: Topology = lambda _: cluster.read_topology(label)  # noqa: E731
        topology = given or (by_label if label else lambda _: {})
        return WholeScheduler(
            cluster.read_fleet, cluster.for_node, topology, lambda name: cluster.for_node(name).check()
        )
    if kind == "command":
        return _by_command(config, reported, given or (lambda _: {}))
    if kind == "controller":
        raise ConfigError(
            ['action.scheduler is "controller", which is for nodes; the controller itself names slurm or kubernetes']
        )
    return None


def _by_command(config: Config, reported: Callable[[], Iterable[str]], topology: Topology) -> FleetScheduler:
    from ibmon.drain.command import Command

    def pools() -> Iterable[Pool]:
        some = next(iter(reported()), None)
        if some is None:
            raise SchedulerError("no node has reported yet, so there is none to ask the command about")
        return Command(config.command, some).read_pools()

    return WholeScheduler(pools, lambda name: Command(config.command, name), topology)


def _given_topology(text: str) -> Topology | None:
    """The topology of a file: TOML, ``leaf = ["gpu-0[1-4]", "gpu-17"]``, names and shell patterns."""
    if not text.startswith(FILE):
        return None
    path = Path(text.removeprefix(FILE))
    _leaves(path)  # now, so that a mistake stops the start

    def topology(names: frozenset[str]) -> Mapping[str, str]:
        try:
            leaves = _leaves(path)
        except ConfigError as error:
            raise SchedulerError(str(error)) from None
        return {
            name: leaf for leaf, patterns in leaves.items() for pattern in patterns
            for name in fnmatch.filter(names, pattern)
        }  # fmt: skip

    return topology


def _leaves(path: Path) -> dict[str, tuple[str, ...]]:
    """What the file says; ConfigError with the place of what is wrong."""
    try:
        found: Any = msgspec.toml.decode(path.read_bytes(), type=dict[str, tuple[str, ...]])
    except OSError as error:
        raise ConfigError([f"controller.topology: {path}: {error.strerror}"]) from None
    except (msgspec.DecodeError, ValueError) as error:
        said = " ".join(str(error).split())
        raise ConfigError([f'controller.topology: {path}: {said}; write lines like leaf1 = ["gpu-0[1-4]"]']) from None
    leaves: dict[str, tuple[str, ...]] = found
    return leaves
