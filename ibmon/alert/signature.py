"""Signing as Standard Webhooks 1.0 says (https://www.standardwebhooks.com), and the file that holds the secret.

A secret is in no error, no log line and no repr.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from pathlib import Path
from typing import Final

PREFIX: Final = "whsec_"
_MIN, _MAX = 24, 64  # bytes of a secret, by the standard
_MAX_FILE: Final = 4096


class SecretError(Exception):
    """The secret cannot be used; the text names the file and never what is in it."""


def parse_secrets(text: str, where: str) -> tuple[bytes, ...]:
    """The secrets of a file: one a line, the newest first, each ``whsec_`` and base64. SecretError otherwise."""
    secrets = []
    for number, line in enumerate(text.splitlines(), 1):
        if not (word := line.strip()):
            continue
        try:
            secret = base64.b64decode(word.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise SecretError(f"{where}, line {number}: not a secret; write {PREFIX} and base64") from None
        if not _MIN <= len(secret) <= _MAX:
            raise SecretError(f"{where}, line {number}: a secret has {_MIN} to {_MAX} bytes, not {len(secret)}")
        secrets.append(secret)
    if not secrets:
        raise SecretError(f"{where} is empty; write {PREFIX} and base64 into it")
    return tuple(secrets)


def sign(secrets: tuple[bytes, ...], message_id: str, timestamp: int, body: bytes) -> str:
    """The webhook-signature header: one ``v1,...`` for each secret, so that a receiver can change them in peace."""
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    digests = (hmac.new(secret, signed, hashlib.sha256).digest() for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


class SecretFile:
    """The secrets in a file, read again when the file changes."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._secrets: tuple[bytes, ...] = ()

    def secrets(self) -> tuple[bytes, ...]:
        """What the file holds now; SecretError where it cannot be read or used."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                seen = (status.st_mtime_ns, status.st_ino, status.st_size)
                if seen != self._seen:
                    text = file.read(_MAX_FILE).decode("ascii", "replace")
                    self._secrets, self._seen = parse_secrets(text, str(self._path)), seen
        except OSError as error:
            raise SecretError(f"{self._path} cannot be read: {error.strerror}") from None
        return self._secrets
