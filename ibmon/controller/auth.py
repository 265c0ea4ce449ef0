"""Who sent a report: signatures as Standard Webhooks has them, with the key of the node that the report names.

Owns checking a report and signing its answer. What a report means is not known here, and nothing is done before all
checks have passed. No key is in any error, log line or repr.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

from ibmon.alert.signature import SecretError, SecretFile, sign
from ibmon.model import Now
from ibmon.report import ID_HEADER, SIGNATURE_HEADER, SKEW, TIME_HEADER, Report, node_key

_log = logging.getLogger(__name__)

_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,512}")
_TIME: Final = re.compile(r"[0-9]{1,12}")
_SIGNATURES: Final = 8  # of one report that are looked at
_CHECK_AGAIN: Final = 2.0  # seconds for which the file of keys is taken to be unchanged

_decode = msgspec.json.Decoder(Report, strict=True).decode


class Forbidden(Exception):  # noqa: N818 - it is an answer, not a fault
    """A report that counts for nothing: the kind for the metric, the status and the line for the sender."""

    def __init__(self, kind: str, status: HTTPStatus, line: str, node: str = "") -> None:
        super().__init__(line)
        self.kind = kind
        self.status = status
        self.line = line
        self.node = node


class Signed(NamedTuple):
    """A report that its node has signed, the id of the message, and the key to sign the answer with."""

    report: Report
    id: str
    key: bytes


class MasterKeys:
    """The fleet's master keys, the newest first: any of them may match, so that keys can be changed node by node.

    A file that turns out wrong later leaves what is in force, and is logged.

    Raises:
        SecretError: the file cannot be used at the start.
    """

    def __init__(self, path: str) -> None:
        self._file = SecretFile(path)
        self._keys = self._file.secrets()
        self._checked = float("-inf")
        self._told = ""

    def at(self, monotonic: float) -> tuple[bytes, ...]:
        """The keys now."""
        if not 0 <= monotonic - self._checked < _CHECK_AGAIN:
            self._checked = monotonic
            try:
                self._keys, self._told = self._file.secrets(), ""
            except SecretError as error:
                if str(error) != self._told:
                    self._told = str(error)
                    _log.error("event=master-keys-refused reason=%r", self._told)
        return self._keys


def check(headers: Mapping[str, str], body: bytes, masters: tuple[bytes, ...], now: Now) -> Signed:
    """The report in a request, if the node that it names has signed it lately.

    Raises:
        Forbidden: it has not, or the request is of another shape.
    """
    identity, moment, signature = headers.get(ID_HEADER), headers.get(TIME_HEADER), headers.get(SIGNATURE_HEADER)
    if identity is None or moment is None or signature is None:
        raise Forbidden(
            "shape", HTTPStatus.UNAUTHORIZED, f"a report has {ID_HEADER}, {TIME_HEADER}, {SIGNATURE_HEADER}"
        )
    if not _ID.fullmatch(identity) or not _TIME.fullmatch(moment):
        raise Forbidden("shape", HTTPStatus.BAD_REQUEST, f"{ID_HEADER} or {TIME_HEADER} is not of its form")
    try:
        report = _decode(body)
    except msgspec.DecodeError as error:  # its text names the field, and values only where they are numbers
        raise Forbidden("shape", HTTPStatus.BAD_REQUEST, f"this is no report: {str(error)[:200]}") from None
    except RecursionError:
        raise Forbidden("shape", HTTPStatus.BAD_REQUEST, "this is no report: it is nested too deeply") from None
    key = _key(report.node, masters, f"{identity}.{moment}.".encode() + body, signature)
    if key is None:
        raise Forbidden(
            "signature",
            HTTPStatus.UNAUTHORIZED,
            "the signature is not that of the node that the report names",
            report.node,
        )
    if int(moment) != int(report.sent):
        raise Forbidden("shape", HTTPStatus.BAD_REQUEST, f"{TIME_HEADER} and sent are not the same second", report.node)
    late = now.wall - report.sent
    if abs(late) > SKEW:
        line = f"the node's clock or the report is {late:+.0f} s off the controller's clock; {SKEW:g} s are allowed"
        raise Forbidden("skew", HTTPStatus.BAD_REQUEST, line, report.node)
    return Signed(report, identity, key)


def _key(node: str, masters: tuple[bytes, ...], signed: bytes, signature: str) -> bytes | None:
    """The node's key under the first master key that matches; no comparison tells how near a try came."""
    shown = [part.encode() for part in signature.split(" ", _SIGNATURES)[:_SIGNATURES]]
    for master in masters:
        key = node_key(master, node)
        want = b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
        if any(hmac.compare_digest(want, part) for part in shown):
            return key
    return None


def signed_headers(signed: Signed, body: bytes, now: Now) -> tuple[tuple[str, str], ...]:
    """The three headers by which a node knows that an answer is the controller's, and the answer to its own report."""
    moment = int(now.wall)
    return (
        (ID_HEADER, signed.id),
        (TIME_HEADER, str(moment)),
        (SIGNATURE_HEADER, sign((signed.key,), signed.id, moment, body)),
    )
