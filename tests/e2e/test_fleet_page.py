"""The controller's page in a real browser, with made-up fleets: the map, search, keyboard, tokens, and its speed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from services import axe
from services.fleet import DRAWING, LEAF, TOKEN, Fleet, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.chromium import Browser, Tab

pytestmark = pytest.mark.timeout(120)

DRAW_LIMIT = 200.0
"""Milliseconds that the map of 1,000 nodes may take."""


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with Fleet(1000) as running:
        yield running


def opened(browser: Browser, fleet: Fleet, marks: str = "", **look: object) -> Tab:
    tab = browser.open(f"{fleet.url}{marks}", **look)
    tab.wait("document.querySelector('#nodes td') !== null")
    return tab


def look_now(tab: Tab) -> None:
    tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


UNFIT = [row for row in sorted(rows(1000)) if row[1] == "unfit"]


def test_it_shows_the_fleet(browser: Browser, fleet: Fleet) -> None:
    with opened(browser, fleet) as tab:
        assert f"{len(UNFIT)}\nunfit" in tab.text("#counts").replace("\n\n", "\n")
        assert "Fabric event at leaf007, rail 5: port-down on 28 nodes." in tab.text("#notices")
        assert "4 of 4" in tab.text("#limits")
        assert "1000 of 1000 nodes have reported (100 %): drains may be made." in tab.text("#quorum")
        assert "ibmon: port-down" in tab.text("#drains")
        assert "alertmanager" in tab.text("#drains")
        assert "new optics" in tab.text("#maintenance")
        assert tab.errors == []
        assert all(url.startswith(fleet.url) for url in tab.requests)


def test_the_map_of_a_thousand_nodes_is_drawn_in_time(browser: Browser, fleet: Fleet) -> None:
    with opened(browser, fleet) as tab:
        assert min(tab.evaluate(DRAWING) for _ in range(3)) < DRAW_LIMIT
        colours = tab.evaluate("""(() => {
          const c = document.getElementById("matrix");
          const data = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
          const found = {};
          for (let i = 0; i < data.length; i += 4) {
            const key = `${data[i]},${data[i + 1]},${data[i + 2]}`;
            found[key] = (found[key] ?? 0) + 1;
          }
          return found;
        })()""")
        assert colours["140,199,166"] > 50 * colours["192,32,44"] > 0  # mostly good, some failed


def test_search_finds_by_name_group_fitness_code_and_health(browser: Browser, fleet: Fleet) -> None:
    with opened(browser, fleet) as tab:
        tab.evaluate("document.getElementById('query').focus()")
        tab.type("leaf007 fabric event")
        tab.wait("document.getElementById('h-nodes').innerText === 'Found: 28 nodes'")
        assert tab.text("#n-shown") == "28 of 1000"
        assert tab.evaluate("location.hash") == "#q=leaf007+fabric+event"
        tab.evaluate("document.querySelectorAll('#counts button')[1].click()")
        assert tab.text("#nodes") == "No node is like that."
        assert tab.evaluate("document.querySelectorAll('#counts button')[1].getAttribute('aria-pressed')") == "true"


def test_what_was_looked_for_is_in_the_address(browser: Browser, fleet: Fleet) -> None:
    with opened(browser, fleet, "#q=gpu0000&only=fit&node=gpu00003") as tab:
        assert tab.text("#h-nodes") == "Found: 10 nodes"
        assert tab.text("#h-chosen") == "gpu00003"


def test_the_map_is_used_by_keyboard(browser: Browser, fleet: Fleet) -> None:
    with opened(browser, fleet) as tab:
        tab.evaluate("document.getElementById('matrix').focus()")
        tab.press("Home")
        assert tab.text("#readout").startswith("gpu00000 · leaf000 · rail 0 ok · node fit")
        tab.press("ArrowRight", 2)
        tab.press("ArrowDown", 3)
        assert tab.text("#readout").startswith("gpu00002 · leaf000 · rail 3")
        tab.press("End")
        assert tab.text("#readout").startswith("gpu00999")
        tab.press("n")
        first = next(row for row in fleet.rows if row[1] != "fit")
        assert tab.text("#readout").startswith(first[0])
        tab.press("p")
        tab.press("n", 1 + [row[0] for row in fleet.rows if row[1] != "fit"].index("gpu00224"))
        tab.press("Enter")
        tab.wait("document.querySelector('#chosen dl').innerText.includes('port-down mlx5_5/1')")
        assert tab.evaluate("document.activeElement.id") == "h-chosen"
        assert "fabric event" in tab.text("#chosen dl")


def test_the_map_goes_on_from_band_to_band(browser: Browser, fleet: Fleet) -> None:
    with opened(browser, fleet) as tab:
        tab.evaluate("document.getElementById('matrix').focus()")
        tab.press("Home")
        tab.press("ArrowDown", 8)
        [name, _, rail, *_] = tab.text("#readout").split(" · ")
        assert (int(name.removeprefix("gpu")) % LEAF, rail) == (0, "rail 0 ok")
        assert name != "gpu00000"
        tab.press("ArrowUp")
        assert tab.text("#readout").startswith("gpu00000 · leaf000 · rail 7")


def test_a_click_shows_the_node_under_it(browser: Browser, fleet: Fleet) -> None:
    with opened(browser, fleet) as tab:
        tab.evaluate("document.getElementById('matrix').scrollIntoView()")
        box = tab.evaluate("(({x, y}) => ({x, y}))(document.getElementById('matrix').getBoundingClientRect())")
        tab.click(box["x"] + 3, box["y"] + 30)
        tab.wait("document.getElementById('h-chosen').innerText === 'gpu00000'")


def test_it_lives_and_tells_what_changed(browser: Browser, fleet: Fleet) -> None:
    with opened(browser, fleet) as tab:
        fleet.rows = [[*row[:1], "fit", row[2], "oooooooo", *row[4:5], ""] for row in fleet.rows]
        fleet.stop = {"by": "mara", "at": time.time(), "reason": "switch upgrade"}
        look_now(tab)
        tab.wait("document.getElementById('notices').innerText.includes('Stopped by mara')")
        assert "0 unfit" in tab.text("#said")
        tab.wait("document.getElementById('nodes').innerText === 'Every node is fit.'", within=12)
        assert tab.errors == []


def test_a_controller_that_is_gone_is_told(browser: Browser) -> None:
    with Fleet(50) as fleet:
        tab = browser.open(fleet.url)
        tab.wait("!document.getElementById('fleet').hidden")
    with tab:
        look_now(tab)
        tab.wait("!document.getElementById('lost').hidden")
        assert "The controller does not answer" in tab.text("#lost")


def test_a_token_is_asked_for_and_kept_for_the_tab(browser: Browser) -> None:
    with Fleet(50, token=TOKEN) as fleet, browser.open(fleet.url) as tab:
        tab.wait("!document.getElementById('door').hidden")
        for token in ("wrong-token-of-someone", TOKEN):
            assert tab.evaluate("document.activeElement.id") == "token"
            tab.type(token)
            tab.press("Enter")
            if token != TOKEN:
                tab.wait("document.getElementById('summary').innerText.includes('not taken')")
        tab.wait("!document.getElementById('fleet').hidden")
        assert TOKEN not in tab.evaluate("document.documentElement.outerHTML + location.href")
        assert not [url for url in tab.requests if "token" in url]


def test_names_stay_words_and_the_policy_holds(browser: Browser, fleet: Fleet) -> None:
    evil = "<img src=x onerror=window.hacked=1>"
    fleet.rows[0] = [evil, "unfit", evil, "f" * 8, 1, evil]
    with opened(browser, fleet) as tab:
        assert evil in tab.text("#nodes")
        assert not tab.evaluate("window.hacked")
        assert tab.errors == []
        outcome = "(() => { try { document.body.innerHTML = 'x'; return 'made'; } catch { return 'refused'; } })()"
        assert tab.evaluate(outcome) == "refused"


@pytest.mark.parametrize(
    "look", [{}, {"dark": True}, {"phone": True, "width": 390, "height": 844}], ids=["light", "dark", "phone"]
)
def test_axe_has_nothing_to_say(browser: Browser, fleet: Fleet, look: dict[str, object]) -> None:
    with opened(browser, fleet, "#node=gpu00224", trusting=True, **look) as tab:
        tab.wait("!document.getElementById('chosen').hidden")
        assert axe.violations(tab) == []
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
