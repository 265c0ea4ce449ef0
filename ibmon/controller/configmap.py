"""The controller's ledger in a ConfigMap: one document, read and replaced as a whole.

It knows nothing of what the document says. A write happens under the version that was read, so of two instances that
both believe to lead only one can write.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import secrets
import zlib
from typing import Final

import msgspec

from ibmon.controller.keeping import LedgerConflict
from ibmon.controller.kubeobject import KubeObject
from ibmon.drain.kube_client import KubeClient, KubeError
from ibmon.ports import SchedulerError, StoreError

KEY: Final = "ledger"
"""The key in `binaryData`."""
WRITER: Final = "ibmon.dev/writer"
"""The annotation that says which instance wrote last."""
LARGEST: Final = 1024 * 1024
"""Bytes that a ConfigMap may hold in all its values (Kubernetes: MaxSecretSize)."""
_UNPACKED: Final = 64 * 1024 * 1024


class ConfigMapLedger:
    """A document in ``binaryData["ledger"]``, compressed by gzip. Not for several threads at a time.

    A new leader that saves what it has loaded shuts out every older one, which can save nothing after that.

    Args:
        client: makes the calls.
        namespace: where the ConfigMap is.
        name: what it is called.
    """

    def __init__(self, client: KubeClient, namespace: str, name: str) -> None:
        self._object = KubeObject(client, "v1", "ConfigMap", namespace, name)
        self._writer = secrets.token_hex(8)

    def load(self) -> bytes | None:
        """The document, None where there is none yet; StoreError where it cannot be had whole."""
        try:
            self._object.read()
            text = self._values().get(KEY)
        except SchedulerError as error:
            raise StoreError(str(error)) from None
        return None if text is None else self._unpacked(text)

    def save(self, data: bytes) -> None:
        """Replace the document; when it returns, the server has it. Made where it is absent.

        Raises:
            LedgerConflict: another instance wrote after this one had loaded or saved last. Nothing was written.
            StoreError: it is too large, or the server did not take it. Where no answer came it may have been written
                all the same; the next `save` finds that out.
        """
        packed = gzip.compress(data, mtime=0)
        if len(packed) > LARGEST:
            raise StoreError(
                f"the ledger takes {len(packed)} bytes compressed and {self._object.about} holds at most {LARGEST}: "
                "end maintenance windows and release drains that are done with"
            )
        try:
            self._replace(packed)
        except SchedulerError as error:
            raise StoreError(str(error)) from None

    def _replace(self, packed: bytes) -> None:
        try:
            self._write(packed)
        except KubeError as error:
            if not (error.conflict or error.missing):
                raise
            self._adopt()
            self._write_again(packed)

    def _write(self, packed: bytes) -> None:
        self._object.write(
            metadata={"annotations": {WRITER: self._writer}},
            binaryData=self._values() | {KEY: base64.b64encode(packed).decode("ascii")},
        )

    def _values(self) -> dict[str, str]:
        """All keys of `binaryData` as they were found."""
        try:
            return msgspec.convert((self._object.found or {}).get("binaryData"), dict[str, str] | None) or {}
        except msgspec.ValidationError as error:
            raise SchedulerError(f"{self._object.about} is none: {error}") from None

    def _write_again(self, packed: bytes) -> None:
        try:
            self._write(packed)
        except KubeError as error:
            if error.conflict:
                raise self._conflict("another instance") from None
            raise

    def _adopt(self) -> None:
        """Go on from a write of our own of which no answer came, or from nothing; else LedgerConflict.

        Ours happened only on top of a version that was known here, so nobody's is lost under it.
        """
        known = self._object.found
        found = self._object.read()
        writer = ((found or {}).get("metadata", {}).get("annotations") or {}).get(WRITER)
        if found is not None and writer != self._writer:
            self._object.found = known
            raise self._conflict(f"another instance ({writer or 'no ibmon'})")

    def _conflict(self, who: str) -> LedgerConflict:
        return LedgerConflict(f"{who} has written {self._object.about} meanwhile: load it before it is saved again")

    def _unpacked(self, text: str) -> bytes:
        unpacking = zlib.decompressobj(wbits=31)  # gzip
        try:
            data = unpacking.decompress(base64.b64decode(text, validate=True), _UNPACKED)
        except (binascii.Error, ValueError, zlib.error):
            data, whole = b"", False
        else:
            whole = unpacking.eof and not unpacking.unused_data
        if not whole:
            raise StoreError(
                f"the key {KEY} of {self._object.about} is damaged: put back a copy, or delete the ConfigMap to begin "
                "anew (drains of the controller that stand are then nobody's: ibmon release)"
            )
        return data
