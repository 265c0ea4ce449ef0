"""From the configuration to the parts of a fleet controller: keys, tokens, directories, the ledger, the election.

Opens files and raises ConfigError for what is wrong with them; starts nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ibmon.alert.signature import SecretError
from ibmon.config import Config, StateConfig
from ibmon.configtree import ConfigError
from ibmon.controller.auth import MasterKeys
from ibmon.controller.keeping import LedgerPlace
from ibmon.controller.tokens import TokenError, TokenFile
from ibmon.controller.values import FleetSettings
from ibmon.store import Store

if TYPE_CHECKING:
    from ibmon.controller.lease import Leader

DIRECTORY: Final = "/var/lib/ibmon-controller"
"""Where the ledger and the audit log lie, unless the configuration names another directory than the nodes' one."""


def settings(config: Config) -> FleetSettings:
    """What the fleet's logic needs of the configuration."""
    return FleetSettings(
        mode=config.action.mode,
        limits=config.action.limits,
        quorum=config.controller.quorum,
        fabric_hold=config.controller.fabric_hold,
        drain_on=config.controller.drain_on,
        boot_grace=config.action.boot_grace,
    )


def secrets(config: Config) -> tuple[MasterKeys, TokenFile | None]:
    """The keys of the nodes and the tokens of people; ConfigError where a file is missing or wrong."""
    controller = config.controller
    if not controller.master_key_file:
        raise ConfigError(["controller.master_key_file is missing: without it no report can be checked"])
    try:
        keys = MasterKeys(controller.master_key_file)
        tokens = TokenFile(controller.tokens_file) if controller.tokens_file else None
    except (SecretError, TokenError) as error:
        raise ConfigError([str(error)]) from None
    return keys, tokens


def state_directory(config: Config) -> Path:
    """Where ledger, audit log and lock lie; made where it is absent, ConfigError where that cannot be."""
    named = config.state.directory
    directory = Path(DIRECTORY if named == StateConfig().directory else named)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError([f"state.directory: {directory}: {error.strerror}"]) from None
    return directory


def ledger_place(config: Config, store: Store) -> LedgerPlace:
    """Where the ledger is kept: in the store of the audit log, or in a ConfigMap that all instances share."""
    where = config.controller.ledger
    if not where:
        return store
    from ibmon.controller.configmap import ConfigMapLedger
    from ibmon.drain.kube_client import KubeClient

    namespace, _, name = where.removeprefix("configmap:").partition("/")
    return ConfigMapLedger(KubeClient.configured(config.kubernetes, os.environ), namespace, name)


def election(config: Config) -> Leader | None:
    """This process in the election by a Lease; None where it is the only one."""
    lease = config.controller.lease
    if not lease:
        return None
    from ibmon.controller.lease import CALL_TIMEOUT, Leader, LeaseLock, new_identity
    from ibmon.drain.kube_client import KubeClient

    namespace, _, name = lease.partition("/")
    kubernetes = msgspec.structs.replace(config.kubernetes, timeout=CALL_TIMEOUT)
    client = KubeClient.configured(kubernetes, os.environ)
    return Leader(LeaseLock(client, namespace, name), new_identity())
