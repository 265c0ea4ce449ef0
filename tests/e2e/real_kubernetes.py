"""The contract of `tests/unit/kube_contract.py` with a real kube-apiserver: what holds for the fake holds for it.

    tests/e2e/run.sh tests/e2e/real_kubernetes.py

Named so that it is run by its name only: the first run compiles kube-apiserver for some minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kube_contract import BackendContract, ServerContract, backend, node, request, shipped
from services.kube import KubeServer
from services.processes import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["backend", "node"]

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def kube() -> Iterator[KubeServer]:
    """A cluster to which what we ship has been applied, with the token of our service account as `restricted`."""
    with KubeServer() as server:
        server.apply(shipped("observe", "namespace.yaml"))
        server.apply(shipped("observe", "serviceaccount.yaml"))
        server.apply(shipped("node-direct", "rbac.yaml"))
        token = server.account_token("ibmon", "ibmon")
        server.restricted = token
        _wait_for_rights(server, token)
        yield server


def _wait_for_rights(server: KubeServer, token: str) -> None:
    """Rights are in force some milliseconds after they were written."""
    event = {"metadata": {"generateName": "x-"}, "involvedObject": {"kind": "Node", "name": "x"}, "reason": "X"}

    def granted() -> bool:
        listed = request(server, "GET", "/api/v1/nodes?limit=1", token=token)[0]
        path = "/api/v1/namespaces/default/events?dryRun=All"
        return (listed, request(server, "POST", path, event, token=token)[0]) == (200, 201)

    wait_for(granted, within=20, what="the rights of the service account")


class TestRealServer(ServerContract):
    pass


class TestBackendOnTheRealServer(BackendContract):
    pass


@pytest.mark.parametrize("part", ["config.yaml", "daemonset.yaml"])
def test_the_server_takes_the_shipped_objects(kube: KubeServer, part: str) -> None:
    kube.apply(shipped("observe", part), dry_run=True)
