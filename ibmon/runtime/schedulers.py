"""From the configuration to the scheduler that is drained through, and to who keeps its word about this node true.

Each backend is imported where it is used: a node without one pays for none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ibmon import __version__
from ibmon.alert.delivery import DeliveryMetrics
from ibmon.config import Config, SlurmConfig
from ibmon.drain import reconcile
from ibmon.engine import Identity
from ibmon.messages import EffectDone, FleetWord
from ibmon.ports import Clock, Scheduler, Store
from ibmon.runtime.condition import ConditionKeeper

if TYPE_CHECKING:
    from ibmon.drain.slurm import Slurm
    from ibmon.drain.slurmrest import SlurmRest
    from ibmon.runtime.reporter import Reporter

CONTROLLER = "controller"
"""The value of `action.scheduler` with which the fleet controller drains, and its name among the targets."""


def configured(config: Config, node: str) -> Scheduler | None:
    """The scheduler that `action.scheduler` names, None for none; `node` is the name in metrics and messages."""
    if config.action.scheduler == "slurm":
        return slurm(config.slurm)
    if config.action.scheduler == "kubernetes":
        from ibmon.drain.kubernetes import Kubernetes

        return Kubernetes(config.kubernetes)
    if config.action.scheduler == "command":
        from ibmon.drain.command import Command

        return Command(config.command, node)
    return None


def slurm(config: SlurmConfig) -> Slurm | SlurmRest:
    """Slurm by the way that is configured: slurmrestd, else scontrol."""
    if config.rest_url:
        from ibmon.drain.slurmrest import SlurmRest

        return SlurmRest(config)
    from ibmon.drain.slurm import Slurm

    return Slurm(config)


def keeper(
    config: Config, scheduler: Scheduler, gates: Callable[[], reconcile.Gates], node: str
) -> ConditionKeeper | None:
    """Starts what shows the verdict at a scheduler that has a place for it; None for one that has not."""
    if config.action.scheduler != "kubernetes":
        return None
    from ibmon.drain.kubernetes import Kubernetes

    return ConditionKeeper(scheduler, gates, node) if isinstance(scheduler, Kubernetes) else None


def reporter(
    config: Config,
    identity: Identity,
    post: Callable[[EffectDone | FleetWord], None],
    store: Store,
    gates: Callable[[], reconcile.Gates],
    clock: Clock,
    metrics: DeliveryMetrics,
) -> Reporter | None:
    """Starts what reports to the fleet controller and drains through it; None where another scheduler is named."""
    if config.action.scheduler != CONTROLLER:
        return None
    from ibmon.drain.controller import ControllerClient
    from ibmon.drain.correspondence import Correspondence
    from ibmon.runtime.reporter import Reporter

    # Reports are numbered within a boot; where nobody tells which one this is, within the process.
    boot = identity.boot_id or f"since-{clock.now().wall:.3f}"
    told = Correspondence(store, gates, version=__version__, boot_id=boot)
    made = Reporter(post, ControllerClient(config.controller), told, clock, node=identity.node, metrics=metrics)
    made.start()
    return made
