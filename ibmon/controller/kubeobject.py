"""One object in a namespace that is read and written whole, under the version that was read last.

It knows versions and refusals, not what the object holds. What others wrote into it is written back.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from ibmon.drain.kube_client import Call, KubeClient, KubeError, decode
from ibmon.ports import SchedulerError

# RFC 1123; also keeps a name from being another path.
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_WRITER: Final = {"fieldManager": "ibmon"}


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str  # a write without one would be a write on top of whatever is there
    annotations: dict[str, str] | None = None


class _Shape(msgspec.Struct):
    metadata: _Metadata


class KubeObject:
    """Calls raise KubeError (SchedulerError); its `conflict` means that somebody else has written meanwhile.

    Args:
        client: makes the calls.
        api: the version of the API, ``v1`` or ``group/version``.
        kind: as the object itself says, ``ConfigMap``.
        namespace: where it is; ValueError for what cannot be one.
        name: what it is called; ValueError too.
    """

    def __init__(self, client: KubeClient, api: str, kind: str, namespace: str, name: str) -> None:
        for word in (namespace, name):
            if not _NAME.fullmatch(word):
                raise ValueError(f"{word!r} is no name in Kubernetes; write NAMESPACE/NAME in small letters")
        group = api.partition("/")[0] if "/" in api else ""
        plural = f"{kind.lower()}s"
        self._client = client
        self._frame = {"apiVersion": api, "kind": kind}
        self._metadata = {"name": name, "namespace": namespace}
        self._path = f"/{'apis' if group else 'api'}/{api}/namespaces/{namespace}/{plural}"
        self._resource = f"{plural}.{group}" if group else plural
        self.about = f"{kind.lower()} {namespace}/{name}"
        """The object as people call it."""
        self.found: dict[str, Any] | None = None
        """The object as it was read or written last, None where there was none: what the next write begins with."""

    def read(self) -> dict[str, Any] | None:
        """The object, None where there is none."""
        path = f"{self._path}/{self._metadata['name']}"
        try:
            answer = self._client.send(Call("GET", path, "get", self._resource, self.about))
        except KubeError as error:
            if not error.missing:
                raise
            self.found = None
        else:
            self.found = self._checked(answer.body)
        return self.found

    def write(self, **parts: Any) -> dict[str, Any]:
        """Put these parts in the place of those that were found, and make the object where there was none.

        `metadata` is added to what is there; every other part replaces the one of its name.
        """
        found = self.found
        metadata = self._metadata | (found or {}).get("metadata", {})
        metadata |= {key: {**(metadata.get(key) or {}), **value} for key, value in parts.pop("metadata", {}).items()}
        body = (found or {}) | self._frame | parts | {"metadata": metadata}
        if found is None:
            call = Call("POST", self._path, "create", self._resource, self.about, _WRITER, body)
        else:
            path = f"{self._path}/{self._metadata['name']}"
            call = Call("PUT", path, "update", self._resource, self.about, _WRITER, body)
        self.found = written = self._checked(self._client.send(call).body)
        return written

    @property
    def version(self) -> str:
        """The version of `found`, empty where there is none."""
        return str((self.found or {}).get("metadata", {}).get("resourceVersion", ""))

    def _checked(self, body: bytes) -> dict[str, Any]:
        shape = decode(body, _Shape, self.about)
        if shape.metadata.name != self._metadata["name"] or not shape.metadata.resource_version:
            raise SchedulerError(f"Kubernetes answered with something that is not {self.about}")
        return decode(body, dict[str, Any], self.about)
