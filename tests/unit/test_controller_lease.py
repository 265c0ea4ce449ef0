"""The Lease at a server that refuses, talks nonsense or hangs, and the thread that keeps it."""

from __future__ import annotations

import threading
import time

import pytest
from fake_kube import FakeKube, Right
from kube_controller_contract import LEASE, LEASE_PATH, NAMESPACE
from test_kubernetes_contract import shipped_rights

from ibmon.controller.election import Timing
from ibmon.controller.lease import Leader, LeaseLock, boot_time, new_identity
from ibmon.drain.kube_client import KubeClient
from ibmon.drain.kube_credentials import Access
from ibmon.ports import SchedulerError

PATIENCE = 20.0  # no test waits so long unless it fails
QUICK = Timing(retry=0.01)


@pytest.fixture
def kube():
    with FakeKube() as fake:
        yield fake


def lock(kube, *missing, timeout=PATIENCE):
    token = kube.token(*(set(shipped_rights("controller")) - set(missing)))
    return LeaseLock(KubeClient(lambda: Access(kube.url, token=token), timeout), NAMESPACE, LEASE)


def right(verb):
    name = None if verb == "create" else LEASE
    return Right(verb, "leases.coordination.k8s.io", NAMESPACE, name)


def until(true, within=PATIENCE):
    end = time.monotonic() + within
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("verb", ["get", "create", "update"])
def test_a_right_that_is_missing_is_one_line_that_names_the_verb(kube, caplog, verb):
    now = [0.0]
    leader = Leader(lock(kube, right(verb)), "me", clock=lambda: now[0], wall=lambda: now[0])
    for _ in range(20):
        leader.turn()
        now[0] += 2
        assert not leader.is_leader()
    wanted = (
        f"forbids ibmon to {verb} lease ibmon-controller/ibmon-controller: its service account needs the verb {verb}"
    )
    assert caplog.text.count(wanted) == 1
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"metadata":{"name":"other","resourceVersion":"1"}}',
        b'{"metadata":{"name":"ibmon-controller"}}',
        b'{"metadata":{"name":"ibmon-controller","resourceVersion":""}}',
        b'{"metadata":{"name":"ibmon-controller","resourceVersion":"1"},"spec":{"holderIdentity":7}}',
        b'{"metadata":{"name":"ibmon-controller","resourceVersion":"1"},"spec":[]}',
    ],
)
def test_an_answer_that_is_no_lease_is_an_error_and_no_leadership(kube, body):
    kube.fail("garbage", body=body, times=3)
    with pytest.raises(SchedulerError):
        lock(kube).read()
    leader = Leader(lock(kube), "me")
    leader.turn()
    assert not leader.is_leader()


@pytest.mark.parametrize("fault", ["hang", "cut", "status", "drip"])
def test_a_server_that_fails_ends_a_leadership_at_its_time(kube, fault):
    now = [0.0]
    token = kube.token(*shipped_rights("controller"))
    client = KubeClient(lambda: Access(kube.url, token=token), PATIENCE)
    leader = Leader(LeaseLock(client, NAMESPACE, LEASE), "me", clock=lambda: now[0], wall=lambda: 0.0)
    leader.turn()
    now[0] = 15.0
    leader.turn()
    assert leader.is_leader()
    kube.fail(fault, times=9)
    client._timeout = 0.2  # not before: a busy machine answers late, too
    now[0] = 24.9
    leader.turn()
    assert leader.is_leader()
    now[0] = 25.0
    assert not leader.is_leader()


@pytest.mark.parametrize("name", ["", "A", "a/b", "../x", "a b", "x" * 300])
def test_a_name_that_is_none_is_refused_before_anything_is_asked(kube, name):
    with pytest.raises(ValueError, match="no name in Kubernetes"):
        LeaseLock(KubeClient(lambda: Access(kube.url), 1.0), "ibmon", name)
    with pytest.raises(ValueError, match="no name in Kubernetes"):
        LeaseLock(KubeClient(lambda: Access(kube.url), 1.0), name, "ibmon")


def leading(lock, now):
    """A leader with its thread, by the clock `now`; it has just begun to lead."""
    leader = Leader(lock, "me", timing=QUICK, clock=lambda: now[0])
    leader.start()
    until(lambda: leader.holder == "me")  # it has made the Lease, and waits until nobody can hold an older one
    assert not leader.is_leader()
    now[0] += QUICK.duration
    until(leader.is_leader)
    return leader


def test_the_thread_leads_renews_and_gives_back(kube):
    leader = leading(lock(kube), [0.0])
    renewals = len(kube.calls("PUT"))
    until(lambda: len(kube.calls("PUT")) > renewals + 3)
    assert (leader.term, leader.holder) == (1, "me")
    leader.close(PATIENCE)
    assert not leader.is_leader()
    ((_, held),) = kube.objects.held.items()
    assert held["spec"]["holderIdentity"] == ""
    assert LEASE_PATH in kube.calls("GET")[-1]


def test_closing_ends_the_leadership_also_while_a_call_hangs(kube):
    now = [0.0]
    leader = leading(lock(kube, timeout=60.0), now)
    kube.fail("hang", method="PUT")
    until(lambda: not kube._faults)
    assert leader.is_leader()
    leader.close(0.1)
    assert leader._thread.is_alive()  # it was not waited for
    assert not leader.is_leader()
    ((_, held),) = kube.objects.held.items()
    assert held["spec"]["holderIdentity"] == "me"  # it ends by itself


def test_who_was_never_started_can_be_closed(kube):
    Leader(lock(kube), "me").close(1)
    assert kube.log == []
    assert threading.active_count() < 50


def test_every_process_is_another_one():
    assert len({new_identity() for _ in range(100)}) == 100


def test_the_clock_counts_sleep():
    assert boot_time() >= time.monotonic() - 0.001
