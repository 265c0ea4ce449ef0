"""What the fleet controller relies on in the Kubernetes API: Lease, ConfigMap and the reading of all nodes.

One suite for fake and real servers, as `kube_contract`. Who takes it over brings the fixture `kube`, a server whose
`controller` is the token of a service account with the rights of deploy/kubernetes/controller.
"""

from __future__ import annotations

import random
import ssl
from typing import Any

import pytest
from kube_contract import REASON, STRATEGIC, Api, new_node, request

from ibmon.config import KubernetesConfig
from ibmon.controller.configmap import LARGEST, ConfigMapLedger, LedgerConflict
from ibmon.controller.lease import Leader, LeaseLock
from ibmon.drain.kube_client import KubeClient, KubeError
from ibmon.drain.kube_credentials import Access
from ibmon.drain.kube_fleet import KubernetesFleet
from ibmon.ports import SchedulerError, StoreError

NAMESPACE, LEASE, LEDGER = "ibmon-controller", "ibmon-controller", "ibmon-ledger"
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
LEASE_PATH, LEDGER_PATH = f"{_LEASES}/{LEASE}", f"{_MAPS}/{LEDGER}"


def client(kube: Any, token: str | None = None) -> KubeClient:
    """What the controller asks with, by default as its own service account."""
    trust = ssl.create_default_context(cafile=kube.ca) if kube.ca else None
    return KubeClient(lambda: Access(kube.url, context=trust, token=token or kube.controller), 5.0)


@pytest.fixture
def clean(kube: Any) -> Any:
    """The server without Lease and ledger."""
    for path in (LEASE_PATH, LEDGER_PATH):
        request(kube, "DELETE", path)
    return kube


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def lease_body(holder: str = "x", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": NAMESPACE, **metadata},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    }


def map_body() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": LEDGER, "labels": {"a": "b"}}}


class ControllerContract:
    """The server with the controller's parts at it."""

    # ------------------------------------------------------------------------------------------------ the server

    def test_a_lease_is_made_once_and_replaced_under_its_version_only(self, clean):
        status, made = request(clean, "POST", _LEASES, lease_body())
        assert status == 201
        status, answer = request(clean, "POST", _LEASES, lease_body("y"))
        assert (status, answer["reason"]) == (409, "AlreadyExists")
        version = made["metadata"]["resourceVersion"]
        status, second = request(clean, "PUT", LEASE_PATH, lease_body("y", resourceVersion=version))
        assert (status, second["spec"]["holderIdentity"]) == (200, "y")
        status, answer = request(clean, "PUT", LEASE_PATH, lease_body("z", resourceVersion=version))
        assert (status, answer["reason"]) == (409, "Conflict")

    @pytest.mark.parametrize("kind", ["Lease", "ConfigMap"])
    def test_what_is_gone_is_not_replaced(self, clean, kind):
        path, at, body = (_LEASES, LEASE_PATH, lease_body()) if kind == "Lease" else (_MAPS, LEDGER_PATH, map_body())
        made = request(clean, "POST", path, body)[1]
        request(clean, "DELETE", at)
        status, answer = request(clean, "PUT", at, made)
        assert (status, answer["reason"]) == (409, "Conflict")  # its uid is that of another one

    def test_a_write_that_changes_nothing_keeps_the_version(self, clean):
        made = request(clean, "POST", _LEASES, lease_body())[1]
        again = request(clean, "PUT", LEASE_PATH, made)[1]
        assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]

    def test_a_lease_must_promise_a_second_at_least(self, clean):
        body = lease_body()
        body["spec"]["leaseDurationSeconds"] = 0
        assert request(clean, "POST", _LEASES, body)[0] == 422

    def test_the_controllers_rights_are_enough_for_nothing_else(self, clean):
        node = new_node(clean)

        def tried(method: str, path: str, body: Any = None, kind: str = "application/json") -> int:
            return request(clean, method, path, body, token=clean.controller, kind=kind)[0]

        assert tried("GET", node.path) == 200
        assert tried("GET", "/api/v1/nodes?limit=1") == 200
        assert tried("PATCH", node.path + "?dryRun=All", {"metadata": {}}, STRATEGIC) == 200
        assert tried("DELETE", node.path) == 403
        assert tried("GET", LEASE_PATH) == 404
        assert tried("POST", _LEASES, lease_body()) == 201
        assert tried("DELETE", LEASE_PATH) == 403
        assert tried("GET", f"{_LEASES}/another") == 403
        assert tried("GET", f"{_MAPS}/another") == 403
        assert tried("GET", _MAPS) == 403
        assert tried("GET", f"/api/v1/namespaces/default/configmaps/{LEDGER}") == 403
        assert tried("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/ibmon-controller-keys") == 403
        request(clean, "DELETE", node.path)

    # ------------------------------------------------------------------------------------------------- the Lease

    def make(self, kube: Any, time: Time, name: str, token: str | None = None) -> Leader:
        lock = LeaseLock(client(kube, token), NAMESPACE, LEASE)
        return Leader(lock, name, clock=time, wall=lambda: 1893492000.25)

    def test_one_leads_the_other_waits_and_takes_over_when_the_first_is_silent(self, clean):
        time = Time()
        first, second = self.make(clean, time, "first"), self.make(clean, time, "second")
        first.turn()
        second.turn()
        assert not first.is_leader()  # a Lease that was missing may be one that was deleted under a leader
        time.now += 15
        first.turn()
        second.turn()
        assert (first.is_leader(), second.is_leader()) == (True, False)
        spec = request(clean, "GET", LEASE_PATH)[1]["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("first", 15, 0)
        assert spec["acquireTime"] == "2030-01-01T10:00:00.250000Z"
        assert spec["renewTime"] == "2030-01-01T10:00:00.250001Z"  # our clock stands, and the renewal is seen
        time.now += 10
        assert not first.is_leader()
        second.turn()
        assert not second.is_leader()
        time.now += 5
        second.turn()
        assert second.is_leader()
        assert request(clean, "GET", LEASE_PATH)[1]["spec"]["leaseTransitions"] == 1
        first.turn()
        assert (first.is_leader(), first.holder) == (False, "second")

    def test_a_lease_that_was_given_back_is_free_at_once(self, clean):
        time = Time()
        first, second = self.make(clean, time, "first"), self.make(clean, time, "second")
        first.turn()
        time.now += 15
        first.turn()
        second.turn()
        first.close(1)
        assert not first.is_leader()
        assert request(clean, "GET", LEASE_PATH)[1]["spec"].get("holderIdentity", "") == ""
        second.turn()
        assert second.is_leader()

    def test_a_leader_whose_lease_is_deleted_makes_it_anew(self, clean):
        time = Time()
        first = self.make(clean, time, "first")
        first.turn()
        time.now += 15
        first.turn()
        for _ in range(3):
            request(clean, "DELETE", LEASE_PATH)
            time.now += 2
            first.turn()
            assert first.is_leader()
            time.now += 2
            first.turn()
            assert request(clean, "GET", LEASE_PATH)[1]["spec"]["holderIdentity"] == "first"
        assert first.term == 1

    def test_what_others_wrote_into_the_lease_stays(self, clean):
        body = lease_body("", labels={"team": "fabric"}, annotations={"note": "ours"})
        assert request(clean, "POST", _LEASES, body)[0] == 201
        first = self.make(clean, Time(), "first")
        first.turn()
        assert first.is_leader()
        metadata = request(clean, "GET", LEASE_PATH)[1]["metadata"]
        assert (metadata["labels"], metadata["annotations"]) == ({"team": "fabric"}, {"note": "ours"})

    def test_without_the_right_the_verb_is_named_and_nobody_leads(self, clean, caplog):
        time = Time()
        leader = self.make(clean, time, "first", clean.restricted)
        for _ in range(3):
            leader.turn()
            time.now += 20
        assert not leader.is_leader()
        assert caplog.text.count("needs the verb get on leases.coordination.k8s.io") == 1

    # ------------------------------------------------------------------------------------------------ the ledger

    def ledger(self, kube: Any, token: str | None = None) -> ConfigMapLedger:
        return ConfigMapLedger(client(kube, token), NAMESPACE, LEDGER)

    def test_what_is_saved_is_loaded_by_the_next_instance(self, clean):
        first = self.ledger(clean)
        assert first.load() is None
        for document in (b'{"v":1}', b"", b'{"v":2}' * 1000):
            first.save(document)
            assert self.ledger(clean).load() == document
        found = request(clean, "GET", LEDGER_PATH)[1]
        assert set(found["binaryData"]) == {"ledger"}

    def test_of_two_instances_one_writes_and_the_other_must_load_first(self, clean):
        first, second = self.ledger(clean), self.ledger(clean)
        first.load()
        second.load()
        first.save(b"first")
        for _ in range(2):
            with pytest.raises(LedgerConflict, match="has written configmap ibmon-controller/ibmon-ledger meanwhile"):
                second.save(b"second")
        assert second.load() == b"first"
        second.save(b"second")
        with pytest.raises(LedgerConflict):
            first.save(b"first again")
        assert self.ledger(clean).load() == b"second"

    def test_a_new_leader_shuts_an_old_one_out_by_saving_what_it_has_loaded(self, clean):
        old, new = self.ledger(clean), self.ledger(clean)
        old.save(b"same")
        document = new.load()
        new.save(document)
        with pytest.raises(LedgerConflict):
            old.save(b"late")
        assert new.load() == document == b"same"

    def test_a_ledger_that_was_never_loaded_is_not_overwritten(self, clean):
        self.ledger(clean).save(b"old")
        with pytest.raises(LedgerConflict):
            self.ledger(clean).save(b"new")
        assert self.ledger(clean).load() == b"old"

    def test_a_ledger_that_is_deleted_meanwhile_is_made_anew(self, clean):
        ledger = self.ledger(clean)
        ledger.save(b"1")
        request(clean, "DELETE", LEDGER_PATH)
        ledger.save(b"2")
        assert self.ledger(clean).load() == b"2"

    def test_a_ledger_is_as_large_as_the_server_lets_it_be_and_no_larger(self, clean):
        ledger = self.ledger(clean)
        noise = random.Random(1).randbytes(LARGEST - 1000)
        ledger.save(noise)
        assert self.ledger(clean).load() == noise
        with pytest.raises(StoreError, match="holds at most 1048576"):
            ledger.save(random.Random(2).randbytes(LARGEST))
        assert self.ledger(clean).load() == noise

    def test_keys_and_labels_of_others_in_the_ledgers_configmap_stay(self, clean):
        assert request(clean, "POST", _MAPS, map_body() | {"data": {"README": "hands off"}})[0] == 201
        ledger = self.ledger(clean)
        assert ledger.load() is None
        ledger.save(b"x")
        found = request(clean, "GET", LEDGER_PATH)[1]
        assert (found["metadata"]["labels"], found["data"]) == ({"a": "b"}, {"README": "hands off"})

    def test_without_the_right_the_ledger_names_the_verb(self, clean):
        with pytest.raises(StoreError, match="needs the verb get on configmaps"):
            self.ledger(clean, clean.restricted).load()

    # ------------------------------------------------------------------------------------------------- the fleet

    def test_the_whole_fleet_is_read_without_being_any_node(self, clean, monkeypatch):
        monkeypatch.setattr("ibmon.drain.kube_list.PAGE", 2)
        made = [new_node(clean, pool=pool, rack=rack) for pool, rack in (("a", "r1"), ("b", "r1"), ("a", "r2"))]
        made.append(new_node(clean))
        names = [node.name for node in made]
        fleet = KubernetesFleet(KubernetesConfig(), client=client(clean))
        (pool,) = fleet.read_fleet()
        assert pool.name == "nodes"
        assert set(names) <= {view.name for view in pool.nodes}
        fleet = KubernetesFleet(KubernetesConfig(pool_label="pool"), client=client(clean))
        pools = {pool.name: {view.name for view in pool.nodes} & set(names) for pool in fleet.read_fleet()}
        assert pools == {"a": {names[0], names[2]}, "b": {names[1]}, "none": {names[3]}}
        assert fleet.read_topology("rack") == dict(zip(names, ("r1", "r1", "r2"), strict=False))
        for node in made:
            request(clean, "DELETE", node.path)

    def test_each_node_of_the_fleet_is_written_by_itself(self, clean):
        nodes: list[Api] = [new_node(clean), new_node(clean)]
        fleet = KubernetesFleet(KubernetesConfig(), client=client(clean))
        scheduler = fleet.for_node(nodes[1].name)
        assert scheduler.check() == ()
        scheduler.drain(REASON)
        assert scheduler.read_node().reason == REASON
        assert [node.annotations.get("ibmon.dev/drain") for node in nodes] == [None, REASON]
        (pool,) = fleet.read_fleet()
        assert {view.name for view in pool.nodes if view.drained} == {nodes[1].name}
        scheduler.undrain()
        assert nodes[1].annotations == {}
        with pytest.raises(KubeError, match="knows no node nobody"):
            fleet.for_node("nobody").read_node()
        with pytest.raises(SchedulerError, match="no name of a Kubernetes node"):
            fleet.for_node("../pods/x").read_node()
        for node in nodes:
            request(clean, "DELETE", node.path)
