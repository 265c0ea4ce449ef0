"""What slurmrestd answers, from v0.0.39 (Slurm 23.02) to v0.0.42 (24.11), as values. Pure.

Only what is needed is named; slurmrestd adds fields with every version. Nothing here guesses: an answer that has not
the published form is a ValueError (msgspec's own is one).
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ibmon.configkeys import REST_VERSIONS
from ibmon.drain.slurm_node import Record
from ibmon.model import NodeView

# State words that slurmrestd spells otherwise than scontrol (data_parser's flags of a node).
_SPELLED: Final = {"MAINTENANCE": "MAINT", "REBOOT_CANCELED": "REBOOT_CANCEL"}
_WORD: Final = re.compile(r"[A-Z][A-Z_]*")
_OFFERED: Final = re.compile(r"/slurm/(v0\.0\.\d+)/")


class Error(msgspec.Struct):
    """One of the errors in an answer: a short and a long text."""

    error: str | None = None
    description: str | None = None


class Answer(msgspec.Struct):
    """What every answer has. Errors come with status 200 too."""

    errors: list[Error] | None = None


class Number(msgspec.Struct):
    """A number from v0.0.40 on."""

    set: bool = False
    infinite: bool = False
    number: int = 0


class Node(msgspec.Struct):
    """A node; without a name or a state it is none."""

    name: str
    state: list[str]
    hostname: str = ""
    partitions: list[str] = []
    reason: str = ""
    reason_set_by_user: str = ""
    reason_changed_at: int | Number | None = None


class Nodes(msgspec.Struct):
    """The answer to a question about nodes, as far as the nodes go."""

    nodes: list[Node]


class _Document(msgspec.Struct):
    paths: dict[str, msgspec.Raw]


def said(body: bytes) -> str | None:
    """The errors of an answer in one line of at most 200 characters, None where it has none or is no answer."""
    try:
        errors = msgspec.json.decode(body, type=Answer).errors
    except ValueError:
        return None
    if not errors:
        return None
    texts = (": ".join(filter(None, (error.description, error.error))) for error in errors)
    return " ".join("; ".join(filter(None, texts)).split())[:200] or "an error without a text"


def parse_nodes(body: bytes) -> list[Node]:
    """The nodes of an answer; ValueError where it is none."""
    return msgspec.json.decode(body, type=Nodes).nodes


def record(node: Node) -> Record:
    """A node in the words that `scontrol` has for it; ValueError for a state that is not made of such words."""
    words = {_SPELLED.get(word, word) for word in node.state}
    if not words or not all(map(_WORD.fullmatch, words)):
        raise ValueError(f"the state of {node.name} is {node.state!r:.80}")
    reason = " ".join(node.reason.splitlines()).strip()
    if not reason:
        return Record(NodeView(node.name, frozenset(words)), tuple(node.partitions))
    user, since = node.reason_set_by_user or None, _wall(node.reason_changed_at)
    return Record(NodeView(node.name, frozenset(words), reason=reason, user=user, since=since), tuple(node.partitions))


def _wall(value: int | Number | None) -> float | None:
    if isinstance(value, Number):
        value = value.number if value.set and not value.infinite else None
    return float(value) if value else None


def offered(document: bytes) -> list[str]:
    """The versions in slurmrestd's own description (OpenAPI), oldest first; ValueError where it is none."""
    paths = msgspec.json.decode(document, type=_Document).paths
    return sorted({match.group(1) for match in map(_OFFERED.match, paths) if match}, key=_number)


def newest(versions: list[str]) -> str:
    """The newest of these, oldest first, that ibmon speaks; ValueError that says what to do where it speaks none."""
    both = [version for version in versions if version in REST_VERSIONS]
    if both:
        return both[-1]
    if versions and _number(versions[0]) > _number(REST_VERSIONS[-1]):
        spoken = f"{REST_VERSIONS[0]} to {REST_VERSIONS[-1]}"
        raise ValueError(f"offers {versions[0]} and later; ibmon speaks {spoken}: leave slurm.rest_url empty")
    has = versions[-1] if versions else "nothing of Slurm"
    raise ValueError(
        f"offers {has}; ibmon needs {REST_VERSIONS[0]} (Slurm 23.02) or later, or leave slurm.rest_url empty"
    )


def _number(version: str) -> int:
    return int(version.rpartition(".")[2])
