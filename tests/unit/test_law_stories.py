"""Lives that broke a law of acting once, each told to its end."""

from __future__ import annotations

import pytest
from law_world import DOWN, GRACE, LawWorld

from ibmon.drain.policy import owns
from ibmon.ports import SchedulerError

RECOVER = 700.0


@pytest.fixture
def life():
    one = LawWorld()
    yield one
    one.close()


def drained(life):
    life.set_port("mlx5_0", DOWN)
    life.run(90)
    assert owns(life.store.ownership(), life.view)
    return life


def test_a_release_that_a_stuck_controller_makes_late_is_not_taken_for_a_persons_resume(life):
    drained(life)
    life.scheduler.hangs_at = "undrain"
    life.set_port("mlx5_0", None)
    life.run(RECOVER)
    assert life.scheduler.calls["undrain"] == 1
    life.set_port("mlx5_0", DOWN)
    life.run(90)
    life.outage("up")
    assert not life.view.drained
    life.run(900)
    assert life.view.drained, "the port is down, and nobody asked for the node"
    assert life.engine.desk.override is None


@pytest.mark.parametrize("effects", range(12))
def test_a_kill_at_any_effect_around_the_look_that_finds_a_resume_respects_it_all_the_same(life, effects):
    drained(life)
    life.person_resumes()
    life.run_to_the_next_request()
    life.fuse = effects
    life.run(1500)
    life.fuse = None
    assert not life.view.drained
    assert life.engine.desk.override is not None


@pytest.mark.parametrize("effects", range(14))
def test_a_kill_at_any_effect_of_a_persons_release_never_drains_the_node_again(life, effects):
    drained(life)
    life.fuse = effects
    life.person("release")
    life.run(1)
    given_back = not life.view.drained
    life.fuse = None
    life.run(1500)
    assert not (given_back and life.view.drained)


def test_a_fault_of_before_a_boot_drains_only_when_the_boot_grace_is_over(life):
    life.set_stop(present=True)
    life.set_port("mlx5_0", DOWN)
    life.run(90)
    life.reboot("another")
    life.set_stop(present=False)
    life.run(GRACE - 20)
    assert not life.view.drained
    assert life.engine.snapshot(life.now()).drain.blocked.value == "boot_grace"
    life.run(200)
    assert life.view.drained


def test_a_second_request_of_a_person_that_fails_does_not_undo_the_first(life):
    drained(life)
    life.person("release")
    life.run(1)
    assert not life.view.drained
    life.outage("down")
    life.person("release")
    life.run(60)
    assert life.engine.desk.asked.outcome == "failed"
    life.outage("up")
    life.run(1500)
    assert not life.view.drained


def test_a_persons_release_is_done_although_the_record_could_never_be_saved(life):
    life.store.full = True
    life.set_port("mlx5_0", DOWN)
    life.run(90)
    assert life.view.drained
    assert life.store.ownership() is None
    life.person("release")
    life.run(1)
    assert not life.view.drained


def test_a_node_that_is_quiet_after_its_state_was_lost_comes_to_rest_while_a_stop_is_in_force(life):
    drained(life)
    record = life.store.ownership()
    life.store.lose()
    life.store.record(record)  # the record alone was saved
    life.set_port("mlx5_0", None)
    life.restart()
    life.run(300)
    life.set_stop(present=True)
    life.run(2000)
    assert life.view.drained
    life.set_stop(present=False)
    life.run(1000)
    assert not life.view.drained


def stuck(life):
    """From now on the scheduler answers questions, and puts drains off; what is to be called when it makes them."""
    waiting = []

    def drain(node, reason):
        waiting.append((node, reason))
        raise SchedulerError("no answer within the deadline", general=True)

    life.cluster.drain = drain

    def catch_up():
        del life.cluster.drain
        for node, reason in waiting:
            life.cluster.drain(node, reason)

    return catch_up


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("late", [30, 400, 3000, 30_000])
def test_a_drain_that_is_made_late_when_nobody_wants_it_any_more_is_ours_and_given_back(life, late, restart):
    catch_up = stuck(life)
    life.set_port("mlx5_0", DOWN)
    life.run(120)
    assert not life.view.drained
    life.set_port("mlx5_0", None)
    life.run(RECOVER + late)
    catch_up()
    assert owns(life.store.ownership(), life.view)
    if restart:
        life.restart()
    life.run(50_000)
    assert not life.view.drained
    assert life.store.ownership() is None


def test_a_drain_that_is_made_late_after_somebody_elses_in_the_same_moment_is_ours_too(life):
    catch_up = stuck(life)
    put_off = life.cluster.drain

    def drain(node, reason):
        life.person_drains("swap")
        put_off(node, reason)

    life.cluster.drain = drain
    life.set_port("mlx5_0", DOWN)
    life.run(120)
    assert life.foreign == "swap"
    life.set_port("mlx5_0", None)
    life.run(RECOVER + 100)
    life.person_resumes()
    catch_up()
    life.run(2000)
    assert not life.view.drained
    assert life.store.ownership() is None


def test_a_node_whose_drain_never_came_is_left_alone_in_the_end_and_its_next_drain_has_words_of_its_own(life):
    stuck(life)
    life.set_port("mlx5_0", DOWN)
    life.run(120)
    old = life.store.ownership()
    life.set_port("mlx5_0", None)
    life.run(100_000)
    calls = life.scheduler.calls.total()
    life.run(100_000)
    assert life.scheduler.calls.total() == calls
    del life.cluster.drain
    life.set_port("mlx5_1", DOWN)
    life.run(120)
    assert "mlx5_1" in life.view.reason
    assert old.id not in life.view.reason
