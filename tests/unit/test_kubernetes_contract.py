"""The contract with the fake that the fault tests use; with a real server it runs among the end-to-end tests."""

from __future__ import annotations

import pytest
from fake_kube import FakeKube, Right
from kube_contract import BackendContract, ServerContract, backend, node, shipped
from kube_controller_contract import ControllerContract, clean

__all__ = ["backend", "clean", "node"]


def shipped_rights(overlay="node-direct"):
    """What deploy/kubernetes gives a service account, as the fake understands it."""
    for role in shipped(overlay, "rbac.yaml"):
        namespace = role["metadata"].get("namespace")
        for rule in role.get("rules", ()):
            (group,) = rule["apiGroups"]
            for resource in rule["resources"]:
                full = f"{resource}.{group}" if group else resource
                for name in rule.get("resourceNames", (None,)):
                    yield from (Right(verb, full, namespace, name) for verb in rule["verbs"])


@pytest.fixture(scope="module")
def kube():
    with FakeKube() as fake:
        fake.restricted = fake.token(*shipped_rights())
        fake.controller = fake.token(*shipped_rights("controller"))
        yield fake


class TestFakeServer(ServerContract):
    pass


class TestBackendOnTheFake(BackendContract):
    pass


class TestControllerOnTheFake(ControllerContract):
    pass
