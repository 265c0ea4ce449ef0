"""What operators may ask for over HTTP: the form of each request, as a value for the fleet's logic.

Owns shapes and bounds. Whether something is done, and to whom, is decided elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Protocol, TypeVar

import msgspec

from ibmon.controller.values import Ask
from ibmon.model import Mode

USER_HEADER: Final = "x-ibmon-user"
"""A further name that the caller may give: of the person for whom a program speaks. It is noted, and proves nothing."""

LONGEST: Final = 7 * 86400.0
"""Seconds of a maintenance at most."""

_USER: Final = re.compile(r"[\w.@ -]{1,64}", re.ASCII)
_Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9._*?\[\]!-]+\Z")]
_Names = Annotated[tuple[_Pattern, ...], msgspec.Meta(max_length=10000)]
_Word = Annotated[str, msgspec.Meta(max_length=253)]
_Reason = Annotated[str, msgspec.Meta(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
_T = TypeVar("_T")


class BodyError(ValueError):
    """The body is not of its form; the text says what is wrong."""


class _Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    reason: _Reason = ""


class _Asks(Protocol):
    """A form of a request: what it asks for, when this user does."""

    def ask(self, user: str) -> Ask: ...


class _Stop(_Form, frozen=True, forbid_unknown_fields=True, kw_only=True):
    def ask(self, user: str) -> Ask:
        return Ask(action="stop", user=user, reason=self.reason)


class _Start(_Form, frozen=True, forbid_unknown_fields=True, kw_only=True):
    def ask(self, user: str) -> Ask:
        return Ask(action="start", user=user, reason=self.reason)


class _Mode(_Form, frozen=True, forbid_unknown_fields=True, kw_only=True):
    mode: Mode | None
    nodes: _Names = ()
    all: bool = False

    def ask(self, user: str) -> Ask:
        every = self.all and self.mode is None
        if not self.nodes and not every:
            raise BodyError("name nodes; all takes every mode back, and sets none")
        return Ask(action="mode", user=user, reason=self.reason, mode=self.mode, nodes=self.nodes, all=every)


class _Begin(_Form, frozen=True, forbid_unknown_fields=True, kw_only=True):
    seconds: Annotated[float, msgspec.Meta(gt=0, le=LONGEST)]
    nodes: _Names = ()
    group: _Word = ""

    def ask(self, user: str) -> Ask:
        if not self.nodes and not self.group:
            raise BodyError("name nodes, or a group")
        return Ask(
            action="maintenance-start", user=user, reason=self.reason, nodes=self.nodes, group=self.group,
            seconds=self.seconds,
        )  # fmt: skip


class _End(_Form, frozen=True, forbid_unknown_fields=True, kw_only=True):
    nodes: _Names = ()
    group: _Word = ""
    all: bool = False

    def ask(self, user: str) -> Ask:
        if not (self.nodes or self.group or self.all):
            raise BodyError("name nodes, or a group, or say all")
        return Ask(
            action="maintenance-stop", user=user, reason=self.reason, nodes=self.nodes, group=self.group, all=self.all
        )


class _Release(_Form, frozen=True, forbid_unknown_fields=True, kw_only=True):
    nodes: _Names = ()
    group: _Word = ""
    rule: _Word = ""
    seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    all: bool = False
    dry_run: bool = False

    def ask(self, user: str) -> Ask:
        if not (self.nodes or self.group or self.rule or self.seconds or self.all):
            raise BodyError("name nodes, a group, a rule or a time, or say all")
        return Ask(
            action="release", user=user, reason=self.reason, nodes=self.nodes, group=self.group, rule=self.rule,
            seconds=self.seconds, all=self.all, dry_run=self.dry_run,
        )  # fmt: skip


FORMS: Final[Mapping[str, type[_Asks]]] = {
    "/v1/stop": _Stop,
    "/v1/start": _Start,
    "/v1/mode": _Mode,
    "/v1/maintenance": _Begin,
    "/v1/maintenance/end": _End,
    "/v1/release": _Release,
}
"""Path to form."""


def read(path: str, body: bytes, holder: str, person: str | None) -> Ask:
    """What a request at a path of FORMS asks for, by whom.

    Raises:
        BodyError: it is not of its form.
    """
    user = holder
    if person is not None:
        if not _USER.fullmatch(person):
            raise BodyError(f"{USER_HEADER} has letters, digits, blanks and ._@- only, 64 at most")
        user = f"{holder} ({person})"
    return decode(body or b"{}", FORMS[path]).ask(user)


def decode(body: bytes, form: type[_T]) -> _T:
    """A body as a value of a form; BodyError where it is not one."""
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.DecodeError as error:
        raise BodyError(str(error)[:200]) from None
    except RecursionError:
        raise BodyError("it is nested too deeply") from None
