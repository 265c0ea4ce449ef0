"""A real Kubernetes API on 127.0.0.1: etcd and kube-apiserver with TLS, tokens and RBAC; no kubelet, no controller.

Owns: starting and stopping them, and the objects that a site applies before ibmon runs. Must not: use anything of
ibmon.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from . import debian, kubebuild
from .processes import LOOPBACK, Process, Service, free_ports, stop_all, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable

_KINDS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    # policy/v1 came with 1.21; the beta has the same fields.
    "PodDisruptionBudget": "/apis/policy/v1beta1/namespaces/{namespace}/poddisruptionbudgets",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
}

_EXTENSIONS = """\
subjectAltName=IP:127.0.0.1,DNS:localhost
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
"""


@final
class KubeServer(Service):
    """The API of a cluster; a context manager.

    Attributes:
        url: its address.
        ca: file with the authority that has signed its certificate.
        admin: a token that may do everything.
    """

    def __init__(self) -> None:
        self._apiserver = kubebuild.apiserver()
        self._etcd = debian.unpacked("etcd-server") / "usr/bin/etcd"
        self.directory = Path(tempfile.mkdtemp(prefix="ibmon-kubernetes."))
        self.admin = f"admin-{secrets.token_hex(16)}"
        self.ca = str(self.directory / "ca.crt")
        self.url = ""
        self._processes: list[Process] = []

    def __exit__(self, *_: object) -> None:
        try:
            stop_all(reversed(self._processes))
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        self._write_keys()
        client, peer, port = free_ports(3)
        etcd = f"http://{LOOPBACK}:{client}"
        self._launch(
            self._etcd,
            f"--data-dir={self.directory}/etcd",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://{LOOPBACK}:{peer}",
            f"--initial-advertise-peer-urls=http://{LOOPBACK}:{peer}",
            f"--initial-cluster=default=http://{LOOPBACK}:{peer}",
        )
        wait_for(lambda: self._answers(f"{etcd}/health"), within=30, what="etcd")
        self.url = f"https://{LOOPBACK}:{port}"
        self._launch(
            self._apiserver,
            f"--etcd-servers={etcd}",
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            f"--secure-port={port}",
            "--tls-cert-file=server.crt",
            "--tls-private-key-file=server.key",
            f"--cert-dir={self.directory}",
            "--token-auth-file=tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            "--service-account-key-file=accounts.key",
            "--service-account-signing-key-file=accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc",
        )
        wait_for(lambda: self._answers(f"{self.url}/readyz"), within=120, what="kube-apiserver", every=0.2)
        system = "/api/v1/namespaces/default"
        wait_for(lambda: self.request("GET", system)[0] == 200, within=30, what="the namespace default", every=0.2)

    def _write_keys(self) -> None:
        """An authority, a certificate for 127.0.0.1 that it has signed, and the key of service account tokens."""
        (self.directory / "extensions").write_text(_EXTENSIONS)
        tokens = self.directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f"{self.admin},admin,admin,system:masters\n")
        authority = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        for command in (
            ("genrsa", "-out", "accounts.key", "2048"),
            ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test-ca",
             "-keyout", "ca.key", "-out", "ca.crt", *authority),
            ("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kube-apiserver", "-keyout", "server.key",
             "-out", "server.csr"),
            ("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
             "-extfile", "extensions", "-out", "server.crt"),
        ):  # fmt: skip
            subprocess.run(["openssl", *command], check=True, capture_output=True, cwd=self.directory, timeout=60)

    def _launch(self, program: Path, *arguments: str) -> None:
        log = self.directory / f"{program.name}.log"
        # The server's file options are relative to its directory, so that no path is in its arguments twice.
        argv = ["env", f"--chdir={self.directory}", program, *arguments]
        self._processes.append(Process(argv, log, env=os.environ))

    def _answers(self, url: str) -> bool:
        for process in self._processes:
            process.must_run()
        try:
            with urllib.request.urlopen(self._made("GET", url, None), timeout=2, context=self._trust(url)) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    # ---------------------------------------------------------------------------------------------- the administrator

    def request(self, method: str, path: str, body: Any = None, *, token: str = "") -> tuple[int, Any]:
        """One request as administrator, or as whose the token is; status and decoded answer."""
        url = self.url + path
        made = self._made(method, url, body, token)
        try:
            with urllib.request.urlopen(made, timeout=10, context=self._trust(url)) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"{}")

    def apply(self, objects: Iterable[dict[str, Any]], *, dry_run: bool = False) -> None:
        """Creates what is not there yet; raises AssertionError with the server's words where it refuses."""
        for found in objects:
            body = found | {"apiVersion": "policy/v1beta1"} if found["apiVersion"] == "policy/v1" else found
            path = _KINDS[found["kind"]].format(namespace=found["metadata"].get("namespace"))
            status, answer = self.request("POST", path + ("?dryRun=All" if dry_run else ""), body)
            assert status in {201, 409}, (found["kind"], found["metadata"]["name"], answer)

    def account_token(self, namespace: str, name: str) -> str:
        """A token of a service account, as the kubelet gets one for a pod."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        status, answer = self.request("POST", path, body)
        assert status == 201, answer
        return str(answer["status"]["token"])

    def wait_for_rights(self, token: str, *, absent: str = "") -> None:
        """Waits until a token of ours may read nodes, write events and ask for `absent`, which is not there.

        Rights are in force some milliseconds after they were written.
        """
        event = {"metadata": {"generateName": "x-"}, "involvedObject": {"kind": "Node", "name": "x"}, "reason": "X"}
        tried: list[tuple[str, str, Any, int]] = [
            ("GET", "/api/v1/nodes?limit=1", None, 200),
            ("POST", "/api/v1/namespaces/default/events?dryRun=All", event, 201),
            *([("GET", absent, None, 404)] if absent else []),
        ]

        def granted() -> bool:
            return all(self.request(how, path, body, token=token)[0] == status for how, path, body, status in tried)

        wait_for(granted, within=20, what="the rights of a service account")

    def _made(self, method: str, url: str, body: Any, token: str = "") -> urllib.request.Request:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token or self.admin}"}
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.Request(url, method=method, data=data, headers=headers)

    def _trust(self, url: str) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=self.ca) if url.startswith("https:") else None
