"""Basic authentication against a file of users.

Owns the file's format and the comparison. One user a line, `#` starts a comment:

    prometheus:secret
    grafana:{SHA256}2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b

The second form is the SHA-256 of the password in hexadecimal. It keeps a password out of sight, but a short one can
be guessed from it: use long random ones. The file must not be readable by everybody.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from ibmon.exporter.errors import ExporterError

_HASHED = "{SHA256}"
_NOBODY = hashlib.sha256(os.urandom(32)).digest()


class Users:
    """The users of a file and the digests of their passwords."""

    def __init__(self, digests: Mapping[str, bytes]) -> None:
        self._digests = dict(digests)

    def admit(self, header: str | None) -> bool:
        """Whether an Authorization header names a user with the right password; the time it takes tells nothing."""
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            user, colon, password = base64.b64decode(token.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        known = self._digests.get(user, _NOBODY)
        return hmac.compare_digest(known, hashlib.sha256(password.encode()).digest()) and bool(colon)


def load_users(path: str) -> Users | None:
    """The users of `exporter.basic_auth_file`; None where no file is configured.

    Raises:
        ExporterError: the file cannot be read, is open to everybody, is empty, or a line is not of its format.
    """
    if not path:
        return None
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read().decode()
    except OSError as error:
        raise ExporterError(f"exporter.basic_auth_file: {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ExporterError(f"exporter.basic_auth_file: {path} is not UTF-8 text") from error
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ExporterError(f"exporter.basic_auth_file: {path} is open to everybody; run: chmod 640 {path}")
    users = dict(_parse(path, text))
    if not users:
        raise ExporterError(f"exporter.basic_auth_file: {path} names no user; write lines of the form user:password")
    return Users(users)


def _parse(path: str, text: str) -> Iterator[tuple[str, bytes]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user, _, password = line.partition(":")
        if not user or not password:
            raise ExporterError(f"exporter.basic_auth_file: {path}:{number} is not of the form user:password")
        yield user, _digest(path, number, password)


def _digest(path: str, number: int, password: str) -> bytes:
    if not password.startswith(_HASHED):
        return hashlib.sha256(password.encode()).digest()
    try:
        digest = bytes.fromhex(password.removeprefix(_HASHED).strip())
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise ExporterError(f"exporter.basic_auth_file: {path}:{number}: {_HASHED} needs 64 hexadecimal digits")
    return digest
