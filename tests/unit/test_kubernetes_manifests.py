"""What the shipped objects promise: the least rights, no way to harm, and nothing that keeps the pod off a node."""

from __future__ import annotations

import pytest
from kube_contract import KEY, shipped

from ibmon.config import Config, KubernetesConfig
from ibmon.configfile import loads
from ibmon.drain import kube_node
from ibmon.model import Mode


def one(*parts):
    (found,) = shipped(*parts)
    return found


@pytest.fixture(scope="module")
def pod():
    return one("observe", "daemonset.yaml")["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def containers(pod):
    return {c["name"]: c for c in [*pod["containers"], *pod["initContainers"]]}


def test_no_taint_keeps_the_pod_away(pod):
    assert pod["tolerations"] == [{"operator": "Exists"}]


def test_sys_is_the_hosts_and_read_only(pod, containers):
    mounts = {m["name"]: m for m in containers["ibmon"]["volumeMounts"]}
    assert mounts["sys"]["readOnly"] is True
    assert [v["hostPath"]["path"] for v in pod["volumes"] if v["name"] == "sys"] == ["/sys"]
    command = containers["ibmon"]["command"]
    assert command[command.index("--sysfs") + 1] == mounts["sys"]["mountPath"]
    assert pod["hostNetwork"] is True


def test_nothing_of_the_host_can_be_written_but_its_own_state(pod, containers):
    hosts = {v["name"]: v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}
    writable = {
        hosts[m["name"]]
        for c in containers.values()
        for m in c["volumeMounts"]
        if m["name"] in hosts and not m.get("readOnly")
    }
    assert writable == {Config().state.directory}


def test_the_daemon_is_no_root_and_has_no_capability(pod, containers):
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    for container in containers.values():
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert "add" not in containers["ibmon"]["securityContext"]["capabilities"]
    assert containers["state"]["securityContext"]["capabilities"]["add"] == ["CHOWN"]
    assert not any(pod.get(key) for key in ("hostPID", "hostIPC"))


def test_by_default_the_pod_has_no_token_and_only_observes(pod):
    assert pod["automountServiceAccountToken"] is False
    assert one("observe", "serviceaccount.yaml")["automountServiceAccountToken"] is False
    config = loads(one("observe", "config.yaml")["data"]["ibmon.toml"]).config
    assert (config.action.mode, config.action.scheduler) == (Mode.OBSERVE, "none")


def test_the_node_direct_configuration_loads_and_does_not_drain_yet():
    loaded = loads(one("node-direct", "config.yaml")["data"]["ibmon.toml"])
    assert (loaded.config.action.mode, loaded.config.action.scheduler) == (Mode.ALERT, "kubernetes")
    assert loaded.warnings == ()


def test_the_pods_node_is_known_to_it(containers):
    (variable,) = [e for e in containers["ibmon"]["env"] if e["name"] == "NODE_NAME"]
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"


def test_node_direct_may_do_this_and_nothing_else():
    found = {
        (o["kind"], o["metadata"].get("namespace", ""), resource): sorted(rule["verbs"])
        for o in shipped("node-direct", "rbac.yaml")
        for rule in o.get("rules", ())
        for resource in rule["resources"]
    }
    assert found == {
        ("ClusterRole", "", "nodes"): ["get", "list", "patch"],
        ("ClusterRole", "", "nodes/status"): ["patch"],
        ("Role", "default", "events"): ["create"],
    }


def test_the_rights_are_bound_to_the_service_account_of_the_pods():
    account = one("observe", "serviceaccount.yaml")["metadata"]
    for bound in shipped("node-direct", "rbac.yaml"):
        for subject in bound.get("subjects", ()):
            assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])


def test_the_policy_speaks_of_the_taint_condition_and_account_that_are_used():
    policy, binding = shipped("node-direct", "policy.yaml")
    text = str(policy["spec"])
    account = one("observe", "serviceaccount.yaml")["metadata"]
    assert KubernetesConfig().taint_key == KEY
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    for word in (KEY, kube_node.CONDITION, kube_node.TAINT_EFFECT, user):
        assert f'"{word}"' in text
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert binding["spec"]["validationActions"] == ["Deny"]
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert {v["reason"] for v in policy["spec"]["validations"]} == {"Forbidden"}
