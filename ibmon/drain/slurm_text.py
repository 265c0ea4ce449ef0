"""What `scontrol -o show node` and `scontrol show topology` print, as values. Pure.

The one-line text is the same in every Slurm from 20.11 on, while the JSON form changes its types with each data
parser and needs a plugin. Nothing here guesses: a line that cannot be understood is a ValueError.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import Final

from ibmon.drain.slurm_node import Record
from ibmon.model import NodeView

# One letter behind a state word in compact output (sinfo(1), NODE STATE CODES).
_SUFFIX: Final = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINT",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
# Compact words that stand for more than one flag.
_COMPOUND: Final = {
    "ALLOC": ("ALLOCATED",),
    "COMP": ("COMPLETING",),
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
}
_WORD: Final = re.compile(r"([A-Z][A-Z_]*)([*~#!%$@^-]*)")
_NODE: Final = re.compile(r"NodeName=(\S+) ")
_STATE: Final = re.compile(r" State=(\S+)(?: |$)")
_PARTITIONS: Final = re.compile(r" Partitions=(\S+)(?: |$)")
_REASON: Final = re.compile(r" Reason=(.*)$")
_NOTE: Final = re.compile(r" \[([^\[\]\s]+)@([0-9A-Za-z:.+-]+)\](?=$| )")
# topology/tree prints switches of all levels, topology/block blocks (also AggregatedBlock=, which are not the lowest).
_GROUP: Final = re.compile(r"(?:SwitchName=(\S+) Level=0|BlockName=(\S+) BlockIndex=\d+)(?: |$)")
_FIELD: Final = re.compile(r"[A-Z][A-Za-z]*=\S")
_NODES: Final = re.compile(r" Nodes=(\S+)")
_NEXT_FIELD: Final = re.compile(r"(?:^| )(?:Comment|Extra|InstanceId|InstanceType|Gpu\w*|Topology)=.*$")


def parse_nodes(text: str) -> list[Record]:
    """Every node of the output, in its order; ValueError where it is not made of nodes.

    Slurm prints comments as people wrote them, with their line ends: a line that begins no node is one more of the node
    before it, and must not take the others from sight.
    """
    lines: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if lines and not _NODE.match(line):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return [parse_node(line) for line in lines]


def parse_node(line: str) -> Record:
    """One line of ``scontrol -o show node``; ValueError where name or state are not to be found."""
    # The reason is free text of people and stands behind everything else that is read here.
    start = _REASON.search(line)
    head = line[: start.start()] if start else line
    name, state = _NODE.match(head), _STATE.search(head)
    if name is None or state is None:
        raise ValueError(f"not a node: {line[:80]!r}")
    reason, user, since = parse_reason_field(start.group(1)) if start else (None, None, None)
    view = NodeView(name.group(1), parse_flags(state.group(1)), reason=reason, user=user, since=since)
    partitions = _PARTITIONS.search(head)
    return Record(view, tuple(partitions.group(1).split(",")) if partitions else ())


def parse_flags(text: str) -> frozenset[str]:
    """The state words of ``IDLE+DRAIN*`` as a set; ValueError for anything that is not made of such words."""
    flags: set[str] = set()
    for part in text.upper().split("+"):
        match = _WORD.fullmatch(part)
        if match is None:
            raise ValueError(f"not a node state: {text[:80]!r}")
        flags.update(_COMPOUND.get(match.group(1), (match.group(1),)))
        flags.update(_SUFFIX[letter] for letter in match.group(2))
    return frozenset(flags)


def parse_reason_field(text: str) -> tuple[str, str | None, float | None]:
    """Reason, user and wall time of ``text [root@2030-01-01T10:00:00]``, printed in UTC.

    Slurm puts its note behind the first line of a reason of several; the others follow and are kept, so that such
    a reason never equals one of ours.
    """
    note = _NOTE.search(text)
    if note is None:
        return _NEXT_FIELD.sub("", text).strip(), None, None
    rest = _NEXT_FIELD.sub("", text[note.end() :]).strip()
    reason = text[: note.start()].strip() + (f" {rest}" if rest else "")
    return reason, note.group(1), _wall(note.group(2))


def parse_topology(text: str) -> list[tuple[str, str]]:
    """The lowest groups of nodes (leaf switches, blocks), each with its host list as printed; none for no topology.

    ValueError at the first line that is no record of a topology.
    """
    leaves: list[tuple[str, str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if not _FIELD.match(line):
            raise ValueError(f"not a switch or block: {line[:80]!r}")
        group, nodes = _GROUP.match(line), _NODES.search(line)
        if group is not None and nodes is not None:
            leaves.append((group.group(1) or group.group(2), nodes.group(1)))
    return leaves


def _wall(text: str) -> float | None:
    if text.isdigit():
        return float(text)
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
