"""The ledger in a ConfigMap: whole or not at all, whatever the server does, and never over what another one wrote."""

from __future__ import annotations

import base64
import gzip
import random

import pytest
from fake_kube import FakeKube, Right
from kube_controller_contract import LEDGER, LEDGER_PATH, NAMESPACE
from test_kubernetes_contract import shipped_rights

from ibmon.controller.configmap import KEY, WRITER, ConfigMapLedger, LedgerConflict
from ibmon.drain.kube_client import KubeClient
from ibmon.drain.kube_credentials import Access
from ibmon.ports import StoreError


@pytest.fixture
def kube():
    with FakeKube() as fake:
        yield fake


def ledger(kube, *missing, timeout=20.0):
    token = kube.token(*(set(shipped_rights("controller")) - set(missing)))
    return ConfigMapLedger(KubeClient(lambda: Access(kube.url, token=token), timeout), NAMESPACE, LEDGER)


def held(kube):
    return kube.objects.held["configmaps", NAMESPACE, LEDGER]


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_write_whose_answer_was_lost_is_found_to_be_ours(kube, method):
    mine = ledger(kube)
    if method == "PUT":
        mine.save(b"0")
    kube.fail("lost", method=method)
    with pytest.raises(StoreError):
        mine.save(b"1")
    assert ledger(kube).load() == b"1"
    mine.save(b"2")
    assert ledger(kube).load() == b"2"


def test_a_write_that_never_arrived_is_simply_made_again(kube):
    mine = ledger(kube)
    mine.save(b"0")
    kube.fail("status", method="PUT", times=2)
    for _ in range(2):
        with pytest.raises(StoreError, match="Kubernetes answered 500"):
            mine.save(b"1")
    assert ledger(kube).load() == b"0"
    mine.save(b"1")
    assert ledger(kube).load() == b"1"


def test_another_instance_that_wrote_after_a_lost_answer_is_not_overwritten(kube):
    mine, theirs = ledger(kube), ledger(kube)
    mine.save(b"0")
    kube.fail("lost", method="PUT")
    with pytest.raises(StoreError):
        mine.save(b"1")
    theirs.load()
    theirs.save(b"theirs")
    for _ in range(3):
        with pytest.raises(LedgerConflict, match="another instance"):
            mine.save(b"2")
    assert ledger(kube).load() == b"theirs"


def test_an_instance_that_writes_between_the_two_tries_is_not_overwritten(kube):
    mine, theirs = ledger(kube), ledger(kube)
    mine.save(b"0")
    kube.fail("lost", method="PUT")
    with pytest.raises(StoreError):
        mine.save(b"1")
    writes = []

    def before(method, _path):
        if method == "PUT":
            writes.append(method)
            if len(writes) == 2:
                kube.before = lambda *_: None
                theirs.load()
                theirs.save(b"theirs")

    kube.before = before
    with pytest.raises(LedgerConflict):
        mine.save(b"2")
    assert ledger(kube).load() == b"theirs"


def test_a_hand_in_the_configmap_is_a_conflict_that_says_whose(kube):
    mine = ledger(kube)
    mine.save(b"0")
    held(kube)["metadata"]["resourceVersion"] = "7"
    del held(kube)["metadata"]["annotations"][WRITER]
    with pytest.raises(LedgerConflict, match="no ibmon"):
        mine.save(b"1")


@pytest.mark.parametrize(("verb", "name"), [("get", LEDGER), ("create", None), ("update", LEDGER)])
def test_a_right_that_is_missing_is_named(kube, verb, name):
    mine = ledger(kube, Right(verb, "configmaps", NAMESPACE, name))
    with pytest.raises(StoreError, match=f"needs the verb {verb} on configmaps"):  # noqa: PT012 (which one it meets)
        mine.load()
        mine.save(b"0")
        mine.save(b"1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!!!",
        base64.b64encode(b"plain").decode(),
        base64.b64encode(gzip.compress(b"x" * 1000, mtime=0)[:-9]).decode(),
        base64.b64encode(gzip.compress(b"x", mtime=0) + b"more").decode(),
        base64.b64encode(gzip.compress(bytes(65 * 1024 * 1024), mtime=0)).decode(),
    ],
)
def test_a_ledger_that_is_damaged_is_an_error_and_no_empty_one(kube, text):
    mine = ledger(kube)
    mine.save(b"0")
    held(kube)["binaryData"][KEY] = text
    with pytest.raises(StoreError, match="is damaged"):
        ledger(kube).load()


@pytest.mark.parametrize("body", [b"", b"[]", b'{"metadata":{"name":"ibmon-ledger"}}', b"%d"])
def test_an_answer_that_is_no_configmap_is_an_error_and_no_empty_ledger(kube, body):
    for values in (b"[]", b'{"ledger":7}'):
        found = b'{"metadata":{"name":"ibmon-ledger","resourceVersion":"1"},"binaryData":%s}' % values
        kube.fail("garbage", body=found if body == b"%d" else body)
        with pytest.raises(StoreError):
            ledger(kube).load()


@pytest.mark.parametrize("binary", [None, {}, {"other": "eA=="}])
def test_a_configmap_without_the_key_is_no_ledger_yet(kube, binary):
    mine = ledger(kube)
    mine.save(b"0")
    held(kube)["binaryData"] = binary
    fresh = ledger(kube)
    assert fresh.load() is None
    fresh.save(b"1")
    assert ledger(kube).load() == b"1"


def test_one_that_is_too_large_is_refused_before_anything_is_sent(kube):
    mine = ledger(kube)
    with pytest.raises(StoreError, match=r"takes \d+ bytes compressed .* end maintenance windows"):
        mine.save(random.Random(1).randbytes(1024 * 1024))
    assert kube.log == []


def test_a_document_that_compresses_well_may_be_larger(kube):
    document = b"ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s " * 100_000
    ledger(kube).save(document)
    assert ledger(kube).load() == document


def test_the_same_document_twice_is_the_same_object(kube):
    mine = ledger(kube)
    mine.save(b"0")
    version = held(kube)["metadata"]["resourceVersion"]
    mine.save(b"0")
    assert held(kube)["metadata"]["resourceVersion"] == version


def test_it_writes_one_object_and_nothing_else(kube):
    mine = ledger(kube)
    mine.load()
    mine.save(b"0")
    mine.save(b"1")
    mine.load()
    assert {path.partition("?")[0] for path in kube.calls()} == {LEDGER_PATH, LEDGER_PATH.rpartition("/")[0]}
    assert {method for method, _ in kube.log} == {"GET", "POST", "PUT"}
