"""All nodes at once: what is not whole is not believed, and one client serves all."""

from __future__ import annotations

import pytest
from fake_kube import FakeKube, Right
from test_kubernetes import OURS, REASON, drained
from test_kubernetes_contract import shipped_rights

from ibmon.config import KubernetesConfig
from ibmon.drain import kube_list
from ibmon.drain.kube_client import KubeClient, KubeError
from ibmon.drain.kube_credentials import Access
from ibmon.drain.kube_fleet import KubernetesFleet
from ibmon.ports import SchedulerError


@pytest.fixture
def kube():
    with FakeKube() as fake:
        for number in range(1, 8):
            fake.add(f"gpu-{number}", labels={"pool": "train"} if number < 5 else {})
        yield fake


def fleet(kube, *missing, **settings):
    token = kube.token(*(set(shipped_rights("controller")) - set(missing)))
    return KubernetesFleet(KubernetesConfig(**settings), client=KubeClient(lambda: Access(kube.url, token=token), 2.0))


def test_it_needs_no_name_of_its_own(kube, monkeypatch):
    monkeypatch.delenv("NODE_NAME", raising=False)
    (pool,) = fleet(kube).read_fleet()
    assert (pool.name, len(pool.nodes)) == ("nodes", 7)


def test_drains_and_cordons_are_seen_in_the_pools(kube):
    drained(kube, "gpu-2")
    kube.edit("gpu-6", unschedulable=True)
    first, second = fleet(kube, pool_label="pool").read_fleet()
    assert (first.name, second.name) == ("none", "train")
    assert {view.name: view.reason for view in second.nodes if view.drained} == {"gpu-2": REASON}
    assert {view.name for view in first.nodes if "CORDONED" in view.flags} == {"gpu-6"}


def test_an_empty_label_is_none(kube):
    kube.nodes["gpu-1"]["metadata"]["labels"] = {"pool": "", "rack": ""}
    pools = {pool.name: len(pool.nodes) for pool in fleet(kube, pool_label="pool").read_fleet()}
    assert pools == {"none": 4, "train": 3}
    assert fleet(kube).read_topology("rack") == {}


def test_no_node_at_all_is_not_believed(kube):
    kube.nodes.clear()
    for read in (fleet(kube).read_fleet, lambda: fleet(kube).read_topology("rack")):
        with pytest.raises(SchedulerError, match="no node at all"):
            read()


@pytest.mark.parametrize("fault", ["status", "cut", "garbage"])
def test_a_list_of_which_a_page_is_missing_is_none(kube, monkeypatch, fault):
    monkeypatch.setattr(kube_list, "PAGE", 3)
    kube.fail(fault, path="continue=3")
    with pytest.raises(SchedulerError):
        fleet(kube).read_fleet()
    assert len(fleet(kube).read_fleet()[0].nodes) == 7


def test_a_list_without_an_end_is_left(kube, monkeypatch):
    monkeypatch.setattr(kube_list, "_PAGES", 5)
    kube.fail("garbage", body=b'{"items":[],"metadata":{"continue":"again"}}', times=5)
    with pytest.raises(SchedulerError, match="does not end"):
        fleet(kube).read_fleet()


def test_without_the_right_to_list_the_verb_is_named(kube):
    with pytest.raises(KubeError, match="needs the verb list on nodes"):
        fleet(kube, Right("list", "nodes")).read_fleet()


def test_the_fleet_is_one_read_however_many_pools(kube):
    fleet(kube, pool_label="pool").read_fleet()
    assert len(kube.log) == 1


def test_a_node_of_the_fleet_asks_nothing_before_it_is_used(kube):
    whole = fleet(kube, cordon=True)
    node = whole.for_node("gpu-3")
    assert kube.log == []
    node.drain(REASON)
    assert kube.nodes["gpu-3"]["spec"] == {"taints": [OURS], "unschedulable": True}
    assert kube.events[0]["involvedObject"]["name"] == "gpu-3"
    assert all("taints" not in kube.nodes[f"gpu-{n}"]["spec"] for n in (1, 2, 4, 5, 6, 7))
