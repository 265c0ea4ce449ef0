"""A real Slurm on 127.0.0.1: munged, slurmctld and one slurmd a node, from Debian's packages, in its own directory.

Owns: starting, disturbing and stopping these processes, and an administrator's view of the nodes through scontrol.
Must not: use anything of ibmon; what the tests compare with is Slurm's own word.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from . import debian, slurmdbd
from .processes import Process, Service, ServiceError, free_ports, stop_all, tail, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .slurmdbd import Accounting

PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge"),
    *("slurmrestd", "slurm-wlm-jwt-plugin"),
)

# Debian gives the daemons their plain names only at installation (update-alternatives).
_PROGRAMS = {
    "munged": "usr/sbin/munged",
    "slurmctld": "usr/sbin/slurmctld-wlm",
    "slurmd": "usr/sbin/slurmd-wlm",
    "slurmstepd": "usr/sbin/slurmstepd-wlm",
    "slurmrestd": "usr/sbin/slurmrestd",
    "slurmdbd": "usr/sbin/slurmdbd",
    "mariadbd": "usr/sbin/mariadbd",
    "sacctmgr": "usr/bin/sacctmgr",
    **{name: f"usr/bin/{name}" for name in ("scontrol", "sinfo", "squeue", "srun", "salloc", "sbatch", "scancel")},
}

_MUNGE_FILES = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}

MESSAGE_TIMEOUT = 3
"""Seconds until a client gives up on a controller that accepts and does not answer (MessageTimeout)."""

_CONFIGURATION = """\
ClusterName=ibmon
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser=root
PluginDir={plugins}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldLogFile={directory}/log/slurmctld.log
SlurmdLogFile={directory}/slurmd.%n.log
SlurmctldPidFile={directory}/log/slurmctld.pid
SlurmdPidFile={directory}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
ReturnToService=0
SlurmdTimeout=60
SlurmctldTimeout=10
MessageTimeout={message_timeout}
TCPTimeout=2
InactiveLimit=0
KillWait=2
NodeName=DEFAULT CPUs=1 RealMemory=100 State=UNKNOWN
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

_STATE = re.compile(r" State=(\S+)")
_STARTED = re.compile(r" SlurmdStartTime=(\S+)")
_REASON = re.compile(r" Reason=(?P<text>.*) \[(?P<user>[^\[\]@]+)@(?P<time>[^\[\]]+)\]")


def as_user(name: str) -> list[str]:
    """What stands before a command that this user of the host shall run, without groups."""
    found = pwd.getpwnam(name)
    return ["setpriv", f"--reuid={found.pw_uid}", f"--regid={found.pw_gid}", "--clear-groups", "--"]


@dataclass(frozen=True)
class Node:
    """What `scontrol show node` says: state words (IDLE, DRAIN, …), and who gave which reason when."""

    state: frozenset[str]
    reason: str | None
    user: str | None
    time: str | None

    @property
    def drained(self) -> bool:
        """Whether the node gets no new jobs because somebody drained it."""
        return "DRAIN" in self.state

    @property
    def mark(self) -> tuple[bool, str | None, str | None, str | None]:
        """Everything that a drain consists of: what must not change when it is somebody else's."""
        return self.drained, self.reason, self.user, self.time

    @classmethod
    def parse(cls, line: str) -> Node:
        """Reads one line of `scontrol --oneliner show node`; the trailing marks `*`, `$`… of the state are dropped."""
        found = _STATE.search(line)
        if found is None:
            raise ServiceError(f"scontrol show node: no state in {line!r}")
        state = frozenset(re.findall(r"[A-Z_]+", found[1]))
        reason = _REASON.search(line)
        if reason is None:
            return cls(state, None, None, None)
        return cls(state, reason["text"], reason["user"], reason["time"])


@final
class SlurmCluster(Service):
    """A cluster of `nodes` idle nodes called node1, node2, …; a context manager. Needs root, as slurmd does.

    `settings` are further lines of slurm.conf ({directory} is the cluster's), `topology` is topology.conf. With a
    `user` other than root, who is SlurmUser then, every user of the host can run the clients. `accounting` starts and
    ends with the cluster.
    """

    def __init__(
        self,
        nodes: int = 4,
        settings: str = "",
        *,
        topology: str = "",
        user: str = "root",
        accounting: Accounting | None = None,
    ) -> None:
        self._settings = settings + (accounting.settings if accounting else "")
        self._topology = topology
        self._accounting = accounting
        self.user = user
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        self.root = debian.unpacked(*PACKAGES, *(slurmdbd.PACKAGES if accounting else ()))
        # /tmp and not pytest's directory: a Unix socket's path may be 107 bytes long.
        self.directory = Path(tempfile.mkdtemp(prefix="ibmon-slurm."))
        if user != "root":  # the cache lies in somebody's home
            self.directory.chmod(0o755)
            self.root = Path(shutil.copytree(self.root, self.directory / "root", symlinks=True))
        self.bin = self.directory / "bin"
        self._daemons: list[Process] = []
        self._controller: Process | None = None

    # The processes

    def __exit__(self, *_: object) -> None:
        try:
            self._cancel_jobs()
        finally:
            controller = [self._controller] if self._controller else []
            # munged last: the others say goodbye to each other through it.
            stop_all([*self._daemons[1:], *controller])
            if self._accounting:
                self._accounting.stop()
            stop_all(self._daemons[:1])
            shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        if os.geteuid() != 0:
            raise ServiceError("the Slurm cluster needs root (slurmd refuses any other user): run the tests as root")
        self._write_files()
        munge = [f"--{name}={self.directory}/munge.{end}" for name, end in _MUNGE_FILES.items()]
        # --force: a directory below /tmp is not as private as munged would like.
        self._daemons.append(self.launch("munged", "--foreground", "--force", *munge))
        wait_for((self.directory / "munge.sock").exists, within=10, what="munged's socket")
        if self._accounting:
            self._accounting.start(self)
        self.start_controller()
        self._daemons.extend(self._slurmd(node) for node in self.nodes)
        self._wait_idle()

    def _slurmd(self, node: str) -> Process:
        stepd = str(self.bin / "slurmstepd")
        return self.launch("slurmd", "-D", "-f", self._conf, "-N", node, "-d", stepd)

    def _write_files(self) -> None:
        for name in ("bin", "programs", "state", "spool", "log"):
            (self.directory / name).mkdir()
        for name in ("state", "log"):
            shutil.chown(self.directory / name, self.user)
        for name, program in _PROGRAMS.items():
            # By its plain name: slurmctld looks at its own name to know that it is the one that makes tokens.
            (self.directory / "programs" / name).symlink_to(self.root / program)
            debian.write_launcher(self.bin / name, self.directory / "programs" / name, self.root)
        for name, size in (("munge.key", 1024), ("jwt.key", 32)):
            key = self.directory / name
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(size))
        shutil.chown(self.directory / "jwt.key", self.user)
        host = socket.gethostname().partition(".")[0]
        controller_port, *ports = free_ports(1 + len(self.nodes))
        nodes = (
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
            for node, port in zip(self.nodes, ports, strict=True)
        )
        Path(self._conf).write_text(
            _CONFIGURATION.format(
                host=host,
                controller_port=controller_port,
                plugins=self.plugins,
                directory=self.directory,
                message_timeout=MESSAGE_TIMEOUT,
                user=self.user,
                nodes="\n".join(nodes),
            )
            + self._settings.replace("{directory}", str(self.directory))
        )
        (self.directory / "cgroup.conf").write_text("CgroupAutomount=no\n")
        if self._topology:
            (self.directory / "topology.conf").write_text(self._topology)

    def launch(self, program: str, *arguments: str) -> Process:
        """Starts one of the cluster's programs as root; its output is in `PROGRAM.out`."""
        log = self.directory / f"{program}.out"
        return Process([self.bin / program, *arguments], log, env=self.env)

    def _wait_idle(self) -> None:
        def all_idle() -> bool:
            for daemon in self._daemons:
                daemon.must_run()
            states = self.client("sinfo", "--noheader", "--Node", "--partition=all", "--format=%T").stdout.split()
            return states == ["idle"] * len(self.nodes)

        try:
            wait_for(all_idle, within=30, what="all Slurm nodes idle")
        except ServiceError as error:
            raise ServiceError(f"{error}\n{tail(self.directory / 'log' / 'slurmctld.log')}") from error

    def _cancel_jobs(self) -> None:
        """Ends jobs first: a slurmstepd outlives its slurmd by design."""
        if self._controller is None or self._controller.exit_code is not None:
            return
        self._controller.thaw()
        jobs = self.client("squeue", "--noheader", "--format=%i").stdout.split()
        if jobs:
            self.client("scancel", *jobs)
            with contextlib.suppress(ServiceError):
                wait_for(
                    lambda: not self.client("squeue", "--noheader", "--format=%i").stdout.split(),
                    within=10,
                    what="end of the jobs",
                )

    # What a client needs

    @property
    def plugins(self) -> Path:
        """Where Slurm's plugins are."""
        [plugins] = self.root.glob("usr/lib/*/slurm-wlm")
        return plugins

    @property
    def _conf(self) -> str:
        return str(self.directory / "slurm.conf")

    @property
    def env(self) -> dict[str, str]:
        """The environment in which scontrol, sinfo, … speak to this cluster."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "IBMON"))}
        return {**inherited, "PATH": f"{self.bin}:{os.environ['PATH']}", "SLURM_CONF": self._conf}

    def token(self, user: str) -> str:
        """A token (JWT) for a user; slurm.conf must know auth/jwt."""
        done = self.scontrol("token", f"username={user}", "lifespan=3600")
        if done.returncode:
            raise ServiceError(f"scontrol token: {done.stdout}{done.stderr}")
        return done.stdout

    @contextlib.contextmanager
    def slurmrestd(self) -> Iterator[str]:
        """Inside, slurmrestd answers at this address. It refuses to run as root or SlurmUser."""
        [port] = free_ports(1)
        env = {**self.env, "SLURM_JWT": "daemon", "SLURMRESTD_SECURITY": "disable_user_check"}
        argv = [*as_user("nobody"), self.bin / "slurmrestd", "-a", "rest_auth/jwt", f"127.0.0.1:{port}"]
        daemon = Process(argv, self.directory / "slurmrestd.out", env=env)

        def listens() -> bool:
            daemon.must_run()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        try:
            wait_for(listens, within=20, what="slurmrestd")
            yield f"http://127.0.0.1:{port}"
        finally:
            daemon.stop()

    def client(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a client program to its end; the result says how it went."""
        return subprocess.run(
            [self.bin / program, *arguments], capture_output=True, text=True, timeout=60, check=False, env=self.env
        )

    def scontrol(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs scontrol; see `client`."""
        return self.client("scontrol", *arguments)

    # The administrator

    def node(self, node: str) -> Node:
        """Returns Slurm's own view of a node; raises `ServiceError` when the controller does not give it."""
        shown = self.scontrol("--oneliner", "show", "node", node)
        if shown.returncode:
            raise ServiceError(f"scontrol show node {node}: {shown.stdout}{shown.stderr}")
        return Node.parse(shown.stdout)

    def state(self, node: str) -> frozenset[str]:
        """The state words of a node."""
        return self.node(node).state

    def reason(self, node: str) -> str | None:
        """The reason given for the node's state, or None."""
        return self.node(node).reason

    def drain(self, node: str, reason: str) -> None:
        """Drains as an administrator does; raises `ServiceError` when Slurm refuses."""
        self._update(node, "state=drain", f"reason={reason}")

    def undrain(self, node: str) -> None:
        """Lifts a drain; nothing happens when there is none."""
        self._update(node, "state=undrain")

    def _update(self, node: str, *changes: str) -> None:
        done = self.scontrol("update", f"nodename={node}", *changes)
        if done.returncode:
            raise ServiceError(f"scontrol update {node} {changes}: {done.stdout}{done.stderr}")

    def updates(self, node: str) -> list[str]:
        """Every change of this node that any client has made, as the controller logged it, oldest first."""
        log = (self.directory / "log" / "slurmctld.log").read_text(errors="replace")
        return re.findall(rf"update_node: node {re.escape(node)} (.*)", log)

    def start_job(self, node: str, *command: str) -> Process:
        """Starts a command as a job on a node (srun in the foreground)."""
        log = self.directory / "srun.out"
        return Process([self.bin / "srun", f"--nodelist={node}", "--", *command], log, env=self.env)

    def restart_slurmd(self, node: str) -> None:
        """Stops a node's slurmd and starts it again, and waits until the controller has heard of the new one."""
        place = 1 + self.nodes.index(node)  # munged is the first
        before = self.scontrol("--oneliner", "show", "node", node).stdout
        started = _STARTED.search(before)
        self._daemons[place].stop()
        time.sleep(1)  # the time of a start is told in seconds
        self._daemons[place] = self._slurmd(node)

        def registered() -> bool:
            found = _STARTED.search(self.scontrol("--oneliner", "show", "node", node).stdout)
            return found is not None and started is not None and found[1] != started[1]

        wait_for(registered, within=20, what=f"the registration of {node}'s new slurmd")

    # Trouble with the controller

    def start_controller(self) -> None:
        """Starts slurmctld, with the state it saved if it ran before, and waits until it answers."""
        self._controller = controller = self.launch("slurmctld", "-D", "-f", self._conf)

        def answers() -> bool:
            controller.must_run()
            return self.scontrol("ping").returncode == 0

        wait_for(answers, within=20, what="an answer of slurmctld")

    @property
    def controller(self) -> Process:
        """The running slurmctld."""
        if self._controller is None:
            raise ServiceError("slurmctld is not running")
        return self._controller

    @contextlib.contextmanager
    def controller_hung(self) -> Iterator[None]:
        """Inside, slurmctld accepts connections and answers nothing; afterwards it works off what had arrived."""
        self.controller.freeze()
        try:
            yield
        finally:
            self.controller.thaw()

    @contextlib.contextmanager
    def controller_down(self) -> Iterator[None]:
        """Inside, there is no slurmctld; afterwards it is back with its saved state."""
        self.controller.stop()
        self._controller = None
        try:
            yield
        finally:
            self.start_controller()
