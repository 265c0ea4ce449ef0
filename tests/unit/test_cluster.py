"""The scheduler in memory does what Slurm was seen to do."""

import pytest

from ibmon.drain.cluster import Cluster
from ibmon.ports import SchedulerError
from ibmon.recording import SchedulerAct

NODE = "node0007"


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def cluster(clock):
    return Cluster(10, wall=clock)


@pytest.fixture
def client(cluster):
    return cluster.client(NODE)


def seen(view):
    return sorted(view.flags), view.reason, view.user, view.since


def test_a_drain_shows_with_reason_user_and_time_and_undrain_takes_all_away(client):
    client.drain("ibmon: port-down")
    assert seen(client.read_node()) == (["DRAIN", "IDLE"], "ibmon: port-down", "ibmon", 100.0)
    client.undrain()
    assert seen(client.read_node()) == (["IDLE"], None, None, None)


def test_the_same_reason_again_changes_nothing(client, clock):
    client.drain("same")
    clock.now = 200.0
    client.drain("same")
    assert client.read_node().since == 100.0


def test_another_reason_overwrites_silently_with_user_and_time(cluster, client, clock):
    cluster.act(NODE, SchedulerAct(do="drain", reason="disk swap"))
    clock.now = 200.0
    client.drain("ibmon: x")
    assert seen(client.read_node()) == (["DRAIN", "IDLE"], "ibmon: x", "ibmon", 200.0)


def test_undrain_of_a_node_that_is_not_drained_succeeds(client):
    client.undrain()
    assert client.read_node().flags == {"IDLE"}


@pytest.mark.parametrize("reason", ["", " "])
def test_a_drain_without_a_reason_is_refused(client, reason):
    with pytest.raises(SchedulerError, match="reason"):
        client.drain(reason)
    assert not client.read_node().drained


def test_an_administrator_drains_and_resumes(cluster, client):
    cluster.act(NODE, SchedulerAct(do="drain", by="admin", reason="disk swap"))
    assert seen(client.read_node())[:3] == (["DRAIN", "IDLE"], "disk swap", "admin")
    cluster.act(NODE, SchedulerAct(do="resume"))
    assert client.read_node().flags == {"IDLE"}


def test_what_is_asked_of_a_hanging_controller_is_done_when_it_wakes(cluster, client):
    cluster.act(NODE, SchedulerAct(do="hang"))
    with pytest.raises(SchedulerError, match="deadline"):
        client.drain("ibmon: late")
    with pytest.raises(SchedulerError):
        client.read_node()
    assert not cluster.view(NODE).drained
    cluster.act(NODE, SchedulerAct(do="up"))
    assert client.read_node().reason == "ibmon: late"


def test_what_is_asked_of_a_controller_that_is_down_is_lost(cluster, client):
    cluster.act(NODE, SchedulerAct(do="hang"))
    with pytest.raises(SchedulerError):
        client.drain("ibmon: hung")
    cluster.act(NODE, SchedulerAct(do="down"))
    with pytest.raises(SchedulerError, match="refused"):
        client.drain("ibmon: lost")
    cluster.act(NODE, SchedulerAct(do="up"))
    assert not client.read_node().drained


def test_each_outage_fails_every_call(cluster, client):
    for outage in ("hang", "down"):
        cluster.act(NODE, SchedulerAct(do=outage))
        for call in (client.read_node, client.read_pools, client.undrain, lambda: client.drain("x")):
            with pytest.raises(SchedulerError):
                call()


def test_pools_are_those_that_hold_the_node_with_all_their_nodes():
    names = ["a", "b", "c"]
    cluster = Cluster(names, partitions={"all": names, "gpu": ["a", "b"], "cpu": ["c"]})
    cluster.client("b").drain("ibmon: x")
    pools = {pool.name: [node.name for node in pool.nodes] for pool in cluster.client("a").read_pools()}
    assert pools == {"all": ["a", "b", "c"], "gpu": ["a", "b"]}
    assert [node.drained for node in cluster.client("a").read_pools()[1].nodes] == [False, True]


def test_a_thousand_nodes_stand_in_one_pool_by_default():
    (pool,) = Cluster().client("node0001").read_pools()
    assert (len(pool.nodes), pool.nodes[0].name, any(node.drained for node in pool.nodes)) == (1000, "node0001", False)


def test_drains_are_counted_by_how_their_reason_begins(cluster, client):
    client.drain("ibmon: x")
    cluster.act("node0001", SchedulerAct(do="drain", reason="disk"))
    assert (cluster.count_drained("ibmon: "), cluster.count_drained("")) == (1, 2)


def test_running_work_is_not_touched_by_a_drain(cluster, client):
    cluster.set_flags(NODE, "ALLOCATED")
    client.drain("ibmon: x")
    assert client.read_node().flags == {"ALLOCATED", "DRAIN"}
    cluster.set_flags(NODE, "IDLE")
    assert client.read_node().flags == {"IDLE", "DRAIN"}
    assert client.read_node().reason == "ibmon: x"


def test_an_unknown_node_is_an_error(cluster):
    with pytest.raises(SchedulerError, match="Invalid node name"):
        cluster.client("nowhere").read_node()
    with pytest.raises(SchedulerError, match="Invalid node name"):
        cluster.client("nowhere").drain("x")


def test_calls_are_counted_with_those_that_failed(cluster, client):
    cluster.act(NODE, SchedulerAct(do="down"))
    with pytest.raises(SchedulerError):
        client.drain("x")
    cluster.act(NODE, SchedulerAct(do="up"))
    client.drain("x")
    client.read_node()
    assert client.calls == {"drain": 2, "read_node": 1}
