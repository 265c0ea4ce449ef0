"""What daemons of this kind have got wrong in the field, each played through the engine and named after what is right.

Sources: the histories of gpud and NVSentinel. What concerns the configuration's text, the store or the readers is
held by their own tests.
"""

from __future__ import annotations

import re

import pytest
from core_world import CONFIG, DOWN, INIT, changes, comes_up, goes_down, node, path, port, rows, start, world

from ibmon.configfile import loads
from ibmon.exporter.render import Renderer
from ibmon.exporter.text import Format
from ibmon.health.rules import RULES
from ibmon.messages import Reloaded
from ibmon.recording import Frame
from ibmon.runtime.replay import play

HOUR, DAY = 3600.0, 86400.0
SLOW = '[sampling]\nstate_interval = "60s"\ncounter_interval = "60s"\nslow_interval = "60s"\n'
LEARN = '[action]\nmode = "drain"\nboot_grace = "0s"\n[inventory]\ntrust = "learned"\n' + SLOW
EIGHT = tuple(f"mlx5_{n}" for n in range(8))
ALL_EIGHT = CONFIG.replace("[0-1]", "[0-7]")


def rules_of(row, device="mlx5_0"):
    return {f["rule"]: f["severity"] for f in row["findings"] if f["port"].startswith(device)}


def counter(t, name, value, device="mlx5_0"):
    return Frame(t=t, files={path(device, f"counters/{name}"): f"{value}\n"})


def bounce(t, seconds=30, device="mlx5_0"):
    return [goes_down(t, device), comes_up(t + seconds, device)]


# ------------------------------------------------------------------------------------ silence read as health


@pytest.mark.parametrize("name", ["ibp24s0", "roceo1", "rdma_rail3", "bnxt_re0", "irdma-enp1s0"])
def test_a_device_of_any_name_is_judged(name):
    seen = rows([start(0, name, "mlx5_1"), goes_down(600, name)], [599, 900], LEARN)

    assert seen[599]["ports"][f"{name}/1"] == "ok"
    assert seen[900]["ports"][f"{name}/1"] == "failed"
    assert seen[900]["drained"]


def test_files_that_say_nothing_are_not_health():
    silent = {path("mlx5_0", name): "" for name in ("state", "phys_state", "rate", "link_layer")}
    seen = rows([start(), Frame(t=100, files=silent)], [600])

    assert seen[600]["ports"]["mlx5_0/1"] == "unknown"
    assert seen[600]["node"] == "unknown"


def test_a_rule_that_can_see_nothing_is_never_told_as_available():
    first = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", symbol_error=0, port_rcv_errors=0)})
    refused = Frame(t=0, errnos={path("mlx5_0", "counters/port_rcv_errors"): "EINVAL"})
    host = world(CONFIG + "[rules.symbol-errors]\nwindow = '1m'\nwarning_per_hour = 100\ncritical_per_hour = 200\n")
    list(play(host, iter([first, refused]), [300], 300))
    text = Renderer(node_exporter=False).render(host.engine.snapshot(host.now()), Format.TEXT, monotonic=300).decode()
    told = dict(re.findall(r'^ibmon_rule_available\{rule="(.+)"\} (\d)$', text, re.MULTILINE))

    assert (told["port-down"], told["link-flap"], told["symbol-errors"]) == ("1", "1", "1")
    assert told["receive-errors"] == "0"  # the file is there and cannot be read
    assert told.get("roce-crc", "0") == "0"  # there is no such file


@pytest.mark.parametrize("kind", [{"restart": True}, {"boot_id": "b", "uptime": 20.0}])
def test_a_restart_while_something_is_broken_never_says_fit(kind):
    seen = changes([start(), goes_down(100), Frame(t=500, **kind)], 800)

    assert {row["node"] for t, row in seen if t >= 100} <= {"watch", "unfit", "unknown"}
    assert seen[-1][1]["node"] == "unfit"


def test_before_anything_was_read_a_node_is_unknown():
    host = world()

    assert host.engine.snapshot(host.now()).fitness.value == "unknown"


def test_a_device_that_hangs_from_the_first_read_on_holds_up_no_verdict_about_the_others():
    first = Frame(t=0, files=node("mlx5_0", "mlx5_1"), block=(path("mlx5_0", "state"),))
    seen = rows([first, goes_down(20, "mlx5_1")], [19, 90])

    assert (seen[19]["ports"]["mlx5_0/1"], seen[19]["ports"]["mlx5_1/1"]) == ("unknown", "ok")
    assert seen[90]["drained"]
    assert "mlx5_1/1" in seen[90]["reason"]


# --------------------------------------------------------------------------------- configuration taken for damage


def test_a_port_that_was_never_up_is_no_fault_however_long_one_looks():
    first = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", DOWN)})
    noise = [counter(6 * HOUR, "link_downed", 1, "mlx5_1"), Frame(t=9 * HOUR, restart=True)]
    reboot = Frame(t=10 * HOUR, boot_id="b", uptime=20.0)
    seen = changes([first, *noise, reboot], 12 * HOUR, LEARN)

    assert not any(row["findings"] or row["alerts"] for _, row in seen)
    assert {row["ports"]["mlx5_0/1"] for _, row in seen} == {"ignored"}


TROUBLE = {
    "down": [goes_down(600)],
    "bounces": [frame for n in range(12) for frame in bounce(600 + 120 * n, 60)],
    "half the rate": [Frame(t=600, files=port("mlx5_0", rate="200 Gb/sec (2X NDR)\n"))],
    "init": [Frame(t=600, files=port("mlx5_0", INIT))],
    "errors": [counter(600 + 60 * n, "symbol_error", 5000 * n) for n in range(11)],
    "broken packets": [counter(600 + 60 * n, "port_rcv_errors", 5000 * n) for n in range(11)],
    "overruns": [counter(600 + 60 * n, "excessive_buffer_overrun_errors", n) for n in range(11)],
    "gone": [Frame(t=600, remove=("class/infiniband/mlx5_0",))],
    "unreadable": [Frame(t=600, errnos={path("mlx5_0", "state"): "EIO"})],
}
COUNTING = port("mlx5_0", symbol_error=0, port_rcv_errors=0, excessive_buffer_overrun_errors=0, link_downed=0)
ONE_OF_ROLE = """
[[port]]
match = "mlx5_1/1"
[[port]]
match = "mlx5_0/1"
role = "{role}"
rate = 400
[inventory]
mode = "declared"
[action]
mode = "drain"
boot_grace = "0s"
"""


@pytest.mark.parametrize("trouble", TROUBLE)
def test_an_ignored_port_is_ignored_by_every_rule(trouble):
    first = Frame(t=0, files={**node("mlx5_1"), **COUNTING})
    seen = changes([first, *TROUBLE[trouble]], 2400, ONE_OF_ROLE.format(role="ignored") + SLOW)

    findings = [f for _, row in seen for f in row["findings"] if f["rule"] != "counter-saturated"]
    assert findings == []
    assert {row["node"] for _, row in seen} == {"fit"}


@pytest.mark.parametrize("role", ["management", "storage"])
@pytest.mark.parametrize("trouble", TROUBLE)
def test_no_trouble_of_a_port_that_computes_nothing_makes_the_node_unfit(trouble, role):
    first = Frame(t=0, files={**node("mlx5_1"), **COUNTING})
    seen = changes([first, *TROUBLE[trouble]], 2400, ONE_OF_ROLE.format(role=role) + SLOW)

    assert not {row["node"] for _, row in seen} & {"unfit", "unknown"}
    assert not any(row["drained"] for _, row in seen)


@pytest.mark.parametrize(
    "change",
    [
        '[devices]\nexclude = ["mlx5_0"]',
        '[devices]\ninclude = ["mlx5_1"]',
        '[[port]]\nmatch = "mlx5_0/1"\nrole = "ignored"',
    ],
)
def test_leaving_a_device_out_by_configuration_is_no_loss_of_it(change):
    host = world(LEARN)
    before = list(play(host, iter([start()]), [600], 600))[-1][1]
    assert before["ports"]["mlx5_0/1"] == "ok"

    host.config = loads(LEARN + change).config
    host._carry_out(host.engine.step(Reloaded(host.config), host.now()))
    after = list(play(host, iter([Frame(t=660)]), [2 * HOUR], 2 * HOUR))

    assert not any(row["findings"] or row["node"] != "fit" for _, row in after)


@pytest.mark.parametrize("product", ["NVIDIA GH200 480GB", "H200", "MT4129", "", "ConnectX-8 DOWN"])
def test_what_a_card_is_called_decides_nothing(product):
    base = "class/infiniband/mlx5_0"
    first = Frame(t=0, files={**node("mlx5_0", "mlx5_1"), f"{base}/hca_type": product, f"{base}/board_id": product})
    seen = rows([first, goes_down(100)], [99, 200], LEARN)

    assert (seen[99]["node"], seen[200]["ports"]["mlx5_0/1"]) == ("fit", "failed")


# --------------------------------------------------------------------------------------- acting on one sample


def test_one_bad_read_of_a_state_leaves_nothing_but_its_flap():
    seen = changes([start(), *bounce(100, 5)], 600)

    assert not any(row["findings"] or row["alerts"] for _, row in seen)
    assert seen[-1][1]["node"] == "fit"


def test_one_listing_without_a_device_is_no_loss():
    gone = Frame(t=100, remove=("class/infiniband/mlx5_0",))
    seen = changes([start(), gone, Frame(t=110, files=node("mlx5_0"))], 600)

    assert not any(row["findings"] or row["alerts"] for _, row in seen)


def test_listings_that_failed_count_for_no_loss():
    broken = [Frame(t=100, errnos={"class/infiniband": "EIO"}), Frame(t=4000, errnos={"class/infiniband": None})]
    seen = changes([start(), *broken], 5000)

    assert not any(f["rule"].endswith("-missing") for _, row in seen for f in row["findings"])
    assert not any(row["drained"] for _, row in seen)


def test_a_fault_does_not_clear_with_the_first_good_read_and_does_clear_in_the_end():
    seen = rows([start(), goes_down(100), comes_up(400)], [405, 430, 990, 1005])

    assert [seen[t]["ports"]["mlx5_0/1"] for t in seen] == ["recovering", "recovering", "recovering", "ok"]
    assert [seen[t]["drained"] for t in seen] == [True, True, True, False]


def test_nightly_reboots_in_which_links_come_up_late_add_up_to_nothing():
    frames = [start()]
    for night in range(1, 4):
        t = night * 2 * HOUR
        frames += [
            Frame(t=t, boot_id=f"b{night}", uptime=20.0, files=port("mlx5_0", DOWN)),
            *(f for n in range(3) for f in (comes_up(t + 60 + 120 * n), goes_down(t + 120 + 120 * n))),
            comes_up(t + 500),
        ]
    seen = changes(frames, 8 * HOUR, CONFIG.replace('"0s"', '"10m"') + SLOW)

    assert not any(row["alerts"] or row["drained"] for _, row in seen)
    assert seen[-1][1]["node"] == "fit"


def test_bounces_that_no_read_saw_are_counted():
    first = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", link_downed=7)})
    frames = [first, *(counter(600 * n, "link_downed", 7 + 40 * n) for n in range(1, 4))]
    seen = rows(frames, [500, 1190, 1300, 1900])

    assert [rules_of(row).get("link-flap") for row in seen.values()] == [None, None, "warning", "critical"]
    assert seen[1900]["drained"]


def test_three_bounces_that_are_most_of_a_day_apart_are_no_flapping_link():
    frames = [start(), *(f for n in range(3) for f in bounce(600 + 23 * HOUR * n, 120))]
    slow = SLOW.replace("60s", "120s")
    seen = changes(frames, 3 * DAY, CONFIG + slow + "[rules.port-down]\nalert_hold = '10m'\nhold = '10m'\n")

    assert not any(row["drained"] for _, row in seen)
    assert {f["severity"] for _, row in seen for f in row["findings"] if f["rule"] == "link-flap"} <= {"warning"}


# ----------------------------------------------------------------------------------------- states and their keys


def test_a_fault_that_gets_worse_is_raised():
    frames = [start(), Frame(t=100, files=port("mlx5_0", INIT)), goes_down(1000)]
    seen = rows(frames, [990, 1200])

    assert not seen[990]["drained"]
    assert "port-init" in rules_of(seen[990])
    assert rules_of(seen[1200])["port-down"] == "critical"
    assert seen[1200]["drained"]


def test_what_clears_one_finding_leaves_that_of_another_port_and_another_rule():
    half = Frame(t=100, files=port("mlx5_1", rate="200 Gb/sec (2X NDR)\n"))
    seen = rows([start(), goes_down(100), half, comes_up(400)], [390, 1100])

    assert {(f["rule"], f["port"]) for f in seen[390]["findings"]} == {
        ("port-down", "mlx5_0/1"),
        ("rate-low", "mlx5_1/1"),
    }
    assert {(f["rule"], f["port"]) for f in seen[1100]["findings"]} == {("rate-low", "mlx5_1/1")}
    assert seen[1100]["drained"]


def test_one_counter_that_is_quiet_again_does_not_clear_its_sibling():
    names = ("local_link_integrity_errors", "excessive_buffer_overrun_errors")
    first = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", **dict.fromkeys(names, 0))})
    quiet = '[rules.link-integrity]\nrecover = "20m"\nwindow = "20m"\n' + SLOW
    frames = [first, counter(300, names[0], 1), *(counter(300 * n, names[1], n) for n in range(1, 12))]
    host = world(CONFIG + quiet)
    counters = {}
    for t, _ in play(host, iter(sorted(frames, key=lambda f: f.t)), [500, 2400, 6000], 6000):
        counters[t] = {f.counter for f in host.engine.findings if f.rule == "link-integrity"}

    assert counters[500] == set(names)
    assert counters[2400] == {names[1]}
    assert counters[6000] == set()


def test_eight_ports_that_fail_at_once_are_one_drain_with_one_short_reason_and_all_clear():
    frames = [start(0, *EIGHT), *(goes_down(100, name) for name in EIGHT), *(comes_up(400, name) for name in EIGHT)]
    seen = rows(frames, [300, 1100], ALL_EIGHT)

    reason = seen[300]["reason"]
    assert len(reason) <= 200
    assert "(+7 more)" in reason
    assert seen[300]["calls"]["drain"] == 1
    assert (seen[1100]["drained"], seen[1100]["findings"], seen[1100]["node"]) == (False, [], "fit")


def test_time_that_passes_is_no_news():
    seen = changes([start(), goes_down(100)], 4 * HOUR, CONFIG + SLOW)
    reasons = {row["reason"] for _, row in seen if row["drained"]}

    assert len(seen) <= 4  # well, down, alert, drain
    assert len(reasons) == 1
    assert seen[-1][1]["calls"]["drain"] == 1


def test_the_reason_names_the_bad_port_and_no_other():
    seen = rows([start(0, *EIGHT), goes_down(100, "mlx5_4")], [300], ALL_EIGHT)[300]

    assert re.findall(r"mlx5_\d/1", seen["reason"]) == ["mlx5_4/1"]
    assert not re.search(r"\bok\b|no issue", seen["reason"])


# ------------------------------------------------------------------------------------------------------ counters


def test_a_reset_of_a_counter_repairs_nothing():
    symbols = "[rules.symbol-errors]\nwarning_per_hour = 5\ncritical_per_hour = 10\nwindow = '1h'\nrecover = '1h'\n"
    first = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", symbol_error=0)})
    rising = [counter(600 + 60 * n, "symbol_error", 10 * n) for n in range(1, 6)]
    seen = rows([first, *rising, counter(1200, "symbol_error", 0)], [1100, 1300, 4000, 4800], CONFIG + symbols + SLOW)

    assert [rules_of(row).get("symbol-errors") for row in seen.values()] == ["critical", "critical", "critical", None]


@pytest.mark.parametrize("name", ["port_rcv_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors"])
def test_no_counter_whose_meaning_vendors_dispute_drains(name):
    first = Frame(t=0, files={**node("mlx5_1"), **port("mlx5_0", **{name: 0})})
    frames = [first, *(counter(600 + 60 * n, name, min(15, 3 * n)) for n in range(1, 20))]

    assert not any(row["drained"] for _, row in changes(frames, 4 * HOUR, CONFIG + SLOW))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_says_where_its_numbers_come_from(rule):
    assert rule.source


def test_a_louder_warning_never_comes_after_the_drain():
    for rule in RULES:
        if rule.warning is not None and rule.critical is not None:
            assert rule.warning <= rule.critical, rule.id
