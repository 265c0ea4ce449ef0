"""The page at `/`: one HTML document made from a snapshot, and the few files that make it live in a browser.

Owns its look, in `web/`. The document alone is a still picture in tables; with scripts the browser asks the API and
keeps the history. Nothing is loaded from elsewhere, and nothing is shown that the snapshot does not say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from ibmon import __version__
from ibmon.exporter.blocktext import BLOCK_TEXT
from ibmon.model import PHYSICAL_STATE_TEXT, PORT_STATE_TEXT, NodeFitness
from ibmon.snapshot import DrainView, PortView, Snapshot

HTML: Final = "text/html; charset=utf-8"
STYLE: Final = "text/css; charset=utf-8"
SCRIPT: Final = "text/javascript; charset=utf-8"

FILES: Final[Mapping[str, str]] = {
    "/base.css": STYLE,
    "/page.css": STYLE,
    "/page.js": SCRIPT,
    "/ask.js": SCRIPT,
    "/elements.js": SCRIPT,
    "/events.js": SCRIPT,
    "/history.js": SCRIPT,
    "/ports.js": SCRIPT,
    "/sections.js": SCRIPT,
}
"""What the document loads, by path, with its type."""

ICON: Final = "image/svg+xml"

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Referrer-Policy": "no-referrer",
}
"""Headers that the page is served with: scripts, styles and data from here alone, none inline, no markup from text."""

_COLOURS: Final = {"fit": "#1a8f52", "watch": "#c78500", "unfit": "#c62f3a", "unknown": "#7c55b8"}
_ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="7" fill="{}"/>'
    '<path d="M4 8h2l1.5-4 2 8L11 8h1.5" fill="none" stroke="#fff" stroke-width="1.4"/></svg>\n'
)


WEB: Final = Path(__file__).with_name("web")
"""Where the files lie. The controller's page is made of some of them, too."""


@cache
def _document() -> Template:
    return Template(WEB.joinpath("page.html").read_text(encoding="utf-8"))


def load() -> dict[str, bytes]:
    """All of `FILES` by path. Read at the start: a request must not wait for a file system that may hang by then."""
    _document()
    return {path: WEB.joinpath(path.removeprefix("/")).read_bytes() for path in FILES}


def icon(fitness: str) -> bytes:
    """The sign in the browser's tab, in the colour of a node's fitness; grey for any other word."""
    return _ICON.format(_COLOURS.get(fitness, "#6b7686")).encode()


def render_page(snapshot: Snapshot | None) -> str:
    """The page; without a snapshot it says that nothing was read yet."""
    title = f"ibmon {snapshot.node}" if snapshot else "ibmon"
    parts = ["<p>Nothing was read yet.</p>"] if snapshot is None else _sections(snapshot)
    fitness = snapshot.fitness if snapshot else NodeFitness.UNKNOWN
    return _document().substitute(
        title=escape(title),
        fitness=fitness.value,
        still=f"<h1>{escape(title)}</h1>{''.join(parts)}",
        codes="\n".join(f"<dt>{code.value}</dt><dd>{escape(line)}</dd>" for code, line in BLOCK_TEXT.items()),
        version=escape(__version__),
    )


def _sections(snapshot: Snapshot) -> Iterable[str]:
    why = f": {escape(snapshot.why)}" if snapshot.why else ""
    yield f"<p>Node is {_span(snapshot.fitness.value)}{why}</p>"
    if not snapshot.up:
        yield '<p class="notice bad">class/infiniband cannot be read.</p>'
    if not snapshot.config_valid:
        yield '<p class="notice bad">The configuration file is invalid; an older one stays in force.</p>'
    yield f"<h2>Drain</h2><p>{_drain(snapshot.drain)} Mode: {snapshot.mode.value}.{_actions(snapshot)}</p>"
    yield "<h2>Findings</h2>" + _findings(snapshot)
    yield "<h2>Ports</h2>" + _ports(snapshot.ports)
    stalled = [view.device.name for view in snapshot.devices if view.stalled]
    if stalled:
        yield f'<p class="notice warn">Reads do not come back from {escape(", ".join(stalled))}.</p>'


def _actions(snapshot: Snapshot) -> str:
    return (
        "" if snapshot.actions_enabled else " Another daemon on this node acts, or the scheduler does not let this one."
    )


def _drain(drain: DrainView) -> str:
    if drain.owned is not None:
        verb = "In force" if drain.owned.held else "Asked for"
        text = f"{verb}: {escape(drain.owned.reason)}."
    elif drain.intent.drain:
        text = f"Wanted: {escape(drain.intent.reason)}."
    else:
        text = "None wanted."
    notes = [
        f" Not made because of {drain.blocked.value}: {escape(BLOCK_TEXT[drain.blocked])}" if drain.blocked else "",
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
    return _table("findings", ("severity", "rule", "subject", "observed > limit", "state"), rows)


def _ports(ports: Sequence[PortView]) -> str:
    if not ports:
        return "<p>No RDMA port on this node.</p>"
    head = ("port", "health", "role", "rail", "state", "rate", "link layer", "interface", "flaps", "rose within 1 h")
    return _table("ports", head, [_port_row(view) for view in ports])


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
    return f'<span class="badge {word}">{word}</span>'


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are HTML already."""
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
