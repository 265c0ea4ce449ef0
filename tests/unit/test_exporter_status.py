"""The status document and the page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest
from exporter_snapshots import AT, NDR, device_view, port_values, port_view, snapshot, typical

from ibmon import __version__
from ibmon.exporter.page import HEADERS, render_page
from ibmon.exporter.status import TTL, status_document
from ibmon.model import BlockCode, Column, Finding, Intent, Level, NodeFitness, Ownership, PortHealth, Severity, Tier
from ibmon.snapshot import DrainView

FINDING = Finding("port-down", "mlx5_1", 1, "", Severity.CRITICAL, 1.5e9, "DOWN", None, "DOWN/Polling 62s>60s")


def bad():
    drain = DrainView(
        Intent(drain=True, id="7f3a9c", reason="ibmon: port-down", since=1.5e9),
        Ownership("7f3a9c", "ibmon: port-down", 1.6e9, held=True),
        blocked=BlockCode.OVERRIDE,
        would=1,
    )
    return msgspec.structs.replace(
        typical(), fitness=NodeFitness.UNFIT, why="port-down mlx5_1/1", findings=(FINDING,), drain=drain
    )


# ---------------------------------------------------------------------------------------------- the document


def test_the_top_of_the_document_says_whose_and_when():
    document = status_document(bad())
    assert {k: v for k, v in document.items() if not isinstance(v, list | dict)} == {
        "v": 1,
        "version": __version__,
        "node": "node1",
        "boot_id": "0b1d",
        "monotonic": AT.monotonic,
        "wall": AT.wall,
        "ttl": TTL,
        "sequence": 1,
        "mode": "observe",
        "fitness": "unfit",
        "why": "port-down mlx5_1/1",
        "up": True,
        "listing_errno": None,
        "actions_enabled": True,
        "devices_expected": 2,
        "maintenance": None,
    }


def test_a_port_is_told_in_the_kernels_words():
    view = port_view(
        "mlx5_0",
        expected=True,
        slot="0000:1a:00.0/1",
        declared=True,
        trusted=True,
        rail=3,
        link_layer="InfiniBand",
        netdev="ib0",
        state=4,
        physical_state=5,
        rate=NDR // 2,
        expected_rate=NDR,
        speed_word="NDR",
        width=2,
        flaps=1,
        moved=((Column(1, Level.HW, "out_of_sequence", Tier.COUNTER), 12),),
        hold={"rate-low": 30.0},
    )
    assert status_document(snapshot(ports=[view]))["ports"] == [
        {
            "device": "mlx5_0",
            "port": 1,
            "role": "compute",
            "rail": 3,
            "health": "ok",
            "present": True,
            "expected": True,
            "slot": "0000:1a:00.0/1",
            "declared": True,
            "trusted": True,
            "link_layer": "InfiniBand",
            "netdev": "ib0",
            "state": "ACTIVE",
            "physical_state": "LinkUp",
            "rate": NDR // 2,
            "expected_rate": NDR,
            "speed": "NDR",
            "width": 2,
            "flaps": 1,
            "moved": [{"port": 1, "counter": "hw_out_of_sequence", "rise": 12}],
            "hold": {"rate-low": 30.0},
        }
    ]


@pytest.mark.parametrize(("state", "word"), [(None, None), (1, "DOWN"), (9, "9")])
def test_an_unknown_state_stays_unknown(state, word):
    [port] = status_document(snapshot(ports=[port_view("a", state=state)]))["ports"]
    assert port["state"] == word


def test_a_device_tells_its_identity_link_and_errors():
    first, second = status_document(bad())["devices"]
    assert first["pci"] is None
    assert second["device"] == "mlx5_0"
    assert second["sample_age_seconds"] == 1.5
    assert second["read_errors"] == {"ENODEV": 1, "EINVAL": 4}
    assert second["saturated"] == [{"port": 1, "counter": "link_downed"}]
    assert second["pci"] == {
        "address": "0000:1a:00.0",
        "numa_node": None,
        "speed": 32_000_000_000,
        "width": 8,
        "expected_speed": 32_000_000_000,
        "expected_width": 16,
    }


def test_findings_and_drain_are_complete():
    document = status_document(bad())
    assert document["findings"] == [
        {
            "rule": "port-down",
            "device": "mlx5_1",
            "port": 1,
            "counter": "",
            "severity": "critical",
            "onset": 1.5e9,
            "observed": "DOWN",
            "limit": None,
            "text": "DOWN/Polling 62s>60s",
            "recovering": False,
            "drains": False,
            "maintenance": False,
        }
    ]
    assert document["drain"] == {
        "wanted": True,
        "id": "7f3a9c",
        "reason": "ibmon: port-down",
        "since": 1.5e9,
        "active": True,
        "owned": {"id": "7f3a9c", "reason": "ibmon: port-down", "asked": 1.6e9, "held": True},
        "blocked": "override",
        "would": 1,
        "overridden": False,
        "asked": None,
        "orphaned": False,
        "action_errors": {},
    }


def test_no_drain_is_not_active_and_has_no_time():
    drain = status_document(snapshot())["drain"]
    assert (drain["wanted"], drain["active"], drain["owned"], drain["since"]) == (False, False, None, None)


@pytest.mark.parametrize("shot", [snapshot(), snapshot(up=False, listing_errno=13), bad()])
def test_any_json_encoder_takes_it(shot):
    document = status_document(shot)
    assert json.loads(json.dumps(document)) == json.loads(msgspec.json.encode(document)) == document


def test_a_directory_that_cannot_be_read_is_named_by_its_error():
    assert status_document(snapshot(up=False, listing_errno=13))["listing_errno"] == "EACCES"


# ---------------------------------------------------------------------------------------------- the page


class Page(HTMLParser):
    """Checks nesting, and collects the text and every attribute that could load something."""

    def __init__(self, html):
        super().__init__()
        self.open, self.words, self.loads = [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag not in {"meta", "br"}:
            self.open.append(tag)
        self.loads += [(tag, name, value) for name, value in attrs if name in {"src", "href", "style", "onload"}]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)


def test_the_page_says_what_is_wrong_and_what_was_done():
    page = Page(render_page(bad()))
    for words in ("unfit", "port-down mlx5_1/1", "DOWN/Polling 62s>60s", "In force: ibmon: port-down.", "missing"):
        assert words in page.text
    assert "Not made because of override." in page.text


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
    evil = "<script>alert(1)</script>"
    port = port_view(evil, netdev=evil, link_layer=evil, health=PortHealth.FAILED)
    finding = msgspec.structs.replace(FINDING, device=evil, rule=evil, text=evil)
    drain = DrainView(Intent(drain=True, reason=evil))
    device = device_view(evil, {}, stalled=True)
    html = render_page(snapshot([device], [port], node=evil, why=evil, findings=(finding,), drain=drain))
    assert "<script" not in html
    assert Page(html).text.count(evil) > 5


def test_the_page_loads_nothing_and_its_style_is_the_one_the_policy_names():
    html = render_page(bad())
    assert {tag for tag, _, _ in Page(html).loads} == {"a"}
    assert all("//" not in value for _, _, value in Page(html).loads)
    [style] = re.findall("<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert f"style-src 'sha256-{digest}'" in policy
