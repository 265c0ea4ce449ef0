"""From the configuration to the scheduler that is drained through, and to who keeps its word about this node true.

Each backend is imported where it is used: a node without one pays for none.
"""

from __future__ import annotations

from collections.abc import Callable

from ibmon.config import Config
from ibmon.drain import reconcile
from ibmon.ports import Scheduler
from ibmon.runtime.condition import ConditionKeeper


def configured(config: Config, node: str) -> Scheduler | None:
    """The scheduler that `action.scheduler` names, None for none; `node` is the name in metrics and messages."""
    if config.action.scheduler == "slurm" and config.slurm.rest_url:
        from ibmon.drain.slurmrest import SlurmRest

        return SlurmRest(config.slurm)
    if config.action.scheduler == "slurm":
        from ibmon.drain.slurm import Slurm

        return Slurm(config.slurm)
    if config.action.scheduler == "kubernetes":
        from ibmon.drain.kubernetes import Kubernetes

        return Kubernetes(config.kubernetes)
    if config.action.scheduler == "command":
        from ibmon.drain.command import Command

        return Command(config.command, node)
    return None


def keeper(
    config: Config, scheduler: Scheduler, gates: Callable[[], reconcile.Gates], node: str
) -> ConditionKeeper | None:
    """Starts what shows the verdict at a scheduler that has a place for it; None for one that has not."""
    if config.action.scheduler != "kubernetes":
        return None
    from ibmon.drain.kubernetes import Kubernetes

    return ConditionKeeper(scheduler, gates, node) if isinstance(scheduler, Kubernetes) else None
