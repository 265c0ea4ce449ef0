"""What a person may say of a node's ports, where the configuration has already said what belongs there."""

from __future__ import annotations

import pytest
from core_world import DOWN, Site, node, port, start

from ibmon.messages import Answer, Person
from ibmon.people import no_such
from ibmon.recording import Frame
from ibmon.runtime.replay import play


def asked(action, *ports):
    site = Site()
    site.people = {60.0: Person(1, action, "ada", ports)}
    frames = [start(), start(60.0)]
    list(play(site, iter(frames), [120.0], 120.0))
    return site.answers


def test_a_declared_port_is_forgotten_in_the_configuration_only():
    text = "mlx5_0/1, mlx5_1/1: declared in the configuration, so remove it there"
    assert asked("forget", "mlx5_1", "mlx5_0") == [Answer(1, done=False, text=text)]


@pytest.mark.parametrize("action", ["accept", "forget"])
def test_a_port_that_is_not_there_is_named(action):
    assert asked(action, "mlx5_9/1") == [Answer(1, done=False, text=no_such(["mlx5_9/1"]))]


def test_accepted_ports_are_named_in_order():
    assert asked("accept", "mlx5_1", "mlx5_0") == [Answer(1, done=True, text="accepted mlx5_0/1, mlx5_1/1")]


# ------------------------------------------------------------------------------------------------------------- clear

PCI = "devices/pci0000:00/0000:1a:00.0"
DIES = Frame(t=60, kmsg=("mlx5_core 0000:1a:00.0: unrecoverable hardware error",))


def cleared(files, fault, *rules, links=None):
    """The findings before and long after a person's clear."""
    site = Site()
    site.people = {600.0: Person(1, "clear", "ada", (), rules)}
    frames = [Frame(t=0, files=files, links=links or {}), fault, Frame(t=600)]
    told = {t: row["findings"] for t, row in play(site, iter(frames), [599.0, 900.0], 900.0) if t in (599.0, 900.0)}
    return [f["rule"] for f in told[599.0]], [f["rule"] for f in told[900.0]]


@pytest.mark.parametrize("rules", [(), ("receive-errors",)])
def test_what_was_counted_before_a_clear_is_not_found_again(rules):
    begin, risen = (port("mlx5_0", port_rcv_errors=n, link_downed=0) for n in (0, 200))

    assert cleared({**start().files, **begin}, Frame(t=60, files=risen), *rules) == (["receive-errors"], [])


def test_a_clear_of_one_rule_leaves_the_counts_of_others():
    counters = {"port_rcv_errors": 200, "local_link_integrity_errors": 5}
    begin, risen = port("mlx5_0", **dict.fromkeys(counters, 0)), port("mlx5_0", **counters)
    before, after = cleared({**start().files, **begin}, Frame(t=60, files=risen), "receive-errors")

    assert (before, after) == (["link-integrity", "receive-errors"], ["link-integrity"])


@pytest.mark.parametrize(("rules", "after"), [((), []), (("driver-fault",), []), (("port-down",), ["driver-fault"])])
def test_what_the_kernel_log_said_before_a_clear_is_not_found_again(rules, after):
    files = {p.replace("class/infiniband", f"{PCI}/infiniband"): text for p, text in port("mlx5_0").items()}
    links = {
        "class/infiniband/mlx5_0": f"../../{PCI}/infiniband/mlx5_0",
        f"{PCI}/infiniband/mlx5_0/device": "../../../0000:1a:00.0",
    }

    assert cleared({**start(0, "mlx5_1").files, **files}, DIES, *rules, links=links) == (["driver-fault"], after)


def test_where_one_of_the_ports_cannot_be_accepted_nothing_changes():
    site = Site('[inventory]\nmode = "learn"\n')
    site.people = {160.0: Person(1, "accept", "ada", ("mlx5_0", "mlx5_1"))}
    files = {**node("mlx5_0"), **port("mlx5_1", DOWN)}
    slow = port("mlx5_0", rate="200 Gb/sec (4X HDR)\n")
    list(play(site, iter([Frame(t=0, files=files), Frame(t=60, files=slow), Frame(t=160)]), [], 162))

    text = "mlx5_1/1 was never ACTIVE here, so there is nothing to accept"
    assert site.answers == [Answer(1, done=False, text=text)]
    assert [finding.rule for finding in site.engine.snapshot(site.now()).findings] == ["rate-low"]
