"""The page at `/`: one self-contained HTML document made from a snapshot.

Owns its look. It loads nothing from anywhere, runs no script, and shows nothing that the snapshot does not say.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from ibmon import __version__
from ibmon.model import PHYSICAL_STATE_TEXT, PORT_STATE_TEXT
from ibmon.snapshot import DrainView, PortView, Snapshot

_REFRESH: Final = 10  # seconds

_STYLE: Final = """
:root{color-scheme:light dark;--bad:#c62828;--warn:#b26a00;--good:#2e7d32;--dim:#777}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #8884}
.scroll{overflow-x:auto}
.fit,.ok{color:var(--good)}.watch,.warning,.recovering{color:var(--warn)}
.unfit,.failed,.degraded,.critical{color:var(--bad);font-weight:600}
.unknown,.ignored,.dim{color:var(--dim)}
"""

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'",
    "Referrer-Policy": "no-referrer",
}
"""Headers that the page is served with: the browser may use its one style sheet and nothing else."""

_LINKS: Final = (
    ("metrics", "metrics", "Prometheus and OpenMetrics text"),
    ("api/v1/status", "api/v1/status", "this page as JSON"),
    ("healthz", "healthz", "does the loop turn?"),
    ("readyz", "readyz", "was everything read once?"),
)


def render_page(snapshot: Snapshot | None) -> str:
    """The page; without a snapshot it says that nothing was read yet."""
    title = f"ibmon {snapshot.node}" if snapshot else "ibmon"
    parts = [_no_snapshot()] if snapshot is None else list(_sections(snapshot))
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><meta http-equiv="refresh" content="{_REFRESH}">'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{''.join(parts)}{_links()}"
        f'<p class="dim">ibmon {escape(__version__)}</p></body></html>\n'
    )


def _no_snapshot() -> str:
    return "<p>Nothing was read yet.</p>"


def _sections(snapshot: Snapshot) -> Iterable[str]:
    fitness = snapshot.fitness.value
    why = f": {escape(snapshot.why)}" if snapshot.why else ""
    yield f'<p>Node is <span class="{fitness}">{fitness}</span>{why}</p>'
    if not snapshot.up:
        yield '<p class="critical">class/infiniband cannot be read.</p>'
    if not snapshot.config_valid:
        yield '<p class="critical">The configuration file is invalid; an older one stays in force.</p>'
    yield f"<h2>Drain</h2><p>{_drain(snapshot.drain)} Mode: {snapshot.mode.value}.{_actions(snapshot)}</p>"
    yield "<h2>Findings</h2>" + _findings(snapshot)
    yield "<h2>Ports</h2>" + _ports(snapshot.ports)
    stalled = [view.device.name for view in snapshot.devices if view.stalled]
    if stalled:
        yield f'<p class="warning">Reads do not come back from {escape(", ".join(stalled))}.</p>'


def _actions(snapshot: Snapshot) -> str:
    return "" if snapshot.actions_enabled else " Another daemon on this node acts; this one only exports."


def _drain(drain: DrainView) -> str:
    if drain.owned is not None:
        verb = "In force" if drain.owned.held else "Asked for"
        text = f"{verb}: {escape(drain.owned.reason)}."
    elif drain.intent.drain:
        text = f"Wanted: {escape(drain.intent.reason)}."
    else:
        text = "None wanted."
    notes = [
        f" Not made because of {drain.blocked.value}." if drain.blocked else "",
        " Somebody's resume is respected." if drain.overridden else "",
        " The scheduler shows a drain in our words of which there is no record." if drain.orphaned else "",
    ]
    return text + "".join(notes)


def _findings(snapshot: Snapshot) -> str:
    if not snapshot.findings:
        return "<p>None.</p>"
    rows = [
        (_span(x.severity.value), escape(x.rule), escape(x.subject), escape(x.text), "recovering" * x.recovering)
        for x in snapshot.findings
    ]
    return _table(("severity", "rule", "subject", "observed > limit", ""), rows)


def _ports(ports: Sequence[PortView]) -> str:
    if not ports:
        return "<p>No RDMA port on this node.</p>"
    head = ("port", "health", "role", "rail", "state", "rate", "link layer", "interface", "flaps", "rose within 1 h")
    return _table(head, [_port_row(view) for view in ports])


def _port_row(view: PortView) -> tuple[str, ...]:
    if view.present:
        state = f"{_word(PORT_STATE_TEXT, view.state)}/{_word(PHYSICAL_STATE_TEXT, view.physical_state)}"
    else:
        state = "missing"
    moved = ", ".join(f"{column.name} +{rise}" for column, rise in view.moved)
    return (
        escape(str(view.id)),
        _span(view.health.value),
        view.role.value,
        "" if view.rail is None else str(view.rail),
        escape(state),
        _rate(view),
        escape(view.link_layer or ""),
        escape(view.netdev or ""),
        str(view.flaps),
        escape(moved),
    )


def _rate(view: PortView) -> str:
    """The rate in the field's unit beside what is expected, such as `200 of 400 Gb/s`."""
    if view.rate is None:
        return "?"
    read = f"{view.rate * 8 / 1e9:g}"
    if view.expected_rate is None or view.expected_rate == view.rate:
        return f"{read} Gb/s"
    return f"{read} of {view.expected_rate * 8 / 1e9:g} Gb/s"


def _word(texts: Mapping[int, str], value: int | None) -> str:
    if value is None:
        return "?"
    return texts.get(value, str(value))


def _span(word: str) -> str:
    return f'<span class="{word}">{word}</span>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are HTML already."""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _links() -> str:
    items = "".join(f'<li><a href="{href}">{name}</a>: {escape(what)}</li>' for href, name, what in _LINKS)
    return f"<h2>More</h2><ul>{items}</ul>"
