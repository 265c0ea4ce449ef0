"""What deploy/kubernetes makes: put together by kubectl, and held to the published schemas of several versions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from services import kustomize

# The first with the policies that are shipped, and the newest that is known.
VERSIONS = ("1.30.0", "1.37.0")


@pytest.fixture(scope="module")
def tools() -> Path:
    return kustomize.tools()


@pytest.fixture(params=kustomize.OVERLAYS)
def rendered(request, tmp_path) -> Path:
    """All objects of an overlay in one file."""
    file = tmp_path / f"{request.param}.yaml"
    file.write_text(kustomize.rendered(request.param))
    return file


def validate(tools: Path, file: Path, version: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kubernetes_validate", "--strict", "-k", version, file],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tools)},
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_what_its_schema_says_and_nothing_more(tools, rendered, version):
    count = len([document for document in yaml.safe_load_all(rendered.read_text()) if document])
    done = validate(tools, rendered, version)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count(" passed for resource ") == count


def test_a_misspelt_key_would_be_found(tools, rendered):
    text = rendered.read_text()
    assert "readOnlyRootFilesystem" in text
    rendered.write_text(text.replace("readOnlyRootFilesystem", "readOnlyRootFileSystem"))
    assert validate(tools, rendered, VERSIONS[0]).returncode != 0


@pytest.mark.parametrize(
    ("overlay", "scheduler", "token"),
    [("observe", None, False), ("node-direct", "kubernetes", True), ("node-controller", "controller", False)],
)
def test_an_overlay_of_the_daemon_changes_what_it_must_and_keeps_the_rest(overlay, scheduler, token):
    objects = {found["kind"]: found for found in kustomize.built(overlay)}
    pod = objects["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is token
    assert ("ClusterRole" in objects) is token
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/etc/ibmon", "/host/sys", "/var/lib/ibmon", "/run/ibmon"} <= mounted
    assert ("/host/etc/ibmon" in mounted) is (scheduler == "controller")
    text = objects["ConfigMap"]["data"]["ibmon.toml"]
    assert scheduler is None or f'scheduler = "{scheduler}"' in text
