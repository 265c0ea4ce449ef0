"""What the shipped objects of the controller promise: the least rights, no secret, and parts that fit together."""

from __future__ import annotations

import msgspec
import pytest
from kube_contract import KEY, shipped
from test_kubernetes_contract import shipped_rights

from ibmon.config import ControllerConfig
from ibmon.configfile import loads
from ibmon.controller.election import Timing
from ibmon.controller.lease import CALL_TIMEOUT
from ibmon.drain import kube_node

PARTS = ("namespace", "rbac", "policy", "config", "deployment", "service", "network")


def one(overlay, part, kind):
    (found,) = [o for o in shipped(overlay, f"{part}.yaml") if o["kind"] == kind]
    return found


def settings(overlay):
    return msgspec.toml.decode(one(overlay, "config", "ConfigMap")["data"]["ibmon.toml"])


@pytest.mark.parametrize("overlay", ["controller", "node-controller"])
def test_the_shipped_configuration_is_one_that_ibmon_takes(overlay):
    text = one(overlay, "config", "ConfigMap")["data"]["ibmon.toml"]
    assert loads(text, f"{overlay}/ibmon.toml").config.controller != ControllerConfig()


@pytest.fixture(scope="module")
def pod():
    return one("controller", "deployment", "Deployment")["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod):
    (found,) = pod["containers"]
    return found


def test_it_may_do_this_and_nothing_else():
    leases, maps, place = "leases.coordination.k8s.io", "configmaps", "ibmon-controller"
    assert {tuple(right) for right in shipped_rights("controller")} == {
        ("get", "nodes", None, None),
        ("list", "nodes", None, None),
        ("patch", "nodes", None, None),
        ("patch", "nodes/status", None, None),
        ("create", "events", "default", None),
        ("create", leases, place, None),
        ("get", leases, place, "ibmon-controller"),
        ("update", leases, place, "ibmon-controller"),
        ("create", maps, place, None),
        ("get", maps, place, "ibmon-ledger"),
        ("update", maps, place, "ibmon-ledger"),
    }


def test_the_names_in_the_configuration_are_those_that_the_rights_are_for():
    found = settings("controller")["controller"]
    assert found["lease"] == "ibmon-controller/ibmon-controller"
    assert found["ledger"] == "configmap:ibmon-controller/ibmon-ledger"


def test_a_write_of_a_leader_ends_before_another_can_lead():
    limit = Timing().duration - Timing().renew
    assert parse_seconds(settings("controller")["kubernetes"]["timeout"]) <= limit
    assert Timing().renew / 2 >= CALL_TIMEOUT


def parse_seconds(text):
    assert text.endswith("s")
    return float(text[:-1])


def test_the_rights_are_bound_to_the_account_of_the_pods(pod):
    account = one("controller", "rbac", "ServiceAccount")["metadata"]
    assert pod["serviceAccountName"] == account["name"]
    for bound in shipped("controller", "rbac.yaml"):
        for subject in bound.get("subjects", ()):
            assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])


def test_the_policy_speaks_of_the_taint_condition_and_account_that_are_used():
    policy, binding = shipped("controller", "policy.yaml")
    text = str(policy["spec"])
    account = one("controller", "rbac", "ServiceAccount")["metadata"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    for word in (KEY, kube_node.CONDITION, kube_node.TAINT_EFFECT, user):
        assert f'"{word}"' in text
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    assert policy["spec"]["failurePolicy"] == "Fail"


def test_the_pod_holds_the_restricted_profile(pod, container):
    namespace = one("controller", "namespace", "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
    assert {next(k for k in v if k != "name") for v in pod["volumes"]} <= {"configMap", "secret", "emptyDir"}


def test_every_file_that_the_configuration_names_is_mounted_from_a_secret(pod, container):
    secret = {v["name"] for v in pod["volumes"] if "secret" in v}
    places = {m["mountPath"] for m in container["volumeMounts"] if m["name"] in secret and m["readOnly"]}
    found = settings("controller")["controller"]
    for key in ("master_key_file", "tokens_file", "tls_cert", "tls_key"):
        assert found[key].rpartition("/")[0] in places


@pytest.mark.parametrize("overlay", ["controller", "node-controller"])
def test_no_secret_is_shipped(overlay):
    parts = PARTS if overlay == "controller" else ("config", "daemonset")
    assert "Secret" not in {o["kind"] for part in parts for o in shipped(overlay, f"{part}.yaml")}


def test_only_who_leads_is_asked(container):
    labels = one("controller", "deployment", "Deployment")["spec"]["template"]["metadata"]["labels"]
    service = one("controller", "service", "Service")["spec"]
    (port,) = container["ports"]
    assert service["selector"].items() <= labels.items()
    assert service.get("publishNotReadyAddresses") is None
    (served,) = service["ports"]
    assert (served["port"], served["targetPort"], port["containerPort"]) == (19316, port["name"], 19316)
    assert settings("controller")["controller"]["listen"] == ":19316"
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": port["name"], "scheme": "HTTPS"}
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_a_standby_that_is_never_ready_keeps_nothing_from_happening():
    deployment = one("controller", "deployment", "Deployment")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (2, {"type": "Recreate"})
    assert deployment["progressDeadlineSeconds"] == 2**31 - 1
    budget = one("controller", "deployment", "PodDisruptionBudget")["spec"]
    assert budget["minAvailable"] == 0
    assert budget["selector"] == deployment["selector"]


def test_the_network_lets_the_port_in_and_nothing_else():
    policy = one("controller", "network", "NetworkPolicy")["spec"]
    assert policy["podSelector"] == one("controller", "deployment", "Deployment")["spec"]["selector"]
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": 19316}]}]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}


def test_a_node_reports_to_the_service_with_a_key_of_its_host():
    found = settings("node-controller")
    service = one("controller", "service", "Service")["metadata"]
    assert found["action"]["scheduler"] == "controller"
    assert found["controller"]["url"] == f"https://{service['name']}.{service['namespace']}.svc:19316"
    spec = one("node-controller", "daemonset", "DaemonSet")["spec"]["template"]["spec"]
    ((mount,),) = [c["volumeMounts"] for c in spec["containers"]]
    assert (mount["mountPath"], mount["readOnly"]) == (found["controller"]["key_file"].rpartition("/")[0], True)
    ((volume),) = spec["volumes"]
    assert volume["hostPath"]["path"] == "/etc/ibmon"


def test_a_node_that_reports_has_no_right_in_the_api():
    assert "automountServiceAccountToken" not in str(shipped("node-controller", "daemonset.yaml"))
    assert one("observe", "daemonset", "DaemonSet")["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert shipped("node-controller", "kustomization.yaml")[0]["resources"] == ["../observe"]


@pytest.mark.parametrize("overlay", ["controller", "node-controller"])
def test_nothing_is_drained_before_somebody_has_said_so(overlay):
    assert settings(overlay)["action"]["mode"] == "alert"
