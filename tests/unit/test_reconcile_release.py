"""Giving back: only what is ours as the record says, and where the node's state allows it; and the stop file."""

from __future__ import annotations

import msgspec
import pytest
from cluster_faults import ASKED, HELD, ID, REFUSED, TIMEOUT, Cluster, Memory, drained, release, said

from ibmon.drain import reconcile
from ibmon.model import BlockCode, Now, Ownership

# ----------------------------------------------------------------------------------------------------- release


def test_what_is_ours_is_given_back_and_the_record_goes():
    cluster, store = drained(flags=("ALLOCATED", "COMPLETING", "DRAIN")), Memory(HELD)
    done = release(cluster, store)
    assert said(done) == ("gone", None)
    assert (done.effect, done.id, done.detail) == ("release", ID, "")
    assert cluster.flags == {"ALLOCATED", "COMPLETING"}
    assert store.owned is None


def test_a_drain_that_was_only_asked_for_but_stands_is_given_back_too():
    cluster, store = drained(), Memory(ASKED)
    assert said(release(cluster, store, owned=ASKED)) == ("gone", None)
    assert cluster.flags == {"IDLE"}


def test_a_node_resumed_by_a_person_is_gone_and_nothing_is_written():
    cluster, store = Cluster(), Memory(HELD)
    assert said(release(cluster, store)) == ("gone", None)
    assert cluster.writes == []
    assert store.owned is None


def test_a_foreign_reason_ends_our_claim_and_says_whose_it_is():
    cluster, store = drained("ADMIN swap"), Memory(HELD)
    done = release(cluster, store)
    assert said(done) == ("gone", None)
    assert done.detail == "foreign: drained by root: ADMIN swap"
    assert cluster.writes == []
    assert store.owned is None


@pytest.mark.parametrize(
    "record", [None, msgspec.structs.replace(HELD, id="bbbbbb"), msgspec.structs.replace(HELD, reason="x")]
)
def test_without_its_record_in_the_store_a_drain_is_an_orphan_and_stays(record):
    cluster, store = drained(), Memory(record)
    done = release(cluster, store)
    assert said(done) == ("blocked", BlockCode.FOREIGN_DRAIN)
    assert "ibmon release" in done.detail
    assert cluster.writes == []
    assert store.owned == record


@pytest.mark.parametrize("flag", ["MAINT", "REBOOT_REQUESTED", "POWERING_UP", "DOWN", "NOT_RESPONDING", "CLOUD"])
def test_our_drain_stays_while_the_state_forbids_to_touch_it(flag):
    cluster, store = drained(flags=("IDLE", "DRAIN", flag)), Memory(HELD)
    done = release(cluster, store)
    assert said(done) == ("blocked", BlockCode.SCHEDULER_STATE)
    assert flag in done.detail
    assert store.owned == HELD


def test_a_release_that_failed_but_was_carried_out_is_gone():
    cluster, store = drained(), Memory(HELD)

    def late(c):
        raise TIMEOUT

    cluster.behind["undrain"] = late
    assert said(release(cluster, store)) == ("gone", None)
    assert store.owned is None


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ({"undrain": [TIMEOUT]}, ("failed", BlockCode.SCHEDULER_UNREACHABLE)),
        ({"undrain": ["lost"]}, ("failed", BlockCode.SCHEDULER_UNREACHABLE)),
        ({"undrain": [REFUSED]}, ("blocked", BlockCode.FORBIDDEN)),
        ({"read_node": [TIMEOUT]}, ("failed", BlockCode.SCHEDULER_UNREACHABLE)),
        ({"read_node": [None, TIMEOUT]}, ("failed", BlockCode.SCHEDULER_UNREACHABLE)),
        ({"read_node": [REFUSED]}, ("failed", BlockCode.FORBIDDEN)),
    ],
)
def test_a_release_that_is_not_known_to_be_done_keeps_its_record(faults, expected):
    cluster, store = drained(), Memory(HELD)
    cluster.faults = {call: list(row) for call, row in faults.items()}
    assert said(release(cluster, store)) == expected
    assert msgspec.structs.replace(store.owned, held=True) == HELD


def test_a_record_of_a_drain_that_may_still_arrive_is_kept_for_a_while():
    cluster, store = Cluster(), Memory(ASKED)
    assert said(release(cluster, store, owned=ASKED)) == ("failed", None)
    assert store.owned == ASKED
    later = Now(0.0, ASKED.asked + reconcile.LATE)
    done = release(cluster, store, owned=ASKED, now=later)
    assert (said(done), done.open) == (("gone", None), True)
    assert store.owned == ASKED
    done = release(cluster, store, owned=ASKED, now=Now(0.0, ASKED.asked + reconcile.NEVER))
    assert (said(done), done.open) == (("gone", None), False)
    assert store.owned is None


def test_a_record_that_cannot_be_removed_does_no_harm():
    cluster, store = drained(), Memory(HELD, broken=True)
    done = release(cluster, store)
    assert done.outcome == "gone"
    assert "not saved" in done.detail
    cluster.flags, cluster.reason = {"IDLE", "DRAIN"}, "ADMIN"
    assert release(cluster, store).outcome == "gone"
    assert cluster.writes == ["undrain"]


def test_an_older_drain_that_we_no_longer_mean_does_not_cost_the_record_of_the_one_that_stands():
    cluster, store = drained(), Memory(HELD)
    old = Ownership("0a0a0a", "ibmon: x [id 0a0a0a]", 1.0, held=True)
    done = release(cluster, store, owned=old)
    assert done.outcome == "gone"
    assert store.owned == HELD
    assert cluster.writes == []


# ------------------------------------------------------------------------------------------------- stop file


def test_the_stop_file_stands_when_it_is_there_or_cannot_be_looked_for(tmp_path):
    stop = tmp_path / "STOP"
    assert not reconcile.stop_file_present(str(stop))
    assert not reconcile.stop_file_present(str(tmp_path / "absent" / "STOP"))
    stop.touch()
    assert reconcile.stop_file_present(str(stop))
    assert not reconcile.stop_file_present(str(stop / "below-a-file"))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert reconcile.stop_file_present(str(loop))
