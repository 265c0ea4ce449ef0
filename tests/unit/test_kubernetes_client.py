"""One call to the API server, and every way in which it goes wrong: one line, in time, without a secret."""

from __future__ import annotations

import socket
import ssl
import time

import pytest
from fake_kube import FakeKube
from test_exporter_tls import Authority

from ibmon.drain import kube_client
from ibmon.drain.kube_client import STRATEGIC, Call, KubeClient, KubeError
from ibmon.drain.kube_credentials import Access
from ibmon.ports import SchedulerError

GET = Call("GET", "/api/v1/nodes/gpu-1", "get", "nodes", "node gpu-1")
PATCH = Call("PATCH", "/api/v1/nodes/gpu-1", "patch", "nodes", "node gpu-1", {}, {"spec": {}}, STRATEGIC)


@pytest.fixture
def kube():
    with FakeKube() as fake:
        fake.add("gpu-1")
        yield fake


def client(kube, token=None, timeout=20.0):
    return KubeClient(lambda: Access(kube.url, token=token or kube.admin), timeout)


def failing(kube, call=GET, **how):
    with pytest.raises(KubeError) as caught:
        client(kube, **how).send(call)
    assert kube.admin not in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


def test_an_answer_comes_with_the_clock_of_the_server(kube):
    answer = client(kube).send(GET)
    assert b'"name": "gpu-1"' in answer.body
    assert abs(answer.date - time.time()) < 60


@pytest.mark.parametrize(
    ("status", "headers", "text", "refused"),
    [
        (429, (("Retry-After", "7"),), "Kubernetes asks to be left alone for 7 s (429)", False),
        (429, (), "Kubernetes asks to be left alone (429)", False),
        (429, (("Retry-After", "soon"),), "Kubernetes asks to be left alone (429)", False),
        (500, (), "Kubernetes answered 500 to get node gpu-1: boom", False),
        (503, (), "Kubernetes answered 503 to get node gpu-1: boom", False),
        (422, (), "Kubernetes answered 422 to get node gpu-1: boom", True),
        (404, (), "Kubernetes knows no node gpu-1 (404)", True),
        (409, (), "node gpu-1 was changed by somebody else in the same moment (409)", False),
        (401, (), "Kubernetes does not accept the credentials (401): expired, or of another cluster", True),
        (302, (("Location", "http://127.0.0.1:1/"),), "Kubernetes answered 302 to get node gpu-1: boom", False),
    ],
)
def test_a_refusal_is_one_clear_line(kube, status, headers, text, refused):
    kube.fail("status", status=status, headers=headers)
    error = failing(kube)
    assert (str(error), error.status, error.refused) == (text, status, refused)
    assert not error.forbidden
    assert error.general is (status in {401, 429, 500, 503})
    assert len(kube.log) == 1


@pytest.mark.parametrize(
    ("call", "verb", "resource"),
    [
        (GET, "get", "nodes"),
        (PATCH, "patch", "nodes"),
        (PATCH._replace(resource="nodes/status"), "patch", "nodes/status"),
    ],
)
def test_a_forbidden_call_names_the_missing_verb_and_resource(kube, call, verb, resource):
    error = failing(kube, call, token=kube.token())
    assert error.forbidden
    assert f"needs the verb {verb} on {resource}" in str(error)


def test_a_policy_that_forbids_is_told_by_its_own_words(kube):
    said = b"ValidatingAdmissionPolicy 'x' with binding 'x' denied request: ibmon may change no node but its own"
    kube.fail("status", status=403, body=b'{"message":"nodes is forbidden: ' + said + b'"}')
    error = failing(kube, PATCH)
    assert error.forbidden
    assert str(error).startswith("an admission policy forbids ibmon to patch node gpu-1:")
    assert "may change no node but its own" in str(error)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"message":null}', b"\xff\xfe"])
def test_a_refusal_without_a_status_object_still_is_one(kube, body):
    kube.fail("status", status=500, body=body)
    assert str(failing(kube)) == "Kubernetes answered 500 to get node gpu-1: it said nothing"


def test_a_long_message_of_several_lines_is_cut_to_one(kube):
    kube.fail("status", status=500, body=b'{"message":"' + b"a\\nb " * 1000 + b'"}')
    assert len(str(failing(kube))) < 300


@pytest.mark.parametrize("what", ["hang", "drip"])
def test_a_server_that_does_not_come_to_an_end_is_left_in_time(kube, what):
    kube.fail(what)
    began = time.monotonic()
    error = failing(kube, timeout=0.5)
    assert time.monotonic() - began < 8  # the server would hold it for ten
    assert str(error).endswith("no answer within 0.5 s")
    assert error.status is None


@pytest.mark.parametrize("what", ["cut", "lost"])
def test_half_an_answer_is_none(kube, what):
    kube.fail(what)
    assert failing(kube).status is None


def test_an_answer_without_measure_is_refused(kube, monkeypatch):
    monkeypatch.setattr(kube_client, "LARGEST", 1 << 20)
    kube.fail("huge")
    assert "an answer of more than 1 MiB" in str(failing(kube))


def test_a_server_that_is_away_is_said_in_words():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(KubeError, match=f"Kubernetes at 127.0.0.1:{port}: connection refused") as caught:
            KubeClient(lambda: Access(f"http://127.0.0.1:{port}"), 20.0).send(GET)
    assert caught.value.general


def test_credentials_that_cannot_be_read_are_the_schedulers_trouble(kube):
    def unreadable():
        raise SchedulerError("no token")

    with pytest.raises(SchedulerError, match="no token"):
        KubeClient(unreadable, 20.0).send(GET)


def test_each_call_asks_for_the_credentials_anew(kube):
    tokens = [kube.admin, "old"]
    rotating = KubeClient(lambda: Access(kube.url, token=tokens[-1]), 20.0)
    with pytest.raises(KubeError, match="401"):
        rotating.send(GET)
    tokens.append(kube.admin)
    assert rotating.send(GET).body


# -------------------------------------------------------------------------------------------------------- TLS


@pytest.fixture
def secure(tmp_path):
    authority = Authority(tmp_path, "cluster")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))
    with FakeKube(context) as fake:
        fake.ca = authority.ca
        fake.add("gpu-1")
        yield fake


def test_a_server_of_the_clusters_authority_is_trusted(secure):
    access = Access(secure.url, context=ssl.create_default_context(cafile=secure.ca), token=secure.admin)
    assert KubeClient(lambda: access, 20.0).send(GET).body


def test_a_server_of_another_authority_never_sees_the_token(secure, tmp_path):
    other = Authority(tmp_path, "other")
    access = Access(secure.url, context=ssl.create_default_context(cafile=other.ca), token=secure.admin)
    with pytest.raises(KubeError, match="certificate"):
        KubeClient(lambda: access, 20.0).send(GET)
    assert secure.log == []


def test_a_name_that_is_demanded_must_stand_in_the_certificate(secure):
    context = ssl.create_default_context(cafile=secure.ca)
    access = Access(secure.url, context=context, token=secure.admin, server_name="kubernetes.default.svc")
    with pytest.raises(KubeError, match="certificate"):
        KubeClient(lambda: access, 20.0).send(GET)


def test_an_address_without_encryption_is_for_the_loopback_only():
    with pytest.raises(SchedulerError, match="not encrypted"):
        Access("http://10.0.0.1:8080", token="secret")


@pytest.mark.parametrize("url", ["", "10.0.0.1:6443", "ftp://a", "https://", "https://[::1"])
def test_an_address_that_is_none_is_said(url):
    with pytest.raises(SchedulerError, match="no address of an API server"):
        Access(url)


def test_a_way_shows_no_token():
    assert repr(Access("https://10.0.0.1:6443", token="secret")) == "<Access 10.0.0.1:6443>"
