"""What each state-like rule sees in the newest read of a port or its device."""

from __future__ import annotations

import pytest

from ibmon.health.facts import GBPS, DeviceFacts, PortFacts, Verdict
from ibmon.health.rules import RULE_BY_ID
from ibmon.health.settings import of_rule
from ibmon.model import Pci, PhysicalState, PortId, PortState, Role

GOOD, BAD, UNKNOWN = Verdict.GOOD, Verdict.BAD, Verdict.UNKNOWN
UP, INIT, ARMED, DOWN = PortState.ACTIVE, PortState.INIT, PortState.ARMED, PortState.DOWN
WELL = PortFacts(
    id=PortId("mlx5_0", 1),
    role=Role.COMPUTE,
    link_layer="InfiniBand",
    listed=True,
    stalled=False,
    state=4,
    physical_state=5,
    rate=400 * GBPS,
    width=4,
    speed_word="NDR",
    expected_rate=400 * GBPS,
    best_rate=400 * GBPS,
    fresh=True,
)


def check(rule, **changes):
    row = RULE_BY_ID[rule]
    [condition] = row.check(WELL._replace(**changes), of_rule(row))
    return condition


def verdict(rule, **changes):
    return check(rule, **changes).verdict


EVERY_STATE = (0, *PortState, 6, 99, -1)
EVERY_PHYSICAL = (None, *PhysicalState, 0, 8, 99)


@pytest.mark.parametrize("physical", EVERY_PHYSICAL)
@pytest.mark.parametrize("state", EVERY_STATE)
def test_each_pair_of_states_belongs_to_down_or_to_init_or_to_nobody(state, physical):
    pair = {"state": state, "physical_state": physical}
    down, init = verdict("port-down", **pair), verdict("port-init", **pair)

    if state in (PortState.ACTIVE, PortState.ACTIVE_DEFER):
        assert (down, init) == (GOOD, GOOD)
    elif state in (INIT, ARMED) and physical in (PhysicalState.LINK_UP, None):
        assert (down, init) == (UNKNOWN, BAD)
    else:
        assert (down, init) == (BAD, UNKNOWN)


@pytest.mark.parametrize("rule", ["port-down", "port-init", "rate-low"])
@pytest.mark.parametrize(
    "blind",
    [
        {"fresh": False},
        {"fresh": False, "state": None},
        {"listed": None},
        {"listed": False, "state": None, "fresh": False},
    ],
)
def test_what_nobody_could_read_is_neither_good_nor_bad(rule, blind):
    assert verdict(rule, **{"state": 1, **blind}) is UNKNOWN


@pytest.mark.parametrize(
    ("state", "physical", "words"),
    [
        (1, 2, "DOWN/Polling"),
        (1, 3, "DOWN/Disabled"),
        (1, None, "DOWN"),
        (2, 4, "INIT/PortConfigurationTraining"),
        (1, 42, "DOWN/42"),
        (77, 2, "77/Polling"),
    ],
)
def test_a_port_that_is_down_is_told_in_the_kernels_words(state, physical, words):
    assert check("port-down", state=state, physical_state=physical).words == words


# --------------------------------------------------------------------------------------------------------------- rate


def test_half_the_rate_is_low_and_says_the_width():
    condition = check("rate-low", rate=200 * GBPS, width=2)

    assert (condition.verdict, condition.observed, condition.limit) == (BAD, 200.0, 400.0)
    assert condition.words == "200<400Gb/s 2X"


@pytest.mark.parametrize(("width", "words"), [(1, "100<400Gb/s 1X"), (12, "100<400Gb/s 12X"), (None, "100<400Gb/s")])
def test_a_width_that_is_not_known_is_not_told(width, words):
    assert check("rate-low", rate=100 * GBPS, width=width).words == words


def test_a_rate_with_a_half_is_told_with_it():
    assert check("rate-low", rate=GBPS * 5 // 2, width=1, speed_word="QDR").words == "2.5<400Gb/s 1X"


@pytest.mark.parametrize("rate", [400, 800])
def test_the_expected_rate_or_more_is_good(rate):
    assert verdict("rate-low", rate=rate * GBPS) is GOOD


@pytest.mark.parametrize("state", [1, 2, 3, 0])
def test_a_rate_says_nothing_while_the_port_is_not_active(state):
    assert verdict("rate-low", state=state, rate=10 * GBPS) is UNKNOWN


@pytest.mark.parametrize("unknown", [{"rate": None}, {"expected_rate": None}])
def test_without_a_rate_or_an_expectation_nothing_is_said(unknown):
    assert verdict("rate-low", **unknown) is UNKNOWN


SDR4 = {"rate": 10 * GBPS, "width": 4}
SDR1 = {"rate": GBPS * 5 // 2, "width": 1}
QDR4 = {"rate": 40 * GBPS, "width": 4, "speed_word": "QDR"}


@pytest.mark.parametrize(
    "shown",
    [
        {**SDR4, "speed_word": "SDR"},
        {**SDR4, "speed_word": None},  # before the word was printed
        {**SDR1, "speed_word": "SDR"},
        {**SDR1, "speed_word": None},
        {**QDR4, "link_layer": "Ethernet"},
    ],
)
@pytest.mark.parametrize("best", [None, 100 * GBPS])
def test_what_the_kernel_prints_for_a_speed_it_does_not_know_is_told_and_accuses_nobody(shown, best):
    condition = check("rate-low", best_rate=best, **shown)

    assert condition.verdict is BAD
    assert condition.reach == "warning"
    assert condition.words.startswith("rate unknown, kernel says ")


@pytest.mark.parametrize("shown", [{**SDR4, "speed_word": "SDR"}, {**QDR4, "link_layer": "Ethernet"}])
def test_the_same_text_is_a_fault_where_this_boot_has_shown_the_expected_rate(shown):
    assert verdict("rate-low", best_rate=400 * GBPS, **shown) is BAD


@pytest.mark.parametrize("shown", [QDR4, {**SDR4, "speed_word": "QDR"}, {"rate": 20 * GBPS, "width": 4}])
def test_no_other_low_rate_is_taken_for_that_text(shown):
    assert verdict("rate-low", best_rate=None, **shown) is BAD


# ------------------------------------------------------------------------------------------------------------- device


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"listed": None}, UNKNOWN),
        ({}, GOOD),
        ({"state": 2}, UNKNOWN),  # back on the bus, but its port is not
        ({"fresh": False}, UNKNOWN),
        ({"listed": False}, BAD),
        ({"listed": False, "device": DeviceFacts(function_present=False)}, BAD),
        ({"listed": False, "device": DeviceFacts(function_present=True, bound_to="")}, BAD),
        ({"listed": False, "device": DeviceFacts(function_present=True, bound_to="mlx5_core")}, UNKNOWN),
        ({"listed": False, "device": DeviceFacts(function_present=True, bound_to="vfio-pci")}, GOOD),
    ],
)
def test_a_device_is_missing_where_its_function_does_not_explain_it(facts, expected):
    assert verdict("device-missing", **facts) is expected


def test_a_stalled_device_is_a_warning_until_something_else_shows_that_it_is_the_device():
    assert verdict("device-stalled") is GOOD
    assert check("device-stalled", stalled=True).reach == "warning"
    assert check("device-stalled", stalled=True, device=DeviceFacts(siblings_answer=True)).reach == "critical"
    assert check("device-stalled", stalled=True, device=DeviceFacts(kernel_log=("timeout",))).reach == "critical"


PCI = Pci("0000:01:00.0", max_speed=32 * 10**9, max_width=16, slot_max_speed=32 * 10**9, slot_max_width=16)


@pytest.mark.parametrize(
    ("pci", "speed", "width", "expected"),
    [
        (PCI, 32 * 10**9, 16, GOOD),
        (PCI, 25 * 10**8, 16, BAD),
        (PCI, 32 * 10**9, 8, BAD),
        (
            Pci("a", max_speed=32 * 10**9, max_width=16, slot_max_speed=16 * 10**9, slot_max_width=16),
            16 * 10**9,
            16,
            GOOD,
        ),
        (Pci("a", max_speed=32 * 10**9, max_width=16), 16 * 10**9, 16, BAD),  # only one end tells
        (Pci("a"), 16 * 10**9, 16, UNKNOWN),
        (PCI, None, 16, UNKNOWN),
        (PCI, 32 * 10**9, None, UNKNOWN),
        (None, None, None, UNKNOWN),
    ],
)
def test_a_pcie_link_is_held_against_what_both_ends_can_do(pci, speed, width, expected):
    assert verdict("pcie-degraded", device=DeviceFacts(pci=pci, pci_speed=speed, pci_width=width)) is expected


def test_a_low_pcie_link_says_both_sides():
    condition = check("pcie-degraded", device=DeviceFacts(pci=PCI, pci_speed=25 * 10**8, pci_width=8))

    assert condition.words == "PCIe 2.5GT/s x8<32GT/s x16"


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (DeviceFacts(uverbs="uverbs0", verbs_known=True), GOOD),
        (DeviceFacts(verbs_known=True), BAD),
        (DeviceFacts(), UNKNOWN),  # no device of the node has one: the class is not here
    ],
)
def test_a_character_device_is_missing_only_where_others_have_theirs(device, expected):
    assert verdict("chardev-missing", device=device) is expected


@pytest.mark.parametrize(("polls", "expected"), [(0, GOOD), (1, UNKNOWN), (5, UNKNOWN), (6, BAD), (60, BAD)])
def test_a_state_that_cannot_be_read_many_times_makes_the_monitor_blind(polls, expected):
    condition = check("monitor-blind", failed_polls=polls, state_errno=5)

    assert condition.verdict is expected
    assert condition.reach == "warning" or expected is not BAD  # it never drains


def test_a_driver_that_says_that_its_device_is_dead_is_believed():
    assert verdict("driver-fault") is GOOD
    assert verdict("driver-fault", state_errno=67) is BAD
    assert verdict("driver-fault", state_errno=22) is GOOD
