"""What the commands share that ask a daemon over HTTP (`--url`): its address, and the answer's bytes."""

from __future__ import annotations

from typing import Final

import click

from ibmon.cli.common import Trouble

_TIMEOUT: Final = 5.0  # seconds for a daemon on the network to answer


def address(url: str, path: str) -> str:
    """Where a daemon answers with what is at a path, whether or not the URL names it too. Raises BadParameter."""
    from ibmon.configvalues import url as checked

    try:
        target = checked(url).rstrip("/")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from error
    return target if target.endswith(path) else f"{target}{path}"


def fetch(url: str) -> bytes:
    """The body of the answer; Trouble where there is none, or one of another status than 200."""
    import urllib3

    where = url.partition("?")[0]
    try:
        answer = urllib3.request("GET", url, timeout=_TIMEOUT, retries=False)
    except urllib3.exceptions.HTTPError as error:
        raise Trouble(f"{where} does not answer: {_cause(error)}") from error
    if answer.status != 200:
        raise Trouble(f"{where} answers {answer.status} {answer.reason}")
    return answer.data


def _cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return getattr(error, "strerror", None) or str(error)
