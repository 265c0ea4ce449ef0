"""Stop and start, waves, windows, giving back, orphans: what people ask of the controller, and what outlives it."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase

import msgspec
import pytest
from fleet_world import World
from hypothesis import given
from hypothesis import strategies as st

from ibmon.controller.ledger import VERSION, Ledger, LedgerError, Names, Window
from ibmon.controller.values import Ask
from ibmon.model import Mode, NodeFitness

DAY = 86400.0


def with_drains(*names, **settings):
    world = World(**settings).begin()
    for i, name in enumerate(names):
        world.bad(name, rail=i)
    world.work()
    world.all_say()
    return world


# ---------------------------------------------------------------------------------------------------- stop


def test_a_stop_reaches_every_node_with_its_next_report_and_nothing_is_written():
    world = with_drains("n1")
    assert world.ask("stop", reason="the fabric is being rewired").done
    assert world.say("n2").stop is True
    world.bad("n3", rail=3)
    world.well("n1")
    assert world.say("n3").code == "stop"
    assert world.say("n1").code == "stop"
    assert world.round(5) == []
    assert world.drained() == ["n1"]
    assert world.desk.stopped
    assert world.notes("stop")[0]["user"] == "ann"


def test_a_stop_outlives_the_controller():
    world = World().begin()
    world.ask("stop")
    world.crash()
    assert world.desk.fleet(world.now).stop.by == "ann"
    assert world.say("n1").stop


def test_after_the_start_what_is_due_is_done_at_once():
    world = with_drains("n1")
    world.ask("stop")
    world.bad("n3", rail=3)
    world.well("n1")
    world.round(3)
    assert world.ask("start", user="bob").done
    assert world.work() == [("n1", "release", "gone", None), ("n3", "drain", "done", None)]
    assert world.say("n1").stop is False
    assert world.notes("start")[0]["user"] == "bob"


def test_a_stop_while_a_job_is_out_is_obeyed_by_that_job():
    world = World().begin()
    world.bad("n1")
    job = world.desk.next_job(world.now)
    world.ask("stop")
    assert world.carry_out(job).outcome == "blocked"
    assert world.drained() == []


# --------------------------------------------------------------------------------------------------- waves


def test_waves_go_by_name_and_pattern_and_later_ones_win():
    world = World(mode=Mode.OBSERVE).begin()
    assert world.ask("mode", "n1*", mode=Mode.DRAIN).nodes[:3] == ("n1", "n10", "n11")
    world.ask("mode", "n12", mode=Mode.ALERT)
    modes = {name: world.say(name).mode for name in ("n1", "n12", "n2")}
    assert modes == {"n1": Mode.DRAIN, "n12": Mode.ALERT, "n2": Mode.OBSERVE}
    for name in ("n1", "n12", "n2"):
        world.bad(name, rail=int(name[1:]))
    assert [told[0] for told in world.work()] == ["n1"]
    world.crash()
    assert world.desk.mode_of("n1") is Mode.DRAIN


def test_a_wave_is_taken_away_by_its_own_nodes():
    world = World(mode=Mode.OBSERVE).begin()
    world.ask("mode", "n1*", mode=Mode.DRAIN)
    assert not world.ask("mode", "n1").done
    assert world.desk.mode_of("n1") is Mode.DRAIN
    assert world.ask("mode", "n1*").done
    assert world.desk.mode_of("n1") is Mode.OBSERVE


def test_a_wave_for_the_same_nodes_takes_the_place_of_the_one_before():
    world = World().begin()
    for mode in (Mode.DRAIN, Mode.ALERT) * 30:
        world.ask("mode", "n1*", mode=mode)
    world.ask("mode", "n1*")
    assert Ledger.read(world.desk.ledger_bytes()).waves == ()


@pytest.mark.parametrize("action", ["mode", "maintenance-start"])
def test_a_name_that_nobody_knows_is_refused(action):
    told = World().begin().ask(action, "n77", mode=Mode.DRAIN, seconds=60.0, reason="x")
    assert (told.done, "n77" in told.text) == (False, True)


# ------------------------------------------------------------------------------------------------- windows


def test_in_a_window_nothing_is_drained_and_nothing_given_back_but_by_a_person():
    world = with_drains("n1", "n2")
    told = world.ask("maintenance-start", "n[1-3]", seconds=3600.0, reason="new cables")
    assert told.nodes == ("n1", "n2", "n3")
    assert world.bad("n3", rail=3)[0].code == "maintenance"
    assert world.well("n1")[0].code == "maintenance"
    assert world.round(3) == []
    assert world.ask("release", "n2").done
    assert world.round(1) == [("n2", "release", "gone", None)]


def test_a_window_ends_by_itself_with_a_line_and_the_drain_is_made():
    world = World().begin()
    world.ask("maintenance-start", "n3", seconds=3600.0, reason="new cables")
    world.bad("n3")
    world.round(118)
    assert world.work() == []
    assert world.desk.next_due() <= world.mono + 60.0
    assert world.round(3) == [("n3", "drain", "done", None)]
    assert world.notes("maintenance-over")[0]["reason"] == "new cables"
    assert Ledger.read(world.desk.ledger_bytes()).windows == ()


def test_a_window_of_a_leaf_holds_for_its_nodes():
    world = World(leaves={"leaf-a": ["n1", "n2"]}).begin()
    assert world.ask("maintenance-start", group="leaf-a", seconds=60.0, reason="x").nodes == ("n1", "n2")
    assert not world.ask("maintenance-start", group="leaf-z", seconds=60.0, reason="x").done
    assert world.bad("n2")[0].code == "maintenance"
    assert world.ask("maintenance-stop", group="leaf-a").done
    assert world.work() == [("n2", "drain", "done", None)]


@pytest.mark.parametrize(
    "fields",
    [
        {"seconds": 60.0},
        {"seconds": 60.0, "reason": "  "},
        {"reason": "x"},
        {"reason": "x", "seconds": -1.0},
        {"reason": "x", "seconds": 7 * DAY + 1},
        {"reason": "x", "seconds": float("nan")},
    ],
)
def test_a_window_has_a_reason_and_an_end_within_a_week(fields):
    world = World().begin()
    assert not world.ask("maintenance-start", "n1", **fields).done
    assert not world.desk.changed


def test_windows_end_by_id_by_nodes_or_all_at_once():
    world = World().begin()
    ids = [
        world.ask("maintenance-start", name, seconds=60.0, reason="x").text.split()[1] for name in ("n1", "n2", "n3")
    ]
    assert len(set(ids)) == 3
    assert not world.ask("maintenance-stop", "n9").done
    assert world.ask("maintenance-stop", ids[0]).nodes == ("n1",)
    assert world.ask("maintenance-stop", "n2").done
    assert world.ask("maintenance-stop", all=True).nodes == ("n3",)


# --------------------------------------------------------------------------------------------- giving back


def test_a_release_must_say_which():
    world = with_drains("n1")
    assert not world.ask("release").done
    assert not world.ask("release", "n2").done
    assert world.ask("release", all=True).done


def test_a_dry_run_says_what_would_be_and_does_nothing():
    world = with_drains("n1", "n2")
    told = world.ask("release", all=True, dry_run=True)
    assert (told.done, told.nodes, told.text) == (True, ("n1", "n2"), "would give back 2 nodes")
    assert world.round(3) == []


def test_a_release_goes_by_node_rule_group_and_age():
    world = World(leaves={"leaf-a": ["n1", "n4"]}).begin()
    world.bad("n1", rule="rate-low")
    world.work()
    world.round(4)
    for i, name in enumerate(("n2", "n3", "n4")):
        world.bad(name, rail=i + 1)
    world.work()
    world.all_say()

    def chosen(*nodes, **fields):
        return world.ask("release", *nodes, dry_run=True, **fields).nodes

    assert chosen(rule="rate-low") == ("n1",)
    assert chosen(group="leaf-a") == ("n1", "n4")
    assert chosen(seconds=60.0) == ("n2", "n3", "n4")
    assert chosen("n[23]") == ("n2", "n3")
    assert chosen("n[23]", rule="rate-low") == ()


def test_a_node_that_a_person_gave_back_while_it_is_bad_is_respected():
    world = with_drains("n1")
    world.ask("release", "n1")
    assert world.work() == [("n1", "release", "gone", None)]
    assert world.say("n1").decision == "released"
    assert world.nodes["n1"].overridden
    assert world.round(10) == []
    assert world.notes("release")[0] | {"was": ""} == {
        "user": "ann", "nodes": ["n1"], "node": "n1", "id": world.notes("drained")[0]["id"], "was": "",
    }  # fmt: skip


def test_a_release_outlives_the_controller():
    world = with_drains("n1")
    world.ask("release", "n1")
    world.crash()
    world.look()
    world.all_say()
    assert world.work() == [("n1", "release", "gone", None)]
    assert Ledger.read(world.desk.ledger_bytes()).releases == {}


def test_releases_are_limited_by_nothing():
    names = [f"n{i}" for i in range(1, 31)]
    world = with_drains(*names, count=120)
    assert len(world.drained()) == 30
    world.ask("release", all=True)
    assert len(world.work()) == 30
    assert world.drained() == []


def test_a_release_under_a_stop_is_refused():
    world = with_drains("n1")
    world.ask("stop")
    assert not world.ask("release", "n1").done


def test_nothing_is_given_back_in_a_mode_that_may_not_write():
    world = with_drains("n1", "n2")
    world.ask("mode", "n1", mode=Mode.OBSERVE)
    told = world.ask("release", all=True)
    assert (told.nodes, "1 more" in told.text) == (("n2",), True)


def test_a_release_does_not_touch_what_somebody_put_there_meanwhile():
    world = with_drains("n1")
    world.ask("release", "n1")
    world.person("n1", "drain", "RMA")
    world.work()
    assert world.cluster.view("n1").reason == "RMA"
    world.round(3)
    assert Ledger.read(world.desk.ledger_bytes()).releases == {}


# ------------------------------------------------------------------------------------------------- orphans


def orphan(world, node="n7", mark="feed"):
    world.person(node, "drain", f"ibmon: port-down {node} [id {mark}]")


def test_a_drain_in_our_form_that_its_node_does_not_present_is_an_orphan_and_left_alone():
    world = World().begin()
    orphan(world)
    assert world.round(10) == []
    row = world.row("n7")
    assert (row.owner, row.state, row.id) == ("orphan", "held", "feed")
    assert [note["id"] for note in world.notes("orphan")] == ["feed"]
    world.bad("n7")
    assert world.say("n7").code == "foreign_drain"
    assert world.work() == []


def test_a_person_gives_an_orphan_back():
    world = World().begin()
    orphan(world)
    world.round(1)
    assert world.ask("release", "n7").done
    assert world.work() == [("n7", "release", "gone", None)]
    assert (world.row("n7"), world.drained()) == (None, [])
    assert Ledger.read(world.desk.ledger_bytes()).releases == {}


def test_a_node_that_has_not_spoken_yet_is_not_accused_of_an_orphan():
    world = World()
    orphan(world)
    world.look()
    assert world.row("n7").owner == "node"
    assert world.notes("orphan") == []
    world.say("n7")
    assert world.row("n7").owner == "orphan"


def test_the_drain_of_a_dead_node_is_given_back_only_by_its_name():
    world = World()
    orphan(world)
    world.look()
    assert not world.ask("release", all=True).done
    assert not world.ask("release", "n*").done
    assert world.ask("release", "n7").done
    assert world.work() == [("n7", "release", "gone", None)]


def test_a_drain_that_is_none_of_ours_is_never_given_back():
    world = World().begin()
    world.person("n7", "drain", "swap the fan")
    world.round(1)
    assert world.row("n7").owner == "foreign"
    assert not world.ask("release", "n7").done
    assert not world.ask("release", all=True).done


def test_an_orphan_that_changed_between_the_word_and_the_deed_is_left():
    world = World().begin()
    orphan(world)
    world.round(1)
    world.ask("release", "n7")
    world.ask("stop")
    orphan(world, mark="beef")
    world.round(1)
    world.ask("start")
    assert world.round(2) == []
    assert world.drained() == ["n7"]


# ------------------------------------------------------------------------------------------------- ledger


def test_the_ledger_reads_back_what_it_wrote():
    world = World(drain_on=("IbPortDown",)).begin()
    world.ask("mode", "n1*", mode=Mode.ALERT)
    world.ask("maintenance-start", "n2", seconds=60.0, reason="x")
    world.alert("n7")
    world.ask("stop", reason="y")
    data = world.desk.ledger_bytes()
    ledger = Ledger.read(data)
    assert (ledger.v, ledger.stop.reason, ledger.waves[0].mode, set(ledger.alerts)) == (
        VERSION,
        "y",
        Mode.ALERT,
        {"n7"},
    )
    assert len(ledger.seen) == 40
    world.disk = data
    world.crash()
    assert world.desk.ledger_bytes() == data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "damaged"),
        (b"{", "damaged"),
        (b"[]", "damaged"),
        (b"{}", "damaged"),
        (b"\xff\xfe{}", "damaged"),
        (b'{"v":1,"seen":{"n1":"x"}}', "damaged"),
        (b'{"v":1,"alerts":{"n1":{}}}', "damaged"),
        (b'{"v":2}', "newer"),
    ],
)
def test_a_ledger_that_cannot_be_used_says_why(data, said):
    with pytest.raises(LedgerError, match=said):
        Ledger.read(data)


def test_what_is_not_known_in_a_ledger_is_not_looked_at():
    assert Ledger.read(msgspec.json.encode({"v": 1, "later": True})) == Ledger()


def test_changed_stays_until_what_was_written_is_safe():
    world = World().begin()
    world.save()
    world.desk.ask(Ask(action="stop", user="ann"), world.now)
    assert world.desk.changed
    written = world.desk.revision
    world.desk.ledger_bytes()
    world.desk.ask(Ask(action="start", user="ann"), world.now)
    newer = world.desk.revision
    world.desk.ledger_bytes()
    world.desk.saved(written)
    assert world.desk.changed
    world.desk.saved(newer)
    world.desk.saved(written)  # told late
    assert not world.desk.changed


def test_reports_alone_are_saved_every_ten_minutes_only():
    world = World().begin()
    world.work()
    saves = 0
    for _ in range(120):
        world.wait(30)
        world.look()
        world.all_say()
        saves += world.desk.changed
        world.save()
    assert saves == pytest.approx(6, abs=1)


def test_fitness_in_the_row_of_a_node_is_what_it_said():
    world = World().begin()
    world.nodes["n1"].fitness = NodeFitness.WATCH
    world.say("n1")
    row = world.desk.nodes(world.now)[0]
    assert (row.name, row.fitness, row.rails, row.missing) == ("n1", "watch", "oooooooo", False)


@given(
    st.lists(st.text("ab1-*?[]!", min_size=1, max_size=6), max_size=5),
    st.lists(st.text("ab1-", min_size=1, max_size=6), max_size=5),
)
def test_names_and_patterns_mean_what_a_shell_takes_them_for(listed, nodes):
    for node in nodes:
        assert (node in Names(listed)) is any(node == one or fnmatchcase(node, one) for one in listed)


def test_a_list_of_the_whole_fleet_is_looked_up_in_no_time():
    listed = tuple(f"n{number}" for number in range(10_000))
    window = Window("id", listed, "why", "ann", 0.0)
    began = time.perf_counter()
    assert all(node in window.named for node in listed)
    assert time.perf_counter() - began < 2.0  # one by one it takes a minute
