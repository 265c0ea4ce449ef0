"""Asks a controller over HTTP, as the commands for operators do.

Owns one connection and the token's way from its file into a header; the token is in no error and no argument.
"""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import urllib3
from urllib3.util import Timeout

from ibmon.alert.access import Access, AccessError
from ibmon.drain.webcall import words_of

_READ: Final = 20.0  # seconds; longer than the controller waits for its ledger
_TIMEOUT: Final = Timeout(connect=5.0, read=_READ)


class ControllerError(Exception):
    """The controller could not be asked, or said no; the text is one line."""


class Controller:
    """A controller at a URL. Empty file names: asked without a token; trusted as the system's store says.

    Raises:
        ControllerError: a file cannot be used.
    """

    def __init__(self, url: str, token_file: str = "", ca: str = "") -> None:
        self._url = url.rstrip("/")
        access = Access(bearer_token_file=token_file, ca=ca)
        try:
            self._headers = {"Accept": "application/json", **access.headers()}
            context = access.context() if self._url.startswith("https:") else None
        except AccessError as error:
            raise ControllerError(str(error)) from None
        self._pool = urllib3.PoolManager(ssl_context=context, timeout=_TIMEOUT, retries=False)

    @property
    def plain(self) -> bool:
        """Whether a token would go over a network in plain text."""
        parts = urlsplit(self._url)
        return parts.scheme == "http" and not _is_loopback(parts.hostname or "") and "Authorization" in self._headers

    def get(self, path: str) -> Any:
        """The document at a path; ControllerError where there is none."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What came of a request; ControllerError where it was refused or is not durable."""
        told = self._ask("POST", path, msgspec.json.encode(body))
        if not isinstance(told, dict):
            raise ControllerError(f"{self._url} gave no answer of a controller")
        return told

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        try:
            response = self._pool.request(
                method, f"{self._url}{path}", body=body, headers=self._headers, redirect=False
            )
        except urllib3.exceptions.HTTPError as error:
            raise ControllerError(f"{self._url} cannot be reached: {_why(error)}") from None
        try:
            told = msgspec.json.decode(response.data)
        except (msgspec.DecodeError, RecursionError):
            raise ControllerError(f"{self._url} gave no answer of a controller (status {response.status})") from None
        if response.status == HTTPStatus.OK:
            return told
        if response.status == HTTPStatus.UNAUTHORIZED and "Authorization" not in self._headers:
            raise ControllerError(f"{self._url} wants a token: name its file by --token-file or IBMON_TOKEN_FILE")
        line = (told.get("error") or told.get("text")) if isinstance(told, dict) else None
        raise ControllerError(f"{line or 'refused'} ({self._url}, status {response.status})")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _why(error: urllib3.exceptions.HTTPError) -> str:
    """In few words: those of the error within, where there is one."""
    within = next((one for one in error.args if isinstance(one, Exception)), error)
    return words_of(within, _READ)
