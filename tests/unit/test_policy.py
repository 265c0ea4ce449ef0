"""The pure drain policy: reason text, ownership, states, limits and the order of reasons why not now."""

from __future__ import annotations

import string

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibmon.config import LimitsConfig
from ibmon.drain import policy
from ibmon.model import BlockCode, Finding, Intent, Mode, NodeView, Ownership, Severity

ID = "7f3a9c"
REASON = f"ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s [id {ID}]"
RECORD = Ownership(ID, REASON, asked=100.0, held=True)
INTENT = Intent(drain=True, id=ID, reason=REASON, since=100.0)
NOW = 10_000.0


class Pool(msgspec.Struct):
    name: str
    nodes: tuple[NodeView, ...]


def finding(device="mlx5_3", port=1, *, rule="port-down", text="DOWN/Polling 62s>60s", onset=10.0, drains=True, **more):
    values = {"counter": "", "severity": Severity.CRITICAL, "observed": None, "limit": None} | more
    return Finding(rule, device, port, onset=onset, text=text, drains=drains, **values)


def node(name="n1", flags="IDLE", reason=None, since=None):
    return NodeView(name, frozenset(flags.split("+")), reason=reason, user="root" if reason else None, since=since)


def ours(name, since=0.0, drain_id="abcdef"):
    return node(name, "IDLE+DRAIN", f"ibmon: port-down mlx5_0/1 DOWN [id {drain_id}]", since)


def pool(n, *special, name="gpu"):
    given_names = {view.name for view in special}
    rest = [node(f"n{i}") for i in range(1, n + 1) if f"n{i}" not in given_names]
    return Pool(name, (*special, *rest)[:n] if len(special) <= n else special)


# ------------------------------------------------------------------------------------------------------- reason


def test_the_reason_names_rule_port_observed_limit_and_id():
    assert policy.reason_text([finding()], ID) == REASON


def test_further_ports_are_counted_and_a_second_rule_of_the_same_port_is_not():
    findings = [finding(), finding(rule="rate-low", onset=11), finding("mlx5_4", onset=12), finding("mlx5_5", onset=12)]
    assert policy.reason_text(findings, ID) == f"ibmon: port-down mlx5_3/1 DOWN/Polling 62s>60s (+2 more) [id {ID}]"


def test_the_reason_does_not_depend_on_the_order_of_findings():
    findings = [finding("mlx5_1", onset=30), finding("mlx5_0", onset=20), finding("mlx5_2", onset=20)]
    assert policy.reason_text(findings, ID) == policy.reason_text(findings[::-1], ID)
    assert "mlx5_0/1" in policy.reason_text(findings, ID)


def test_a_finding_that_does_not_drain_is_not_in_the_reason():
    findings = [finding("mlx5_0", onset=1, drains=False), finding("mlx5_1", onset=2)]
    assert policy.reason_text(findings, ID).startswith("ibmon: port-down mlx5_1/1 ")
    assert "more" not in policy.reason_text(findings, ID)


def test_without_a_cause_there_is_no_reason():
    with pytest.raises(ValueError, match="no drain-capable finding"):
        policy.reason_text([finding(drains=False)], ID)


@given(st.lists(st.text(max_size=300), min_size=1, max_size=4), st.text("0123456789abcdef", min_size=4, max_size=32))
def test_any_reason_is_one_short_line_of_printable_ascii_that_gives_its_id_back(texts, drain_id):
    text = policy.reason_text([finding(f"d{i}", text=t) for i, t in enumerate(texts)], drain_id)
    assert len(text) <= policy.MAX_REASON
    assert set(text) <= set(string.printable) - set("\t\n\r\x0b\x0c")
    assert policy.parse_reason(text) == drain_id
    assert policy.parse_reason(f"{text} [root@2030-01-01T10:00:00]") == drain_id


def test_a_long_reason_is_cut_before_its_id():
    text = policy.reason_text([finding(text="x" * 300), finding("mlx5_4")], ID)
    assert len(text) == policy.MAX_REASON
    assert text.endswith(f"x (+1 more) [id {ID}]")


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "ADMIN hardware swap",
        "ibmon: mlx5_1:1 DOWN",
        "ibmon: mlx5_1/1 DOWN [id ]",
        f"{REASON}; keep for RMA",
        f"not {REASON}",
        f"IBMON: x [id {ID}]",
        f"ibmon: a\nb [id {ID}]",
    ],
)
def test_a_text_that_has_not_exactly_our_form_has_no_id(text):
    assert policy.parse_reason(text) is None


# ---------------------------------------------------------------------------------------------------- ownership


def test_ours_is_prefix_id_and_recorded_text():
    assert policy.owns(RECORD, node(flags="IDLE+DRAIN", reason=REASON))
    assert policy.owns(RECORD, node(flags="IDLE+DRAIN", reason=f"{REASON} [root@2030-01-01T10:00:00]"))


@pytest.mark.parametrize(
    ("record", "view"),
    [
        (None, node(flags="IDLE+DRAIN", reason=REASON)),
        (RECORD, node(flags="IDLE", reason=REASON)),
        (RECORD, node(flags="IDLE+DRAIN", reason=None)),
        (RECORD, node(flags="IDLE+DRAIN", reason="ADMIN hardware swap")),
        (RECORD, node(flags="IDLE+DRAIN", reason=f"{REASON}; keep for RMA")),
        (RECORD, node(flags="IDLE+DRAIN", reason=REASON.replace(ID, "aaaaaa"))),
        (RECORD, node(flags="IDLE+DRAIN", reason=REASON.replace("62s", "63s"))),
        (Ownership(ID, "bad disk", 1.0), node(flags="IDLE+DRAIN", reason="bad disk")),
        (Ownership("", "", 1.0), node(flags="IDLE+DRAIN", reason="")),
    ],
)
def test_anything_less_than_all_three_is_not_ours(record, view):
    assert not policy.owns(record, view)


# ------------------------------------------------------------------------------------------------------- states

PLAIN = {"IDLE", "MIXED", "ALLOCATED", "COMPLETING", "PLANNED", "RESERVED", "DRAIN"}
BESIDE_ANOTHERS_CORDON = {"CORDONED"}  # Kubernetes alone has it: our taint goes, the cordon stays


@given(st.frozensets(st.sampled_from(sorted(policy.STATES)), min_size=1))
def test_a_drain_is_taken_away_only_within_the_six_plain_states(flags):
    assert (policy.undrain_obstacle(flags) is None) == (flags <= PLAIN | BESIDE_ANOTHERS_CORDON)


@given(st.frozensets(st.sampled_from(sorted(policy.STATES)), min_size=1))
def test_a_state_in_which_nothing_may_be_drained_allows_no_giving_back_either(flags):
    assert policy.undrain_obstacle(flags) is not None or policy.drain_obstacle(flags) is None


@pytest.mark.parametrize(
    "flags", ["IDLE", "MIXED+PLANNED", "ALLOCATED+COMPLETING", "IDLE+RESERVED", "IDLE+CLOUD", "IDLE+NOT_RESPONDING"]
)
def test_working_nodes_may_be_drained(flags):
    assert policy.drain_obstacle(frozenset(flags.split("+"))) is None


@pytest.mark.parametrize(
    "flag",
    [
        "DOWN",
        "FAIL",
        "ERROR",
        "UNKNOWN",
        "FUTURE",
        "MAINT",
        "REBOOT_REQUESTED",
        "REBOOT_ISSUED",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_DOWN",
        "INVALID_REG",
    ],
)
def test_a_node_that_is_away_or_in_work_is_not_drained_and_the_answer_says_why(flag):
    obstacle = policy.drain_obstacle(frozenset({"IDLE", flag}))
    assert obstacle is not None
    assert obstacle.startswith(f"{flag}: ")
    assert len(obstacle) > len(flag) + 5


@pytest.mark.parametrize("flags", [frozenset(), frozenset({"IDLE", "SOMETHING_NEW"})])
def test_no_state_and_an_unknown_state_allow_nothing(flags):
    assert policy.drain_obstacle(flags)
    assert policy.undrain_obstacle(flags)


# ------------------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("n", "limits", "expected"),
    [
        (0, {}, 0),
        (3, {}, 0),
        (4, {}, 1),
        (7, {}, 1),
        (8, {}, 2),
        (100, {}, 2),
        (149, {}, 2),
        (150, {}, 3),
        (1000, {}, 20),
        (100, {"max_drained": 0.29}, 25),
        (200, {"max_drained": 0.145}, 29),  # the product is a little less than 29 in floating point
        (1000, {"max_drained": 0.029}, 29),
        (32, {"min_nodes": 4, "min_nodes_set": True}, 4),
        (1000, {"min_nodes": 1000, "max_drained": 1.0, "min_nodes_set": True}, 250),
        (1, {"min_nodes": 1, "min_nodes_set": True}, 1),
        (3, {"min_nodes": 2, "min_nodes_set": True}, 2),
        (3, {"min_nodes": 5, "min_nodes_set": True}, 3),
        (3, {"min_nodes": 0, "min_nodes_set": True}, 0),
        (4, {"min_nodes": 4, "min_nodes_set": True}, 1),
        (1000, {"min_nodes": 0, "max_drained": 0.0}, 0),
    ],
)
def test_how_many_nodes_may_be_drained(n, limits, expected):
    assert policy.allowed(n, LimitsConfig(**limits)) == expected


def test_powered_down_and_future_nodes_do_not_count():
    cloud = [node(f"c{i}", "IDLE+CLOUD+POWERED_DOWN") for i in range(90)] + [node("f", "FUTURE")]
    small = Pool("gpu", (node("n1"), node("n2"), node("n3"), *cloud))
    assert policy.limit_gate([small], "n1", LimitsConfig(), NOW) is BlockCode.LIMIT_NODES
    assert len(policy.counted(small)) == 3


def test_room_is_counted_by_the_reasons_that_stand_at_the_scheduler():
    assert policy.limit_gate([pool(100)], "n1", LimitsConfig(), NOW) is None
    assert policy.limit_gate([pool(100, ours("n2"))], "n1", LimitsConfig(), NOW) is None
    assert policy.limit_gate([pool(100, ours("n2"), ours("n3"))], "n1", LimitsConfig(), NOW) is BlockCode.LIMIT_NODES


def test_nodes_drained_by_others_do_not_use_up_our_room_but_the_share_of_unavailable_ones():
    admin = [node(f"n{i}", "IDLE+DRAIN", "ADMIN", 0.0) for i in range(2, 22)]
    assert policy.limit_gate([pool(100, *admin)], "n1", LimitsConfig(), NOW) is None
    more = node("n30", "DOWN", "Not responding", 0.0)
    assert policy.limit_gate([pool(100, *admin, more)], "n1", LimitsConfig(), NOW) is BlockCode.MAX_UNAVAILABLE


def test_exactly_the_share_that_may_be_unavailable_is_not_too_many():
    admin = [node(f"n{i}", "IDLE+DRAIN", "ADMIN", 0.0) for i in range(2, 31)]
    limits = LimitsConfig(max_unavailable=0.29)  # times 100 that is a little less than 29 in floating point
    assert policy.limit_gate([pool(100, *admin)], "n1", limits, NOW) is None


@pytest.mark.parametrize(
    ("view", "claimed"),
    [
        (ours("n1"), True),
        (node(flags="IDLE", reason=REASON), False),  # what is left of a drain that was lifted
        (node(flags="IDLE+DRAIN", reason=None), False),
        (node(flags="IDLE+DRAIN", reason="ADMIN"), False),
    ],
)
def test_a_drain_counts_as_ours_by_its_prefix_while_it_stands(view, claimed):
    assert policy.claims(view) is claimed


@pytest.mark.parametrize(
    ("rate", "since", "expected"),
    [
        (1.0, NOW - 59, BlockCode.LIMIT_RATE),
        (1.0, NOW - 60, None),
        (1.0, NOW + 5, BlockCode.LIMIT_RATE),
        (0.5, NOW - 119, BlockCode.LIMIT_RATE),
        (0.5, NOW - 120, None),
        (2.0, NOW - 1, None),
        (0.0, NOW - 9999, BlockCode.LIMIT_RATE),
        (1.0, None, BlockCode.LIMIT_UNREADABLE),
    ],
)
def test_new_drains_are_counted_by_their_times_at_the_scheduler(rate, since, expected):
    assert policy.limit_gate([pool(100, ours("n2", since))], "n1", LimitsConfig(new_per_minute=rate), NOW) is expected


@pytest.mark.parametrize("pools", [None, [], [Pool("cpu", (node("other"),))]])
def test_pools_that_cannot_be_read_or_do_not_hold_the_node_forbid_the_drain(pools):
    assert policy.limit_gate(pools, "n1", LimitsConfig(), NOW) is BlockCode.LIMIT_UNREADABLE


def test_the_pool_of_all_nodes_does_not_count_where_a_smaller_one_holds_the_node():
    everyone, gpu = pool(100, name="all"), pool(10, name="gpu")
    names = [p.name for p in policy.choose_pools([everyone, gpu], "n1", LimitsConfig())]
    assert names == ["gpu"]
    assert [p.name for p in policy.choose_pools([everyone, gpu], "n50", LimitsConfig())] == ["all"]


def test_a_pool_is_whole_only_if_no_node_of_the_cluster_is_outside_it():
    gpu, half = pool(10, name="gpu"), pool(5, name="half")
    cpu = Pool("cpu", (node("c1"),))
    assert [p.name for p in policy.choose_pools([gpu, half], "n1", LimitsConfig())] == ["half"]
    assert [p.name for p in policy.choose_pools([gpu, half, cpu], "n1", LimitsConfig())] == ["gpu", "half"]


def test_configured_partitions_are_the_ones_that_count():
    pools = [pool(100, name="all"), pool(10, name="gpu")]
    chosen = policy.choose_pools(pools, "n1", LimitsConfig(partitions=("all", "absent")))
    assert [p.name for p in chosen] == ["all"]
    absent = LimitsConfig(partitions=("absent",))
    assert policy.limit_gate(pools, "n1", absent, NOW) is BlockCode.LIMIT_UNREADABLE


def test_every_chosen_pool_must_have_room():
    full = Pool("b", (node("n1"), ours("x1"), node("x2"), node("x3"), node("x4")))
    pools = [pool(100, name="a"), full]
    assert policy.limit_gate(pools, "n1", LimitsConfig(), NOW) is BlockCode.LIMIT_NODES


def test_of_drains_made_at_once_only_those_beyond_the_limit_are_one_too_many():
    drained = [ours("n4", 50.0), ours("n2", 50.0), ours("n3", 49.0), ours("n1", 51.0)]
    pools = [pool(100, *drained)]
    over = {name: policy.beyond_limit(pools, name, LimitsConfig()) for name in ("n1", "n2", "n3", "n4", "n5")}
    assert over == {"n3": False, "n2": False, "n4": True, "n1": True, "n5": False}


@given(st.integers(0, 60), st.lists(st.integers(0, 5), max_size=60))
def test_undoing_what_is_beyond_the_limit_leaves_exactly_the_allowed(n, times):
    drained = [ours(f"n{i}", float(t)) for i, t in enumerate(times[:n], 1)]
    pools = [pool(n, *drained)] if n else [Pool("gpu", ())]
    kept = [v.name for v in drained if not policy.beyond_limit(pools, v.name, LimitsConfig())]
    assert len(kept) == min(len(drained), policy.allowed(n, LimitsConfig()))


# --------------------------------------------------------------------------------------------------------- gate


ROOMY = (pool(100),)


def gate(view, *, pools=ROOMY, mode=Mode.DRAIN, stop=False, record=None):
    return policy.gate(view, pools, LimitsConfig(), mode=mode, stop=stop, now_wall=NOW, record=record, intent=INTENT)


def test_a_good_drain_has_no_obstacle():
    assert gate(node()) is None


def test_the_first_obstacle_in_the_fixed_order_is_told():
    admin = node(flags="IDLE+DRAIN+MAINT", reason="ADMIN")
    assert gate(admin, stop=True, mode=Mode.OBSERVE, pools=None) is BlockCode.STOP
    assert gate(admin, mode=Mode.OBSERVE, pools=None) is BlockCode.MODE
    assert gate(admin, mode=Mode.ALERT, pools=None) is BlockCode.MODE
    assert gate(admin, pools=None) is BlockCode.FOREIGN_DRAIN
    assert gate(node(flags="IDLE+MAINT"), pools=None) is BlockCode.SCHEDULER_STATE
    assert gate(node(), pools=None) is BlockCode.LIMIT_UNREADABLE
    assert gate(node(), pools=[pool(100, ours("n2"), ours("n3"))]) is BlockCode.LIMIT_NODES


def test_our_own_standing_drain_is_no_obstacle_whatever_the_limits_say():
    view = node(flags="IDLE+DRAIN", reason=REASON)
    assert gate(view, record=RECORD, pools=None) is None
    assert gate(view, record=None, pools=None) is None  # by the intent: its record could not be saved
    earlier = "ibmon: rate-low mlx5_3/1 200 of 400 Gb/s [id aaaaaa]"
    record = Ownership("aaaaaa", earlier, asked=50.0, held=True)
    assert gate(node(flags="IDLE+DRAIN", reason=earlier), record=record, pools=None) is None  # by its record alone


def test_a_drain_with_our_prefix_and_another_id_is_foreign():
    assert gate(ours("n1"), record=RECORD) is BlockCode.FOREIGN_DRAIN
