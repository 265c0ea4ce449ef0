"""The pages in a real browser: what they weigh, when they are there, and how long the map of a fleet takes to draw."""

from __future__ import annotations

import http.client

from bench import tree
from bench.figure import Figure, Table, Target, median, quantity
from bench.programs import LOOPBACK, Program, ibmon
from bench.settings import Settings

# isort: split
from services.chromium import Browser, Tab
from services.fleet import DRAWING, Fleet

SIZE_LIMIT = 60.0
"""kB of the daemon's page with all that it loads."""
DRAW_LIMIT = 200.0
"""ms for the map of 1,000 nodes."""
FLEETS = (1_000, 10_000)

METHOD = """\
Headless Chromium without a graphics card, window of 1280 by 800, on this machine beside the server; medians. *Painted*:
from the navigation to the first contentful paint; *shown*: until the first picture of live data stands in the document.
A page is opened in a profile of its own each time, so nothing is cached. *Map*: from a change of the map's width to the
frame that shows it anew, the last pixel read back. Nodes have eight rails. *Asking*: CPU of the daemon for one answer
of `api/v1/status`, which an open page asks for every 5 s."""

_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_SHOWN = "performance.getEntriesByName('shown')[0]?.startTime"
_MAPPED = "(() => { const m = performance.getEntriesByName('matrix').at(-1); return m && m.startTime + m.duration; })()"
_BYTES = """performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"))
  .filter((entry) => !entry.name.includes("/api/")).reduce((sum, entry) => sum + entry.decodedBodySize, 0)"""
_READY = {
    _SHOWN: "document.querySelectorAll('tr.port').length > 0",
    _MAPPED: "document.querySelector('#nodes td, #nodes p') !== null",
}


def measure(settings: Settings) -> Figure:
    """Sizes, times and the cost of an open page."""
    rounds = max(2, settings.rounds // 6)
    with Browser() as browser:
        with ibmon(tree.write(tree.NODE, settings.scratch), settings.scratch) as daemon:
            node = _opened(browser, f"http://{LOOPBACK}:{daemon.port}/", _SHOWN, rounds)
            asking = _asking(daemon, settings.rounds)
        rows = [("node, 12 ports", *node)]
        drawn = {}
        for count in FLEETS:
            with Fleet(count) as fleet:
                rows.append((f"fleet, {count:,} nodes", *_opened(browser, fleet.url, _MAPPED, rounds)))
                drawn[count] = _drawing(browser, fleet, rounds)
    pages = Table(
        ("page", "kB", "painted, ms", "shown, ms"),
        [(name, f"{size:.1f}", f"{paint:.0f}", f"{shown:.0f}") for name, size, paint, shown in rows],
    )
    maps = Table(("map", "ms"), [(f"{count:,} nodes", quantity(ms)) for count, ms in drawn.items()])
    cost = Table(("asking", "CPU ms", "of one CPU"), [("12 ports", quantity(asking), f"{asking / 50:.3f} %")])
    targets = [
        Target("the node's page with all that it loads", node[0], SIZE_LIMIT, "kB"),
        Target(f"map of {FLEETS[0]:,} nodes", drawn[FLEETS[0]], DRAW_LIMIT, "ms"),
    ]
    return Figure("The pages", METHOD, (pages, maps, cost), targets)


def _opened(browser: Browser, url: str, shown: str, rounds: int) -> tuple[float, float, float]:
    """kB of the page and its files, ms to the first paint and to the first live picture."""
    sizes, paints, pictures = [], [], []
    for _ in range(rounds):
        with browser.open(url) as tab:
            tab.wait(f"{_READY[shown]} && {_PAINTED} > 0")
            sizes.append(tab.evaluate(_BYTES) / 1000)
            paints.append(tab.evaluate(_PAINTED))
            pictures.append(tab.evaluate(shown))
    return median(sizes), median(paints), median(pictures)


def _drawing(browser: Browser, fleet: Fleet, rounds: int) -> float:
    with browser.open(fleet.url) as tab:
        tab.wait(_READY[_MAPPED])
        return median(_draw(tab) for _ in range(rounds))


def _draw(tab: Tab) -> float:
    return float(tab.evaluate(DRAWING))


def _asking(daemon: Program, times: int) -> float:
    """CPU ms of the daemon for one status document."""
    connection = http.client.HTTPConnection(LOOPBACK, daemon.port, timeout=10)
    before = daemon.cpu()
    for _ in range(times):
        connection.request("GET", "/api/v1/status")
        connection.getresponse().read()
    used = daemon.cpu() - before
    connection.close()
    return used / times * 1e3
