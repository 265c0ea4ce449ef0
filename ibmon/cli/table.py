"""The status table for people: from a status document to something that rich prints, or to plain text.

Owns the look. It reads nothing and judges nothing; `status` and `demo` share it.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ibmon.snapshot import Snapshot

GBPS: Final = 125_000_000  # bytes per second of one Gb/s
WIDE: Final = 110  # from here on the counters that moved have a column of their own
_PLAIN_WIDTH: Final = 160  # for a file or a pipe, where nothing limits a line

STYLES: Final[Mapping[str, str]] = {
    "fit": "green",
    "ok": "green",
    "watch": "yellow",
    "warning": "yellow",
    "recovering": "yellow",
    "degraded": "bold red",
    "failed": "bold red",
    "critical": "bold red",
    "unfit": "bold red",
    "unknown": "magenta",
    "ignored": "dim",
    "info": "",
}
_GENERATIONS: Final = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # GT/s of a PCIe lane to its generation
_ROLES: Final = {"management": "mgmt"}


def show(document: Mapping[str, Any], console: Console | None = None, *, from_daemon: bool = True) -> None:
    """Print the table to the console (by default standard output; NO_COLOR is respected).

    What is not `from_daemon` is one look of our own, which says nothing of who acts for the node.
    """
    console = console or Console(highlight=False)
    if console.is_terminal:
        console.print(render(document, console.width, from_daemon=from_daemon))
    else:
        width = console.width if "COLUMNS" in os.environ else _PLAIN_WIDTH
        console.file.write(text(document, width, from_daemon=from_daemon))


def text(document: Mapping[str, Any], width: int = _PLAIN_WIDTH, *, from_daemon: bool = True) -> str:
    """The table as plain text."""
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, highlight=False, force_terminal=False)
    console.print(render(document, width, from_daemon=from_daemon))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def of_snapshot(snapshot: Snapshot, width: int = _PLAIN_WIDTH) -> RenderableType:
    """The table of a snapshot."""
    from ibmon.exporter.status import status_document

    return render(status_document(snapshot), width)


def render(document: Mapping[str, Any], width: int, *, from_daemon: bool = True) -> RenderableType:
    """The table for a terminal of so many columns: head, ports, findings, drain."""
    document = printable(document)
    parts: list[RenderableType] = [_head(document, from_daemon=from_daemon)]
    if document["ports"]:
        parts += ["", _ports(document, wide=width >= WIDE)]
    else:
        parts += ["", _nothing(document)]
    # On a terminal of 24 lines what comes last is not seen.
    for lines in (_findings(document), _stalled(document), _moved(document) if width < WIDE else ()):
        block = list(lines)
        if block:
            parts += ["", *block]
    drain = list(_drain(document["drain"]))
    parts += ["", *drain] if drain else []
    parts += list(_maintenance(document.get("maintenance")))
    return Group(*parts)


def printable(value: Any) -> Any:
    """A document whose texts hold no control characters: names and reasons must not steer a terminal."""
    if isinstance(value, str):
        return value if value.isprintable() else "".join(c if c.isprintable() else "?" for c in value)
    if isinstance(value, Mapping):
        return {key: printable(item) for key, item in value.items()}
    return [printable(item) for item in value] if isinstance(value, list | tuple) else value


def below(document: Mapping[str, Any]) -> list[Text]:
    """The lines on what is wrong and what is done about it: findings, hung devices, drain, maintenance."""
    return [
        *_drain(document["drain"]),
        *_findings(document),
        *_stalled(document),
        *_maintenance(document.get("maintenance")),
    ]


def styled(word: str) -> Text:
    """A word of fitness, health or severity in its colour."""
    return Text(word, STYLES.get(word, ""))


def _head(document: Mapping[str, Any], *, from_daemon: bool) -> Text:
    head = Text.assemble((document["node"] or "this node", "bold"), " is ", styled(document["fitness"]))
    if document["why"]:
        head.append(f": {document['why']}")
    at = time.strftime("%H:%M:%S", time.localtime(document["wall"]))
    head.append(f"\n{at}  {'mode ' + document['mode'] if from_daemon else 'one look, without history'}", "dim")
    if not document["config"]["valid"]:
        head.append("  the configuration file is invalid, an older one holds", STYLES["critical"])
    if from_daemon and not document["actions_enabled"]:
        head.append("  another daemon acts for this node, or the scheduler does not let this one", STYLES["warning"])
    return head


def _nothing(document: Mapping[str, Any]) -> Text:
    if document["up"]:
        return Text("no RDMA device")
    return Text(f"class/infiniband cannot be read: {document['listing_errno'] or 'nothing was read yet'}", "bold red")


def _ports(document: Mapping[str, Any], *, wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("PORT", no_wrap=True)
    for name in ("ROLE", "STATE", "GB/S"):
        table.add_column(name, no_wrap=True)
    table.add_column("PCIE", no_wrap=True)
    table.add_column("NETDEV", overflow="fold")
    table.add_column("HEALTH", no_wrap=True)
    if wide:
        table.add_column("MOVED IN AN HOUR")
    devices = {device["device"]: device for device in document["devices"]}
    for port in document["ports"]:
        device = devices.get(port["device"])
        row = [
            Text(f"{port['device']}/{port['port']}"),
            Text(_ROLES.get(port["role"], port["role"])),
            state(port, device),
            rate(port),
            _pcie(device),
            Text(port["netdev"] or "-"),
            styled(port["health"]),
        ]
        table.add_row(*row, *([Text(rises(port))] if wide else []))
    return table


def state(port: Mapping[str, Any], device: Mapping[str, Any] | None) -> Text:
    """The logical state in the kernel's word, with the physical one where the port is not up."""
    if not port["present"]:
        return Text("missing", STYLES["failed"] if port["expected"] else "dim")
    if device is not None and device["stalled"]:
        return Text("stalled", STYLES["unknown"])
    logical, physical = port["state"], port["physical_state"]
    if logical is None:
        return Text("?", STYLES["unknown"])
    if logical == "ACTIVE":
        return Text(logical)
    return Text(logical if physical is None else f"{logical}/{physical}", "yellow" if port["expected"] else "dim")


def rate(port: Mapping[str, Any]) -> Text:
    """What it runs at of what is expected: ``200/400``."""
    now, expected = port["rate"], port["expected_rate"]
    found = "?" if now is None else f"{now / GBPS:g}"
    if expected is None:
        return Text(found)
    low = now is not None and now < expected and port["state"] == "ACTIVE"
    return Text(f"{found}/{expected / GBPS:g}", STYLES["degraded"] if low else "")


def _pcie(device: Mapping[str, Any] | None) -> Text:
    """The link as it trained, ``gen5 x16``; where it could do better, ``gen4 x8 of gen5 x16``."""
    pci = device["pci"] if device else None
    if pci is None or (pci["speed"] is None and pci["width"] is None):
        return Text("-")
    now = _link(pci["speed"], pci["width"])
    speed, width = pci["expected_speed"], pci["expected_width"]
    below = (speed and pci["speed"] and pci["speed"] < speed) or (width and pci["width"] and pci["width"] < width)
    if not below:
        return Text(now)
    return Text(f"{now} of {_link(speed, width)}", STYLES["warning"])


def _link(speed: int | None, width: int | None) -> str:
    gigatransfers = None if speed is None else speed / 1e9
    generation = None if gigatransfers is None else _GENERATIONS.get(gigatransfers)
    words = "?" if gigatransfers is None else f"gen{generation}" if generation else f"{gigatransfers:g}GT/s"
    return f"{words} x{'?' if width is None else width}"


def rises(port: Mapping[str, Any]) -> str:
    """The error counters that moved within the last hour."""
    return ", ".join(f"{moved['counter']} +{moved['rise']}" for moved in port["moved"])


def _moved(document: Mapping[str, Any]) -> Iterator[Text]:
    moved = [port for port in document["ports"] if port["moved"]]
    if moved:
        yield Text("moved in an hour", "dim")
    for port in moved:
        yield Text(f"{port['device']}/{port['port']}: {rises(port)}")


def _findings(document: Mapping[str, Any]) -> Iterator[Text]:
    for finding in document["findings"]:
        subject = f"{finding['device']}/{finding['port']}" if finding["port"] else finding["device"] or "node"
        line = Text.assemble(styled(finding["severity"]), f"  {finding['rule']} {subject}  {finding['text']}")
        if finding["recovering"]:
            line.append("  recovering", STYLES["recovering"])
        yield line


def _stalled(document: Mapping[str, Any]) -> Iterator[Text]:
    names = [device["device"] for device in document["devices"] if device["stalled"]]
    if names:
        yield Text(f"reads do not come back from {', '.join(names)}", STYLES["unknown"])


def _maintenance(maintenance: Mapping[str, Any] | None) -> Iterator[Text]:
    for window in maintenance["windows"] if maintenance else ():
        what = ", ".join(window["ports"]) or "the node"
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(window["until"]))
        yield Text(f"maintenance of {what} until {until} by {window['user']}: {window['reason']}", STYLES["warning"])


def _drain(drain: Mapping[str, Any]) -> Iterator[Text]:
    if drain["active"]:
        yield Text.assemble(("drained", STYLES["unfit"]), f" by ibmon: {drain['owned']['reason']}")
    elif drain["wanted"]:
        why = f", withheld: {drain['blocked'].replace('_', ' ')}" if drain["blocked"] else ""
        yield Text.assemble(("drain wanted", STYLES["warning"]), f"{why}: {drain['reason']}")
    if drain["overridden"]:
        yield Text("an operator resumed this node; ibmon leaves it so for now", STYLES["warning"])
    if drain["orphaned"]:
        yield Text("a drain with ibmon's prefix stands that this node has no record of", STYLES["warning"])
