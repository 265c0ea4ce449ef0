"""The Kubernetes backend where things go wrong or change in between, and under the one function that writes."""

from __future__ import annotations

import functools
import itertools
import time

import pytest
from fake_kube import FakeKube, Right
from test_kubernetes_contract import shipped_rights

from ibmon.config import KubernetesConfig, LimitsConfig
from ibmon.drain import kube_node, reconcile
from ibmon.drain.kube_client import KubeClient, KubeError
from ibmon.drain.kube_credentials import Access
from ibmon.drain.kubernetes import ATTEMPTS, Kubernetes
from ibmon.model import BlockCode, Intent, Mode, NodeFitness, Now, Ownership
from ibmon.ports import SchedulerError
from ibmon.runtime.memory_store import MemoryStore

KEY = "ibmon.dev/fabric"
OURS = {"key": KEY, "value": "unfit", "effect": "NoSchedule"}
REASON = "ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id 7f3a9c]"
INTENT = Intent(drain=True, id="7f3a9c", reason=REASON, since=1.0)
AT = "2030-01-01T10:00:00Z"


@pytest.fixture
def kube():
    with FakeKube() as fake:
        for number in range(1, 9):
            fake.add(f"gpu-{number}", labels={"pool": "train"})
        fake.edit("gpu-1", taints=[{"key": "example.org/x", "effect": "NoSchedule"}])
        yield fake


def backend(kube, token=None, timeout=20.0, **settings):
    client = KubeClient(lambda: Access(kube.url, token=token or kube.token(*shipped_rights())), timeout)
    return Kubernetes(KubernetesConfig(node_name="gpu-1", **settings), client=client)


def drained(kube, name="gpu-1", *, reason=REASON, at=AT, taint=None, **spec):
    """A node with our taint, or another of its key."""
    kube.edit(name, taints=[*kube.nodes[name]["spec"].get("taints", []), taint or OURS], **spec)
    if reason:
        kube.nodes[name]["metadata"]["annotations"] = {"ibmon.dev/drain": reason, "ibmon.dev/drained-at": at}


def spec(kube, name="gpu-1"):
    return kube.nodes[name]["spec"]


# --------------------------------------------------------------------------------------------------- its name


@pytest.mark.parametrize(
    ("configured", "environ", "name"),
    [("gpu-7", {"NODE_NAME": "gpu-8"}, "gpu-7"), ("", {"NODE_NAME": "gpu-8.example.org"}, "gpu-8.example.org")],
)
def test_the_name_is_the_configured_one_else_that_of_the_downward_api(configured, environ, name):
    assert Kubernetes(KubernetesConfig(node_name=configured), environ=environ).node_name == name


@pytest.mark.parametrize("name", ["", "GPU-1", "a/../b", "a b", "-a", "a" * 300, "gpu-1?x=y"])
def test_a_name_that_is_none_is_refused_before_anything_is_asked(name):
    with pytest.raises(SchedulerError, match="node_name"):
        Kubernetes(KubernetesConfig(), environ={"NODE_NAME": name}).read_node()


# ---------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("taint", "reason"),
    [
        ({"key": KEY, "value": "maintenance", "effect": "NoSchedule"}, f"taint {KEY}=maintenance:NoSchedule"),
        ({"key": KEY, "value": "unfit", "effect": "NoExecute"}, f"taint {KEY}=unfit:NoExecute"),
        ({"key": KEY, "effect": "NoSchedule"}, f"taint {KEY}:NoSchedule"),
    ],
)
def test_a_taint_of_our_key_that_ibmon_does_not_write_is_a_foreign_drain(kube, taint, reason):
    drained(kube, taint=taint)
    view = backend(kube).read_node()
    assert (view.drained, view.reason) == (True, reason)


def test_our_taint_without_its_annotation_is_a_foreign_drain(kube):
    drained(kube, reason=None)
    assert backend(kube).read_node().reason == f"taint {KEY}=unfit:NoSchedule without the annotation ibmon.dev/drain"


def test_annotations_that_were_left_behind_say_nothing(kube):
    kube.nodes["gpu-1"]["metadata"]["annotations"] = {"ibmon.dev/drain": REASON, "ibmon.dev/cordon": "ibmon"}
    kube.edit("gpu-1", unschedulable=True)
    view = backend(kube).read_node()
    assert (view.drained, view.reason, view.flags) == (False, None, {"IDLE", "CORDONED"})


@pytest.mark.parametrize("ready", ["False", "Unknown", None])
def test_a_node_that_is_not_ready_does_not_respond(kube, ready):
    kube.add("gpu-1", ready=ready)
    assert backend(kube).read_node().flags == {"NOT_RESPONDING"}


def test_a_time_that_is_none_is_not_known(kube):
    drained(kube, at="yesterday")
    assert backend(kube).read_node().since is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"metadata":{"name":3}}', b'{"metadata":{"name":"gpu-2"}}'])
def test_an_answer_that_is_not_this_node_is_an_error_and_not_a_good_node(kube, body):
    kube.fail("garbage", body=body)
    with pytest.raises(SchedulerError):
        backend(kube).read_node()


def test_without_the_right_to_list_the_limits_are_not_readable(kube):
    token = kube.token(*(right for right in shipped_rights() if right.verb != "list"))
    with pytest.raises(KubeError, match="needs the verb list on nodes") as caught:
        backend(kube, token).read_pools()
    assert caught.value.forbidden


def test_a_node_without_the_pool_label_has_no_pool(kube):
    with pytest.raises(SchedulerError, match="has no label rack"):
        backend(kube, pool_label="rack").read_pools()


def test_a_list_without_this_node_is_not_believed(kube):
    kube.fail("garbage", path="limit=", body=b'{"items":[],"metadata":{}}')
    with pytest.raises(SchedulerError, match="gpu-1 is not among them"):
        backend(kube).read_pools()


# ---------------------------------------------------------------------------------------------------- writing


def meanwhile(kube, change, times=1):
    """Changes the node between a read and the write that follows, so often."""
    left = [times]

    def before(method, _path):
        if method == "PATCH" and left[0]:
            left[0] -= 1
            change()

    kube.before = before


def test_a_taint_that_somebody_sets_in_between_is_kept(kube):
    theirs = {"key": "example.org/new", "effect": "NoSchedule"}
    meanwhile(kube, lambda: kube.edit("gpu-1", taints=[theirs]))
    backend(kube).drain(REASON)
    assert spec(kube)["taints"] == [theirs, OURS]


def test_a_taint_that_somebody_takes_away_in_between_stays_away(kube):
    drained(kube)
    scheduler = backend(kube)
    scheduler.read_node()
    meanwhile(kube, lambda: kube.edit("gpu-1", taints=[OURS]))
    scheduler.undrain()
    assert spec(kube).get("taints", []) == []


def test_fields_of_foreign_taints_that_ibmon_does_not_know_are_written_back(kube):
    theirs = {"key": "example.org/x", "effect": "NoExecute", "timeAdded": AT, "future": {"a": [1]}}
    kube.edit("gpu-1", taints=[theirs])
    scheduler = backend(kube)
    scheduler.drain(REASON)
    assert spec(kube)["taints"] == [theirs, OURS]


def test_a_node_that_never_keeps_still_is_given_up_after_some_attempts(kube):
    meanwhile(kube, functools.partial(kube.edit, "gpu-1", podCIDR="x"), times=100)
    with pytest.raises(SchedulerError, match=f"changed by others {ATTEMPTS} times"):
        backend(kube).drain(REASON)
    assert len(kube.calls("PATCH")) == ATTEMPTS
    assert OURS not in spec(kube)["taints"]


@pytest.mark.parametrize(
    "theirs", [OURS, {"key": KEY, "value": "rma", "effect": "NoSchedule"}, {"key": KEY, "effect": "NoExecute"}]
)
def test_a_taint_of_our_key_that_comes_in_between_is_not_overwritten(kube, theirs):
    meanwhile(kube, lambda: kube.edit("gpu-1", taints=[theirs]))
    with pytest.raises(SchedulerError, match="by somebody else meanwhile"):
        backend(kube).drain(REASON)
    assert spec(kube)["taints"] == [theirs]


def test_a_drain_that_changed_since_it_was_read_is_not_taken_away(kube):
    drained(kube)
    scheduler = backend(kube)
    scheduler.read_node()
    meanwhile(kube, lambda: kube.annotate("gpu-1", ibmon_dev__drain="admin: keep for RMA"))
    with pytest.raises(SchedulerError, match="not any more the one that was read"):
        scheduler.undrain()
    assert OURS in spec(kube)["taints"]


def test_a_node_that_was_made_anew_in_between_is_read_anew(kube):
    meanwhile(kube, lambda: kube.add("gpu-1", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]))
    backend(kube).drain(REASON)
    assert [t["key"] for t in spec(kube)["taints"]] == ["node.kubernetes.io/not-ready", KEY]


def test_a_node_that_is_deleted_in_between_is_one_line(kube):
    meanwhile(kube, lambda: kube.nodes.pop("gpu-1"))
    with pytest.raises(KubeError, match=r"knows no node gpu-1 \(404\)"):
        backend(kube).drain(REASON)


def test_leftovers_of_an_earlier_drain_do_not_make_a_cordon_ours(kube):
    kube.nodes["gpu-1"]["metadata"]["annotations"] = {"ibmon.dev/cordon": "ibmon"}
    kube.edit("gpu-1", unschedulable=True)
    scheduler = backend(kube, cordon=True)
    scheduler.drain(REASON)
    scheduler.read_node()
    scheduler.undrain()
    assert spec(kube)["unschedulable"] is True
    assert "annotations" not in kube.nodes["gpu-1"]["metadata"]


def test_events_that_are_refused_stop_nothing(kube, caplog):
    token = kube.token(*(right for right in shipped_rights() if right.resource != "events"))
    backend(kube, token).drain(REASON)
    assert OURS in spec(kube)["taints"]
    assert "needs the verb create on events" in caplog.text


def test_events_and_condition_can_be_left_out(kube):
    scheduler = backend(kube, events=False, condition=False)
    scheduler.drain(REASON)
    scheduler.publish(NodeFitness.UNFIT, REASON)
    assert kube.events == []
    assert [c["type"] for c in kube.nodes["gpu-1"]["status"]["conditions"]] == ["Ready"]


def test_nothing_ever_evicts_or_deletes(kube):
    scheduler = backend(kube, cordon=True)
    scheduler.drain(REASON)
    scheduler.read_node()
    scheduler.read_pools()
    scheduler.publish(NodeFitness.UNFIT, REASON)
    scheduler.undrain()
    assert {method for method, _ in kube.log} == {"GET", "PATCH", "POST"}
    assert not [path for path in kube.calls() if "pods" in path or "eviction" in path]
    assert all(path.startswith("/api/v1/namespaces/default/events") for path in kube.calls("POST"))


# -------------------------------------------------------------------------------------------------- condition


def condition(kube):
    return next(c for c in kube.nodes["gpu-1"]["status"]["conditions"] if c["type"] == "RdmaFabricUnhealthy")


@pytest.mark.parametrize(
    ("fitness", "status"),
    [
        (NodeFitness.FIT, "False"),
        (NodeFitness.WATCH, "False"),
        (NodeFitness.UNFIT, "True"),
        (NodeFitness.UNKNOWN, "Unknown"),
    ],
)
def test_true_is_a_problem_and_unknown_is_not_health(kube, fitness, status):
    backend(kube).publish(fitness, "")
    assert (condition(kube)["status"], bool(condition(kube)["message"])) == (status, True)


def test_the_time_of_transition_moves_with_the_status_only(kube):
    now = [1893492000.0]
    client = KubeClient(lambda: Access(kube.url, token=kube.admin), 2.0)
    make = functools.partial(Kubernetes, KubernetesConfig(node_name="gpu-1"), client=client, wall=lambda: now[0])
    scheduler = make()
    for later, fitness, transition in (
        (0, NodeFitness.FIT, "2030-01-01T10:00:00Z"),
        (60, NodeFitness.WATCH, "2030-01-01T10:00:00Z"),
        (120, NodeFitness.UNFIT, "2030-01-01T10:02:00Z"),
        (180, NodeFitness.UNFIT, "2030-01-01T10:02:00Z"),
    ):
        now[0] = 1893492000.0 + later
        scheduler.publish(fitness, "")
        assert condition(kube)["lastTransitionTime"] == transition
        assert condition(kube)["lastHeartbeatTime"] == kube_node.time_text(now[0])
    now[0] += 60
    make().publish(NodeFitness.UNFIT, "")  # a daemon that was started anew
    assert condition(kube)["lastTransitionTime"] == "2030-01-01T10:02:00Z"
    assert [e["reason"] for e in kube.events] == ["FabricUnfit"]


def test_a_heartbeat_is_one_call(kube):
    scheduler = backend(kube)
    scheduler.publish(NodeFitness.FIT, "")
    before = len(kube.log)
    scheduler.publish(NodeFitness.FIT, "")
    assert len(kube.log) == before + 1


def test_a_node_that_was_made_anew_gets_its_condition_with_a_time(kube):
    scheduler = backend(kube)
    scheduler.publish(NodeFitness.FIT, "")
    kube.add("gpu-1")
    scheduler.publish(NodeFitness.FIT, "")
    assert condition(kube)["lastTransitionTime"]


def test_after_a_failure_the_server_is_asked_what_it_shows(kube):
    seconds = itertools.count(1893492000)
    client = KubeClient(lambda: Access(kube.url, token=kube.admin), 2.0)
    scheduler = Kubernetes(KubernetesConfig(node_name="gpu-1"), client=client, wall=lambda: float(next(seconds)))
    scheduler.publish(NodeFitness.FIT, "")
    kube.fail("lost", method="PATCH")  # it is carried out, and nobody hears of it
    with pytest.raises(SchedulerError):
        scheduler.publish(NodeFitness.UNFIT, "")
    first = condition(kube)["lastTransitionTime"]
    scheduler.publish(NodeFitness.UNFIT, "")
    assert condition(kube)["lastTransitionTime"] == first


# ------------------------------------------------------------------------------------------------------ check


@pytest.mark.parametrize(
    ("missing", "lines"),
    [
        (set(), []),
        ({Right("patch", "nodes")}, ["needs the verb patch on nodes"]),
        ({Right("list", "nodes")}, ["needs the verb list on nodes"]),
        (
            {Right("get", "nodes"), Right("list", "nodes")},
            ["needs the verb get on nodes", "needs the verb list on nodes"],
        ),
    ],
)
def test_a_check_names_each_missing_right_and_changes_nothing(kube, missing, lines):
    token = kube.token(*(set(shipped_rights()) - missing))
    version = kube.nodes["gpu-1"]["metadata"]["resourceVersion"]
    problems = backend(kube, token).check()
    assert len(problems) == len(lines)
    assert all(line in problem for line, problem in zip(lines, problems, strict=True))
    assert kube.nodes["gpu-1"]["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble_says_nothing_about_rights(kube, status):
    kube.fail("status", status=status)
    with pytest.raises(KubeError):
        backend(kube).check()


# --------------------------------------------------------------------------------- through the one that writes

LIMITS = LimitsConfig(max_drained=0.5)


def gates(mode=Mode.DRAIN, *, stop=False):
    return reconcile.Gates(mode=lambda: mode, stop=lambda: stop, limits=LIMITS)


def now():
    return Now(time.monotonic(), time.time())


def test_the_whole_way_drain_restart_give_back(kube):
    store = MemoryStore()
    done = reconcile.drain(INTENT, backend(kube), store, gates(), now())
    assert (done.outcome, store.ownership().held) == ("done", True)
    again = reconcile.drain(INTENT, backend(kube), store, gates(), now())
    assert again.outcome == "done"
    assert len(kube.calls("PATCH")) == 1
    assert reconcile.release(store.ownership(), backend(kube), store, gates(), now()).outcome == "gone"
    assert OURS not in spec(kube).get("taints", [])
    assert store.ownership() is None


@pytest.mark.parametrize("gate", [gates(Mode.OBSERVE), gates(Mode.ALERT), gates(stop=True)])
def test_nothing_is_written_where_mode_or_stop_forbid_it(kube, gate):
    assert reconcile.drain(INTENT, backend(kube), MemoryStore(), gate, now()).outcome == "blocked"
    drained(kube)
    store = MemoryStore()
    store.record(Ownership("7f3a9c", REASON, 1.0, held=True))
    assert reconcile.release(store.ownership(), backend(kube), store, gate, now()).outcome == "blocked"
    assert kube.calls("PATCH") == []


@pytest.mark.parametrize(
    ("gate", "told"), [(gates(Mode.OBSERVE), 0), (gates(Mode.ALERT, stop=True), 0), (gates(Mode.ALERT), 1)]
)
def test_the_condition_is_for_alert_and_drain_and_for_no_stop(kube, gate, told):
    assert reconcile.publish(backend(kube), NodeFitness.UNFIT, "", gate) is bool(told)
    assert len(kube.calls("PATCH")) == told


def test_a_cordon_that_stood_before_stays_after_the_whole_way(kube):
    kube.edit("gpu-1", unschedulable=True)
    store = MemoryStore()
    assert reconcile.drain(INTENT, backend(kube, cordon=True), store, gates(), now()).outcome == "done"
    reconcile.release(store.ownership(), backend(kube, cordon=True), store, gates(), now())
    assert spec(kube) == {"taints": [{"key": "example.org/x", "effect": "NoSchedule"}], "unschedulable": True}
    assert "annotations" not in kube.nodes["gpu-1"]["metadata"]


def test_a_person_who_takes_our_taint_away_is_respected(kube):
    store = MemoryStore()
    reconcile.drain(INTENT, backend(kube), store, gates(), now())
    kube.edit("gpu-1", taints=[])
    assert reconcile.drain(INTENT, backend(kube), store, gates(), now()).outcome == "gone"
    assert spec(kube)["taints"] == []


def test_a_missing_right_to_patch_is_forbidden_and_not_tried_again_at_once(kube):
    token = kube.token(*(set(shipped_rights()) - {Right("patch", "nodes")}))
    store = MemoryStore()
    done = reconcile.drain(INTENT, backend(kube, token), store, gates(), now())
    assert (done.outcome, done.code) == ("blocked", BlockCode.FORBIDDEN)
    assert "needs the verb patch on nodes" in done.detail
    assert len(kube.calls("PATCH")) == 1
    assert store.ownership() is None


def test_a_missing_right_to_list_drains_nothing(kube):
    token = kube.token(*(set(shipped_rights()) - {Right("list", "nodes")}))
    done = reconcile.drain(INTENT, backend(kube, token), MemoryStore(), gates(), now())
    assert (done.outcome, done.code) == ("blocked", BlockCode.LIMIT_UNREADABLE)
    assert kube.calls("PATCH") == []


def test_a_write_whose_answer_was_lost_is_found_when_it_is_read_back(kube):
    kube.fail("lost", method="PATCH")
    store = MemoryStore()
    assert reconcile.drain(INTENT, backend(kube), store, gates(), now()).outcome == "done"
    assert len(kube.calls("PATCH")) == 1


@pytest.mark.parametrize("fault", [{"what": "status", "status": s} for s in (429, 500, 503)] + [{"what": "cut"}])
def test_trouble_with_the_server_is_no_fault_of_the_node_and_is_tried_again(kube, fault):
    kube.fail(**fault)
    done = reconcile.drain(INTENT, backend(kube), MemoryStore(), gates(), now())
    assert (done.outcome, done.code) == ("failed", BlockCode.SCHEDULER_UNREACHABLE)
    assert reconcile.drain(INTENT, backend(kube), MemoryStore(), gates(), now()).outcome == "done"


def test_cordoned_nodes_count_as_away(kube):
    for number in (5, 6, 7):
        kube.edit(f"gpu-{number}", unschedulable=True)
    done = reconcile.drain(INTENT, backend(kube), MemoryStore(), gates(), now())
    assert done.code is BlockCode.MAX_UNAVAILABLE


def test_drains_of_other_nodes_count_against_the_limit(kube):
    for number in (2, 3):
        drained(kube, f"gpu-{number}", reason=REASON.replace("7f3a9c", f"00000{number}"))
    done = reconcile.drain(INTENT, backend(kube), MemoryStore(), gates(), now())
    assert done.code is BlockCode.LIMIT_NODES
