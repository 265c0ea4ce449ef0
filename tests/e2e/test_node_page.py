"""The daemon's page in a real browser: what it shows, that it lives, by keyboard, in the dark, on a phone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from services import axe
from services.daemon import Daemon
from services.node import DEVICES, NodeTree
from services.processes import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.chromium import Browser, Tab

pytestmark = pytest.mark.timeout(120)

EVIL = "<img src=x onerror=window.hacked=1>"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> NodeTree:
    tree = NodeTree(tmp_path_factory.mktemp("node") / "sys")
    (tree.root / "class/infiniband/mlx5_0/board_id").write_text(f"{EVIL}\n")
    return tree


@pytest.fixture(scope="module")
def daemon(tree: NodeTree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tree, tmp_path_factory.mktemp("daemon") / "ibmon", env=os.environ) as running:
        yield running


def opened(browser: Browser, daemon: Daemon, **look: object) -> Tab:
    tab = browser.open(f"http://{daemon.address}/", **look)
    if look.get("scripts", True):
        tab.wait("document.querySelectorAll('tr.port').length === 4")
    return tab


def look_now(tab: Tab) -> None:
    """What happens when a person comes back to the tab: it asks at once."""
    tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def until(tab: Tab, condition: str) -> None:
    def reached() -> bool:
        look_now(tab)
        return bool(tab.evaluate(condition))

    wait_for(reached, within=20, what=condition, every=0.3)


SAMPLE = "[...document.querySelectorAll('tr.port dt')].find((t) => t.innerText === 'sample').nextSibling.innerText"


def card(device: str) -> str:
    number = DEVICES.index(device) + 1
    return f"document.querySelector('tr.port:nth-child({number})').innerText"


def test_it_shows_the_node_its_ports_and_what_they_carry(browser: Browser, daemon: Daemon, tree: NodeTree) -> None:
    with opened(browser, daemon) as tab:
        assert tab.text("h1") == "node1"
        assert tab.text("#fitness") == "fit"
        assert "400 of 400 Gb/s" in tab.evaluate(card("mlx5_2"))
        assert tab.evaluate("document.title") == "fit · node1 · ibmon"

        def carries() -> bool:
            tree.carry("mlx5_2", 25)
            look_now(tab)
            return "in 0 Gb/s" not in tab.evaluate(card("mlx5_2")) and "in ? Gb/s" not in tab.evaluate(card("mlx5_2"))

        wait_for(carries, within=15, what="throughput", every=1.0)
        assert "in 0 Gb/s" in tab.evaluate(card("mlx5_1"))
        assert tab.evaluate("document.querySelector('tr.port:nth-child(3) path.in').getAttribute('d').length") > 10
        assert tab.errors == []
        assert {url.split("/", 3)[2] for url in tab.requests} == {daemon.address}


def test_it_lives_without_reloading_and_says_what_ibmon_would_do_and_why_not(
    browser: Browser, daemon: Daemon, tree: NodeTree
) -> None:
    with opened(browser, daemon) as tab:
        tab.evaluate("window.same = true")
        tree.link_down("mlx5_1")
        try:
            until(tab, "document.getElementById('fitness').innerText === 'unfit'")
            assert "DOWN / Polling" in tab.evaluate(card("mlx5_1"))
            assert "port-down mlx5_1/1" in tab.text("#findings")
            plan = tab.text("#plan")
            assert "would drain" in plan
            assert "Why not now: mode. The mode is observe" in plan
            assert "unfit" in tab.text("#said")
            assert "port-state" in tab.text("#events")
        finally:
            tree.link_up("mlx5_1")
        until(tab, "document.getElementById('fitness').innerText === 'fit'")
        assert tab.evaluate("window.same")
        assert "Nothing: no drain is wanted." in tab.text("#plan")
        assert tab.errors == []


def test_a_daemon_that_does_not_answer_is_told_with_the_age_of_what_is_seen(browser: Browser, daemon: Daemon) -> None:
    with opened(browser, daemon) as tab:
        daemon.process.freeze()
        try:
            look_now(tab)
            tab.wait("!document.getElementById('lost').hidden")
            assert "The daemon does not answer (no answer within 4 s)" in tab.text("#lost")
            assert "does not answer" in tab.text("#said")
        finally:
            daemon.process.thaw()
        until(tab, "document.getElementById('lost').hidden")
        assert "answers again" in tab.text("#said")


def test_it_is_used_by_keyboard_and_what_is_open_stays_open(browser: Browser, daemon: Daemon) -> None:
    with opened(browser, daemon) as tab:
        tab.press("Tab")
        assert tab.evaluate("document.activeElement.textContent") == "Skip to the node"
        tab.press("Enter")
        tab.press("Tab")
        assert tab.evaluate("document.activeElement.id") == "pause"
        tab.press("Tab")
        assert tab.evaluate("document.activeElement.innerText").startswith("Details")
        tab.press("Enter")
        assert tab.evaluate("document.querySelector('tr.port details').open")
        asked = tab.evaluate(SAMPLE)
        wait_for(
            lambda: (look_now(tab), tab.evaluate(SAMPLE) != asked)[1], within=10, what="a newer picture", every=0.3
        )
        assert tab.evaluate("document.querySelector('tr.port details').open")
        assert tab.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_a_pause_holds_the_picture_still(browser: Browser, daemon: Daemon) -> None:
    with opened(browser, daemon) as tab:
        tab.evaluate("document.getElementById('pause').click()")
        asked = len(tab.requests)
        look_now(tab)
        assert tab.text("#age").startswith("paused")
        assert len(tab.requests) == asked
        tab.evaluate("document.getElementById('pause').click()")
        wait_for(lambda: len(tab.requests) > asked, within=5, what="a question after the pause")


def test_words_of_the_kernel_stay_words_and_the_policy_holds(browser: Browser, daemon: Daemon) -> None:
    with opened(browser, daemon) as tab:
        assert EVIL in tab.evaluate("document.querySelector('tr.port dl').textContent")
        assert tab.errors == []
        outcomes = tab.evaluate("""(async () => {
          const found = {};
          try { document.body.innerHTML += "<b>x</b>"; found.markup = "made"; } catch { found.markup = "refused"; }
          const script = document.createElement("script");
          try { script.textContent = "window.hacked = 1"; document.body.append(script); } catch { /* refused */ }
          document.body.setAttribute("style", "color: rgb(1, 2, 3)");
          found.style = getComputedStyle(document.body).color;
          found.elsewhere = await fetch("http://127.0.0.1:9/").then(() => "fetched", () => "refused");
          try { eval("1"); found.eval = "run"; } catch { found.eval = "refused"; }
          return found;
        })()""")
        assert outcomes.pop("style") != "rgb(1, 2, 3)"
        assert outcomes == {"markup": "refused", "elsewhere": "refused", "eval": "refused"}
        assert not tab.evaluate("window.hacked")
        assert any("Content Security Policy" in line for line in tab.errors)


@pytest.mark.parametrize(
    "look", [{}, {"dark": True}, {"phone": True, "width": 390, "height": 844}], ids=["light", "dark", "phone"]
)
def test_axe_has_nothing_to_say_with_a_finding_on_the_page(
    browser: Browser, daemon: Daemon, tree: NodeTree, look: dict[str, object]
) -> None:
    tree.link_down("mlx5_3")
    try:
        with opened(browser, daemon, trusting=True, **look) as tab:
            until(tab, "document.querySelector('#findings .critical') !== null")
            tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })")
            assert axe.violations(tab) == []
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    finally:
        tree.link_up("mlx5_3")


def test_without_scripts_it_is_a_table(browser: Browser, daemon: Daemon) -> None:
    with opened(browser, daemon, scripts=False) as tab:
        rows = tab.evaluate("[...document.querySelectorAll('#still tbody tr')].map((r) => r.innerText)")
        assert sum("400 Gb/s" in row for row in rows) == len(DEVICES)
        assert tab.evaluate("document.querySelector('#still').offsetHeight") > 0
