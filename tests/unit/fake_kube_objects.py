"""Leases and ConfigMaps of the small API server: objects in a namespace that are written whole, under a version.

Owns how the real server was seen to answer for them (`kube_contract.py`). Must not know ibmon, or who may do what.
"""

from __future__ import annotations

import base64
import copy
import itertools
import secrets
from typing import Any

LARGEST = 1024 * 1024
_RESOURCES = {
    ("api", "v1", "configmaps"): "configmaps",
    ("api", "v1", "secrets"): "secrets",
    ("apis", "coordination.k8s.io", "v1", "leases"): "leases.coordination.k8s.io",
}
_VERBS = {"GET": "get", "PUT": "update", "DELETE": "delete"}


class RefusedError(Exception):
    """An answer that is a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


class Asked:
    """What a path means: resource, namespace, name (None for the collection); falsy for a path of something else."""

    def __init__(self, method: str, path: tuple[str, ...]) -> None:
        head = path.index("namespaces") if "namespaces" in path else 0
        self.namespace, *rest = path[head + 1 :] if head else [""]
        self.resource = _RESOURCES.get((*path[:head], *rest[:1]), "")
        self.name = rest[1] if len(rest) == 2 else None
        self.verb = ("create" if method == "POST" else "list") if self.name is None else _VERBS[method]

    def __bool__(self) -> bool:
        return bool(self.resource)


class Objects:
    """All of them, by resource, namespace and name."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._versions = itertools.count(1000)

    def carry_out(self, asked: Asked, data: Any) -> tuple[int, dict[str, Any]]:
        if asked.verb == "create":
            return 201, self._create(asked, data)
        if asked.name is None:
            place = (asked.resource, asked.namespace)
            return 200, {"items": [found for at, found in self.held.items() if at[:2] == place]}
        key = (asked.resource, asked.namespace, asked.name)
        if key not in self.held:
            if asked.verb == "update" and data["metadata"].get("uid"):
                raise RefusedError(409, "Conflict", "Precondition failed: UID in precondition, UID in object meta: ")
            raise RefusedError(404, "NotFound", f'{asked.resource} "{asked.name}" not found')
        if asked.verb == "delete":
            return 200, self.held.pop(key)
        return 200, copy.deepcopy(self.held[key]) if asked.verb == "get" else self._replace(key, data)

    def _create(self, asked: Asked, data: Any) -> dict[str, Any]:
        name = data["metadata"]["name"]
        key = (asked.resource, asked.namespace, name)
        if key in self.held:
            raise RefusedError(409, "AlreadyExists", f'{asked.resource} "{name}" already exists')
        _validate(data)
        return self._keep(key, data | {"metadata": data["metadata"] | {"uid": secrets.token_hex(8)}})

    def _replace(self, key: tuple[str, str, str], data: Any) -> dict[str, Any]:
        _validate(data)
        known = self.held[key]
        if data["metadata"].get("resourceVersion") != known["metadata"]["resourceVersion"]:
            raise RefusedError(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {key[0]} "{key[2]}": the object has been modified; please apply '
                "your changes to the latest version and try again",
            )
        return copy.deepcopy(known) if data == known else self._keep(key, data)

    def _keep(self, key: tuple[str, str, str], data: dict[str, Any]) -> dict[str, Any]:
        kept = copy.deepcopy(data)
        kept["metadata"] |= {"namespace": key[1], "resourceVersion": str(next(self._versions))}
        self.held[key] = kept
        return copy.deepcopy(kept)


def _validate(data: dict[str, Any]) -> None:
    size = sum(len(base64.b64decode(text)) for text in (data.get("binaryData") or {}).values())
    if size + sum(len(text.encode()) for text in (data.get("data") or {}).values()) > LARGEST:
        raise RefusedError(422, "Invalid", f"[]: Too long: must have at most {LARGEST} bytes")
    if data.get("kind") == "Lease" and data["spec"].get("leaseDurationSeconds", 1) < 1:
        raise RefusedError(422, "Invalid", "spec.leaseDurationSeconds: Invalid value: must be greater than 0")
