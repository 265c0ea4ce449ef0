"""Whom to ask and as whom: the pod's service account and kubeconfig files, right and wrong."""

from __future__ import annotations

import base64
import json
import ssl
import sys
from pathlib import Path

import pytest
import yaml
from fake_kube import FakeKube
from test_exporter_tls import Authority

from ibmon.drain.kube_client import Call, KubeClient, KubeError
from ibmon.drain.kube_credentials import CredentialsError, find, from_kubeconfig, in_cluster

GET = Call("GET", "/api/v1/nodes/gpu-1", "get", "nodes", "node gpu-1")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"), "cluster")


def server(authority, **context_settings):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))
    if context_settings.get("client_certificates"):
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.ca)
    fake = FakeKube(context)
    fake.add("gpu-1")
    return fake


def account(directory: Path, authority, token: str) -> Path:
    (directory / "token").write_text(token + "\n")
    (directory / "ca.crt").write_text(Path(authority.ca).read_text())
    return directory


def config(tmp_path, cluster=None, user=None, *, dump=yaml.safe_dump, **top) -> Path:
    file = tmp_path / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "x"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "preferences": {},
    }
    file.write_text(dump(content | top))
    return file


def b64(path) -> str:
    return base64.b64encode(Path(path).read_bytes()).decode()


# ---------------------------------------------------------------------------------------------------- in a pod


def test_a_pods_service_account_is_used_and_its_token_read_for_each_call(tmp_path, authority):
    with server(authority) as fake:
        account(tmp_path, authority, "expired")
        port = fake.url.rpartition(":")[2]
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        client = KubeClient(lambda: find("", "", environ, tmp_path), 5.0)
        with pytest.raises(KubeError, match="401"):
            client.send(GET)
        (tmp_path / "token").write_text(fake.admin)
        assert client.send(GET).body


def test_a_rotated_authority_is_taken_over(tmp_path, authority):
    with server(authority) as fake:
        account(tmp_path, Authority(tmp_path, "former"), fake.admin)
        port = fake.url.rpartition(":")[2]
        client = KubeClient(lambda: in_cluster("127.0.0.1", port, tmp_path), 5.0)
        with pytest.raises(KubeError, match="certificate"):
            client.send(GET)
        account(tmp_path, authority, fake.admin)
        assert client.send(GET).body


def test_an_address_of_ipv6_is_one(tmp_path, authority):
    access = in_cluster("fd00::1", "443", account(tmp_path, authority, "t"))
    assert (access.host, access.port) == ("fd00::1", 443)


def test_outside_of_a_pod_a_kubeconfig_is_asked_for():
    with pytest.raises(CredentialsError, match="set kubeconfig"):
        find("", "", {})


@pytest.mark.parametrize(
    ("missing", "text"),
    [("token", "token cannot be read: no such file"), ("ca.crt", "ca.crt cannot be read: no such file")],
)
def test_a_mount_that_lacks_a_file_is_named(tmp_path, authority, missing, text):
    account(tmp_path, authority, "t")
    (tmp_path / missing).unlink()
    with pytest.raises(CredentialsError, match=text):
        in_cluster("10.0.0.1", "443", tmp_path)


def test_an_empty_token_is_none(tmp_path, authority):
    with pytest.raises(CredentialsError, match="token is empty"):
        in_cluster("10.0.0.1", "443", account(tmp_path, authority, " "))


def test_an_authority_that_is_none_is_said(tmp_path, authority):
    account(tmp_path, authority, "t")
    (tmp_path / "ca.crt").write_text("rubbish")
    with pytest.raises(CredentialsError, match="no PEM certificate"):
        in_cluster("10.0.0.1", "443", tmp_path)


# -------------------------------------------------------------------------------------------------- kubeconfig


@pytest.mark.parametrize("dump", [yaml.safe_dump, json.dumps])
@pytest.mark.parametrize("inline", [True, False])
def test_a_token_and_an_authority_work_from_yaml_and_json_inline_and_by_file(tmp_path, authority, dump, inline):
    with server(authority) as fake:
        (tmp_path / "token").write_text(f"{fake.admin}\n")
        (tmp_path / "ca").write_text(Path(authority.ca).read_text())
        ca = {"certificate-authority-data": b64(authority.ca)} if inline else {"certificate-authority": "ca"}
        user = {"token": fake.admin} if inline else {"tokenFile": "token"}
        file = config(tmp_path, {"server": fake.url, **ca}, user, dump=dump)
        assert KubeClient(lambda: find(str(file), "", {}), 5.0).send(GET).body


@pytest.mark.parametrize("inline", [True, False])
def test_a_client_certificate_is_shown(tmp_path, authority, inline):
    certificate, key = authority.issue("client")
    with server(authority, client_certificates=True) as fake:
        names = ("client-certificate-data", "client-key-data") if inline else ("client-certificate", "client-key")
        values = (b64(certificate), b64(key)) if inline else (certificate, key)
        user = dict(zip(names, values, strict=True)) | {"token": fake.admin}
        cluster = {"server": fake.url, "certificate-authority": authority.ca}
        assert KubeClient(lambda: from_kubeconfig(config(tmp_path, cluster, user)), 5.0).send(GET).body
        with pytest.raises(KubeError):
            KubeClient(lambda: from_kubeconfig(config(tmp_path, cluster, {"token": fake.admin})), 5.0).send(GET)


def test_another_context_can_be_named(tmp_path):
    contexts = [{"name": n, "context": {"cluster": n, "user": "u"}} for n in ("a", "b")]
    clusters = [{"name": n, "cluster": {"server": f"https://{n}.example.org"}} for n in ("a", "b")]
    file = config(tmp_path, contexts=contexts, clusters=clusters, **{"current-context": "a"})
    assert from_kubeconfig(file).host == "a.example.org"
    assert from_kubeconfig(file, "b").host == "b.example.org"
    with pytest.raises(CredentialsError, match="has no context 'c'; it has a, b"):
        from_kubeconfig(file, "c")


@pytest.mark.parametrize(
    ("cluster", "user", "text"),
    [
        ({}, {"exec": {"command": "aws"}}, "exec plugins are not supported"),
        ({}, {"auth-provider": {"name": "gcp"}}, "auth providers are not supported"),
        ({}, {"username": "a", "password": "hunter2"}, "passwords are not supported"),
        ({"proxy-url": "http://proxy"}, {}, "proxies are not supported"),
        ({"insecure-skip-tls-verify": True}, {}, "TLS without verification are not supported"),
        ({"certificate-authority-data": "%%%"}, {}, "certificate-authority-data is no base64"),
        ({"certificate-authority": "nowhere"}, {}, "nowhere cannot be read"),
        ({}, {"tokenFile": "nowhere"}, "nowhere cannot be read"),
        ({}, {"client-key-data": "aGk="}, "only one of client-certificate and client-key"),
        ({}, {"client-certificate-data": "aGk=", "client-key-data": "aGk="}, "do not fit or are no PEM"),
        ({"server": "http://10.0.0.1"}, {}, "not encrypted"),
        ({"server": ""}, {}, "no address of an API server"),
    ],
)
def test_what_is_not_understood_is_said_and_not_guessed(tmp_path, cluster, user, text):
    with pytest.raises(CredentialsError, match=text) as caught:
        from_kubeconfig(config(tmp_path, cluster, user))
    assert "hunter2" not in str(caught.value)


def test_an_encrypted_key_asks_nobody_for_its_password(tmp_path, authority):
    certificate, key = authority.issue("sealed", b"hunter2")
    user = {"client-certificate": certificate, "client-key": key}
    with pytest.raises(CredentialsError, match="do not fit or are no PEM"):
        from_kubeconfig(config(tmp_path, {}, user))


@pytest.mark.parametrize(
    "text", ["users: [token: s3cret", "\t- s3cret", '{"users": s3cret', "[1, 2]", "users: s3cret", "", "\x00"]
)
def test_a_file_that_is_no_kubeconfig_is_named_and_not_quoted(tmp_path, text):
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(CredentialsError, match=str(file)) as caught:
        from_kubeconfig(file)
    assert "s3cret" not in str(caught.value)


def test_yaml_without_its_library_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(CredentialsError, match=r"install ibmon\[kubernetes\]"):
        from_kubeconfig(config(tmp_path))
