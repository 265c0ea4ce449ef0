"""What ibmon relies on in the Kubernetes API, and what its backend does with it: one suite for fake and real servers.

Who takes it over brings the fixture `kube`, a server with `url`, `admin`, `ca` and `restricted` (the token of a service
account with the shipped rights). Each test takes nodes of its own.
"""

from __future__ import annotations

import itertools
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from ibmon.config import KubernetesConfig
from ibmon.drain.kube_client import KubeError
from ibmon.drain.kubernetes import Kubernetes
from ibmon.model import NodeFitness
from ibmon.ports import SchedulerError

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"
STRATEGIC = "application/strategic-merge-patch+json"
KEY = "ibmon.dev/fabric"
OURS = {"key": KEY, "value": "unfit", "effect": "NoSchedule"}
REASON = "ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id 7f3a9c]"
OTHER = {"key": "example.org/gpu", "value": "h100", "effect": "NoSchedule"}

_numbers = itertools.count(1)


def shipped(*parts: str) -> list[dict[str, Any]]:
    """The objects in a file below deploy/kubernetes."""
    return [found for found in yaml.safe_load_all(DEPLOY.joinpath(*parts).read_text()) if found]


def request(
    kube: Any, method: str, path: str, body: Any = None, *, token: str | None = None, kind: str = "application/json"
) -> tuple[int, Any]:
    """One request by other means than those under test; status and decoded answer."""
    headers = {"Content-Type": kind, "Authorization": f"Bearer {token or kube.admin}"}
    data = None if body is None else json.dumps(body).encode()
    made = urllib.request.Request(kube.url + path, method=method, data=data, headers=headers)
    context = ssl.create_default_context(cafile=kube.ca) if kube.ca else None
    try:
        with urllib.request.urlopen(made, timeout=10, context=context) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"{}")


class Api:
    """An administrator at one node."""

    def __init__(self, kube: Any, name: str) -> None:
        self.kube, self.name, self.path = kube, name, f"/api/v1/nodes/{name}"

    def get(self) -> dict[str, Any]:
        status, node = request(self.kube, "GET", self.path)
        assert status == 200, node
        return node

    def patch(self, body: Any, sub: str = "", token: str | None = None) -> tuple[int, Any]:
        return request(self.kube, "PATCH", self.path + sub, body, token=token, kind=STRATEGIC)

    def set(self, **spec: Any) -> None:
        status, answer = self.patch({"spec": spec})
        assert status == 200, answer

    @property
    def version(self) -> str:
        return self.get()["metadata"]["resourceVersion"]

    @property
    def taints(self) -> list[dict[str, Any]]:
        return self.get()["spec"].get("taints", [])

    @property
    def cordoned(self) -> bool:
        return self.get()["spec"].get("unschedulable", False)

    @property
    def annotations(self) -> dict[str, str]:
        found = self.get()["metadata"].get("annotations", {})
        return {name: text for name, text in found.items() if name.startswith("ibmon.dev/")}

    def conditions(self) -> dict[str, dict[str, Any]]:
        return {c["type"]: c for c in self.get()["status"]["conditions"]}

    def events(self) -> list[str]:
        _, answer = request(self.kube, "GET", "/api/v1/namespaces/default/events")
        return [e["reason"] for e in answer["items"] if e["involvedObject"]["name"] == self.name]


def ready(status: str = "True") -> dict[str, Any]:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": status, "reason": "Kubelet", "message": "m"}
    return {"status": {"conditions": [condition | {"lastHeartbeatTime": now, "lastTransitionTime": now}]}}


def new_node(kube: Any, **labels: str) -> Api:
    """A node whose kubelet is well, with a taint of the site's."""
    name = f"node-{next(_numbers)}"
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    status, answer = request(kube, "POST", "/api/v1/nodes", body)
    assert status == 201, answer
    api = Api(kube, name)
    assert api.patch(ready(), "/status")[0] == 200
    api.set(taints=[OTHER])
    return api


@pytest.fixture
def node(kube: Any) -> Iterator[Api]:
    made = new_node(kube, pool="train")
    yield made
    request(kube, "DELETE", made.path)


@pytest.fixture
def backend(kube: Any, node: Api, tmp_path: Path) -> Any:
    """A way to the scheduler as a pod of that node has it, with other settings by name."""

    def make(token: str | None = None, **settings: Any) -> Kubernetes:
        file = kubeconfig(kube, tmp_path / "kubeconfig", token or kube.restricted)
        return Kubernetes(KubernetesConfig(node_name=node.name, kubeconfig=str(file), **settings))

    return make


def kubeconfig(kube: Any, file: Path, token: str) -> Path:
    """Writes a kubeconfig as kubectl does."""
    cluster = {"server": kube.url} | ({"certificate-authority": kube.ca} if kube.ca else {})
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    file.write_text(yaml.safe_dump(body))
    return file


class ServerContract:
    """The server itself, without ibmon."""

    def test_a_new_node_carries_a_taint_before_anybody_wrote_one(self, kube):
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "newborn"}}
        assert request(kube, "POST", "/api/v1/nodes", body)[0] == 201
        assert [t["key"] for t in Api(kube, "newborn").taints] == ["node.kubernetes.io/not-ready"]
        assert request(kube, "DELETE", "/api/v1/nodes/newborn")[0] == 200
        assert request(kube, "GET", "/api/v1/nodes/newborn")[0] == 404

    def test_a_written_list_of_taints_replaces_the_one_that_stood_there(self, node):
        node.set(taints=[OURS])
        assert node.taints == [OURS]
        node.set(taints=[])
        assert node.taints == []

    def test_a_write_under_an_old_version_is_a_conflict(self, node):
        version = node.version
        node.set(unschedulable=True)
        status, answer = node.patch({"metadata": {"resourceVersion": version}, "spec": {"taints": []}})
        assert (status, answer["reason"]) == (409, "Conflict")
        assert node.taints == [OTHER]

    def test_a_write_under_the_version_in_force_is_made_and_changes_it(self, node):
        version = node.version
        status, answer = node.patch({"metadata": {"resourceVersion": version}, "spec": {"taints": [OTHER, OURS]}})
        assert (status, answer["spec"]["taints"]) == (200, [OTHER, OURS])
        assert answer["metadata"]["resourceVersion"] != version

    def test_null_takes_an_annotation_and_a_cordon_away(self, node):
        node.patch({"metadata": {"annotations": {"ibmon.dev/drain": "x"}}, "spec": {"unschedulable": True}})
        assert node.annotations == {"ibmon.dev/drain": "x"}
        assert node.cordoned
        node.patch({"metadata": {"annotations": {"ibmon.dev/drain": None}}, "spec": {"unschedulable": None}})
        assert node.annotations == {}
        assert not node.cordoned

    @pytest.mark.parametrize("taint", [{"key": "bad key!", "effect": "NoSchedule"}, {"key": "k", "effect": "Nope"}])
    def test_a_taint_that_is_none_is_refused(self, node, taint):
        assert node.patch({"spec": {"taints": [taint]}})[0] == 422
        assert node.taints == [OTHER]

    def test_conditions_are_merged_by_type_and_keep_what_is_not_named(self, node):
        first = {"type": "X", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}
        node.patch({"status": {"conditions": [first]}}, "/status")
        node.patch({"status": {"conditions": [{"type": "X", "status": "False"}]}}, "/status")
        assert node.conditions()["Ready"]["status"] == "True"
        assert (node.conditions()["X"]["status"], node.conditions()["X"]["lastTransitionTime"]) == (
            "False",
            "2030-01-01T00:00:00Z",
        )

    def test_a_condition_without_its_time_of_transition_shows_none(self, node):
        node.patch({"status": {"conditions": [{"type": "X", "status": "True"}]}}, "/status")
        assert node.conditions()["X"].get("lastTransitionTime") is None

    def test_status_sent_to_the_node_itself_and_spec_sent_to_status_change_nothing(self, node):
        assert node.patch({"status": {"conditions": [{"type": "X", "status": "True"}]}})[0] == 200
        assert node.patch({"spec": {"unschedulable": True}}, "/status")[0] == 200
        assert "X" not in node.conditions()
        assert not node.cordoned

    def test_a_dry_run_answers_as_if_and_changes_nothing(self, node):
        assert node.patch({"spec": {"unschedulable": True}}, "?dryRun=All")[1]["spec"]["unschedulable"] is True
        assert not node.cordoned

    def test_an_unknown_token_is_not_let_in(self, kube, node):
        assert request(kube, "GET", node.path, token="nonsense")[0] == 401

    def test_the_shipped_rights_are_enough_for_nothing_else(self, kube, node):
        def tried(method: str, path: str, body: Any = None, kind: str = "application/json") -> int:
            return request(kube, method, path, body, token=kube.restricted, kind=kind)[0]

        assert tried("GET", node.path) == 200
        assert tried("GET", "/api/v1/nodes?limit=1") == 200
        assert tried("PATCH", node.path + "?dryRun=All", {"metadata": {}}, STRATEGIC) == 200
        assert tried("DELETE", node.path) == 403
        assert tried("POST", "/api/v1/nodes", {"metadata": {"name": "another"}}) == 403
        assert tried("GET", "/api/v1/namespaces/default/events") == 403


class BackendContract:
    """ibmon's backend, with the shipped rights."""

    def test_a_drain_stands_beside_what_others_wrote_and_goes_without_a_trace(self, node, backend):
        scheduler = backend()
        before = node.get()
        assert not scheduler.read_node().drained
        scheduler.drain(REASON)
        view = scheduler.read_node()
        assert (view.drained, view.reason, view.flags) == (True, REASON, {"IDLE", "DRAIN"})
        assert view.since is not None
        assert node.taints == [OTHER, OURS]
        assert not node.cordoned
        scheduler.undrain()
        assert not scheduler.read_node().drained
        after = node.get()
        for moves in ("resourceVersion", "managedFields"):
            before["metadata"].pop(moves, None)
            after["metadata"].pop(moves, None)
        assert after["metadata"] == before["metadata"]
        assert (after["spec"], after["status"]) == (before["spec"], before["status"])
        assert sorted(node.events()) == ["FabricDrained", "FabricReleased"]

    def test_a_drain_asked_for_twice_is_written_once(self, node, backend):
        scheduler = backend()
        scheduler.drain(REASON)
        version = node.version
        scheduler.drain(REASON)
        assert node.version == version

    @pytest.mark.parametrize("settings", [{}, {"cordon": True}])
    def test_a_cordon_of_somebody_else_is_left_as_it_is(self, node, backend, settings):
        scheduler = backend(**settings)
        node.set(unschedulable=True)
        assert scheduler.read_node().flags == {"IDLE", "CORDONED"}
        scheduler.drain(REASON)
        assert scheduler.read_node().flags == {"IDLE", "CORDONED", "DRAIN"}
        assert node.annotations["ibmon.dev/cordon"] == "pre-existing"
        scheduler.undrain()
        assert node.cordoned
        assert node.annotations == {}
        assert node.taints == [OTHER]

    def test_a_cordon_of_ours_goes_with_the_drain(self, node, backend):
        scheduler = backend(cordon=True)
        scheduler.drain(REASON)
        assert node.cordoned
        assert scheduler.read_node().flags == {"IDLE", "DRAIN"}
        backend().read_node()
        scheduler.undrain()
        assert not node.cordoned
        assert node.annotations == {}

    def test_the_condition_is_told_beside_those_of_the_kubelet(self, node, backend):
        scheduler = backend()
        scheduler.publish(NodeFitness.FIT, "")
        first = node.conditions()["RdmaFabricUnhealthy"]
        assert (first["status"], first["reason"]) == ("False", "FabricFit")
        assert first["lastTransitionTime"]
        scheduler.publish(NodeFitness.UNFIT, REASON)
        second = node.conditions()["RdmaFabricUnhealthy"]
        assert (second["status"], second["message"]) == ("True", REASON)
        assert node.conditions()["Ready"]["status"] == "True"
        assert node.events() == ["FabricUnfit"]

    def test_all_nodes_are_counted_page_by_page(self, kube, node, backend, monkeypatch):
        monkeypatch.setattr("ibmon.drain.kube_list.PAGE", 2)
        others = [new_node(kube) for _ in range(4)]
        (pool,) = backend().read_pools()
        assert pool.name == "nodes"
        names = [view.name for view in pool.nodes]
        assert len(names) == len(set(names))
        assert {node.name, *(other.name for other in others)} <= set(names)
        for other in others:
            request(kube, "DELETE", other.path)

    def test_a_pool_label_counts_the_nodes_with_the_same_value(self, kube, node, backend):
        same, other = new_node(kube, pool="train"), new_node(kube, pool="login")
        (pool,) = backend(pool_label="pool").read_pools()
        assert (pool.name, {view.name for view in pool.nodes}) == ("train", {node.name, same.name})
        for made in (same, other):
            request(kube, "DELETE", made.path)

    def test_the_shipped_rights_keep_nothing_from_happening(self, backend):
        assert backend().check() == ()

    def test_a_node_that_is_not_there_is_one_clear_line(self, kube, node, backend):
        request(kube, "DELETE", node.path)
        with pytest.raises(SchedulerError, match=f"knows no node {node.name}"):
            backend().read_node()

    def test_a_token_that_is_not_known_is_one_clear_line(self, backend):
        with pytest.raises(KubeError, match="does not accept the credentials") as caught:
            backend("nonsense").read_node()
        assert caught.value.status == 401
