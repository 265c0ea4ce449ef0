"""Which ports a node should have: declared or learned, by name, GUID or PCI address, and what they are for."""

from __future__ import annotations

import msgspec
import pytest

from ibmon.configfile import loads
from ibmon.health.facts import GBPS
from ibmon.health.inventory import Learned, expand, guess_roles, take
from ibmon.model import Device, Function, Layout, Pci, Port, PortId, Role

COMPUTE, STORAGE, MANAGEMENT, IGNORED = Role.COMPUTE, Role.STORAGE, Role.MANAGEMENT, Role.IGNORED
DECLARED = '[inventory]\nmode = "declared"\n'
TRUSTING = '[inventory]\ntrust = "learned"\n'


def device(name, *, pci=None, guid=None, function=Function.PF, layer="InfiniBand", ports=1, board="MT_1", generation=1):
    return Device(
        name=name,
        layout=Layout.build(name, generation, ()),
        ports=tuple(Port(PortId(name, n), layer) for n in range(1, ports + 1)),
        function=function,
        node_guid=guid,
        board_id=board,
        driver="mlx5_core",
        pci=None if pci is None else Pci(pci),
    )


def entry(match, **keys):
    lines = "".join(f"{key} = {value!r}\n".replace("'", '"') for key, value in keys.items())
    return f'[[port]]\nmatch = "{match}"\n{lines}'


def inventory(config, *devices, learned=None):
    rows = take(loads(config).config, {d.name: d for d in devices}, learned or {})
    return {str(port): row for port, row in rows.items()}


def expected(config, *devices, learned=None):
    return sorted(name for name, row in inventory(config, *devices, learned=learned).items() if row.expected)


def seen(name, *, role=COMPUTE, active=True, rate=400 * GBPS):
    return Learned(name, role, active, rate)


# ---------------------------------------------------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("mlx5_0/1", ["mlx5_0/1"]),
        ("mlx5_[0-3]/1", ["mlx5_0/1", "mlx5_1/1", "mlx5_2/1", "mlx5_3/1"]),
        ("mlx5_[02]/[12]", ["mlx5_0/1", "mlx5_0/2", "mlx5_2/1", "mlx5_2/2"]),
        ("mlx5_[0-1a]/1", ["mlx5_0/1", "mlx5_1/1", "mlx5_a/1"]),
        ("mlx5_*/1", None),
        ("mlx5_?/1", None),
        ("mlx5_[!0]/1", None),
        ("mlx5_[0-3]/*", None),
    ],
)
def test_a_pattern_with_classes_stands_for_its_names_and_one_with_wildcards_for_none(pattern, names):
    assert expand(pattern) == names


# ---------------------------------------------------------------------------------------------------------- declared


def test_each_name_that_a_class_stands_for_is_expected_present_or_not():
    rows = inventory(DECLARED + entry("mlx5_[0-2]/1"), device("mlx5_1"))

    assert sorted(rows) == ["mlx5_0/1", "mlx5_1/1", "mlx5_2/1"]
    assert all(row.expected and row.trusted for row in rows.values())
    assert [rows[name].device is not None for name in sorted(rows)] == [False, True, False]


@pytest.mark.parametrize("match", ["mlx5_*/1", "mlx5_?/1", "*/*"])
@pytest.mark.parametrize("slot", ["mlx5_1/1", "0000:3b:00.0/1"])
def test_what_a_wildcard_names_and_was_active_is_expected_though_it_has_gone(match, slot):
    rows = inventory(DECLARED + entry(match, rate=200), device("mlx5_0"), learned={slot: seen("mlx5_1/1")})

    assert rows["mlx5_1/1"].expected
    assert rows["mlx5_1/1"].trusted
    assert rows["mlx5_1/1"].device is None
    assert rows["mlx5_1/1"].rate == 200 * GBPS


# ------------------------------------------------------------------------------------------------------------ count


@pytest.mark.parametrize(
    ("entries", "names", "missing"),
    [
        (entry("mlx5_*/1", count=3), ["mlx5_0", "mlx5_1"], ["mlx5_2/1"]),
        (entry("mlx5_*/1", count=2), ["mlx5_0", "mlx5_7"], []),
        (entry("mlx5_*/1", count=3), ["mlx5_0", "mlx5_2"], ["mlx5_1/1"]),
        (entry("mlx5_?/1", count=2), [], ["mlx5_0/1", "mlx5_1/1"]),
        (entry("mlx5_0/?", count=2), ["mlx5_0"], ["mlx5_0/2"]),
        (entry("mlx5_[!0]/1", count=1), [], ["mlx5_1/1"]),
        (entry("ib[ab]*/1", count=2), [], ["iba0/1", "ibb0/1"]),
        (entry("mlx5_?/1", count=12), [], [f"mlx5_{i}/1" for i in range(10)]),
        (entry("mlx5_0/1", role="storage") + entry("mlx5_*/1", count=1), ["mlx5_0"], ["mlx5_1/1"]),
        (entry("mlx5_[12]/1", role="ignored") + entry("mlx5_*/1", count=2), ["mlx5_0", "mlx5_1"], ["mlx5_3/1"]),
        (entry("mlx5_*/1", count=2, role="ignored"), ["mlx5_0"], []),
    ],
)
def test_an_entry_that_counts_expects_so_many_ports_whoever_was_seen(entries, names, missing):
    rows = inventory(DECLARED + entries, *map(device, names))

    assert sorted(name for name, row in rows.items() if row.device is None) == missing
    assert all(rows[name].expected and rows[name].trusted for name in missing)


def test_ports_that_were_active_go_before_others_where_more_are_there_than_must_be():
    learned = {f"mlx5_{i}/1": seen(f"mlx5_{i}/1") for i in (1, 2)}
    config = DECLARED + entry("mlx5_*/1", count=2)

    assert expected(config, *map(device, ("mlx5_0", "mlx5_1", "mlx5_2")), learned=learned) == ["mlx5_1/1", "mlx5_2/1"]


def test_one_that_was_active_and_has_gone_is_the_one_that_is_missing():
    config = DECLARED + entry("mlx5_*/1", count=2)

    assert expected(config, device("mlx5_0"), learned={"s": seen("mlx5_8/1")}) == ["mlx5_0/1", "mlx5_8/1"]


@pytest.mark.parametrize("learned", [seen("mlx5_1/1", active=False), seen("ib1/1")])
def test_what_was_never_active_or_is_not_named_is_not_missed_where_ports_are_declared(learned):
    assert expected(DECLARED + entry("mlx5_*/1"), learned={learned.name: learned}) == []


def test_what_a_wildcard_names_is_expected_once_it_was_active():
    config = DECLARED + entry("mlx5_*/1")
    slot = device("mlx5_0").slot(1)

    assert expected(config, device("mlx5_0")) == []
    assert expected(config, device("mlx5_0"), learned={slot: seen("mlx5_0/1")}) == ["mlx5_0/1"]


def test_declared_mode_judges_nothing_that_is_not_named():
    rows = inventory(DECLARED + entry("mlx5_0/1"), device("mlx5_0"), device("mlx5_1"))

    assert rows["mlx5_1/1"].role is IGNORED
    assert not rows["mlx5_1/1"].expected


def test_declared_without_a_port_judges_nothing():
    assert expected(DECLARED, device("mlx5_0")) == []


def test_the_first_entry_that_matches_wins():
    config = DECLARED + entry("mlx5_0/1", role="storage") + entry("mlx5_[0-1]/1", rate=400)
    rows = inventory(config, device("mlx5_0"), device("mlx5_1"))

    assert (rows["mlx5_0/1"].role, rows["mlx5_0/1"].rate) == (STORAGE, None)
    assert (rows["mlx5_1/1"].role, rows["mlx5_1/1"].rate) == (COMPUTE, 400 * GBPS)


def test_a_declared_virtual_function_is_judged():
    assert expected(DECLARED + entry("mlx5_0/1"), device("mlx5_0", function=Function.VF)) == ["mlx5_0/1"]


def test_an_ignored_entry_expects_nothing():
    config = '[inventory]\nmode = "learn"\n' + entry("mlx5_[0-1]/1", role="ignored")

    assert expected(config, device("mlx5_0"), learned={"mlx5_0/1": seen("mlx5_0/1")}) == []


def test_the_rate_is_the_declared_one_else_the_best_that_was_seen():
    learned = {"mlx5_0/1": seen("mlx5_0/1", rate=200 * GBPS)}
    known, declared = (
        inventory(DECLARED + entry("mlx5_0/1", **more), device("mlx5_0"), learned=learned)["mlx5_0/1"].rate
        for more in ({}, {"rate": 400})
    )

    assert (known, declared) == (200 * GBPS, 400 * GBPS)


@pytest.mark.parametrize(
    "match",
    ["guid:0011:2233:4455:6603", "guid:0011:2233:4455:6603/1", "pci:0000:5e:00.0", "pci:0000:5e:00.0/1"],
)
def test_a_port_is_named_by_its_card_or_slot_whatever_it_is_called(match):
    for name in ("mlx5_3", "ibp94s0"):
        card = device(name, pci="0000:5e:00.0", guid="0011:2233:4455:6603")
        other = device("mlx5_9", pci="0000:9e:00.0", guid="0011:2233:4455:6609")

        assert expected(DECLARED + entry(match), card, other) == [f"{name}/1"]


def test_the_second_port_of_a_card_is_named_with_its_number():
    card = device("mlx5_3", pci="0000:5e:00.0", ports=2)

    assert expected(DECLARED + entry("pci:0000:5e:00.0/2"), card) == ["mlx5_3/2"]


@pytest.mark.parametrize("match", ["guid:0011:2233:4455:6603", "pci:0000:5e:00.0"])
def test_a_card_that_is_named_by_its_identity_and_is_not_there_is_missed(match):
    rows = inventory(DECLARED + entry(match), device("mlx5_0", pci="0000:01:00.0", guid="0:0:0:1"))
    [missed] = [row for row in rows.values() if row.expected]

    assert missed.device is None
    assert missed.id.port == 1


def test_a_missing_card_is_called_as_it_was_when_it_was_there():
    learned = {"0000:5e:00.0/1": seen("mlx5_3/1")}

    assert expected(DECLARED + entry("pci:0000:5e:00.0"), learned=learned) == ["mlx5_3/1"]


def test_a_missing_card_whose_name_another_card_has_is_missed_all_the_same():
    other = device("mlx5_3", pci="0000:9e:00.0")
    rows = inventory(DECLARED + entry("pci:0000:5e:00.0"), other, learned={"0000:5e:00.0/1": seen("mlx5_3/1")})

    assert rows["mlx5_3/1"].device is other
    assert [(name, row.slot) for name, row in rows.items() if row.expected] == [
        ("pci:0000:5e:00.0/1", "0000:5e:00.0/1")
    ]


# ----------------------------------------------------------------------------------------------------------- learned


def test_a_port_that_was_never_active_is_not_expected():
    assert expected("", device("mlx5_0")) == []
    assert expected("", device("mlx5_0"), learned={"mlx5_0/1": seen("mlx5_0/1", active=False)}) == []


def test_a_port_that_was_active_is_expected_and_missed_when_it_goes():
    learned = {"0000:5e:00.0/1": seen("mlx5_0/1")}

    assert expected("", device("mlx5_0", pci="0000:5e:00.0"), learned=learned) == ["mlx5_0/1"]
    assert inventory("", learned=learned)["mlx5_0/1"].device is None
    assert expected("", learned=learned) == ["mlx5_0/1"]


def test_what_is_only_learned_is_not_trusted_unless_the_site_says_so():
    learned = {"mlx5_0/1": seen("mlx5_0/1")}

    assert not inventory("", device("mlx5_0"), learned=learned)["mlx5_0/1"].trusted
    assert inventory(TRUSTING, device("mlx5_0"), learned=learned)["mlx5_0/1"].trusted
    assert not inventory("", learned=learned)["mlx5_0/1"].trusted


def test_a_rename_keeps_the_slot():
    before, after = (device(name, pci="0000:5e:00.0") for name in ("mlx5_3", "ibp94s0"))
    learned = {before.slot(1): seen("mlx5_3/1")}

    assert expected("", after, learned=learned) == ["ibp94s0/1"]


GUID = "0011:2233:4455:6603"


def with_card(name, guid=GUID, **more):
    return Learned(name, COMPUTE, active=True, best_rate=400 * GBPS, card=guid, **more)


def test_without_a_pci_address_a_card_is_known_by_its_guid():
    rows = inventory("", device("ibp94s0", guid=GUID), learned={"mlx5_3/1": with_card("mlx5_3/1")})

    assert {name: (row.slot, row.expected) for name, row in rows.items()} == {"ibp94s0/1": ("mlx5_3/1", True)}


@pytest.mark.parametrize(
    ("present", "learned"),
    [
        ([device("ibp94s0", guid="0:0:0:9")], {"mlx5_3/1": with_card("mlx5_3/1")}),  # another card
        ([device("ibp94s0")], {"mlx5_3/1": with_card("mlx5_3/1", "")}),  # no GUID to know it by
        ([device("ibp94s0", guid=GUID)], {"mlx5_3/2": with_card("mlx5_3/2")}),  # another port of it
        ([device("ibp94s0", guid=GUID), device("mlx5_3", guid=GUID)], {"mlx5_3/1": with_card("mlx5_3/1")}),  # both
        ([device("ibp94s0", guid=GUID, pci="0000:5e:00.0")], {"mlx5_3/1": with_card("mlx5_3/1")}),  # it has a slot
    ],
)
def test_what_may_be_another_port_has_a_slot_of_its_own(present, learned):
    rows = inventory("", *present, learned=learned)

    assert rows["ibp94s0/1"].slot == present[0].slot(1)
    assert len({row.slot for row in rows.values()}) == len(rows)


def test_a_port_that_is_declared_by_its_old_name_is_the_one_in_its_slot():
    card = device("ibp94s0", pci="0000:5e:00.0")
    rows = inventory(DECLARED + entry("mlx5_3/1", rate=400, rail=3), card, learned={card.slot(1): seen("mlx5_3/1")})

    assert list(rows) == ["ibp94s0/1"]
    row = rows["ibp94s0/1"]
    assert (row.expected, row.trusted, row.role, row.rate, row.rail) == (True, True, COMPUTE, 400 * GBPS, 3)
    assert (row.slot, row.known_as) == (card.slot(1), "mlx5_3/1")


def test_no_two_ports_share_a_slot_when_names_are_swapped():
    card = device("mlx5_1", pci="0000:01:00.0")
    learned = {"0000:01:00.0/1": seen("mlx5_0/1"), "0000:02:00.0/1": seen("mlx5_1/1")}
    rows = inventory(DECLARED + entry("mlx5_[0-1]/1"), card, learned=learned)

    assert rows["mlx5_1/1"].device is card
    assert rows["mlx5_0/1"].device is None
    assert len({row.slot for row in rows.values()}) == 2


@pytest.mark.parametrize(
    "config",
    ['[devices]\nexclude = ["mlx5_0"]\n', '[devices]\ninclude = ["mlx5_1"]\n', entry("mlx5_0/1", role="ignored")],
)
def test_a_configuration_that_leaves_a_port_out_is_no_observation_that_it_is_gone(config):
    assert expected(config, learned={"mlx5_0/1": seen("mlx5_0/1")}) == []


def test_declared_mode_forgets_what_was_learned_and_not_named():
    learned = {"mlx5_0/1": seen("mlx5_0/1"), "mlx5_1/1": seen("mlx5_1/1")}

    assert expected(DECLARED + entry("mlx5_1/1"), learned=learned) == ["mlx5_1/1"]


@pytest.mark.parametrize("function", [Function.VF, Function.SF, Function.SMI, Function.REPRESENTOR])
def test_functions_that_are_not_the_cards_own_are_never_learned(function):
    rows = inventory(TRUSTING, device("mlx5_9", function=function), learned={"mlx5_9/1": seen("mlx5_9/1")})

    assert rows["mlx5_9/1"].role is IGNORED
    assert not rows["mlx5_9/1"].expected


# ------------------------------------------------------------------------------------------------------------- roles


def roles(*devices):
    return {str(port): role for port, role in guess_roles(devices).items()}


def test_infiniband_ports_compute_and_ethernet_beside_them_manages():
    assert roles(device("mlx5_0"), device("mlx5_1", layer="Ethernet")) == {"mlx5_0/1": COMPUTE, "mlx5_1/1": MANAGEMENT}


@pytest.mark.parametrize(("count", "role"), [(1, MANAGEMENT), (3, MANAGEMENT), (4, COMPUTE), (8, COMPUTE)])
def test_on_an_ethernet_node_only_four_ports_of_a_kind_are_taken_for_rails(count, role):
    found = roles(*(device(f"mlx5_{n}", layer="Ethernet") for n in range(count)))

    assert set(found.values()) == {role}


def test_ports_of_another_board_are_counted_apart():
    rails = [device(f"mlx5_{n}", layer="Ethernet") for n in range(4)]
    found = roles(*rails, device("mlx5_9", layer="Ethernet", board="MT_2"))

    assert found["mlx5_9/1"] is MANAGEMENT
    assert found["mlx5_0/1"] is COMPUTE


def test_the_port_with_the_default_route_is_no_rail():
    rails = [device(f"mlx5_{n}", layer="Ethernet") for n in range(5)]
    ports = tuple(msgspec.structs.replace(port, netdev="eth0") for port in rails[2].ports)
    rails[2] = msgspec.structs.replace(rails[2], ports=ports)
    found = {str(port): role for port, role in guess_roles(rails, {"eth0"}).items()}

    assert found["mlx5_2/1"] is MANAGEMENT
    assert found["mlx5_3/1"] is COMPUTE


def test_a_bond_manages_however_many_there_are():
    assert set(roles(*(device(f"b{n}", layer="Ethernet", function=Function.BOND) for n in range(8))).values()) == {
        MANAGEMENT
    }


def test_virtual_functions_change_no_other_ports_role():
    found = roles(*(device(f"v{n}", function=Function.VF) for n in range(8)), device("mlx5_0", layer="Ethernet"))

    assert found["mlx5_0/1"] is MANAGEMENT
    assert found["v0/1"] is IGNORED


# ------------------------------------------------------------------------------------------------------------- rails


def test_compute_ports_are_numbered_by_pci_address_where_nothing_is_said():
    a, b, c = (
        device(n, pci=p)
        for n, p in (("mlx5_2", "0000:01:00.0"), ("mlx5_0", "0000:5e:00.0"), ("mlx5_1", "0000:9e:00.0"))
    )
    rows = inventory(DECLARED + entry("mlx5_[0-1]/1") + entry("mlx5_2/1", rail=7), a, b, c)

    assert {name: row.rail for name, row in rows.items()} == {"mlx5_0/1": 1, "mlx5_1/1": 2, "mlx5_2/1": 7}


def test_what_is_not_compute_has_no_rail():
    rows = inventory(DECLARED + entry("mlx5_0/1", role="storage"), device("mlx5_0"), device("mlx5_1"))

    assert [row.rail for row in rows.values()] == [None, None]


def test_a_device_that_was_discovered_anew_is_the_same_slot():
    old, new = device("mlx5_0", pci="0000:01:00.0"), device("mlx5_0", pci="0000:01:00.0", generation=2)

    assert msgspec.structs.replace(old, layout=new.layout) == new
    assert old.slot(1) == new.slot(1)
