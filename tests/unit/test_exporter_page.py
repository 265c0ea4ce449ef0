"""The page: what the still picture says, and that nothing on it can load, run or forge anything."""

from __future__ import annotations

import re

import msgspec
import pytest
from exporter_snapshots import AT, FINDING, NDR, bad, device_view, port_values, port_view, snapshot
from pages import Page

from ibmon.exporter import page
from ibmon.exporter.blocktext import BLOCK_TEXT
from ibmon.exporter.page import FILES, HEADERS, icon, render_page
from ibmon.exporter.render import Renderer
from ibmon.exporter.selfmetrics import SelfMetrics
from ibmon.exporter.site import Site
from ibmon.model import BlockCode, Intent, NodeFitness, Ownership, PortHealth
from ibmon.snapshot import DrainView

SIZE = 60_000  # bytes of the document and all that it loads


def served(path):
    site = Site(bad, Renderer(), SelfMetrics(), lambda: AT.monotonic, lambda: AT.monotonic)
    path, _, query = path.partition("?")
    return site.respond(path, None, None, query)


def test_the_page_says_what_is_wrong_and_what_was_done():
    text = Page(render_page(bad())).text
    for words in ("unfit", "port-down mlx5_1/1", "DOWN/Polling 62s>60s", "In force: ibmon: port-down.", "missing"):
        assert words in text
    assert "Not made because of override: An operator resumed the node" in text


@pytest.mark.parametrize(
    ("shot", "words"),
    [
        (None, "Nothing was read yet."),
        (snapshot(), "No RDMA port on this node."),
        (snapshot(up=False, listing_errno=2), "class/infiniband cannot be read."),
        (snapshot(config_valid=False), "The configuration file is invalid"),
        (snapshot(actions_enabled=False), "Another daemon on this node acts"),
        (snapshot([device_view("a", port_values(), stalled=True)]), "Reads do not come back from a."),
        (snapshot(drain=DrainView(Intent(drain=True, reason="ibmon: x"))), "Wanted: ibmon: x."),
        (snapshot(drain=DrainView(Intent(drain=True), Ownership("1", "ibmon: x", 1.0))), "Asked for: ibmon: x."),
        (snapshot(ports=[port_view("a", rate=NDR // 2, expected_rate=NDR)]), "200 of 400 Gb/s"),
        (snapshot(ports=[port_view("a", rate=NDR, expected_rate=NDR, state=4, physical_state=5)]), "ACTIVE/LinkUp"),
    ],
)
def test_the_page_says(shot, words):
    assert words in Page(render_page(shot)).text


def test_a_port_without_a_rate_does_not_show_zero():
    assert "Gb/s" not in Page(render_page(snapshot(ports=[port_view("a")]))).text


def test_words_of_the_kernel_cannot_become_markup():
    evil = "<script>alert(1)</script>$codes"
    port = port_view(evil, netdev=evil, link_layer=evil, health=PortHealth.FAILED)
    finding = msgspec.structs.replace(FINDING, device=evil, rule=evil, text=evil)
    drain = DrainView(Intent(drain=True, reason=evil))
    device = device_view(evil, {}, stalled=True)
    found = Page(render_page(snapshot([device], [port], node=evil, why=evil, findings=(finding,), drain=drain)))
    assert found.tags.count("script") == 1
    assert found.text.count(evil) > 5


def test_all_that_the_page_loads_is_here_and_together_it_is_small():
    found = Page(render_page(bad()))
    wanted = [value for tag, _, value in found.loads if tag in {"link", "script"}]
    assert {f"/{name.partition('?')[0]}" for name in wanted} == {*FILES, "/icon.svg"}
    answers = [served(f"/{name}") for name in {*wanted, ""}]
    assert {answer.status for answer in answers} == {200}
    assert sum(len(answer.body) for answer in answers) <= SIZE


def test_scripts_import_nothing_from_elsewhere_and_make_no_markup():
    scripts = {path: body.decode() for path, body in page.load().items() if path.endswith(".js")}
    imported = {name for text in scripts.values() for name in re.findall(r'from "(.*?)"', text)}
    assert {name.removeprefix(".") for name in imported} <= scripts.keys()
    for text in scripts.values():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3)", text
        )


def test_every_element_that_the_scripts_ask_for_by_name_is_on_the_page():
    asked = {name for body in page.load().values() for name in re.findall(r'\$\("(.*?)"\)', body.decode())}
    ids = Page(render_page(bad())).ids
    assert asked - {"live-root"} <= set(ids)
    assert len(ids) == len(set(ids))


def test_the_policy_lets_in_nothing_that_stands_in_the_page_or_comes_from_elsewhere():
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[f"{kind}-src"] for kind in ("script", "style", "img", "connect")} == {"'self'"}
    assert policy["trusted-types"] == policy["frame-ancestors"] == "'none'"
    assert served("/").headers == tuple(HEADERS.items())


@pytest.mark.parametrize("fitness", NodeFitness)
def test_the_sign_in_the_tab_tells_the_fitness(fitness):
    assert served(f"/icon.svg?{fitness.value}").body == icon(fitness.value) != icon("")


def test_a_word_that_is_no_fitness_stays_out_of_the_sign():
    assert served("/icon.svg?%22><script>").body == icon("")


def test_each_code_that_holds_a_drain_back_is_explained():
    assert BLOCK_TEXT.keys() == set(BlockCode)
    text = Page(render_page(None)).text
    assert all(line in text for line in BLOCK_TEXT.values())
