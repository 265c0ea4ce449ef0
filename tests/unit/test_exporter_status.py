"""The status document."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from exporter_snapshots import AT, NDR, bad, device_view, port_values, port_view, snapshot

from ibmon import __version__
from ibmon.exporter.status import TTL, status_document
from ibmon.model import Column, Layout, Level, Tier


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
            "totals": None,
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


# ---------------------------------------------------------------------------------------------- sums


def totals_of(values, *, port=1, errors=(), **facts):
    """The sums of a port of a device with these values, of which the columns `errors` are error counters."""
    view = device_view("a", values, **facts)
    columns = tuple(c._replace(error=c.name in errors) for c in view.device.layout.columns)
    layout = Layout.build("a", 1, columns)
    device = msgspec.structs.replace(view.device, layout=layout)
    view = msgspec.structs.replace(view, device=device, sample=msgspec.structs.replace(view.sample, layout=layout))
    return status_document(snapshot([view], [port_view("a", port)]))["ports"][0]["totals"]


def test_a_port_tells_bytes_sent_and_received_its_errors_and_when_they_were_read():
    values = port_values(port_xmit_data=2**62, port_rcv_data=7, symbol_error=3, link_downed=2, port_rcv_packets=9)
    assert totals_of(values, errors={"symbol_error", "link_downed"}) == {
        "at": 998.5,
        "xmit_bytes": 2**64,
        "rcv_bytes": 28,
        "errors": 5,
    }


def test_adapters_without_the_standard_counters_tell_the_bytes_of_their_own():
    values = {(1, Level.HW, "tx_bytes"): 100, (1, Level.HW, "rx_bytes"): 200}
    found = totals_of(values)
    assert (found["xmit_bytes"], found["rcv_bytes"], found["errors"]) == (100, 200, None)


def test_sums_are_of_one_port():
    values = {**port_values(1, port_rcv_data=1, symbol_error=5), **port_values(2, port_rcv_data=2, symbol_error=7)}
    found = totals_of(values, port=2, ports=(1, 2), errors={"symbol_error"})
    assert (found["rcv_bytes"], found["errors"]) == (8, 7)


def test_what_cannot_be_read_is_no_zero_and_hides_no_other_counter():
    values = port_values(port_rcv_data=None, symbol_error=None, link_downed=2)
    found = totals_of(values, errors={"symbol_error", "link_downed"})
    assert (found["rcv_bytes"], found["xmit_bytes"], found["errors"]) == (None, None, 2)


@pytest.mark.parametrize("facts", [{"stalled": True}, {"sampled": None}])
def test_a_port_that_is_not_read_has_no_sums(facts):
    assert totals_of(port_values(port_rcv_data=1), **facts) is None


# --------------------------------------------------------------------------------------------------------- its page


def told(section):
    """The keys that a table of docs/status.md has below a heading, and those that a row names of a value within."""
    page = (Path(__file__).parents[2] / "docs/status.md").read_text()
    table = page.partition(f"{section}\n")[2].partition("\n##")[0]
    rows = re.findall(r"^\| (`[^|]+`) \| (.+) \|$", table, re.MULTILINE)
    return {key: set(re.findall(r"`(\w+)`", text)) for keys, text in rows for key in re.findall(r"`(\w+)`", keys)}


@pytest.mark.parametrize("part", ["devices", "ports", "findings"])
def test_the_page_has_every_key_of_a_part(part):
    (row, *_) = status_document(bad())[part]
    assert told(f"### {part}").keys() == row.keys()


def test_the_page_has_every_key_of_the_rest():
    document = status_document(bad())
    top, drain = told("## The status document"), told("### drain")
    assert top.keys() == document.keys()
    assert top["config"] == document["config"].keys()
    assert drain.keys() == document["drain"].keys()
    assert drain["owned"] == document["drain"]["owned"].keys()
    assert told("### ports")["totals"] == document["ports"][0]["totals"].keys()
