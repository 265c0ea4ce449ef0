"""The tokens of people and programs that look and act: one `name role token` a line, read again when the file changes.

Owns the file's format and the comparison. A token is in no error, no log line and no repr: only its digest is kept.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import stat
from pathlib import Path
from typing import Final, NamedTuple

_log = logging.getLogger(__name__)

ROLES: Final = ("view", "operate", "alert")
"""`view` looks, `operate` looks and acts, `alert` brings alerts of an Alertmanager and nothing else."""

MIN_TOKEN: Final = 16
_MAX_FILE: Final = 1024 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_CHECK_AGAIN: Final = 1.0  # seconds for which a file is taken to be unchanged


class TokenError(Exception):
    """The tokens cannot be used; the text names file and line and never what is in it."""


class Holder(NamedTuple):
    """Whose token it is, and what it is good for."""

    name: str
    role: str

    def may(self, role: str) -> bool:
        """Whether this holder may do what `role` may."""
        return self.role == role or (self.role == "operate" and role == "view")


def parse_tokens(text: str, where: str) -> tuple[tuple[bytes, Holder], ...]:
    """Digest and holder of each line; `#` starts a comment line. TokenError names the first line that is wrong."""
    found: dict[bytes, Holder] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        place = f"{where}, line {number}"
        words = line.split()
        if len(words) != 3:
            raise TokenError(f"{place}: write name, role and token, with blanks in between")
        name, role, token = words
        if not _NAME.fullmatch(name):
            raise TokenError(f"{place}: a name has letters, digits and ._@- only, 64 at most")
        if role not in ROLES:
            raise TokenError(f"{place}: there is no such role; write {', '.join(ROLES[:-1])} or {ROLES[-1]}")
        if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable():
            raise TokenError(f"{place}: a token has {MIN_TOKEN} characters or more, all of them ASCII")
        digest = _digest(token)
        if digest in found:
            raise TokenError(f"{place}: this token stands in the file twice")
        found[digest] = Holder(name, role)
    if not found:
        raise TokenError(f"{where} names nobody; write lines of name, role and token")
    return tuple(found.items())


class TokenFile:
    """Who holds which token, by a file.

    A file that is edited wrongly changes nothing, and is logged. One that is gone or closed to us admits nobody.

    Raises:
        TokenError: the file cannot be used at the start.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._holders: tuple[tuple[bytes, Holder], ...] = ()
        self._checked = float("-inf")
        self._told = ""
        self._read()

    def holder(self, header: str | None, monotonic: float) -> Holder | None:
        """Whose token an Authorization header shows; the time that the comparison takes tells nothing."""
        if not 0 <= monotonic - self._checked < _CHECK_AGAIN:
            self._checked = monotonic
            self._read_again()
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        digest = _digest(token.strip())
        found = None
        for known, holder in self._holders:
            if hmac.compare_digest(known, digest):
                found = holder
        return found

    def _read_again(self) -> None:
        try:
            self._read()
        except TokenError as error:
            if str(error) != self._told:
                self._told = str(error)
                _log.error("event=tokens-refused reason=%r", self._told)
        else:
            self._told = ""

    def _read(self) -> None:
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                seen = (status.st_mtime_ns, status.st_ino, status.st_size)
                text = file.read(_MAX_FILE).decode("utf-8", "replace") if seen != self._seen else None
        except OSError as error:
            self._holders, self._seen = (), None
            raise TokenError(f"{self._path} cannot be read: {error.strerror}; nobody is admitted") from None
        if status.st_mode & (stat.S_IROTH | stat.S_IWOTH):
            raise TokenError(f"{self._path} is open to everybody; run: chmod 600 {self._path}")
        if text is not None:
            self._holders, self._seen = parse_tokens(text, str(self._path)), seen


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
