"""How a target knows us and we know it: the Authorization header and the TLS context, from files.

The files are read for each attempt, so a token or certificate that was replaced is used at once. What is in them is in
no error, no log line and no repr.
"""

from __future__ import annotations

import base64
import ssl
from pathlib import Path
from typing import Final

_MOST: Final = 64 * 1024  # bytes of a file; a token of a Kubernetes service account has about one thousand


class AccessError(Exception):
    """A file of credentials or certificates cannot be used; the text names it and never what is in it."""


class Access:
    """Credentials and certificates of one target. Empty file names mean: not used."""

    def __init__(
        self,
        *,
        basic_auth_file: str = "",
        bearer_token_file: str = "",
        ca: str = "",
        client_cert: str = "",
        client_key: str = "",
    ) -> None:
        self._basic = basic_auth_file
        self._bearer = bearer_token_file
        self._ca = ca
        self._cert = client_cert
        self._key = client_key

    def headers(self) -> dict[str, str]:
        """The header that says who we are, if we have to; AccessError where its file cannot be used."""
        if self._bearer:
            token = _line(self._bearer)
            if not token.isascii():  # RFC 6750 §2.1; http.client would name what it cannot write
                raise AccessError(f"{self._bearer} holds characters that no header may have")
            return {"Authorization": f"Bearer {token}"}
        if not self._basic:
            return {}
        line = _line(self._basic)
        if ":" not in line:
            raise AccessError(f"{self._basic} holds no user:password line")
        return {"Authorization": f"Basic {base64.b64encode(line.encode()).decode()}"}

    def context(self) -> ssl.SSLContext:
        """Whom to trust (the system's store, or `ca` alone) and the certificate to show; AccessError as above."""
        try:
            context = ssl.create_default_context(cafile=self._ca or None)
        except (OSError, ValueError) as error:
            raise AccessError(f"{self._ca or 'the store of certificates'}: {_why(error)}") from None
        if self._cert:
            try:
                # A password is given so that a locked key is an error here and not a question on the terminal.
                context.load_cert_chain(self._cert, self._key or None, password="")
            except (OSError, ValueError) as error:
                raise AccessError(f"{self._cert} with its key: {_why(error)}") from None
        return context


def _line(name: str) -> str:
    """The first line of a file that is neither empty nor a comment, fit for a header."""
    try:
        with Path(name).open("rb") as file:
            text = file.read(_MOST).decode()
    except OSError as error:
        raise AccessError(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AccessError(f"{name} is no UTF-8 text") from None
    for line in map(str.strip, text.splitlines()):
        if line and not line.startswith("#"):
            if not line.isprintable():
                raise AccessError(f"{name} holds characters that no header may have")
            return line
    raise AccessError(f"{name} is empty")


def _why(error: OSError | ValueError) -> str:
    """In few words; those of OpenSSL tell what is wrong with a certificate and nothing that is in it."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "no certificate that can be used").lower().replace("_", " ")
    return (error.strerror if isinstance(error, OSError) else None) or "cannot be used"
