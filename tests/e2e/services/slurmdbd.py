"""Slurm's accounting database for a cluster of `services.slurm`: slurmdbd on a MariaDB that lives as long as it.

Owns: both processes, and who has which admin level (none, operator, administrator): only there does Slurm know them.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, final

from .processes import Process, ServiceError, free_ports, stop_all, tail, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .slurm import SlurmCluster

PACKAGES = ("slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server-core")

_SLURMDBD = """\
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
PluginDir={plugins}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
LogFile={directory}/log/slurmdbd.log
PidFile={directory}/log/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage}
StorageUser=root
StorageLoc=slurm_acct_db
"""


@final
class Accounting:
    """Users of the host with their admin levels; `SlurmCluster` starts and stops it."""

    def __init__(self, levels: Mapping[str, str]) -> None:
        self._levels = levels
        self._port, self._storage = free_ports(2)
        self._daemons: list[Process] = []

    @property
    def settings(self) -> str:
        """What slurm.conf needs."""
        place = f"Host=127.0.0.1\nAccountingStoragePort={self._port}\n"
        # The password is the name of munged's socket here (slurm.conf(5)).
        secret = "AccountingStoragePass={directory}/munge.sock\n"
        return f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorage{place}{secret}"

    def start(self, cluster: SlurmCluster) -> None:
        """Starts both and names the users; munged must run."""
        data = cluster.directory / "mariadb"
        data.mkdir()
        # No grant tables: no passwords, and no installation. It listens on the loopback and ends with the tests.
        options = ("--no-defaults", "--skip-grant-tables", "--user=root", "--bind-address=127.0.0.1")
        places = (f"--datadir={data}", f"--socket={data}/s", f"--port={self._storage}", f"--pid-file={data}/pid")
        messages = f"--lc-messages-dir={cluster.root}/usr/share/mysql"
        self._daemons.append(cluster.launch("mariadbd", *options, *places, messages))
        wait_for((data / "s").exists, within=60, what="MariaDB's socket")
        conf = cluster.directory / "slurmdbd.conf"
        conf.touch(mode=0o600)
        conf.write_text(
            _SLURMDBD.format(
                port=self._port,
                storage=self._storage,
                user=cluster.user,
                directory=cluster.directory,
                plugins=cluster.plugins,
            )
        )
        shutil.chown(conf, cluster.user)
        self._daemons.append(cluster.launch("slurmdbd", "-D"))

        def registered() -> bool:
            for daemon in self._daemons:
                daemon.must_run()
            done = cluster.client("sacctmgr", "--immediate", "add", "cluster", "ibmon")
            return done.returncode == 0 or "already exists" in done.stdout + done.stderr

        try:
            wait_for(registered, within=60, every=0.3, what="slurmdbd with the cluster in it")
        except ServiceError as error:
            raise ServiceError(f"{error}\n{tail(cluster.directory / 'log' / 'slurmdbd.log')}") from error
        self._add(cluster, "account", "people")
        for name, level in self._levels.items():
            self._add(cluster, "user", name, "account=people", f"adminlevel={level}")

    def stop(self) -> None:
        """Ends both, slurmdbd first."""
        stop_all(self._daemons[::-1])

    @staticmethod
    def _add(cluster: SlurmCluster, *what: str) -> None:
        done = cluster.client("sacctmgr", "--immediate", "add", *what)
        if done.returncode:
            raise ServiceError(f"sacctmgr add {' '.join(what)}: {done.stdout}{done.stderr}")
