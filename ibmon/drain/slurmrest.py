"""Slurm as a scheduler, through slurmrestd (from Slurm 23.02): the same reads and writes as through scontrol.

It writes nothing but the states DRAIN and UNDRAIN of its own node, and believes nothing that has not the published
form: an error, another node or no node is never "not drained". The token is in no error, no log line and no repr.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from ibmon import __version__
from ibmon.config import SlurmConfig
from ibmon.drain import webcall
from ibmon.drain.slurm_node import NodeName, Record, SlurmPool, forbids, holding, is_away, pools_of
from ibmon.drain.slurmrest_answer import Node, newest, offered, parse_nodes, record, said
from ibmon.model import NodeView
from ibmon.ports import SchedulerError

SMALL: Final = 4 * 1024 * 1024
"""Bytes that the answer about one node may have: a node has about 2 KiB, its partitions the rest."""
LARGE: Final = 64 * 1024 * 1024
"""Bytes of the answer about all nodes, and of slurmrestd's description of itself (about 1 MiB a version)."""
_MOST_TOKEN: Final = 64 * 1024
_PORT: Final = 6820
# What slurmrestd and slurmctld say of a token that is not theirs, or no longer.
_TOKEN: Final = re.compile(r"authenticat|credential|expired", re.IGNORECASE)
# Held by tests/e2e/test_slurm_access.py; an operator may only read what PrivateData hides (user_permissions.html).
_RIGHTS: Final = "root, SlurmUser, or a user with the admin level administrator"


class SlurmRest:
    """One node's view of Slurm. A method makes one call, the first another for the version, each with the deadline."""

    def __init__(
        self,
        config: SlurmConfig,
        *,
        environ: Mapping[str, str] | None = None,
        hostname: Callable[[], str] = socket.gethostname,
        full_hostname: Callable[[], str] = socket.getfqdn,
    ) -> None:
        self._config = config
        environ = os.environ if environ is None else environ
        self._name = NodeName(config.node_name, environ, self._known_as, hostname, full_hostname)
        self._version: str | None = config.rest_version or None

    @property
    def node_name(self) -> str:
        """This node's name in Slurm: configured, SLURMD_NODENAME, or asked once by the host name.

        NodeNameError where that gives no name or more than one; another SchedulerError where Slurm did not answer.
        """
        return self._name.find()

    def read_node(self) -> NodeView:
        """This node's state, reason and who set it, read now; SchedulerError for an answer that is not that."""
        name = self.node_name
        records = self._records(self._nodes(f"node/{quote(name)}", f"the node {name}", SMALL))
        if [record.view.name for record in records] != [name]:
            raise self._error(f"asked for the node {name} it gave {len(records)} nodes, not the one asked for")
        return records[0].view

    def read_pools(self) -> tuple[SlurmPool, ...]:
        """Every partition with its nodes, among them this node; SchedulerError where it is not there."""
        return holding(self.read_fleet(), self.node_name)

    def read_fleet(self) -> tuple[SlurmPool, ...]:
        """Every partition, hidden ones too, with its nodes, whoever asks: one call."""
        return pools_of(self._records(self._all()))

    def read_topology(self) -> dict[str, str]:
        """Empty: no version that ibmon speaks tells on which switch a node is."""
        return {}

    def drain(self, reason: str) -> None:
        """Set the state DRAIN with this reason: no new jobs, running ones go on to their end."""
        self._update({"state": ["DRAIN"], "reason": reason})

    def undrain(self) -> None:
        """Take the drain away with UNDRAIN, which (unlike RESUME) leaves every other state as it is."""
        self._update({"state": ["UNDRAIN"]})

    def _known_as(self, host: str) -> list[str]:
        """Node names that Slurm has for a host name: the node of that name, else those that run on that host."""
        nodes = self._all()
        own = [node.name for node in nodes if node.name == host]
        return own or [node.name for node in nodes if node.hostname == host]

    def _all(self) -> list[Node]:
        return self._nodes("nodes/", "the nodes", LARGE)

    def _nodes(self, path: str, about: str, largest: int) -> list[Node]:
        body = self._call("GET", path, f"to read {about}", largest=largest)
        try:
            nodes = parse_nodes(body)
        except ValueError as error:
            raise self._error(f"its answer about {about} has not the published form: {error}") from None
        if not nodes:
            raise self._error(f"asked for {about} it gave none")
        return nodes

    def _records(self, nodes: list[Node]) -> list[Record]:
        try:
            return [record(node) for node in nodes]
        except ValueError as error:
            raise self._error(str(error)) from None

    def _update(self, change: Mapping[str, Any]) -> None:
        name = self.node_name
        self._call("POST", f"node/{quote(name)}", f"to change the node {name}", change)

    # ------------------------------------------------------------------------------------------------- one call

    def _call(
        self, method: str, path: str, purpose: str, change: Mapping[str, Any] | None = None, *, largest: int = SMALL
    ) -> bytes:
        version = self._version = self._version or self._ask_version()
        body = None if change is None else msgspec.json.encode(change)
        reply = self._exchange(method, f"/slurm/{version}/{path}", body, largest)
        errors = said(reply.body)
        if reply.status == 404:  # perhaps another Slurm was installed: asked anew the next time
            self._version = self._config.rest_version or None
            if errors is None:
                todo = "set slurm.rest_version to one it has" if self._version else "it will be asked what it has"
                raise self._error(f"it does not know {version} (404): {todo}", general=True)
        if reply.status != 200 or errors is not None:
            raise self._refusal(reply.status, errors, purpose)
        return reply.body

    def _ask_version(self) -> str:
        """The newest version that both sides know; SchedulerError where there is none."""
        reply = self._exchange("GET", "/openapi/v3", None, LARGE)
        errors = said(reply.body)
        if reply.status != 200 or errors is not None:
            raise self._refusal(reply.status, errors, "to read what it offers")
        try:
            versions = offered(reply.body)
        except ValueError as error:
            raise self._error(f"its description (OpenAPI) has not the published form: {error}", general=True) from None
        try:
            return newest(versions)
        except ValueError as error:
            raise SchedulerError(f"{self._where} {error}", general=True) from None

    def _exchange(self, method: str, path: str, body: bytes | None, largest: int) -> webcall.Reply:
        server, prefix = self._server()
        headers = {"Accept": "application/json", "User-Agent": f"ibmon/{__version__}", **self._identity()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = webcall.Request(method, prefix + path, headers, body)
        try:
            return webcall.exchange(server, request, timeout=self._config.timeout, largest=largest)
        except webcall.CallError as error:
            raise self._error(str(error), general=True) from None

    def _server(self) -> tuple[webcall.Server, str]:
        """Whom to ask, and what stands before every path."""
        url = self._config.rest_url
        if url.startswith("unix:"):
            return webcall.Server(unix=url.removeprefix("unix:")), ""
        parts = urlsplit(url)
        context = _trust(self._config.rest_ca) if parts.scheme == "https" else None
        port = parts.port or (443 if context else _PORT)
        return webcall.Server(parts.hostname or "", port, context), parts.path.rstrip("/")

    def _identity(self) -> dict[str, str]:
        """The headers that say who asks. The token is read for each call: it may be replaced at any time."""
        headers = {"X-SLURM-USER-NAME": self._config.rest_user} if self._config.rest_user else {}
        if self._config.rest_token_file:
            headers["X-SLURM-USER-TOKEN"] = _token(Path(self._config.rest_token_file))
        return headers

    def _refusal(self, status: int, errors: str | None, purpose: str) -> SchedulerError:
        told = f" ({errors})" if errors else ""
        if status == 403 or forbids(errors or ""):
            return self._error(f"Slurm forbids {self._who} {purpose}: it takes {_RIGHTS}{told}", forbidden=True)
        if status == 401 or _TOKEN.search(errors or ""):
            why = "without a token only slurmrestd's own user may ask"
            if self._config.rest_token_file:
                why = f"the token in {self._config.rest_token_file} is expired, or not of this cluster or user"
                why += "" if self._config.rest_user else "; Slurm before 24.05 wants slurm.rest_user too"
            return self._error(f"it does not accept {self._who}: {why}{told}", forbidden=True, general=True)
        if errors:  # with status 500 too: what Slurm says of a node comes so
            return self._error(f"asked {purpose} Slurm says: {errors}", general=is_away(errors))
        return self._error(f"asked {purpose} it answered {status}", general=status >= 500 or status == 429)

    @property
    def _who(self) -> str:
        return self._config.rest_user or "the caller"

    def _error(self, text: str, *, forbidden: bool = False, general: bool = False) -> SchedulerError:
        return SchedulerError(f"{self._where}: {text}", forbidden=forbidden, general=general)

    @property
    def _where(self) -> str:
        return f"slurmrestd at {self._config.rest_url.removeprefix('unix:')}"


def _trust(authority: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=authority or None)
    except (OSError, ValueError) as error:
        why = (
            "no PEM certificate"
            if isinstance(error, ssl.SSLError | ValueError)
            else (error.strerror or "error").lower()
        )
        raise SchedulerError(f"slurm.rest_ca {authority} cannot be used: {why}", general=True) from None
    # Python 3.13 begins to demand extensions that many authorities lack; chain and name are verified all the same.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _token(path: Path) -> str:
    """The token in a file, bare or as `scontrol token` prints it (``SLURM_JWT=...``)."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_TOKEN).decode("ascii").strip().removeprefix("SLURM_JWT=")
    except OSError as error:
        why = (error.strerror or "error").lower()
        raise SchedulerError(f"slurm.rest_token_file {path}: {why}", general=True) from None
    except UnicodeDecodeError:
        text = ""
    if not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", text):
        raise SchedulerError(
            f"slurm.rest_token_file {path} holds no token; write one there: scontrol token username=...", general=True
        )
    return text
