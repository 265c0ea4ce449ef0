"""The contract with the fake that the fault tests use; with a real server it runs among the end-to-end tests."""

from __future__ import annotations

import pytest
from fake_kube import FakeKube, Right
from kube_contract import BackendContract, ServerContract, backend, node, shipped

__all__ = ["backend", "node"]


def shipped_rights():
    """What deploy/kubernetes gives the service account, as the fake understands it."""
    for role in shipped("node-direct", "rbac.yaml"):
        namespace = role["metadata"].get("namespace")
        for rule in role.get("rules", ()):
            for resource in rule["resources"]:
                yield from (Right(verb, resource, namespace) for verb in rule["verbs"])


@pytest.fixture(scope="module")
def kube():
    with FakeKube() as fake:
        fake.restricted = fake.token(*shipped_rights())
        yield fake


class TestFakeServer(ServerContract):
    pass


class TestBackendOnTheFake(BackendContract):
    pass
